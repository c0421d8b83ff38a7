"""The model of counts: fitted as the plain definition says."""

from __future__ import annotations

import numpy as np
import pytest

from posh.index.nearest.calibration import CountModel

SCALES = np.geomspace(0.1, 10.0, 201)


def errors_of(model, cosines, found):
    """The mean squared error of each scale, without a table."""
    return [np.mean((found - model.moments(np.clip(s * cosines, -1, 1))[0]) ** 2) for s in SCALES]


@pytest.mark.parametrize("shape", [(32, 32, 128, 0.5), (32, 0, 1024, 0.1), (32, 32, 32, 0.02)])
@pytest.mark.parametrize("scale", [0.1, 0.7, 1.0, 2.5, 10.0])
@pytest.mark.parametrize("spread", [0.05, 2.0])
def test_the_best_scale_and_the_spread_around_it(shape, scale, spread):
    model, rng = CountModel(*shape), np.random.default_rng(0)
    cosines = np.clip(rng.normal(0.1, 0.3, 400), -1, 1)
    cosines[:3] = -1, 0, 1
    mean, variance = model.moments(np.clip(scale * cosines, -1, 1))
    found = mean + np.sqrt(variance) * rng.normal(0, spread, 400)
    at_zero = model.moments(np.zeros(1))[0]
    x, counts = (cosines * model.reach).astype(np.float32), (found - at_zero).astype(np.float32)
    got_scale, got_spread = model.fit(x, counts)
    errors = errors_of(model, x / model.reach, counts + at_zero)
    assert errors[np.argmin(np.abs(SCALES - got_scale))] == pytest.approx(min(errors), rel=1e-3, abs=1e-4)
    mean, variance = model.moments(np.clip(got_scale * x / model.reach, -1, 1))
    assert got_spread == pytest.approx(np.sqrt(np.mean((counts + at_zero - mean) ** 2 / variance)), rel=1e-4)


def test_nothing_to_fit():
    assert CountModel(32, 32, 128, 0.5).fit(np.empty(0, np.float32), np.empty(0, np.float32)) == (1.0, 1.0)
