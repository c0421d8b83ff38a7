"""Typed access to the native kernels: list their implementations, choose one, call them.

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
    """Return the names of the implementations that this CPU can run, slowest first."""
    return tuple(_native.kernel_names())


def active() -> str:
    """Return the name of the implementation in use.

    >>> import posh.kernels
    >>> posh.kernels.active() in posh.kernels.available()
    True
    """
    if _chosen is None:
        use(os.environ.get("POSH_KERNEL") or None)
    assert _chosen is not None
    return _chosen


def use(name: str | None) -> None:
    """Use the implementation ``name`` from now on; ``None`` selects the fastest.

    >>> import posh.kernels
    >>> posh.kernels.use("scalar"); posh.kernels.active()
    'scalar'
    >>> posh.kernels.use(None)
    """
    global _chosen
    names = available()
    if name is not None and name not in names:
        raise ValueError(f"expected a kernel that this CPU can run ({', '.join(names)}), got {name!r}")
    _chosen = name or names[-1]


def winners(
    scores: npt.NDArray[np.float32], n_active: int, out: npt.NDArray[np.uint16] | None = None
) -> npt.NDArray[np.uint16]:
    """Return the ``n_active`` largest scores of each row: winner-take-all (the paper's eq. 2).

    ``scores`` is float32 (n, n_bits), C-contiguous; the result is uint16 (n, n_active), ascending in
    each row. The lower bit wins a tie; NaN loses to everything.

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


def hadamard_project(
    vectors: npt.NDArray[np.float32], signs: npt.NDArray[np.float32], out: npt.NDArray[np.float32]
) -> npt.NDArray[np.float32]:
    """Write the Walsh-Hadamard transforms of vectors (n, d) times each row of signs (r, d) to ``out``.

    ``out`` is float32 (n, n_bits), and is returned. The r transforms of a vector are concatenated; the size
    of each, n_bits / r, is a power of two. Columns beyond this size are added to the first ones.

    >>> import numpy as np, posh.kernels
    >>> signs = np.float32([[1, 1], [1, -1]])
    >>> posh.kernels.hadamard_project(np.float32([[2, 3]]), signs, np.empty((1, 4), np.float32))
    array([[ 5., -1., -1.,  5.]], dtype=float32)
    """
    _native.hadamard_project(vectors, signs, out, active())
    return out


def table_topk(
    codes: npt.NDArray[np.uint16],
    tables: npt.NDArray[np.float32],
    k: int,
    *,
    penalty: npt.NDArray[np.float32] | None = None,
    passing: npt.NDArray[np.uint64] | None = None,
    n_threads: int = 1,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Find the k codes with the largest sums of each query's table over their set bits.

    ``codes`` is uint16 (n, n_active), ``tables`` float32 (m, n_bits), ``penalty`` float32 (n,) is subtracted
    from the sums, ``passing`` is a bitmap of the codes that may be returned. Returns slots and scores,
    (m, k), best first, then the lower slot; -1 and -inf where there are fewer than k codes.

    >>> import numpy as np, posh.kernels
    >>> codes = np.array([[0, 2], [1, 2]], np.uint16)
    >>> posh.kernels.table_topk(codes, np.float32([[1, 5, 2]]), k=1)
    (array([[1]]), array([[7.]], dtype=float32))
    """
    ids, scores = np.empty((len(tables), k), np.int64), np.empty((len(tables), k), np.float32)
    _native.table_topk(codes, tables, penalty, passing, ids, scores, n_threads, active())
    return ids, scores


def table_scores(
    codes: npt.NDArray[np.uint16],
    tables: npt.NDArray[np.float32],
    slots: npt.NDArray[np.int64],
    *,
    penalty: npt.NDArray[np.float32] | None = None,
    n_threads: int = 1,
) -> npt.NDArray[np.float32]:
    """Return scores as :func:`table_topk` does, of the codes ``slots``, int64 (m, c); -1 gives -inf.

    >>> import numpy as np, posh.kernels
    >>> codes = np.array([[0, 2], [1, 2]], np.uint16)
    >>> posh.kernels.table_scores(codes, np.float32([[1, 5, 2]]), np.array([[1, 0, -1]]))
    array([[  7.,   3., -inf]], dtype=float32)
    """
    scores = np.empty(slots.shape, np.float32)
    _native.table_scores(codes, tables, penalty, slots, scores, n_threads)
    return scores


def best_candidates(
    slots: npt.NDArray[np.int64], scores: npt.NDArray[np.float32], k: int, *, n_threads: int = 1
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Choose the k candidates (m, c) with the highest scores, best first, then the lower slot.

    A slot of -1 is not a candidate. Returns slots and scores, (m, k); -1 and -inf if there are fewer than k.

    >>> import numpy as np, posh.kernels
    >>> posh.kernels.best_candidates(np.array([[7, 4, -1]]), np.float32([[1, 1, 9]]), k=2)
    (array([[4, 7]]), array([[1., 1.]], dtype=float32))
    """
    best, chosen = np.empty((len(slots), k), np.int64), np.empty((len(slots), k), np.float32)
    _native.best_candidates(slots, scores, best, chosen, n_threads)
    return best, chosen


def hamming_topk(
    codes: npt.NDArray[np.uint8],
    queries: npt.NDArray[np.uint8],
    n_bits: int,
    k: int,
    *,
    passing: npt.NDArray[np.uint64] | None = None,
    n_threads: int = 1,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """Find the k packed codes, uint8 (n, n_bytes), with the most bits equal to each query's (m, n_bytes).

    Returns slots and numbers of equal bits, (m, k), best first, then the lower slot; -1 where there are
    fewer than k codes.

    >>> import numpy as np, posh.kernels
    >>> posh.kernels.hamming_topk(np.uint8([[1], [3]]), np.uint8([[3]]), n_bits=4, k=2)
    (array([[1, 0]]), array([[4, 3]], dtype=int32))
    """
    ids, scores = np.empty((len(queries), k), np.int64), np.empty((len(queries), k), np.int32)
    _native.hamming_topk(codes, queries, n_bits, passing, ids, scores, n_threads, active())
    return ids, scores
