"""Workers that are processes: killed ones, a killed driver, errors, and files from elsewhere."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import posh
from posh import batch
from posh.errors import FormatError, ServiceError
from tests.batch.doing import DIGITS, Here, KilledWorkers, all_steps, equal, write_npy

ROOT = Path(__file__).parent.parent.parent

DRIVER = """
import sys
from pathlib import Path
from posh import batch
from tests.batch.doing import MortalDriver, all_steps

if __name__ == "__main__":
    with MortalDriver(batch.{workers}) as workers, all_steps(Path(sys.argv[1]), workers):
        pass
"""


def run_mortal_driver(folder: Path, workers: str) -> int:
    """Run all steps in another process, which is killed; return its exit code."""
    script = folder / "driver.py"
    script.write_text(DRIVER.format(workers=workers))
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    # Processes have our pipe too: so this waits for the last of them, which may still be at work.
    pipe = subprocess.PIPE if workers.startswith("Processes") else None
    command = [sys.executable, script, folder]
    return subprocess.run(command, env=environment, cwd=ROOT, stdout=pipe, timeout=120).returncode


def check_resuming(folder: Path, step: str, workers: str) -> None:
    """Undo a step, do it again with a driver that is killed in its middle, and resume it."""
    write_npy(folder / "shards")
    with all_steps(folder, Here()) as expected:
        pass
    undo(folder, step)
    assert run_mortal_driver(folder, workers) == -signal.SIGKILL
    parts = folder / {"model": ".model.sample"}.get(step, step)
    finished = {part.name for part in parts.glob("*-0*")}
    assert len(finished) >= 2
    resuming = Here()
    with all_steps(folder, resuming) as found:
        equal(found, expected)
    assert resuming.made
    assert not finished & set(resuming.made)
    assert list(folder.rglob(".unfinished*")) == []


def undo(folder: Path, step: str) -> None:
    if step == "model":
        (folder / "model").unlink()
        (folder / "model.json").unlink()
    elif step == "index":
        for part in (folder / "index").glob("part-*"):
            shutil.rmtree(part)
    else:
        shutil.rmtree(folder / step)


def test_killed_workers_change_nothing(tmp_path):
    write_npy(tmp_path / "shards")
    (tmp_path / "other").mkdir()
    write_npy(tmp_path / "other" / "shards")
    with KilledWorkers(batch.Processes(1), tmp_path) as workers, all_steps(tmp_path, workers) as found:
        assert workers.kills == 5  # sample, encode, sample for the decoder, build, search
        with all_steps(tmp_path / "other", Here()) as expected:
            equal(found, expected)
    assert list(tmp_path.rglob(".unfinished*")) == []


@pytest.mark.parametrize("step", ["codes", "hits"])
def test_a_killed_driver_can_be_resumed(tmp_path, step):
    check_resuming(tmp_path, step, "Processes(1)")


def _kill(task):
    os.kill(os.getpid(), 9)


def test_workers_that_are_always_killed_are_an_error(monkeypatch):
    monkeypatch.setattr("posh.batch.workers._RETRIES", 1)
    with (
        batch.Processes(1) as workers,
        pytest.raises(ServiceError, match="workers were killed 2 times: is there enough memory"),
    ):
        list(workers.results(_kill, [1]))


def _pid(task):
    return os.getpid()


def test_workers_end_with_their_driver(tmp_path):
    script = tmp_path / "driver.py"
    script.write_text(
        "import os\nfrom posh import batch\nfrom tests.batch.test_processes import _pid\n"
        "if __name__ == '__main__':\n    with batch.Processes(1) as workers:\n"
        "        print(next(workers.results(_pid, [1])), flush=True)\n        os.kill(os.getpid(), 9)\n"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, script], env=environment, cwd=ROOT, stdout=subprocess.PIPE, timeout=120
    )
    worker = int(done.stdout)
    deadline = time.monotonic() + 30
    while _runs(worker):
        assert time.monotonic() < deadline, "the worker is still there"
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().split()[2]
    except OSError:  # it is gone
        return False


@pytest.fixture(scope="module")
def workers():
    with batch.Processes(1, n_threads=1) as started:
        yield started


def _threads(task):
    from posh._runtime import resolve_threads

    return resolve_threads()


def test_the_number_of_threads(workers):
    assert list(workers.results(_threads, [0])) == [1]


def test_errors_of_workers_name_the_shard(workers, tmp_path):
    np.save(tmp_path / "a.npy", np.array([[1.0, np.inf]]))
    posh.POSH(64, 4, n_epochs=1).fit(DIGITS.base[:, :2]).save(tmp_path / "model")
    with pytest.raises(FormatError, match=r"a\.npy: row 0: expected finite numbers"):
        batch.encode(tmp_path / "model", [tmp_path / "a.npy"], tmp_path / "codes", workers)


def test_shards_at_any_address(tmp_path):
    """``file://`` is an address like s3://: its files are copied before they are read."""
    pytest.importorskip("fsspec", reason="the extra ray is not installed: pip install 'posh-ann[ray]'")
    write_npy(tmp_path / "shards")
    address = f"file://{tmp_path}/shards"
    shards = batch.find_shards([f"{address}/*.npy"])
    assert [shard.path for shard in shards] == [f"{address}/{i}.npy" for i in range(4)]
    assert shards == [shard._replace(modified=s.modified) for shard, s in zip(
        batch.find_shards([address]), shards, strict=True)]  # fmt: skip
    posh.POSH(64, 4, n_epochs=1).fit(DIGITS.base).save(tmp_path / "model")
    for name, source in (("here", tmp_path / "shards"), ("there", address)):
        batch.encode(tmp_path / "model", [source], tmp_path / name, Here())
    for (ids, codes), (other_ids, other) in zip(
        batch.read_codes(tmp_path / "here"), batch.read_codes(tmp_path / "there"), strict=True
    ):
        np.testing.assert_array_equal(ids, other_ids)
        assert codes == other
    assert batch.encode(tmp_path / "model", [address], tmp_path / "there", Here()).n_resumed == 4
    with pytest.raises(FileNotFoundError, match=r"no\.npy: no such shard"):
        batch.find_shards([f"{address}/no.npy"])
    np.save(tmp_path / "shards" / "1.npy", np.full((2, 64), np.nan))
    with pytest.raises(FormatError, match=rf"{address}/1\.npy: row 0: expected finite numbers"):
        batch.encode(tmp_path / "model", [address], tmp_path / "there", Here())
    with pytest.raises(OSError, match=r"nowhere://x/a\.npy: expected a readable file"):
        batch.find_shards(["nowhere://x/a.npy"])
