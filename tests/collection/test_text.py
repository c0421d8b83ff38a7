"""Search by text: rankings equal to plain Python, and an index that stays in step with the items."""

from __future__ import annotations

import math
import re
import sqlite3
import tempfile
import threading
from collections import Counter
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import posh
from posh.collection import snapshot, store, text, text_index
from posh.collection.filters import parse, passes
from posh.collection.maintenance import check_collection
from posh.collection.opening import DATABASE
from tests.collection import strategies
from tests.collection.implementations import DATA, SPARSE
from tests.conftest import CASES
from tests.leftovers import files_with

WORDS = ["red", "wool", "scarf", "blue", "hat", "merino", "cotton"]
QUERIES = ["red wool", "scarf", "hat hat cotton missing", '"red wool"', "mer*", "blue", '"wool sc"*']
FIELDS = ["title", "tags"]


def make_payloads(n: int, seed: int = 0) -> list[dict[str, Any]]:
    """Payloads with words in a title and in a list of tags; some without any."""
    rng = np.random.default_rng(seed)
    return [
        {
            "title": " ".join(rng.choice(WORDS, rng.integers(0, 6))),
            "tags": rng.choice(WORDS, rng.integers(0, 3)).tolist(),
            "n": i % 4,
        }
        for i in range(n)
    ]


# The reference -----------------------------------------------------------------------------------------


def count_matches(document: list[list[str]], part: str) -> int:
    """Return how often a word, a phrase or a prefix is in the fields of a document."""
    words, is_prefix = re.findall(r"\w+", part), part.endswith("*")
    n = 0
    for field in document:
        for start in range(len(field) - len(words) + 1):
            found = field[start : start + len(words)]
            n += found[:-1] == words[:-1] and (
                found[-1].startswith(words[-1]) if is_prefix else found[-1] == words[-1]
            )
    return n


def plain_ranking(
    items: list[posh.Item], query: str, where: dict[str, Any] | None = None
) -> list[tuple[Any, float]]:
    """Return ids and bm25 of the items that match, best first; of equal ones, the one written first."""
    documents = [
        ["\n".join([item.payload["title"]]).split(), "\n".join(item.payload["tags"]).split()]
        for item in items
    ]
    indexed = [document for document in documents if any(document)]
    lengths = [sum(map(len, document)) for document in indexed]
    totals = np.zeros(len(items))
    for part in dict.fromkeys(re.findall(r'"[^"]*"\*?|\S+', query)):
        counts = [count_matches(document, part) for document in documents]
        n_with = sum(count > 0 for count in counts)
        idf = math.log((len(indexed) - n_with + 0.5) / (n_with + 0.5))
        idf = idf if idf > 0 else 1e-6
        for i, (document, count) in enumerate(zip(documents, counts, strict=True)):
            if count:
                length = sum(map(len, document)) / (sum(lengths) / len(lengths))
                totals[i] += idf * count * 2.2 / (count + 1.2 * (0.25 + 0.75 * length))
    tree = None if where is None else parse(where).tree
    order = sorted(range(len(items)), key=lambda i: (-round(totals[i], 9), i))
    return [
        (items[i].id, totals[i])
        for i in order
        if totals[i] and (tree is None or passes(tree, items[i].payload))
    ]


def plain_fusion(
    first: list[Any], second: list[Any], order: list[Any], constant=60.0, weights=(1.0, 1.0)
) -> list[tuple[Any, float]]:
    """Fuse two rankings of ids; ``order`` has all ids in the order of writing."""
    scores: Counter[Any] = Counter()
    for ranking, weight in zip((first, second), weights, strict=True):
        for place, item_id in enumerate(ranking, 1):
            scores[item_id] += weight / (constant + place)
    return sorted(scores.items(), key=lambda pair: (-pair[1], order.index(pair[0])))


def require_ranking(hits: posh.Hits, expected: list[tuple[Any, float]], k: int) -> None:
    found = [(hit.id, hit.score) for hit in hits[0]]
    assert [item_id for item_id, _ in found] == [item_id for item_id, _ in expected[:k]]
    np.testing.assert_allclose([score for _, score in found], [score for _, score in expected[:k]], rtol=1e-9)


