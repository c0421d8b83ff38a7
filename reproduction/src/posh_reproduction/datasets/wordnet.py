"""The glosses of WordNet 3.0: short definitions of 117,659 senses of English words, with examples."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from posh.datasets._fetch import Arrays, FromUrl, Source, read_array
from posh.errors import FormatError
from posh.files.contract import translate_errors
from posh_reproduction.datasets.packages import FromApt

__all__ = ["WORDNET", "read_glosses"]

_PARTS = ("adj", "adv", "noun", "verb")
_MAGIC, _HEADER = b"!<arch>\n", 60  # of an ar archive; of each member


def read_glosses(folder: Path) -> list[str]:
    """Return the distinct glosses in a folder that ``WORDNET.fetch`` returned, in WordNet's order."""
    return read_array(folder / "text.npy").tobytes().decode("ascii").splitlines()


def decode_deb(paths: list[Path]) -> Arrays:
    """Decode the Debian package: the glosses as one text, uint8 (n,), one line each."""
    names = [f"./usr/share/wordnet/data.{part}" for part in _PARTS]
    with (
        translate_errors(paths[0], "Debian package"),
        tarfile.open(fileobj=io.BytesIO(_extract_data(paths[0]))) as tar,
    ):
        files = [tar.extractfile(name) for name in names]
        lines = [line for file in files if file for line in file.read().decode("ascii").splitlines()]
    distinct = dict.fromkeys(_parse_glosses(lines))  # some senses share a gloss
    if not distinct:
        raise FormatError(f"{paths[0].name}: expected glosses in {names[0]}, got none")
    return {"text": np.frombuffer("".join(f"{gloss}\n" for gloss in distinct).encode(), np.uint8)}


def _parse_glosses(lines: list[str]) -> Iterator[str]:
    r"""Yield the text after the bar of each line; lines of the licence begin with two blanks.

    >>> list(_parse_glosses(["  1 licence", '00001740 03 n 01 entity 0 000 | something that exists; "it"  ']))
    ['something that exists; "it"']
    """
    for line in lines:
        if not line.startswith("  "):
            yield line.split("| ", 1)[1].strip()


def _extract_data(path: Path) -> bytes:
    """Return ``data.tar.xz`` (or another compression) from a Debian package, which is an ar archive."""
    content = path.read_bytes()
    if not content.startswith(_MAGIC):
        raise FormatError(f"{path.name}: expected an ar archive, got {content[:8]!r}")
    place = len(_MAGIC)
    while place + _HEADER <= len(content):
        header = content[place : place + _HEADER]
        name, size = header[:16].decode("ascii").strip().rstrip("/"), int(header[48:58])
        place += _HEADER
        if name.startswith("data.tar"):
            return content[place : place + size]
        place += size + size % 2  # members begin at even places
    raise FormatError(f"{path.name}: expected a member data.tar…, got none")


# apt first: it uses the configured mirrors. The URL is that of a release that may be archived one day.
WORDNET = Source(
    folder="wordnet.v1",
    places=(
        FromApt("wordnet-base", decode_deb),
        FromUrl(
            ("https://deb.debian.org/debian/pool/main/w/wordnet/wordnet-base_3.0-37_all.deb",), decode_deb
        ),
    ),
    sha256="5a00a14d00498763bc8f101983ee52bfa8c8a58dfa2248148415c3dcd2bd2460",
)
