"""What every benchmark prints about where it ran, and how it measures: the same as ``posh bench``."""

from posh.bench import environment, seconds

__all__ = ["environment", "seconds"]
