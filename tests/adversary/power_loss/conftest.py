"""The recorder of what programs do to files, compiled once."""

from __future__ import annotations

import pytest

from tests.adversary.power_loss.recording import compiled, why_not


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    if why_not():
        pytest.skip(why_not())
    return compiled(tmp_path_factory.mktemp("recorder"))
