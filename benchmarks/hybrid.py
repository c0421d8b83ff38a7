"""Search by vectors, by text and by both: ``python -m benchmarks.hybrid``.

Documents are the glosses of WordNet with their MiniLM vectors; the text field is the gloss with its examples.
The answer to each query is one known gloss. Queries are words with one sense, as the model embeds them:

- "word": any of them;
- "word in gloss": those whose gloss contains the word, in the definition or in an example;
- "word not in gloss": those whose gloss contains no word with the same first four letters;
- "four words": instead of a word, four words of a gloss in random order, as somebody remembers it.

Also measures upserts with and without a text index, interleaved, by CPU time. Needs the data sets of
posh-reproduction.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import posh
from posh.datasets._fetch import data_dir, read_array
from posh_reproduction.datasets.minilm import MINILM, Encoder
from posh_reproduction.datasets.sentences import embed
from posh_reproduction.datasets.wordnet import SENSES, WORDNET, read_texts

K, DEPTH, RESAMPLES = 10, 100, 5000
Queries = list[tuple[str, int]]  # the text of a query, and the row of its gloss


def split_words(text: str) -> list[str]:
    """Return the words of a text as the tokenizer splits it."""
    return re.findall(r"[a-z0-9]+", text.lower())


def make_queries(
    glosses: list[str], senses: list[str], n: int, rng: np.random.Generator
) -> dict[str, Queries]:
    """Return n queries of each kind, each with the row of its gloss."""
    rows = {gloss: row for row, gloss in enumerate(glosses)}
    pairs = [line.split("\t") for line in senses]
    n_senses = Counter(word.lower() for word, _ in pairs)
    single = [(word, rows[gloss]) for word, gloss in pairs if n_senses[word.lower()] == 1]
    names = ("word", "word in gloss", "word not in gloss", "four words")
    kinds: dict[str, Queries] = {name: [] for name in names}
    for place in rng.permutation(len(single)):
        word, row = single[place]
        words, own = split_words(word), set(split_words(glosses[row]))
        kinds["word"].append((word, row))
        if own.issuperset(words):
            kinds["word in gloss"].append((word, row))
        elif {one[:4] for one in own}.isdisjoint(part[:4] for part in words):
            kinds["word not in gloss"].append((word, row))
    for row in rng.permutation(len(glosses)):
        distinct = sorted({word for word in split_words(glosses[row]) if len(word) > 3})
        if len(distinct) >= 8:
            kinds["four words"].append((" ".join(rng.choice(distinct, 4, replace=False)), int(row)))
    return {kind: queries[:n] for kind, queries in kinds.items()}


def rank_answers(hits: posh.Hits, answers: list[int]) -> np.ndarray:
    """Return the place of each answer among the hits, from 1; inf if it is not there."""
    places = np.full(len(answers), np.inf)
    for i, answer in enumerate(answers):
        found = np.flatnonzero(hits.ids[i] == answer)
        if len(found):
            places[i] = found[0] + 1
    return places


def describe(values: np.ndarray, rng: np.random.Generator) -> dict[str, float]:
    """Return the mean of (n,) values, and its 95 % interval over samples of the queries."""
    means = values[rng.integers(len(values), size=(RESAMPLES, len(values)))].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return {"mean": float(values.mean()), "low": float(low), "high": float(high)}


def measure_quality(
    shop: posh.Collection, kinds: dict[str, Queries], encoder: Encoder
) -> list[dict[str, Any]]:
    """Return a row for each kind of query and each way to search."""
    rows = []
    for kind, queries in kinds.items():
        texts, answers = [text for text, _ in queries], [row for _, row in queries]
        with tempfile.TemporaryDirectory() as chunks:
            vectors = embed(texts, encoder, Path(chunks))
        ways: dict[str, Callable[[], posh.Hits]] = {
            "vectors": lambda vectors=vectors: shop.search(vectors, DEPTH, exact=True),
            "text": lambda texts=texts: shop.search(text=texts, k=DEPTH),
            "fused": lambda vectors=vectors, texts=texts: shop.search(vectors, DEPTH, text=texts, exact=True),
            "fused, text 0.5": lambda vectors=vectors, texts=texts: shop.search(
                vectors, DEPTH, text=texts, exact=True, fusion={"text": 0.5}
            ),
        }
        places = {way: rank_answers(search(), answers) for way, search in ways.items()}
        for way, found in places.items():
            measures = {"recall@10": (found <= K).astype(float), "MRR": 1 / found}
            before = {"recall@10": (places["vectors"] <= K).astype(float), "MRR": 1 / places["vectors"]}
            row: dict[str, Any] = {"queries": kind, "n": len(queries), "way": way}
            for name, values in measures.items():
                row[name] = describe(values, np.random.default_rng(0))
                row[f"{name}, minus vectors"] = describe(values - before[name], np.random.default_rng(0))
            rows.append(row)
    return rows


def measure_upserts(vectors: np.ndarray, payloads: list[dict[str, str]], rounds: int) -> list[dict[str, Any]]:
    """Return items per CPU second, best of some rounds, and bytes, with and without text.

    Without a metric, so that only rows are written: training an index would hide the difference. The second
    pass replaces all items.
    """
    rows: dict[str | None, dict[str, Any]] = {}
    for _ in range(rounds):
        for text in (None, "gloss"):
            with tempfile.TemporaryDirectory() as folder, posh.create(f"{folder}/shop", text=text) as shop:
                row = rows.setdefault(text, {"text": text, "insert": 0, "replace": 0})
                for kind in ("insert", "replace"):
                    start = time.process_time()
                    for first in range(0, len(vectors), 1000):
                        part = slice(first, min(first + 1000, len(vectors)))
                        shop.upsert(range(part.start, part.stop), vectors[part], payloads[part])
                    row[kind] = max(row[kind], len(vectors) / (time.process_time() - start))
                shop.compact()
                row["bytes"] = (shop.path / "collection.sqlite3").stat().st_size
    return list(rows.values())


def main() -> None:
    """Print JSON with all measurements."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=300, help="queries of each kind; default: 300")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of upserts; default: 5")
    args = parser.parse_args()
    root = data_dir()
    glosses, senses = read_texts(WORDNET.fetch(root)), read_texts(SENSES.fetch(root))
    vectors = read_array(root / "wordnet-minilm.v1" / "vectors.npy", mmap=True)
    payloads = [{"gloss": gloss} for gloss in glosses]
    kinds = make_queries(glosses, senses, args.n, np.random.default_rng(0))
    with tempfile.TemporaryDirectory() as folder, posh.create(f"{folder}/wordnet", text="gloss") as shop:
        for first in range(0, len(glosses), 10_000):
            part = slice(first, min(first + 10_000, len(glosses)))
            shop.upsert(range(part.start, part.stop), vectors[part], payloads[part])
        shop.reindex(metric="cosine")
        rows = measure_quality(shop, kinds, Encoder.read(MINILM.fetch(root)))
        start = time.process_time()
        for text, _ in kinds["four words"]:
            shop.search(text=text, k=K)
        milliseconds = 1000 * (time.process_time() - start) / len(kinds["four words"])
    upserts = measure_upserts(np.asarray(vectors[:20_000]), payloads[:20_000], args.rounds)
    examples = {kind: [(text, glosses[row]) for text, row in queries[:3]] for kind, queries in kinds.items()}
    result = {
        "examples": examples,
        "quality": rows,
        "CPU ms of a text query": milliseconds,
        "upserts": upserts,
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
