"""GIST features: the energy of an image per scale, orientation and cell of a grid, 512 numbers.

After A. Oliva and A. Torralba, "Modeling the shape of the scene", IJCV 42 (2001): the image is
whitened (logarithm, local contrast normalisation), filtered by 4 scales x 8 orientations of
Gabor-like filters, and each response is averaged over the cells of a 4 x 4 grid.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import scipy.fft
from numpy.typing import NDArray

from posh._runtime import resolve_threads, track_progress
from posh.datasets._registry import Floats

__all__ = ["compute_gist"]

_SCALES, _ORIENTATIONS, _GRID = 4, 8, 4
_LOW_PASS_CYCLES = 4.0
_WHITEN_PAD, _FILTER_PAD = 5, 16
# Small enough that one filter's responses stay in the second-level cache.
_CHUNK = 16


def compute_gist(images: NDArray[Any], *, pad: int = _FILTER_PAD, n_threads: int | None = None) -> Floats:
    """Describe each image by its 512 GIST features.

    Parameters
    ----------
    images
        (n, h, w) grey or (n, h, w, 3) colour, intensities 0..255 of any numeric type, at least 4 x 4 pixels.
        Colour is averaged to grey.
    pad
        Pixels by which images are continued, mirrored, before they are filtered.
    n_threads
        Number of threads, by default one per CPU. The result does not depend on it.

    Returns
    -------
    float32 (n, 512): for each of 4 scales (fine to coarse) and each of 8 orientations, the mean response in
    4 x 4 cells, row by row.

    Examples
    --------
    >>> import numpy as np
    >>> from posh_reproduction.datasets.gist_features import compute_gist
    >>> compute_gist(np.zeros((2, 32, 32), dtype=np.uint8)).shape
    (2, 512)

    """
    images = np.asarray(images)
    _validate_images(images)
    describe = _build_descriptor(images.shape[1], images.shape[2], pad)
    out = np.empty((len(images), _SCALES * _ORIENTATIONS * _GRID**2), dtype=np.float32)

    def work(start: int) -> None:
        out[start : start + _CHUNK] = describe(images[start : start + _CHUNK])

    starts = range(0, len(images), _CHUNK)
    with ThreadPoolExecutor(resolve_threads(n_threads)) as pool:
        for _ in track_progress(pool.map(work, starts), "GIST", "block", len(starts)):
            pass
    return out


def _validate_images(images: NDArray[Any]) -> None:
    shape = images.shape
    if len(shape) not in (3, 4) or (len(shape) == 4 and shape[3] != 3):
        raise ValueError(f"images must have shape (n, h, w) or (n, h, w, 3), got {shape}")
    if min(shape[1:3]) < _GRID:
        raise ValueError(f"images must be at least {_GRID} x {_GRID} pixels, got {shape[1]} x {shape[2]}")
    if images.size and not images.min() >= 0:
        raise ValueError(f"images must have intensities >= 0, got {images.min()}: shift or clip them")


def _build_descriptor(height: int, width: int, pad: int) -> Callable[[NDArray[Any]], Floats]:
    low_pass = _build_low_pass(height + 2 * _WHITEN_PAD, width + 2 * _WHITEN_PAD)
    filters = _build_gabor_filters(height + 2 * pad, width + 2 * pad)

    def describe(images: NDArray[Any]) -> Floats:
        grey = images.astype(np.float32)
        if grey.ndim == 4:
            grey = grey.mean(axis=3)
        return _average_energies(_whiten(grey, low_pass), filters, pad)

    return describe


def _compute_frequencies(height: int, width: int) -> tuple[Floats, Floats]:
    fy = scipy.fft.fftfreq(height)[:, None]
    fx = scipy.fft.fftfreq(width)[None, :]
    return np.hypot(fy, fx), np.arctan2(fy, fx)


def _build_low_pass(height: int, width: int) -> Floats:
    """Return a Gaussian, 1/2 at ``_LOW_PASS_CYCLES`` per image, for the half spectrum of rfft2."""
    radius, _ = _compute_frequencies(height, width)
    cycles = radius[:, : width // 2 + 1] * max(height, width)
    return np.asarray(np.exp2(-((cycles / _LOW_PASS_CYCLES) ** 2)), dtype=np.float32)


def _build_gabor_filters(height: int, width: int) -> Floats:
    """Return the transfer functions, (scales * orientations, height, width)."""
    radius, angle = _compute_frequencies(height, width)
    sharpness = 2 * np.pi * 16 * _ORIENTATIONS**2 / 32**2
    filters = []
    for scale in range(_SCALES):
        radial = 3.5 * (radius / (0.3 / 1.85**scale) - 1) ** 2
        for orientation in range(_ORIENTATIONS):
            turned = angle + np.pi * orientation / _ORIENTATIONS
            turned = (turned + np.pi) % (2 * np.pi) - np.pi
            filters.append(np.exp(-radial - sharpness * turned**2))
    return np.stack(filters).astype(np.float32)


def _pad(images: Floats, width: int) -> Floats:
    return np.pad(images, ((0, 0), (width, width), (width, width)), mode="symmetric")


def _whiten(grey: Floats, low_pass: Floats) -> Floats:
    """Take the logarithm, remove low frequencies and normalize the local contrast."""
    padded = _pad(np.log1p(grey), _WHITEN_PAD)

    def smooth(images: Floats) -> Floats:
        spectrum: NDArray[np.complex64] = scipy.fft.rfft2(images) * low_pass
        blurred: Floats = scipy.fft.irfft2(spectrum, s=images.shape[1:])
        return blurred

    detail = padded - smooth(padded)
    contrast = np.sqrt(np.abs(smooth(detail * detail)))
    inside = slice(_WHITEN_PAD, -_WHITEN_PAD)
    return np.asarray(detail / (0.2 + contrast), dtype=np.float32)[:, inside, inside]


def _average_energies(images: Floats, filters: Floats, pad: int) -> Floats:
    n, height, width = images.shape
    rows = slice(pad, pad + height)
    columns = slice(pad, pad + width)
    spectra = scipy.fft.fft2(_pad(images, pad))
    out = np.empty((n, len(filters), _GRID * _GRID), dtype=np.float32)
    for i, transfer in enumerate(filters):
        # The padding is cut off between the two one-dimensional transforms, which halves the second.
        response = scipy.fft.ifft(spectra * transfer, axis=1, overwrite_x=True)[:, rows]
        response = scipy.fft.ifft(response, axis=2, overwrite_x=True)[:, :, columns]
        magnitude = np.sqrt(response.real**2 + response.imag**2)
        out[:, i] = _average_cells(magnitude).reshape(n, -1)
    return out.reshape(n, -1)


def _average_cells(images: Floats) -> Floats:
    """Average (n, h, w) over the cells of the grid: (n, grid, grid)."""
    _, height, width = images.shape
    rows, columns = (np.arange(_GRID + 1) * side // _GRID for side in (height, width))
    sums = np.add.reduceat(np.add.reduceat(images, rows[:-1], axis=1), columns[:-1], axis=2)
    return np.asarray(sums / np.outer(np.diff(rows), np.diff(columns)), dtype=np.float32)
