"""The experiments of the paper: spec → run (resumable) → raw results.

>>> from posh_reproduction.experiments import SPECS
>>> SPECS["table-2"].title
'MAP@100 of POSH with candidate refinement'
"""

from posh_reproduction.experiments.catalogue import SPECS
from posh_reproduction.experiments.data import missing_files
from posh_reproduction.experiments.kinds import KINDS, cost_minutes
from posh_reproduction.experiments.outcomes import Outcome
from posh_reproduction.experiments.records import Record, Records
from posh_reproduction.experiments.runner import remaining, run
from posh_reproduction.experiments.spec import Spec, Unit, key

__all__ = ["KINDS", "SPECS", "Outcome", "Record", "Records", "Spec", "Unit"]
__all__ += ["cost_minutes", "key", "missing_files", "remaining", "run"]
