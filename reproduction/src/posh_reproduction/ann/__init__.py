"""The comparison with the field: recall against queries per second, each at its best parameters."""
