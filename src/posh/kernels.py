"""The typed door to the native module: list, name and force an implementation.

Every implementation gives identical results; ``scalar`` is the specification. The fastest one that
this CPU can run is used unless the environment variable ``POSH_KERNEL`` or :func:`use` names another.

>>> import posh.kernels
>>> "scalar" in posh.kernels.available()
True
"""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt

from posh import _native

__all__ = ["active", "available", "use", "winners"]

MAX_BITS = 65_536
"""The longest code: bit numbers are stored as uint16."""

_chosen: str | None = None


def available() -> tuple[str, ...]:
    """Names of the implementations that this CPU can run, slowest first."""
    return tuple(_native.kernel_names())


def active() -> str:
    """Name of the implementation in use.

    >>> import posh.kernels
    >>> posh.kernels.active() in posh.kernels.available()
    True
    """
    if _chosen is None:
        use(os.environ.get("POSH_KERNEL") or None)
    assert _chosen is not None
    return _chosen


def use(name: str | None) -> None:
    """Force the implementation ``name`` from now on; ``None`` returns to the fastest.

    >>> import posh.kernels
    >>> posh.kernels.use("scalar"); posh.kernels.active()
    'scalar'
    >>> posh.kernels.use(None)
    """
    global _chosen
    names = available()
    if name is not None and name not in names:
        raise ValueError(f"expected a kernel among {', '.join(names)} (what this CPU can run), got {name!r}")
    _chosen = name or names[-1]


def winners(
    scores: npt.NDArray[np.float32], n_active: int, out: npt.NDArray[np.uint16] | None = None
) -> npt.NDArray[np.uint16]:
    """Winner-take-all (the paper's eq. 2): the ``n_active`` largest scores of each row.

    ``scores`` is float32 (n, n_bits), C-contiguous; the result is uint16 (n, n_active), ascending in
    each row. Equal scores: the lower bit wins; NaN loses to everything.

    >>> import numpy as np, posh.kernels
    >>> posh.kernels.winners(np.float32([[0.1, 0.7, 0.5, 0.7]]), 2)
    array([[1, 3]], dtype=uint16)
    """
    if scores.dtype != np.float32 or scores.ndim != 2 or not scores.flags.c_contiguous:
        raise ValueError(
            f"expected C-contiguous float32 scores (n, n_bits), got {scores.dtype} {scores.shape}"
        )
    if not 1 <= n_active <= scores.shape[1] <= MAX_BITS:
        raise ValueError(f"expected n_active between 1 and {scores.shape[1]} (the columns), got {n_active}")
    if out is None:
        out = np.empty((len(scores), n_active), np.uint16)
    elif out.shape != (len(scores), n_active):
        raise ValueError(f"expected out of shape {(len(scores), n_active)}, got {out.shape}")
    _native.winners(scores, out, active())
    return out
