"""The plan of a measurement: settings and rounds."""

from __future__ import annotations

from dataclasses import dataclass, field

from posh._runtime import resolve_threads
from posh_reproduction.ann.measure import Setting

__all__ = ["QUICK_BASE", "Plan"]

QUICK_BASE = 20_000  # vectors of a quick run
_WHOLE = 1000  # queries of a half: the batch with which all parameters are tried


@dataclass(frozen=True)
class Plan:
    """The sizes of batches, threads and results per query, and the rounds.

    ``choosing`` rounds try parameters on the first half of the queries, ``reporting`` rounds measure the
    chosen ones on the second half. The best time of the rounds counts.
    """

    batches: tuple[int, ...] = (1000, 100, 10, 1)
    threads: tuple[int, ...] = field(default_factory=lambda: tuple(range(1, min(2, resolve_threads()) + 1)))
    depths: tuple[int, ...] = (10, 100)
    choosing: int = 2
    reporting: int = 5

    @classmethod
    def quick(cls) -> Plan:
        """A plan that takes a minute or two on 20,000 vectors."""
        return cls(batches=(1000, 1), threads=(1,), depths=(10,), choosing=1, reporting=2)

    @property
    def tried(self) -> list[Setting]:
        """The settings in which all parameters are tried: large batches on one thread."""
        return [Setting(k, _WHOLE, 1) for k in self.depths]

    @property
    def narrowed(self) -> list[Setting]:
        """The settings in which those are tried that did well in a large batch: smaller ones."""
        return [Setting(self.depths[0], batch, 1) for batch in self.batches if batch != _WHOLE]

    @property
    def settings(self) -> list[Setting]:
        """The settings to report: small batches on one thread, large ones on all numbers of threads.

        >>> Plan(batches=(1000, 1), threads=(1,), depths=(10, 100)).settings
        [Setting(k=10, batch=1000, threads=1), Setting(k=10, batch=1, threads=1), \
Setting(k=100, batch=1000, threads=1)]
        """
        first = [
            Setting(self.depths[0], batch, n)
            for n in self.threads
            for batch in self.batches
            if n == 1 or batch == _WHOLE
        ]
        return first + [Setting(k, _WHOLE, 1) for k in self.depths[1:]]

    @staticmethod
    def chosen_in(setting: Setting) -> Setting:
        """The setting in which the parameters of another one are chosen: on one thread, else the same."""
        return setting._replace(threads=1)
