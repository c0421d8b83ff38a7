"""``posh bench filters``: recall and queries per second of searches with a filter."""
