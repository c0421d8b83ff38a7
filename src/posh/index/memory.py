"""How much memory an index takes, before it has documents."""

from __future__ import annotations

from posh._bitsliced import MAX_DOCS, stride_words
from posh.hashers.base import DenseHasher
from posh.index.snapshot import IndexSnapshot
from posh.index.stored import bytes_per_number

__all__ = ["estimated"]

_ID = 9  # bytes: an id, and whether the document is live
_GROUP = 256  # documents for which a block has room at a time


def estimated(snapshot: IndexSnapshot, n: int, n_features: int) -> int:
    """Bytes that ``n`` documents of ``n_features`` columns will take in an index like this one."""
    hasher, options = snapshot.hasher, snapshot.options
    if options.metric is not None:
        n_lists = snapshot.n_lists_for(n)
        with_room = max(n + n_lists * _GROUP // 2, n_lists * _GROUP)  # half of the last group is empty
        columns = -(-n_features // 64) * 64  # at most: of wide vectors, fewer numbers are kept
        in_blocks = with_room * (hasher.n_bits // 8 + 1 / 8) + n * (columns + 12)
        return int(in_blocks) + n * (_ID + n_features * bytes_per_number(options.store))
    rows = 4 * snapshot.refiner_row_width
    if isinstance(hasher, DenseHasher):
        return n * (-(-hasher.n_bits // 8) + _ID + rows)
    whole, rest = divmod(n, MAX_DOCS)
    words = whole * stride_words(MAX_DOCS) + (stride_words(rest) if rest else 0)
    return 8 * hasher.n_bits * words + n * (2 * (options.document_active or 0) + _ID + rows)
