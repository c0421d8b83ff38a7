"""AVX2 and AVX-512 code stays inside its kernels: older CPUs must never run it.

The linker keeps one copy of each inline function and each template instance. If a file defines such a
function inside its AVX2 or AVX-512 region, the linker may give that copy to the kernels for older CPUs.
"""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest

NATIVE = Path(__file__).parent.parent / "native"
FILES = sorted([*NATIVE.glob("*_avx2.cpp"), *NATIVE.glob("*_avx512.cpp")])
COMPILER = shutil.which("c++")
HEADERS = [NATIVE / "kernels.h", NATIVE / "blocks.h", NATIVE / "graph.h", NATIVE / "metric.h"]
KERNELS = {
    name for header in HEADERS for name in re.findall(r"\b(\w+_avx(?:2|512))\(", header.read_text())
}  # declared there
AVX2 = re.compile(r"v\w+|andn|bextr|bls(i|r|msk)|bzhi|mulx|pdep|pext|popcnt|rorx|s(ar|hl|hr)x")  # and BMI

pytestmark = [
    pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler, found no c++"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="these kernels exist on x86-64 only"),
]


def compiled(file: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [str(COMPILER), "-std=c++17", *options, str(file)]
    return subprocess.run(command, check=True, capture_output=True, text=True)


def lines_of(*command: str) -> list[str]:
    if shutil.which(command[0]) is None:
        pytest.skip(f"needs {command[0]} (binutils)")
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def instructions(kernel: Path) -> dict[str, set[str]]:
    """The instructions of each function, by symbol."""
    functions: dict[str, set[str]] = {}
    for line in lines_of("objdump", "-d", "--no-show-raw-insn", str(kernel)):
        if start := re.match(r"[0-9a-f]+ <(.*)>:", line):
            own = functions.setdefault(start[1], set())
        elif "\t" in line:
            own.add(line.split("\t")[1].split()[0])
    return functions


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_functions_that_kernels_share_have_no_avx2_instructions(file, tmp_path):
    """Nothing is inlined, so every function that the file uses is in its symbols. Of a weak symbol (W) the
    linker keeps one copy; it may be this one. Loops become AVX2 instructions as with -O3; other passes of -O3
    take longer, and do not bring such instructions where there are none."""
    kernel = tmp_path / "kernel.o"
    compiled(file, "-O1", "-ftree-vectorize", "-fno-inline", "-c", "-o", str(kernel))
    symbols = [
        line.split(maxsplit=2)[1:] for line in lines_of("nm", "--defined-only", "--extern-only", str(kernel))
    ]
    strong = {name for kind, name in symbols if kind == "T"}
    assert strong
    assert all(any(declared in name for declared in KERNELS) for name in strong)
    used = instructions(kernel)
    shared = {name for kind, name in symbols if kind == "W" and any(map(AVX2.fullmatch, used.get(name, ())))}
    assert not shared, "give these internal linkage: see native/avx2_begin.h"
    assert any(map(AVX2.fullmatch, set().union(*used.values()))), "found no AVX2 instruction at all"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_standard_headers_come_before_the_region(file):
    """The compiler lists each header that it reads: after avx2_begin.h, only ours may be new."""
    isa = file.stem.rpartition("_")[2]
    listing = compiled(file, "-E", "-H", "-o", "/dev/null").stderr.splitlines()
    headers = [Path(line.lstrip(". ")) for line in listing if line.startswith(".")]
    names = [header.name for header in headers]
    begin, end = names.index(f"{isa}_begin.h"), names.index(f"{isa}_end.h")
    late = [header for header in headers[begin:end] if header.parent != NATIVE]
    assert set(late) <= set(headers[:begin]), f"include them before {isa}_begin.h"


def test_a_function_that_only_prefetches_is_kept(tmp_path):
    """GCC regards such a function as one without effect, and removes its calls."""
    source = tmp_path / "ahead.cpp"
    source.write_text(
        '#include "prefetch.h"\n'
        "__attribute__((noinline)) static void ahead(const char* from) { posh::prefetch_bytes(from, 256); }\n"
        "void visit(const char* from) { ahead(from); }\n"
    )
    assembly = compiled(source, "-O3", "-I", str(NATIVE), "-S", "-o", "-").stdout
    assert "ahead" in assembly.split("visit", 1)[1]  # visit() calls it
