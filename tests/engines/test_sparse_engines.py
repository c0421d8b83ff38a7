"""Codes in engines that people run already: the scores are those of our own search.

``docs/scaling.md`` has these recipes.
"""

from __future__ import annotations

import numpy as np
import pytest

import posh

DIGITS = posh.datasets.load("digits")
K = 10


@pytest.fixture(scope="module")
def codes():
    hasher = posh.POSH(256, 16, n_epochs=5, random_state=0).fit(DIGITS.base)
    return hasher.encode(DIGITS.base), hasher.encode(DIGITS.queries[:50])


@pytest.fixture(scope="module")
def overlaps(codes):
    """Shared bits of each query and each document."""
    documents, queries = codes
    return queries.overlap(documents)


def check(found: list[list[tuple[int, float]]], overlaps: np.ndarray) -> None:
    """The scores are the overlaps of what was found, and no other document has a higher one."""
    assert len(found) == len(overlaps)
    for hits, row in zip(found, overlaps, strict=True):
        assert [score for _, score in hits] == [row[number] for number, _ in hits]
        assert [score for _, score in hits] == np.sort(row)[::-1][:K].tolist()


def test_tantivy(codes, overlaps):
    tantivy = pytest.importorskip("tantivy", reason="the engine is not installed: pip install tantivy")
    documents, queries = codes
    builder = tantivy.SchemaBuilder()
    builder.add_integer_field("id", stored=True)
    builder.add_unsigned_field("bit", indexed=True)
    schema = builder.build()
    index = tantivy.Index(schema)
    writer = index.writer()
    for number, bits in enumerate(documents.active.tolist()):
        document = tantivy.Document(id=number)
        for bit in bits:
            document.add_unsigned("bit", bit)
        writer.add_document(document)
    writer.commit()
    index.reload()
    searcher = index.searcher()

    def search(bits: list[int]) -> list[tuple[int, float]]:
        terms = [
            tantivy.Query.const_score_query(tantivy.Query.term_query(schema, "bit", bit), 1.0) for bit in bits
        ]
        query = tantivy.Query.boolean_query([(tantivy.Occur.Should, term) for term in terms])
        return [(searcher.doc(place)["id"][0], score) for score, place in searcher.search(query, K).hits]

    check([search(bits) for bits in queries.active.tolist()], overlaps)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_qdrant(codes, overlaps):
    qdrant = pytest.importorskip(
        "qdrant_client", reason="the engine is not installed: pip install qdrant-client"
    )
    from qdrant_client import models

    documents, queries = codes
    client = qdrant.QdrantClient(":memory:")
    client.create_collection("codes", sparse_vectors_config={"code": models.SparseVectorParams()})

    def sparse(bits: list[int]) -> object:
        return models.SparseVector(indices=bits, values=[1.0] * len(bits))

    client.upsert(
        "codes",
        [
            models.PointStruct(id=number, vector={"code": sparse(bits)})
            for number, bits in enumerate(documents.active.tolist())
        ],
    )
    found = []
    for bits in queries.active.tolist():
        points = client.query_points("codes", query=sparse(bits), using="code", limit=K).points
        found.append([(point.id, point.score) for point in points])
    client.close()
    check(found, overlaps)
