"""The experiments of the paper: spec → run (resumable) → raw results.

>>> from posh.experiments import SPECS
>>> SPECS["table-2"].title
'MAP@100 of POSH with candidate refinement'
"""

from posh.experiments.catalogue import SPECS
from posh.experiments.data import missing_files
from posh.experiments.kinds import KINDS, cost_minutes
from posh.experiments.outcome import Outcome
from posh.experiments.records import Record, Records
from posh.experiments.runner import remaining, run
from posh.experiments.spec import Spec, Unit, key

__all__ = ["KINDS", "SPECS", "Outcome", "Record", "Records", "Spec", "Unit"]
__all__ += ["cost_minutes", "key", "missing_files", "remaining", "run"]
