"""The glosses and words of WordNet 3.0: definitions of 117,659 senses of English words, with examples."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from posh.datasets._fetch import Arrays, Decoder, FromUrl, Source, read_array
from posh.errors import FormatError
from posh.files.contract import translate_errors
from posh_reproduction.datasets.packages import FromApt

__all__ = ["SENSES", "WORDNET", "WORDS", "read_texts"]

_PARTS = ("adj", "adv", "noun", "verb")
_MAGIC, _HEADER = b"!<arch>\n", 60  # of an ar archive; of each member


def read_texts(folder: Path) -> list[str]:
    """Return the distinct texts in a folder that ``fetch`` returned, in WordNet's order."""
    return read_array(folder / "text.npy").tobytes().decode("ascii").splitlines()


def decode_glosses(paths: list[Path]) -> Arrays:
    """Decode the Debian package: the glosses as one text, uint8 (n,), one line each."""
    return _join(_parse_glosses(_read_lines(paths[0])), paths[0])


def decode_words(paths: list[Path]) -> Arrays:
    """Decode the Debian package: the words as one text, uint8 (n,), one line each."""
    return _join(_parse_words(_read_lines(paths[0])), paths[0])


def decode_senses(paths: list[Path]) -> Arrays:
    """Decode the Debian package: each word with each of its glosses as one text, uint8 (n,), line by line."""
    return _join(_parse_senses(_read_lines(paths[0])), paths[0])


def _join(texts: Iterable[str], path: Path) -> Arrays:
    distinct = dict.fromkeys(texts)  # some senses share a gloss, and most words have several senses
    if not distinct:
        raise FormatError(f"{path.name}: expected glosses in ./usr/share/wordnet/data.noun, got none")
    return {"text": np.frombuffer("".join(f"{text}\n" for text in distinct).encode(), np.uint8)}


def _read_lines(path: Path) -> list[str]:
    """Return the lines about senses; those of the licence begin with two blanks."""
    names = [f"./usr/share/wordnet/data.{part}" for part in _PARTS]
    with (
        translate_errors(path, "Debian package"),
        tarfile.open(fileobj=io.BytesIO(_extract_data(path))) as tar,
    ):
        files = [tar.extractfile(name) for name in names]
        lines = [line for file in files if file for line in file.read().decode("ascii").splitlines()]
    return [line for line in lines if not line.startswith("  ")]


def _parse_glosses(lines: list[str]) -> Iterator[str]:
    r"""Yield the text after the bar of each line.

    >>> list(_parse_glosses(['00001740 03 n 01 entity 0 000 | something that exists; "it"  ']))
    ['something that exists; "it"']
    """
    for line in lines:
        yield line.split("| ", 1)[1].strip()


def _parse_words(lines: list[str]) -> Iterator[str]:
    """Yield the words of each line: their number is the fourth field, in hexadecimal.

    >>> list(_parse_words(["00001740 03 n 02 hot_dog 0 able(p) 0 000 | food"]))
    ['hot dog', 'able']
    """
    for line in lines:
        fields = line.split()
        for word in fields[4 : 4 + 2 * int(fields[3], 16) : 2]:
            yield word.partition("(")[0].replace("_", " ")


def _parse_senses(lines: list[str]) -> Iterator[str]:
    r"""Yield each word of each line with the gloss, behind a tab.

    >>> list(_parse_senses(["00001740 03 n 02 hot_dog 0 able(p) 0 000 | food"]))
    ['hot dog\tfood', 'able\tfood']
    """
    for line in lines:
        (gloss,) = _parse_glosses([line])
        yield from (f"{word}\t{gloss}" for word in _parse_words([line]))


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


def _source(folder: str, decode: Decoder, sha256: str) -> Source:
    # apt first: it uses the configured mirrors. The URL is that of a release that may be archived one day.
    url = "https://deb.debian.org/debian/pool/main/w/wordnet/wordnet-base_3.0-37_all.deb"
    return Source(folder, (FromApt("wordnet-base", decode), FromUrl((url,), decode)), sha256)


WORDNET = _source(
    "wordnet.v1",
    decode_glosses,
    "5a00a14d00498763bc8f101983ee52bfa8c8a58dfa2248148415c3dcd2bd2460",
)
WORDS = _source(
    "wordnet-words.v1", decode_words, "bc19e58c98dd677db121008e2d5d4ad62b8ba7e2fb1a654c86d0206e5e572c89"
)
SENSES = _source(
    "wordnet-senses.v1",
    decode_senses,
    "3e42daddfa5e8df8717768d76a2d396520667f47de3685e7039c0f0302c9897d",
)