def require_step(path: Path) -> None:
    """The text index has the words of the payloads, and nothing else."""
    with closing(sqlite3.connect(f"{(path / DATABASE).as_uri()}?mode=ro", uri=True)) as connection:
        options = text_index.read_options(connection)
        assert text_index.check(connection, options)[1] is None


@pytest.fixture
def shop(tmp_path):
    """An open collection of 200 items, some of them replaced and deleted."""
    with posh.create(tmp_path / "shop", metric="euclidean", text=FIELDS) as collection:
        collection.upsert(range(200), DATA[:200], make_payloads(200))
        collection.upsert(range(0, 60, 3), DATA[200:220], make_payloads(20, 1))
        collection.delete(range(0, 200, 7))
        yield collection


# Rankings ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", [None, {"n": 1}, {"n": {"in": [0, 2]}}, {"n": 9}], ids=str)
@pytest.mark.parametrize("query", QUERIES)
def test_text_alone_ranks_by_bm25(shop, query, where):
    items = list(shop.items())
    for k in (1, 10, 300):
        require_ranking(shop.search(text=query, k=k, filter=where), plain_ranking(items, query, where), k)
    assert shop.search(text=query).kind == "bm25"


@pytest.mark.parametrize("where", [None, {"n": 1}, {"n": 9}], ids=str)
@pytest.mark.parametrize(
    "fusion", [{}, {"constant": 5, "text": 3.0}, {"vectors": 0.5, "depth": 7}, {"depth": 1000}], ids=str
)
def test_fusion_equals_a_plain_one(shop, fusion, where):
    items, k = list(shop.items()), 12
    ids = [item.id for item in items]
    for row, query in enumerate([*QUERIES, "nothing of it", ""]):
        depth = max(k, fusion.get("depth", 100))
        by_vector = shop.search(DATA[row], depth, filter=where, exact=True)[0]
        by_text = plain_ranking(items, query, where)[:depth] if query else []
        expected = plain_fusion(
            [hit.id for hit in by_vector],
            [item_id for item_id, _ in by_text],
            ids,
            fusion.get("constant", 60.0),
            (fusion.get("vectors", 1.0), fusion.get("text", 1.0)),
        )
        hits = shop.search(DATA[row], k, text=query, fusion=fusion, filter=where, exact=True)
        require_ranking(hits, expected, k)
        scores, text_scores = {hit.id: hit.score for hit in by_vector}, dict(by_text)
        for hit in hits[0]:
            assert hit.vector_score == scores.get(hit.id)
            assert hit.text_score == pytest.approx(text_scores.get(hit.id))
    assert hits.kind == "rrf"


def test_several_queries_are_searched_one_by_one(shop):
    texts = ["red wool", {"fts5": "title : scarf NOT wool"}, "", "hat"]
    together = shop.search(DATA[:4], 5, text=texts, payloads=True)
    alone = shop.search(text=texts, k=5)
    for row, one in enumerate(texts):
        assert together[row] == shop.search(DATA[row], 5, text=one, payloads=True)[0]
        assert alone[row] == shop.search(text=one, k=5)[0]
    assert alone[2] == []


def test_items_come_with_the_hits(shop):
    hits = shop.search(DATA[3], 4, text="scarf", payloads=True, vectors=True)
    for hit in hits[0]:
        (item,) = shop.get([hit.id])
        assert hit.payload == item.payload
        np.testing.assert_array_equal(hit.vector, item.vector)
    table = hits.to_pandas()
    assert list(table.columns[:5]) == ["query", "id", "score", "vector_score", "text_score"]


