"""The glosses of WordNet 3.0: short definitions of 117,659 senses of English words, with examples."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from posh.datasets._cache import Arrays, read_array
from posh.datasets._fetch import FromUrl, Source
from posh.datasets._guard import reading
from posh.errors import FormatError
from posh_reproduction.datasets.packages import FromApt

__all__ = ["WORDNET", "glosses"]

_PARTS = ("adj", "adv", "noun", "verb")
_MAGIC, _HEADER = b"!<arch>\n", 60  # of an ar archive; of each member


def glosses(folder: Path) -> list[str]:
    """The distinct glosses in a folder that ``WORDNET.fetch`` returned, in WordNet's order."""
    return read_array(folder / "text.npy").tobytes().decode("ascii").splitlines()


def from_deb(paths: list[Path]) -> Arrays:
    """Decode the Debian package: the glosses as one text, uint8 (n,), a line for each."""
    names = [f"./usr/share/wordnet/data.{part}" for part in _PARTS]
    with reading(paths[0], "Debian package"), tarfile.open(fileobj=io.BytesIO(_data(paths[0]))) as tar:
        files = [tar.extractfile(name) for name in names]
        lines = [line for file in files if file for line in file.read().decode("ascii").splitlines()]
    found = dict.fromkeys(_glosses(lines))  # some senses have the same one
    if not found:
        raise FormatError(f"{paths[0].name}: expected glosses in {names[0]}, got none")
    return {"text": np.frombuffer("".join(f"{gloss}\n" for gloss in found).encode(), np.uint8)}


def _glosses(lines: list[str]) -> Iterator[str]:
    r"""What follows the bar in each line; the licence has lines that begin with two blanks.

    >>> list(_glosses(["  1 licence", '00001740 03 n 01 entity 0 000 | something that exists; "it is"  ']))
    ['something that exists; "it is"']
    """
    for line in lines:
        if not line.startswith("  "):
            yield line.split("| ", 1)[1].strip()


def _data(path: Path) -> bytes:
    """The member ``data.tar.xz`` (or another compression) of a Debian package, which is an ar archive."""
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


# apt first: it knows the mirrors of the machine. The address is of a release that may be archived one day.
WORDNET = Source(
    folder="wordnet.v1",
    places=(
        FromApt("wordnet-base", from_deb),
        FromUrl(("https://deb.debian.org/debian/pool/main/w/wordnet/wordnet-base_3.0-37_all.deb",), from_deb),
    ),
    sha256="5a00a14d00498763bc8f101983ee52bfa8c8a58dfa2248148415c3dcd2bd2460",
)
