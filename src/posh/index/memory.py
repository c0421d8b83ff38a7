"""How much memory an index takes, before it has documents."""

from __future__ import annotations

from posh import _validate
from posh._bitsliced import MAX_DOCS, stride_words
from posh.hashers.base import DenseHasher
from posh.index.snapshot import IndexSnapshot
from posh.index.stored import bytes_per_number

__all__ = ["estimated"]

_ID = 9  # bytes: an id, and whether the document is live
_GROUP = 256  # documents for which a block has room at a time


def estimated(snapshot: IndexSnapshot, n: int, n_features: int | None) -> int:
    """Bytes that ``n`` documents will take in an index like this one, see ``Index.estimate_memory``."""
    hasher, options = snapshot.hasher, snapshot.options
    n, known = _validate.integer("n", n, 0), getattr(hasher, "n_features_in_", n_features)
    if known is None:
        raise ValueError("expected n_features, since the index has no documents yet, got None")
    n_features = _validate.integer("n_features", known, 1)
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