def test_a_bound_of_scores_is_that_of_the_ranking(shop):
    hits = shop.search(DATA[3], 20, text="scarf")
    low = hits.scores[0, 4]
    fewer = shop.search(DATA[3], 20, text="scarf", min_score=low)
    assert fewer[0] == [hit for hit in hits[0] if hit.score >= low]
    assert np.isnan(fewer.text_scores[0, 5:]).all()
    bm25 = shop.search(text="scarf", k=20)
    assert shop.search(text="scarf", k=20, min_score=bm25.scores[0, 2])[0] == [
        hit for hit in bm25[0] if hit.score >= bm25.scores[0, 2]
    ]


def test_a_collection_with_a_hasher_and_one_without_an_index(tmp_path):
    with posh.create(tmp_path / "codes", SPARSE, text="title") as shop:
        shop.upsert(range(50), DATA[:50], make_payloads(50))
        assert shop.search(DATA[0], 3, text="red", scoring="asymmetric").kind == "rrf"
    with posh.create(tmp_path / "none", text="title") as shop:
        shop.upsert(["a"], DATA[:1], [{"title": "Red"}])
        assert shop.search(text="red").ids[0, 0] == "a"
        with pytest.raises(ValueError, match="expected a collection with a hasher or a metric"):
            shop.search(DATA[0], text="red")


def test_an_empty_collection(tmp_path):
    with posh.create(tmp_path, metric="cosine", text="title") as shop:
        assert shop.search(text="red")[0] == shop.search(DATA[0], text="red")[0] == []


# Queries -----------------------------------------------------------------------------------------------


def find(shop: posh.Collection, query: Any) -> list[Any]:
    return [hit.id for hit in shop.search(text=query, k=300)[0]]


def test_words_phrases_prefixes_and_expressions(tmp_path):
    titles = ["Red Wool Scarf", "wool, red", "Grüße aus Köln", "woolly", "half-price t-shirt", "price half"]
    with posh.create(tmp_path, metric="cosine", text=["title", "size.name"]) as shop:
        shop.upsert(range(6), DATA[:6], [{"title": title} for title in titles])
        shop.upsert(["large"], DATA[6:7], [{"title": "x", "size": {"name": "extra large"}}])
        assert set(find(shop, "RED")) == {0, 1}
        assert find(shop, '"red wool"') == [0]
        assert set(find(shop, "wool*")) == {0, 1, 3}
        assert find(shop, '"wool sc"*') == [0]
        assert find(shop, "grusse koln") == find(shop, "KÖLN") == [2]
        assert find(shop, "half-price") == [4]  # a phrase
        assert find(shop, "large") == ["large"]
        assert set(find(shop, {"fts5": "wool NOT scarf"})) == {1}
        assert find(shop, {"fts5": '"size.name" : large'}) == ["large"]
        assert find(shop, {"fts5": "title : large"}) == []
        assert set(find(shop, {"fts5": "NEAR(half price, 1)"})) == {4, 5}


ODD = ["", " ", "'", '"', '"""', "\0", "a\0b", "\ud800", "😀", "(", "*", "^", ":", "-", "a-b", "NEAR(", "AND"]
ODD += [
    "title:red",
    "red AND",
    "NOT red",
    "{title}",
    "'; DROP TABLE items; --",
    "%",
    "_",
    "\\",
    "ﬁ",
    "a" * 10_000,
]
ODD += [" ".join(f"w{i}" for i in range(2000)), '"' * 10_000, "* " * 5000, "red\u200bwool", "\n\t\r", "á́́́"]


@pytest.mark.parametrize("query", ODD, ids=lambda query: ascii(query)[:20])
def test_no_words_fail(shop, query):
    n = len(shop)
    shop.search(text=query)
    assert shop.search(DATA[0], 5, text=query).is_hit.all()
    assert len(shop) == n


@given(st.text(max_size=40))
@settings(max_examples=CASES)
def test_any_string_is_a_query(query):
    (parsed,) = text.parse_texts(query)
    if parsed.expression:
        with closing(sqlite3.connect(":memory:")) as connection:
            connection.execute(text.TextOptions(("title",)).statement())
            connection.execute(text_index._SEARCH, (parsed.expression, 3)).fetchall()


