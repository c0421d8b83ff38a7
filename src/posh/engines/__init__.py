"""Collections on other databases: implementations of :class:`posh.collection.base.BaseCollection`."""
