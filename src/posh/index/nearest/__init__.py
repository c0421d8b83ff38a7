"""``posh.Index``: the nearest vectors by a metric, with a recall that is measured."""