@pytest.mark.parametrize(
    "expression",
    ["(", "red AND", "other : red", '"', "", " ", "*reads", "*id", "NEAR(red", "red\0", "\ud800"],
)
def test_an_expression_that_cannot_be_parsed_is_a_clear_error(shop, expression):
    with pytest.raises(ValueError, match=r"expected an (FTS5 expression|expression of FTS5), got"):
        shop.search(text={"fts5": expression})
    assert len(shop.search(DATA[:2])) == 2


def test_wrong_arguments(shop, tmp_path):
    for call, message in [
        (lambda: shop.search(text=3), "expected text as words, such as 'red wool scarf', or as an FTS5"),
        (lambda: shop.search(text={"fts5": 3}), "expected text as words"),
        (lambda: shop.search(text={"sql": "x"}), "expected text as words"),
        (lambda: shop.search(text="a", ids=[1]), "expected text with queries or alone, got it with ids"),
        (lambda: shop.search(DATA[:3], text="a"), "expected a text for each of 3 queries, got 1"),
        (lambda: shop.search(text="a", recall=0.9), "expected recall with queries, got text alone"),
        (lambda: shop.search(text="a", fusion={"text": 2}), "expected fusion with queries, got text alone"),
        (lambda: shop.search(DATA[0], fusion={}), "is for a search by queries and text: leave it out"),
        (lambda: shop.search(DATA[0], text="a", fusion={"k": 1}), "some of constant, vectors, text, depth"),
        (lambda: shop.search(DATA[0], text="a", fusion={"text": 0}), "expected fusion['text'] in (0, inf)"),
        (lambda: shop.search(DATA[0], text="a", fusion={"depth": 0}), "expected fusion['depth'] at least 1"),
        (lambda: posh.create(tmp_path / "x", text=[]), "expected text as the names of 1 to 32 fields"),
        (lambda: posh.create(tmp_path / "x", text=[""]), "strings of 1 to 128 characters, got ''"),
        (lambda: posh.create(tmp_path / "x", text=["a", "A"]), "expected text as different names of fields"),
        (lambda: posh.create(tmp_path / "x", text="rank"), "other than rank, rowid and text_index"),
        (lambda: posh.create(tmp_path / "x", text="a", tokenizer="x"), "no such tokenizer: x"),
        (lambda: posh.create(tmp_path / "x", tokenizer="trigram"), "tokenizer='trigram' is for text="),
        (lambda: shop.reindex(text=["a"]), "is for posh.create and index_text"),
        (lambda: shop.index_text([]), "expected text as the names of 1 to 32 fields"),
    ]:
        with pytest.raises(ValueError, match=re.escape(message)):
            call()
    assert not (tmp_path / "x").exists()
    with posh.create(tmp_path / "plain", metric="cosine") as plain:
        for call in (
            lambda: plain.search(text="a"),
            lambda: plain.search(DATA[0], text="a"),
            plain.index_text,
        ):
            with pytest.raises(ValueError, match=r"got one without: create it with posh.create\(path, text="):
                call()


def test_names_of_fields_are_quoted(tmp_path):
    names = ['the "best"', "a'; DROP TABLE items; --", "select", "size.width", "x = y", "é", "content=''"]
    with posh.create(tmp_path, metric="cosine", text=names) as shop:
        shop.upsert(
            range(len(names)), DATA[: len(names)], [{name: f"word{i}"} for i, name in enumerate(names)]
        )
        for i, name in enumerate(names):
            assert find(shop, f"word{i}") == [i]
            assert find(shop, {"fts5": f"{text.quote_name(name)} : word*"}) == [i]
    require_step(tmp_path)


