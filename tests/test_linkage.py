"""AVX2 code stays inside the AVX2 kernels: older CPUs must never run it.

The linker keeps one copy of each inline function and each template instance. If an AVX2 file defines such a
function inside the AVX2 region, the linker may give the AVX2 copy to the kernels for older CPUs.
"""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest

NATIVE = Path(__file__).parent.parent / "native"
FILES = sorted(NATIVE.glob("*_avx2.cpp"))
COMPILER = shutil.which("c++")
KERNELS = set(re.findall(r"\b(\w+_avx2)\(", (NATIVE / "kernels.h").read_text()))  # those that it declares

pytestmark = [
    pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler, found no c++"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="AVX2 kernels exist on x86-64 only"),
]


def compiled(file: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [str(COMPILER), "-std=c++17", *options, str(file)]
    return subprocess.run(command, check=True, capture_output=True, text=True)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_avx2_files_define_no_shared_functions(file, tmp_path):
    """Without optimisation nothing is inlined, so every function that a file defines is in its symbols."""
    if shutil.which("nm") is None:
        pytest.skip("needs nm (binutils) to list symbols")
    compiled(file, "-O0", "-c", "-o", str(tmp_path / "kernel.o"))
    command = ["nm", "-C", "--defined-only", "--extern-only", str(tmp_path / "kernel.o")]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    symbols = [line.split(maxsplit=2)[2] for line in lines]
    ours = {symbol for symbol in symbols if "posh::" in symbol}
    declared = {symbol for symbol in ours if symbol.split("(")[0].removeprefix("posh::") in KERNELS}
    assert declared
    assert ours == declared, "give these internal linkage: see native/avx2_begin.h"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_standard_headers_come_before_the_avx2_region(file):
    """The compiler lists each header that it reads: after avx2_begin.h, only ours may be new."""
    listing = compiled(file, "-E", "-H", "-o", "/dev/null").stderr.splitlines()
    headers = [Path(line.lstrip(". ")) for line in listing if line.startswith(".")]
    names = [header.name for header in headers]
    begin, end = names.index("avx2_begin.h"), names.index("avx2_end.h")
    late = [header for header in headers[begin:end] if header.parent != NATIVE]
    assert set(late) <= set(headers[:begin]), "include them before avx2_begin.h"
