"""What one request may ask for, and what a collection may be called."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Limits"]


@dataclass(frozen=True)
class Limits:
    """Bounds that keep one client from taking the whole machine; all of them are in the OpenAPI description.

    >>> Limits(k=100).k
    100
    """

    body_bytes: int = 48 << 20
    """Bytes of a request."""
    body_values: int = 1_000_000
    """Values in the JSON of a large request, counted by its commas and brackets; packed vectors are one."""
    metadata_bytes: int = 64 << 10
    """Bytes of a request that creates a collection, sets its metadata or fits a hasher."""
    filter_bytes: int = 64 << 10
    """Bytes of a filter as JSON; of a request that counts or browses, all bytes."""
    filter_seconds: float = 10.0
    """Time to look up a filter."""
    payload_bytes: int = 1 << 20
    """Bytes of the payload of one item, as JSON."""
    answer_bytes: int = 32 << 20
    """Bytes of payloads, vectors and codes in an answer."""
    bytes_in_work: int = 144 << 20
    """Bytes of all requests that are being received, or wait for ``work_bytes``."""
    work_bytes: int = 512 << 20
    """Memory for all requests in work, half of it for parsed ones and half for answers in the making."""
    answers_in_work: int = 128 << 20
    """Bytes of all answers that are being sent, those of at most 32 KB left out."""
    head_seconds: float = 4.0
    """Time in which the header lines of a request must arrive; an idle connection is closed after it."""
    body_seconds: float = 60.0
    """Time in which the body of a request must arrive."""
    answer_seconds: float = 30.0
    """Time in which a client must take the next part of an answer, of 32 KB and the system's buffers."""
    head_bytes: int = 64 << 10
    """Bytes of the header lines of a request, at least 8,192."""
    connections: int = 1_000
    """Connections at once; further ones wait until another is closed."""
    items: int = 10_000
    """Items in one upsert, delete or get."""
    page: int = 20_000
    """Items on one page, which may be shorter to keep within ``answer_bytes``."""
    queries: int = 1_000
    """Queries in one search."""
    k: int = 1_000
    """Hits of one query."""
    hits: int = 100_000
    """Hits of one search: queries times k."""
    oversample: float = 100.0
    """Candidates per hit."""
    n_probe: int = 1_000
    """Lists that one query visits."""
    n_features: int = 8_192
    """Columns of a vector."""
    n_bits: int = 16_384
    """Bits of a code of a hasher that is fitted here."""
    work: int = 20_000_000_000
    """Operations to refine the candidates of one search; a core does about 5,000,000,000 per second."""
    fit_bytes: int = 900_000_000
    """Memory for all fits at once, as estimated before they begin."""
    fit_operations: int = 3_000_000_000_000
    """Operations of one fit, as estimated before it begins: about ten minutes."""
    sample: int = 20_000
    """Vectors in a sample."""
    fields: int = 1_000
    """Items whose payloads are looked at to tell which fields there are."""
    map: int = 2_000
    """Items on a map; fewer if their vectors would take more than 32 MB."""
    collections: int = 1_000
    """Collections in the folder."""
    requests: int = 500
    """Requests to one collection at once."""
    all_requests: int = 900
    """Requests to all collections at once: fewer than connections, so that others are answered."""
    waiting: int = 4_096
    """Queries that wait for a collection."""
    seconds: float = 30.0
    """Time that a request may wait for its turn, and then for its work."""
    batch: int = 1_024
    """Queries that are searched in one go."""