@pytest.mark.parametrize(
    ("tokenizer", "query", "expected"),
    [
        (None, "running", set()),
        ("porter unicode61", "running", {0, 2}),
        ("trigram", "unne", {1}),
        ("unicode61 remove_diacritics 0", "cafe", set()),
        ("unicode61 tokenchars '-'", "run-down", {2}),
    ],
)
def test_tokenizers(tmp_path, tokenizer, query, expected):
    with posh.create(tmp_path, metric="cosine", text="t", tokenizer=tokenizer) as shop:
        shop.upsert(range(3), DATA[:3], [{"t": "runs"}, {"t": "runner café"}, {"t": "run-down"}])
        assert set(find(shop, query)) == expected
    with posh.open(tmp_path) as shop:
        assert set(find(shop, query)) == expected
        assert shop.text == text.TextOptions(("t",), tokenizer or text.TOKENIZER)


def test_opening_must_agree(shop, tmp_path):
    shop.close()
    posh.Collection(tmp_path / "shop", text=FIELDS).close()
    for options in ({"text": "title"}, {"text": FIELDS, "tokenizer": "trigram"}):
        with pytest.raises(
            ValueError, match=r"expected the text index that this collection has, text=\['title"
        ):
            posh.Collection(tmp_path / "shop", **options)
    posh.create(tmp_path / "plain", metric="cosine").close()
    with pytest.raises(
        ValueError, match=r"that this collection has, none, got text=\['title'\], tokenizer='uni"
    ):
        posh.Collection(tmp_path / "plain", text="title")


# In step -----------------------------------------------------------------------------------------------

some_ids = st.lists(st.sampled_from([*range(8), *"abc"]), min_size=1, max_size=6, unique=True)
some_words = st.lists(st.sampled_from(WORDS), max_size=4)


class Writes(RuleBasedStateMachine):
    """Whatever is written, the text index has the words of the payloads."""

    def __init__(self):
        super().__init__()
        self.cleanup = ExitStack()
        for module, name, value in [(snapshot, "_SPARE", 3), (store, "_PART_BYTES", 100)]:
            self.cleanup.enter_context(mock.patch.object(module, name, value))
        self.path = Path(self.cleanup.enter_context(tempfile.TemporaryDirectory())) / "shop"

    @initialize(n=st.integers(0, 30))
    def begin(self, n):
        self.shop = posh.create(self.path, metric="euclidean", text=FIELDS)
        self.shop.upsert(range(n), DATA[:n], make_payloads(n))

    @rule(ids=some_ids, data=st.data())
    def upsert(self, ids, data):
        payloads = [{"title": " ".join(data.draw(some_words)), "tags": data.draw(some_words)} for _ in ids]
        self.shop.upsert(ids, DATA[: len(ids)], payloads)

    @rule(ids=some_ids, words=some_words, replace=st.booleans())
    def update(self, ids, words, replace):
        there = [item.id for item in self.shop.get(ids) if item is not None]
        self.shop.update_payload(
            there, [{"title": " ".join(words), "tags": words}] * len(there), replace=replace
        )

    @rule(ids=some_ids)
    def delete(self, ids):
        self.shop.delete(ids)

    @rule(n=st.integers(0, 3))
    def delete_some(self, n):
        self.shop.delete(filter={"n": n}, limit=3)

    @rule(ids=some_ids)
    def fail(self, ids):
        """A write that fails halfway changes nothing."""
        with mock.patch.object(store, "_count_write", side_effect=KeyboardInterrupt):
            try:
                self.shop.upsert(ids, DATA[: len(ids)], [{"title": "never"}] * len(ids))
            except KeyboardInterrupt:
                return
        raise AssertionError

    @rule()
    def compact(self):
        self.shop.compact()

    @rule()
    def reindex(self):
        if len(self.shop):
            self.shop.reindex()

    @rule()
    def index_text(self):
        self.shop.index_text()

    @rule()
    def reopen(self):
        self.shop.close()
        self.shop = posh.open(self.path)

    @rule()
    def restore(self):
        copy = self.path.with_name("copy")
        self.shop.backup(copy)
        self.shop.close()
        for file in (self.path, copy):
            assert check_collection(file).problems == []
        self.path.rename(self.path.with_name("old"))
        copy.rename(self.path)
        for old in sorted(self.path.with_name("old").rglob("*"), reverse=True):
            old.rmdir() if old.is_dir() else old.unlink()
        self.path.with_name("old").rmdir()
        self.shop = posh.open(self.path)

    @invariant()
    def words_are_those_of_the_payloads(self):
        if not hasattr(self, "shop"):
            return
        require_step(self.path)
        items = list(self.shop.items())
        for query in ("red wool", "scar*"):
            require_ranking(self.shop.search(text=query, k=50), plain_ranking(items, query), 50)

    def teardown(self):
        if hasattr(self, "shop"):
            self.shop.close()
        self.cleanup.close()


