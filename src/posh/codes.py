"""Binary codes, which hashers produce and indexes search.

``Codes`` are sparse: exactly ``n_active`` of ``n_bits`` bits are set, and their numbers are stored.
``PackedCodes`` are dense: every bit is stored, eight to a byte. Both are immutable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from posh._validate import validate_code_shape, validate_n_bits

__all__ = ["Codes", "PackedCodes"]


@dataclass(frozen=True, eq=False, repr=False)
class Codes:
    """Sparse binary codes with the same number of set bits in each.

    ``active`` is (n, n_active), the numbers of the set bits, ascending in each row; any integer array
    is accepted and stored as read-only uint16. ``n_bits`` is the length of each code.

    >>> import posh
    >>> codes = posh.Codes([[0, 2], [1, 2]], n_bits=4)
    >>> codes
    Codes(n=2, n_active=2, n_bits=4)
    >>> codes.overlap(codes)
    array([[2, 1],
           [1, 2]], dtype=int32)
    """

    active: npt.NDArray[np.uint16]
    n_bits: int

    def __post_init__(self) -> None:
        active = np.asarray(self.active)
        if active.ndim != 2 or active.dtype.kind not in "ui":
            raise ValueError(
                f"expected active bits as an integer array (n, n_active), got {active.dtype} {active.shape}"
            )
        n_bits, _ = validate_code_shape(self.n_bits, active.shape[1])
        if active.size and (active.min() < 0 or active.max() >= n_bits):
            raise ValueError(f"expected bit numbers in 0..{n_bits - 1}, got {active.min()}..{active.max()}")
        if not (active[:, 1:] > active[:, :-1]).all():
            raise ValueError("expected ascending, distinct bit numbers in each row: sort them first")
        _freeze(self, active=np.array(active, np.uint16, order="C"), n_bits=n_bits)

    @classmethod
    def wrap(cls, active: npt.NDArray[np.uint16], n_bits: int) -> Codes:
        """Wrap a valid array without validating or copying it."""
        codes = object.__new__(cls)
        _freeze(codes, active=active.view(), n_bits=n_bits)
        return codes

    def __reduce__(self) -> tuple[Any, ...]:
        return Codes, (self.active, self.n_bits)

    @property
    def n_active(self) -> int:
        """Number of set bits in each code."""
        return int(self.active.shape[1])

    def __len__(self) -> int:
        return len(self.active)

    def __getitem__(self, rows: Any) -> Codes:
        """Select rows by number, slice, mask or index array."""
        return Codes.wrap(_select(self.active, rows), self.n_bits)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Codes):
            return NotImplemented
        return self.n_bits == other.n_bits and np.array_equal(self.active, other.active)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Codes(n={len(self)}, n_active={self.n_active}, n_bits={self.n_bits})"

    def to_csr(self) -> sp.csr_array:
        """Return a SciPy CSR array (n, n_bits) of float32 ones, for scikit-learn and for products."""
        n, n_active = self.active.shape
        index = np.int32 if n * n_active < 2**31 else np.int64  # parts of scikit-learn accept only 32 bits
        indptr = np.arange(0, n * n_active + 1, n_active, dtype=index)
        ones = np.ones(n * n_active, np.float32)
        return sp.csr_array((ones, self.active.ravel().astype(index), indptr), shape=(n, self.n_bits))

    def to_dense(self, dtype: npt.DTypeLike = np.uint8) -> npt.NDArray[Any]:
        """Return zeros and ones, (n, n_bits)."""
        dense = np.zeros((len(self), self.n_bits), dtype)
        np.put_along_axis(dense, self.active.astype(np.int64), 1, axis=1)
        return dense

    def to_packed(self) -> PackedCodes:
        """Return the same bits, eight to a byte."""
        return PackedCodes.from_dense(self.to_dense())

    def overlap(self, other: Codes) -> npt.NDArray[np.int32]:
        """Return the number of shared set bits of every pair, int32 (len(self), len(other)).

        The Hamming distance of two sparse codes is 2 n_active - 2 overlap (the paper's eq. 3).
        """
        if self.n_bits != other.n_bits:
            raise ValueError(f"expected codes of {self.n_bits} bits, got {other.n_bits}")
        shared = self.to_csr() @ other.to_dense(np.float32).T
        return np.asarray(shared, np.int32)


@dataclass(frozen=True, eq=False, repr=False)
class PackedCodes:
    """Dense binary codes, eight bits to a byte: bit ``j`` is bit ``j % 8`` of byte ``j // 8``.

    ``bits`` is uint8 (n, ceil(n_bits / 8)); unused bits of the last byte are zero.

    >>> import posh
    >>> posh.PackedCodes.from_dense([[1, 0, 0, 1]]).bits
    array([[9]], dtype=uint8)
    """

    bits: npt.NDArray[np.uint8]
    n_bits: int

    def __post_init__(self) -> None:
        bits = np.asarray(self.bits)
        n_bits = validate_n_bits(self.n_bits, low=1)
        if bits.dtype != np.uint8 or bits.ndim != 2 or bits.shape[1] != -(-n_bits // 8):
            expected = f"{n_bits} bits packed as uint8 (n, {-(-n_bits // 8)})"
            raise ValueError(f"expected {expected}, got {bits.dtype} {bits.shape}")
        if n_bits % 8 and (bits[:, -1] >> (n_bits % 8)).any():
            raise ValueError(f"expected zeros after bit {n_bits - 1} in the last byte, found set bits")
        _freeze(self, bits=np.array(bits, order="C"), n_bits=n_bits)

    @classmethod
    def wrap(cls, bits: npt.NDArray[np.uint8], n_bits: int) -> PackedCodes:
        """Wrap a valid array without validating or copying it."""
        codes = object.__new__(cls)
        _freeze(codes, bits=bits.view(), n_bits=n_bits)
        return codes

    def __reduce__(self) -> tuple[Any, ...]:
        return PackedCodes, (self.bits, self.n_bits)

    @classmethod
    def from_dense(cls, dense: npt.ArrayLike) -> PackedCodes:
        """Pack an array (n, n_bits) whose non-zero entries are the set bits."""
        dense = np.asarray(dense)
        if dense.ndim != 2:
            raise ValueError(f"expected zeros and ones as an array (n, n_bits), got shape {dense.shape}")
        return cls(np.packbits(dense != 0, axis=1, bitorder="little"), dense.shape[1])

    def __len__(self) -> int:
        return len(self.bits)

    def __getitem__(self, rows: Any) -> PackedCodes:
        """Select rows by number, slice, mask or index array."""
        return PackedCodes.wrap(_select(self.bits, rows), self.n_bits)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PackedCodes):
            return NotImplemented
        return self.n_bits == other.n_bits and np.array_equal(self.bits, other.bits)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"PackedCodes(n={len(self)}, n_bits={self.n_bits})"

    def to_dense(self, dtype: npt.DTypeLike = np.uint8) -> npt.NDArray[Any]:
        """Return zeros and ones, (n, n_bits)."""
        dense = np.unpackbits(self.bits, axis=1, count=self.n_bits, bitorder="little")
        return dense.astype(dtype, copy=False)

    def hamming(self, other: PackedCodes) -> npt.NDArray[np.int32]:
        """Return the number of differing bits of every pair, int32 (len(self), len(other))."""
        if self.n_bits != other.n_bits:
            raise ValueError(f"expected codes of {self.n_bits} bits, got {other.n_bits}")
        a, b = (1.0 - 2.0 * codes.to_dense(np.float32) for codes in (self, other))
        return np.asarray((self.n_bits - a @ b.T) / 2, np.int32)


def _freeze(codes: Codes | PackedCodes, **fields: Any) -> None:
    for name, value in fields.items():
        if isinstance(value, np.ndarray):
            value.flags.writeable = False
        object.__setattr__(codes, name, value)


def _select(array: npt.NDArray[Any], rows: Any) -> npt.NDArray[Any]:
    if isinstance(rows, tuple):
        raise TypeError(f"expected rows (a number, slice, mask or index array), got {rows!r}")
    return np.ascontiguousarray(np.atleast_2d(array[rows]))
