from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from posh_reproduction.datasets.gist_features import _CHUNK, compute_gist

RNG = np.random.default_rng(0)


def reference(image: NDArray[np.floating]) -> NDArray[np.float64]:
    """GIST of one grey image, step by step in double precision with centred spectra."""
    detail = whitened(image)
    height, width = detail.shape
    padded = np.pad(detail, 16, mode="symmetric")
    radius, angle = polar(*padded.shape)
    spectrum = np.fft.fftshift(np.fft.fft2(padded))
    features = []
    for scale in range(4):
        for orientation in range(8):
            turned = angle + np.pi / 8 * orientation
            turned[turned < -np.pi] += 2 * np.pi
            turned[turned > np.pi] -= 2 * np.pi
            exponent = -10 * 0.35 * (radius / (0.3 / 1.85**scale) - 1) ** 2
            exponent -= 2 * np.pi * (16 * 8**2 / 32**2) * turned**2
            response = np.fft.ifft2(np.fft.ifftshift(spectrum * np.exp(exponent)))
            features += cells(np.abs(response)[16 : 16 + height, 16 : 16 + width])
    return np.array(features)


def whitened(image: NDArray[np.floating]) -> NDArray[np.float64]:
    padded = np.pad(np.log(image.astype(float) + 1), 5, mode="symmetric")
    radius, _ = polar(*padded.shape)
    cycles = radius * max(padded.shape)
    low_pass = np.fft.ifftshift(np.exp(-(cycles**2) / (4 / np.sqrt(np.log(2))) ** 2))
    detail = padded - np.fft.ifft2(np.fft.fft2(padded) * low_pass).real
    contrast = np.sqrt(np.abs(np.fft.ifft2(np.fft.fft2(detail**2) * low_pass)))
    return (detail / (0.2 + contrast))[5:-5, 5:-5]


def polar(height: int, width: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    fy = (np.arange(height) - height // 2) / height
    fx = (np.arange(width) - width // 2) / width
    x, y = np.meshgrid(fx, fy)
    return np.sqrt(x**2 + y**2), np.angle(x + 1j * y)


def cells(image: NDArray[np.floating]) -> list[float]:
    rows = np.array_split(image, [image.shape[0] * i // 4 for i in (1, 2, 3)], axis=0)
    return [
        cell.mean()
        for row in rows
        for cell in np.array_split(row, [image.shape[1] * i // 4 for i in (1, 2, 3)], axis=1)
    ]


@pytest.mark.parametrize("shape", [(32, 32), (28, 28), (33, 18), (64, 40), (4, 5)])
def test_equals_the_plain_reference(shape: tuple[int, int]) -> None:
    images = RNG.integers(0, 256, (3, *shape), dtype=np.uint8)
    expected = [reference(image) for image in images]
    np.testing.assert_allclose(compute_gist(images), expected, rtol=2e-4, atol=2e-6)


def test_colour_is_averaged_to_grey() -> None:
    colour = RNG.integers(0, 256, (2, 16, 16, 3), dtype=np.uint8)
    np.testing.assert_allclose(compute_gist(colour), compute_gist(colour.mean(axis=3)), rtol=1e-4, atol=1e-6)


def test_does_not_depend_on_threads_or_on_the_neighbours_in_the_batch() -> None:
    images = RNG.integers(0, 256, (2 * _CHUNK + 3, 8, 8), dtype=np.uint8)
    alone = compute_gist(images, n_threads=1)
    np.testing.assert_array_equal(compute_gist(images, n_threads=4), alone)
    np.testing.assert_array_equal(compute_gist(images[-2:]), alone[-2:])


def test_a_shift_matters_less_than_another_texture() -> None:
    stripes = np.tile(np.array([0, 0, 255, 255], dtype=np.uint8), (32, 8))
    images = np.stack([stripes, np.roll(stripes, 1, axis=1), stripes.T])
    here, shifted, turned = compute_gist(images)
    assert np.linalg.norm(here - shifted) < 0.2 * np.linalg.norm(here - turned)


def test_no_images() -> None:
    assert compute_gist(np.zeros((0, 32, 32))).shape == (0, 512)


@pytest.mark.parametrize(
    ("shape", "message"),
    [((32, 32), r"\(n, h, w\)"), ((2, 32, 32, 4), r"\(n, h, w, 3\)"), ((2, 3, 32), "at least 4 x 4")],
)
def test_other_shapes_are_refused(shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compute_gist(np.zeros(shape))
