"""The plan of a measurement: settings and rounds."""

from __future__ import annotations

from dataclasses import dataclass

from posh_reproduction.ann.measure import Setting

__all__ = ["QUICK_BASE", "Plan"]

QUICK_BASE = 20_000  # vectors of a quick run


@dataclass(frozen=True)
class Plan:
    """The sizes of batches, threads and results per query, and the rounds.

    ``choosing`` rounds try parameters on the first half of the queries, ``reporting`` rounds measure the
    chosen ones on the second half. The best time of the rounds counts. The first size of batches tries all
    parameters, the others only those that did well there.
    """

    batches: tuple[int, ...] = (1, 1000)
    threads: tuple[int, ...] = (1,)
    depths: tuple[int, ...] = (10, 100)
    choosing: int = 2
    reporting: int = 3

    @classmethod
    def quick(cls) -> Plan:
        """A plan that takes a minute or two on 20,000 vectors."""
        return cls(depths=(10,), choosing=1, reporting=2)

    @property
    def settings(self) -> list[Setting]:
        """The settings to report: all on one thread, the largest batches on all numbers of threads.

        >>> Plan(batches=(1, 1000), threads=(1, 2), depths=(10,)).settings
        [Setting(k=10, batch=1, threads=1), Setting(k=10, batch=1000, threads=1), \
Setting(k=10, batch=1000, threads=2)]
        """
        return [
            Setting(k, batch, n)
            for k in self.depths
            for n in self.threads
            for batch in self.batches
            if n == 1 or batch == max(self.batches)
        ]

    @staticmethod
    def chosen_in(setting: Setting) -> Setting:
        """The setting in which the parameters of another one are chosen: on one thread, else the same."""
        return setting._replace(threads=1)
