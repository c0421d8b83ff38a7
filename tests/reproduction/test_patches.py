from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from posh_reproduction.datasets import patches

IMAGES = np.random.default_rng(0).integers(0, 256, (12, 12, 12, 3), dtype=np.uint8)


@pytest.fixture
def written(tmp_path: Path) -> Path:
    patches.write_patches(tmp_path, IMAGES, n_base=220, n_queries=30, n_query_images=2)
    return tmp_path


def test_shapes_and_types(written: Path) -> None:
    for part, rows in (("base", 220), ("queries", 30)):
        array = np.load(written / f"{part}.npy")
        assert array.shape == (rows, 128)
        assert array.dtype == np.float32


def test_components_are_centred_uncorrelated_and_sorted(written: Path) -> None:
    covariance = np.cov(np.load(written / "base.npy").T)
    variances = np.diag(covariance)
    assert (np.diff(variances) <= 1e-3 * variances[0]).all()
    assert np.abs(covariance - np.diag(variances)).max() < 1e-3 * variances[0]


def test_chunks_do_not_change_the_result(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = np.load(written / "base.npy")
    monkeypatch.setattr(patches, "_CHUNK", 7)
    patches.write_patches(written, IMAGES, n_base=220, n_queries=30, n_query_images=2)
    np.testing.assert_allclose(np.load(written / "base.npy"), before, rtol=1e-4, atol=1e-2)


def test_no_place_is_cut_twice_and_patches_are_of_the_images() -> None:
    found = patches._choose_patches(IMAGES, 8, 12 * 25)(0, 12 * 25)
    assert len(np.unique(found, axis=0)) == 12 * 25
    corner = np.moveaxis(IMAGES[0, :8, :8], -1, 0).reshape(-1)
    assert (found == corner).all(axis=1).any()


def test_queries_come_from_other_images(written: Path) -> None:
    base, queries = (np.load(written / f"{part}.npy") for part in ("base", "queries"))
    nearest = np.linalg.norm(base[:, None] - queries[None], axis=2).min()
    assert nearest > 1


def test_large_patches_are_pixels_in_any_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = np.random.default_rng(0).integers(0, 256, (12, 20, 20, 3), dtype=np.uint8)
    monkeypatch.setattr(patches, "_CHUNK", 7)
    patches.write_pixels(tmp_path, images, n_base=240, n_queries=20, n_query_images=2)
    base, queries = (np.load(tmp_path / f"{part}.npy") for part in ("base", "queries"))
    assert (base.shape, queries.shape, base.dtype) == ((240, 768), (20, 768), np.uint8)
    assert len(np.unique(np.concatenate([base, queries]), axis=0)) == 260
    corners = [np.moveaxis(image[:16, :16], -1, 0).reshape(-1) for image in images]
    assert sum((np.concatenate([base, queries]) == corner).all(axis=1).any() for corner in corners) >= 10