TestWrites = Writes.TestCase
TestWrites.settings = settings(max_examples=max(2, CASES // 8), stateful_step_count=12, deadline=None)


@given(st.lists(strategies.payloads, min_size=1, max_size=8), st.data())
@settings(max_examples=max(2, CASES // 4), deadline=None)
def test_any_payloads_are_indexed_and_removed(payloads, data):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "shop"
        with posh.create(path, metric="cosine", text=["a", "b", "a.b", ".a"]) as shop:
            shop.upsert(range(len(payloads)), DATA[: len(payloads)], payloads)
            shop.delete(data.draw(st.lists(st.sampled_from(range(len(payloads))), unique=True)) or [0])
            require_step(path)
            shop.delete(filter={})
            require_step(path)


def test_readers_and_writers_at_once(tmp_path):
    """Each search sees one state: all items of a write, or none."""
    failures: list[Any] = []
    done = threading.Event()
    with posh.create(tmp_path, metric="cosine", text="title") as shop:
        shop.upsert(range(50), DATA[:50], [{"title": "round 0"}] * 50)

        def search() -> None:
            while not done.is_set():
                for hits in (
                    shop.search(text="round", k=60, payloads=True),
                    shop.search(DATA[0], 60, text="round", payloads=True),
                ):
                    titles = {hit.payload["title"] for hit in hits[0]}
                    if len(titles) != 1 or len(hits[0]) != 50:
                        failures.append(titles)

        readers = [threading.Thread(target=search) for _ in range(3)]
        for reader in readers:
            reader.start()
        for number in range(1, 15):
            shop.upsert(range(50), DATA[:50], [{"title": f"round {number}"}] * 50)
            if number == 7:
                shop.compact().index_text()
        done.set()
        for reader in readers:
            reader.join()
    assert failures == []


def test_a_reader_of_another_process_sees_its_state(shop):
    with posh.open(shop.path, read_only=True) as reader:
        before = find(reader, "scarf")
        shop.delete(before[:3])
        shop.index_text(["title"])
        assert find(reader, "scarf") == before
        reader.refresh()
        assert find(reader, "scarf") == find(shop, "scarf")
        with pytest.raises(posh.StorageError, match="open for writing"):
            reader.index_text()


def test_another_index_of_the_same_items(shop):
    everything = set(find(shop, "wool"))
    assert set(find(shop.index_text("tags", tokenizer="trigram"), "woo")) < everything
    assert shop.text == text.TextOptions(("tags",), "trigram")
    shop.upsert(["new"], DATA[:1], [{"tags": ["Woolworth"]}])
    assert "new" in find(shop, "woolw")
    shop.close()
    assert check_collection(shop.path).problems == []


def test_a_text_that_takes_too_long_is_a_timeout(shop):
    shop.filter_seconds = 0.0
    shop.upsert(range(5000), np.zeros((5000, 8)), [{"title": "so many"}] * 5000)
    with pytest.raises(TimeoutError, match=r"expected an answer within 0\.0 seconds"):
        shop.search(text="many")
    shop.filter_seconds = None
    assert find(shop, "many")


# Files -------------------------------------------------------------------------------------------------


def test_a_collection_without_text_keeps_the_version_of_its_file(tmp_path):
    def read_version() -> int:
        with closing(sqlite3.connect(tmp_path / "shop" / DATABASE)) as connection:
            return connection.execute("PRAGMA user_version").fetchone()[0]

    with posh.create(tmp_path / "shop", metric="cosine") as shop:
        shop.upsert(range(9), DATA[:9], make_payloads(9))
    assert read_version() == 4
    with posh.open(tmp_path / "shop") as shop:
        assert len(find(shop.index_text(FIELDS), "wool scarf red"))
    assert read_version() == 5
    assert check_collection(tmp_path / "shop").problems == []


DAMAGE = {
    "a word too many": "INSERT INTO text_index (rowid, title) VALUES (3, 'zebra')",
    "an item too many": "INSERT INTO text_index (rowid, title) VALUES (100000, 'zebra')",
    "a word too few": "INSERT INTO text_index (text_index, rowid, title) VALUES ('delete', 30, 'red')",
    "no words": "INSERT INTO text_index (text_index) VALUES ('delete-all')",
    "no pages": "DELETE FROM text_index_data WHERE id > 10",
    "bytes": "UPDATE text_index_data SET block = zeroblob(length(block)) WHERE id > 10",
    "lengths": "UPDATE text_index_docsize SET sz = x'0909' WHERE id = 202",
    "fewer lengths": "DELETE FROM text_index_docsize WHERE id = 202",
    "totals": "UPDATE text_index_data SET block = x'010101' WHERE id = 1",
}


@pytest.mark.parametrize("statement", DAMAGE.values(), ids=DAMAGE)
def test_damage_is_found_and_repaired(shop, statement):
    expected = [find(shop, query) for query in QUERIES]
    shop.close()
    assert check_collection(shop.path).problems == []
    with closing(sqlite3.connect(shop.path / DATABASE)) as connection:
        connection.execute(statement)
        connection.commit()
    problems = check_collection(shop.path).problems
    assert any(
        "the text index" in problem and "collection.index_text()" in problem for problem in problems
    ), problems
    with posh.open(shop.path) as again:
        assert [find(again.index_text(), query) for query in QUERIES] == expected
    assert check_collection(shop.path).problems == []


def test_a_search_in_a_damaged_index_says_what_to_do(shop):
    with shop._store.writing() as connection:
        connection.execute(DAMAGE["no pages"])
    remedy = pytest.raises(posh.FormatError, match=r"text index is damaged.*with collection.index_text\(\)")
    with posh.open(shop.path, read_only=True) as reader, remedy:
        reader.search(text="red")
    shop.index_text()
    assert find(shop, "red")


@pytest.mark.parametrize("values", ['{"fields": []}', "[]", "3", '{"fields": ["rank"], "tokenizer": "x"}'])
def test_options_that_lie(shop, values):
    from posh.collection import tables

    with shop._store.writing() as connection:
        tables.put_meta(connection, {"text": values})
    shop.close()
    with pytest.raises(posh.FormatError, match="the database is damaged"):
        posh.open(shop.path)
    assert check_collection(shop.path).problems


def test_the_words_of_deleted_items_are_in_no_file_after_compact(tmp_path):
    rng = np.random.default_rng(0)
    secrets = [rng.bytes(30).hex() for _ in range(300)]
    with posh.create(tmp_path / "shop", metric="cosine", text="title") as shop:
        for start in range(0, 300, 50):
            part = range(start, start + 50)
            shop.upsert(part, DATA[part.start : part.stop], [{"title": secrets[i]} for i in part])
        shop.delete(range(0, 300, 2))
        shop.update_payload(range(1, 300, 4), [{"title": "nothing"}] * 75)
        gone = [secrets[i] for i in range(300) if i % 2 == 0 or i % 4 == 1]
        with shop._store.reading() as (_, connection):
            blocks = b"".join(row[0] for row in connection.execute("SELECT block FROM text_index_data"))
        assert any(secret[10:].encode() in blocks for secret in gone)  # so the rest can fail
        shop.compact()
        assert files_with(tmp_path, [secret.encode() for secret in gone]) == set()
        left = [secret for secret in secrets if secret not in gone]
        assert files_with(tmp_path, [secret.encode() for secret in left]) == {DATABASE}
        assert not find(shop, gone[0])
        assert len(find(shop, left[0])) == 1
