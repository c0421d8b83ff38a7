"""Small programs, one that saves a file with care and others that forget something: the adversary must tell.

Each saves one content over the other, as ``file`` in a new folder.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import shutil
from pathlib import Path

from tests.adversary.power_loss.subjects import Subject


def content(number: int) -> bytes:
    return b"%d" % number * (1000 + number)


class Careful(Subject):
    sync_data = sync_folder = sync_parent = True

    def step(self, root: Path, number: int) -> None:
        folder = root / "new"
        try:
            folder.mkdir(exist_ok=True)
            if self.sync_parent:
                sync(root)
            self.save(folder, content(number))
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(folder)) from error

    def save(self, folder: Path, new: bytes) -> None:
        with (folder / "temporary").open("wb") as file:
            file.write(new)
            file.flush()
            if self.sync_data:
                os.fsync(file.fileno())
        (folder / "temporary").rename(folder / "file")
        if self.sync_folder:
            sync(folder)

    def judge(self, root: Path, acknowledged: int) -> None:
        try:
            found = (root / "new" / "file").read_bytes()
        except FileNotFoundError:
            assert acknowledged == 0, "the acknowledged file is gone"
        else:
            known = [content(number) for number in (acknowledged - 1, acknowledged) if number >= 0]
            assert found in known, "neither the acknowledged file nor the next one"


class RenamesBeforeSyncing(Careful):
    sync_data = False


class ForgetsTheFolder(Careful):
    sync_folder = False


class ForgetsTheParent(Careful):
    sync_parent = False


class TrustsWhatItFinds(Careful):
    """Syncs the parent only if it makes the folder: a process that was killed may not have done so."""

    def step(self, root: Path, number: int) -> None:
        self.sync_parent = not (root / "new").exists()
        super().step(root, number)


class WritesInPlace(Careful):
    def save(self, folder: Path, new: bytes) -> None:
        with (folder / "file").open("wb") as file:
            file.write(new)
            file.flush()
            os.fsync(file.fileno())
        sync(folder)


class SyncsBeforeTheLastWrite(Careful):
    def save(self, folder: Path, new: bytes) -> None:
        with (folder / "temporary").open("wb", buffering=0) as file:
            file.write(new[:-1])
            os.fsync(file.fileno())
            file.write(new[-1:])
        (folder / "temporary").rename(folder / "file")
        sync(folder)


class IgnoresErrors(Careful):
    """Renames what it has written, however little that is."""

    def save(self, folder: Path, new: bytes) -> None:
        with contextlib.suppress(OSError), (folder / "temporary").open("wb", buffering=0) as file:
            file.write(new)
            os.fsync(file.fileno())
        (folder / "temporary").rename(folder / "file")
        sync(folder)


class SyncsAgain(Careful):
    """Trusts a sync that succeeds after one that failed."""

    def save(self, folder: Path, new: bytes) -> None:
        with (folder / "temporary").open("wb", buffering=0) as file:
            file.write(new)
            try:
                os.fsync(file.fileno())
            except OSError:
                os.fsync(file.fileno())
        (folder / "temporary").rename(folder / "file")
        sync(folder)


class HidesThePath(Careful):
    def step(self, root: Path, number: int) -> None:
        try:
            super().step(root, number)
        except OSError:
            raise OSError("it failed") from None


class LeavesFilesOpen(Careful):
    def save(self, folder: Path, new: bytes) -> None:
        file = os.open(folder / "temporary", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.write(file, new)
        os.fsync(file)
        os.close(file)
        (folder / "temporary").rename(folder / "file")
        sync(folder)


class RecoversInPlace(Careful):
    """Saves with care, but completes a file that was not renamed by writing over the old one."""

    def save(self, folder: Path, new: bytes) -> None:
        if (folder / "temporary").exists():
            (folder / "file").write_bytes(new)
            (folder / "temporary").unlink()
        super().save(folder, new)


class WritesUnseen(Careful):
    """Writes through memory, which the recorder cannot see, and removes the file again."""

    def save(self, folder: Path, new: bytes) -> None:
        with (folder / "temporary").open("wb+") as file:
            file.truncate(len(new))
            with mmap.mmap(file.fileno(), len(new)) as memory:
                memory[:] = new
        (folder / "temporary").unlink()


class UsesEveryCall(Careful):
    """Changes files in all ways that the recorder knows; it is only played back."""

    def save(self, folder: Path, new: bytes) -> None:
        import numpy as np

        file = os.open(folder / "calls", os.O_RDWR | os.O_CREAT, 0o600)
        os.write(file, new)
        os.pwrite(file, b"in the middle", 100)
        os.writev(file, [b"one", b"two"])
        os.pwritev(file, [b"three", b"four"], 50)
        os.ftruncate(file, 2000)
        os.posix_fallocate(file, 0, 3000)
        os.copy_file_range(file, os.dup(file), 20, 0, 2990)
        os.close(file)
        os.truncate(folder / "calls", 2995)
        with (folder / "calls").open("ab") as appended:
            appended.write(b"at the end")
        shutil.copyfile(folder / "calls", folder / "copy")
        np.save(folder / "array.npy", np.frombuffer(new, "u1"))
        (folder / "other").unlink(missing_ok=True)
        (folder / "other").hardlink_to(folder / "copy")
        (folder / "deep" / "er").mkdir(parents=True)
        (folder / "deep" / "er" / "file").write_bytes(new)
        (folder / "deep" / "er" / "file").rename(folder / "deep" / "moved")
        before = Path.cwd()
        os.chdir(folder)
        Path("relative").write_bytes(new)
        os.chdir(before)
        if len(new) % 2:
            shutil.rmtree(folder / "deep")
        else:
            shutil.move(folder / "deep", folder / f"deep {len(new)}")


def sync(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
