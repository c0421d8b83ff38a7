"""The experiments by name."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any

from posh_reproduction.experiments import (
    gains,
    gist_settings,
    learning,
    orthogonality,
    power,
    sbiht,
    scale,
    trial,
)
from posh_reproduction.experiments.spec import Spec, Unit

__all__ = ["SPECS"]

_DATA = ("mnist", "mnist-gist", "cifar10-gist")
_AUTHORS_DATA = ("mnist-gist-knnh", "cifar10-gist-knnh", "cifar10-vgg", "labelme-gist", "labelme-vgg")
_METHODS = (*trial.DENSE, *trial.SPARSE)
_SIZES, _SEEDS = (8, 16, 32, 64, 128), range(10)
_QUICK_SIZES, _QUICK_SEEDS = (16, 64), range(2)
_QUICK_TRAIN = 3000  # a decoder of 1,024 bits needs 2,048 vectors or more to help
_SMALL: dict[str, Any] = {"n_train": _QUICK_TRAIN, "n_base": 10_000, "n_queries": 500}

_SAMPLE = (
    "Base and queries are fixed; 5,000 training vectors, the same for every method; sparse codes have 1,024 "
    "bits."
)
_QUICK_SAMPLE = f"{_QUICK_TRAIN:,} training vectors, the first 10,000 of the base, 500 queries"
_PROTOCOL = (
    f"{_SAMPLE} 10 trials that differ by their random initialisation. The quick twin: {_QUICK_SAMPLE}, "
    "2 trials."
)


def _full(data: Iterable[str]) -> tuple[Unit, ...]:
    return tuple(trial.unit(*cell) for cell in product(data, _METHODS, _SIZES, _SEEDS))


def _quick(data: Iterable[str]) -> tuple[Unit, ...]:
    cells = product(data, _METHODS, _QUICK_SIZES, _QUICK_SEEDS)
    return tuple(trial.unit(*cell, **_SMALL) for cell in cells)


_FULL, _QUICK = _full(_DATA), _quick(_DATA)


def _with_extra(units: tuple[Unit, ...], extra: str) -> tuple[Unit, ...]:
    return tuple(unit for unit in units if extra in unit["extras"])


# Figure 1b: Bernoulli weights of several densities at one size, and of the paper's density at all sizes.
_DENSITIES, _DENSITY, _DENSITY_SIZE = (0.05, 0.1, 0.2, 0.4), 0.2, 32


def _random_weights(sizes: Iterable[int], seeds: Iterable[int], **limits: Any) -> tuple[Unit, ...]:
    cells: list[tuple[dict[str, Any], int]] = [({"weights": "orthogonal"}, size) for size in sizes]
    cells += [({"p": _DENSITY}, size) for size in sizes]
    cells += [({"p": p}, _DENSITY_SIZE) for p in _DENSITIES if p != _DENSITY]
    return tuple(
        trial.unit(data, "FruitFly", size, seed, extras=(), params=params, **limits)
        for data, seed, (params, size) in product(_DATA, seeds, cells)
    )


# Figure 2.
_RATES = (0.02, 0.04, 0.08, 0.16)


def _learning(seeds: Iterable[int], **limits: Any) -> tuple[Unit, ...]:
    cells = [("BioHash", rate) for rate in _RATES] + [("SphericalHash", None), ("POSH", None)]
    seeds = tuple(seeds)
    return (
        *(
            learning.unit(method, seed, learning_rate=rate, **limits)
            for seed, (method, rate) in product(seeds, cells)
        ),
        *(learning.unit("POSH", seed, batches=True, **limits) for seed in seeds),
    )


# Hash length: the codes of 1,024 bits are those of figure 3.
_LENGTH_METHODS = ("FruitFly", "SphericalHash", "POSH")
_LENGTHS, _LENGTH_SIZES = (128, 256, 512, 2048), (16, 32, 64)


def _lengths(
    shared: tuple[Unit, ...], lengths: Iterable[int], sizes: tuple[int, ...], seeds: range, **limits: Any
) -> tuple[Unit, ...]:
    new = tuple(
        trial.unit(data, method, size, seed, n_bits=n_bits, extras=(), **limits)
        for data, method, size, seed, n_bits in product(_DATA, _LENGTH_METHODS, sizes, seeds, lengths)
    )
    return new + tuple(unit for unit in shared if unit["method"] in _LENGTH_METHODS and unit["size"] in sizes)


# Scale.
_SCALE_DATA, _SCALE_SIZES = ("glove-100", "cifar10-patches"), (16, 32, 64)
_SCALE_SMALL: dict[str, Any] = {"n_train": _QUICK_TRAIN, "n_base": 50_000, "n_queries": 200}
_SCALE_SEEDS, _PLACES_SEEDS = range(5), range(3)


def _asymmetric(sizes: Iterable[int], seeds: Iterable[int], **limits: Any) -> tuple[Unit, ...]:
    """The units of figure 3 and of PowerHash that measure it already; others fit once more for it."""
    cells = product(_DATA, (*trial.SPARSE, *trial.BEYOND), sizes, seeds)
    units = (trial.unit(*cell, **limits) for cell in cells)
    return tuple(
        unit if "asymmetric" in unit["extras"] else unit | {"extras": ["asymmetric"]} for unit in units
    )


_SPECS = (
    Spec(
        "figure-1a",
        "Entries of WᵀW / (D p) of 100 Bernoulli matrices",
        "Bernoulli weights are approximately orthogonal: the diagonal is 1, the rest p.",
        "100 matrices of 1,024 × 512 for each p. The quick twin: 10 matrices.",
        tuple(orthogonality.unit(p) for p in (0.01, 0.05, *(tenth / 10 for tenth in range(1, 10)))),
        tuple(orthogonality.unit(p, n_matrices=10) for p in (0.05, 0.1, 0.2, 0.5, 0.8)),
    ),
    Spec(
        "figure-1b",
        "Sparse binary against dense orthogonal random weights",
        "Orthogonality gives a consistent, albeit small, advantage.",
        "FruitFly with Bernoulli weights of several densities p and with orthogonal ones; 1,000 queries, "
        "5 trials. The quick twin: the first 10,000 of the base, 500 queries, 2 trials.",
        _random_weights(_SIZES, range(5), n_queries=1000),
        _random_weights(_QUICK_SIZES, _QUICK_SEEDS, **_SMALL),
    ),
    Spec(
        "figure-2",
        "Objective against accuracy, epoch by epoch",
        "A better BioHash objective does not mean better accuracy; a better POSH objective does.",
        "CIFAR10-GIST, 1,000 vectors and 100 queries of each class, 5,000 training vectors, 64 of 1,024 bits "
        f"set, 3 trials. The quick twin: 300 vectors and 50 queries of each class, {_QUICK_TRAIN:,} training "
        "vectors, 1 trial.",
        _learning(range(3)),
        _learning(range(1), per_class=(300, 50), n_train=_QUICK_TRAIN),
    ),
    Spec(
        "figure-3",
        "MAP@1000 of eight methods at 8 to 128 bits",
        "SphericalHash and BOSL are best at few set bits, POSH at many; FruitFly beats most dense codes.",
        _PROTOCOL,
        _FULL,
        _QUICK,
    ),
    Spec(
        "figure-3-precision",
        "Precision@1000 of eight methods at 8 to 128 bits",
        "Precision@1000 shows the same as MAP@1000.",
        _PROTOCOL,
        _FULL,
        _QUICK,
    ),
    Spec(
        "figure-3-authors",
        "Figure 3 and table 2 on the sets that only the authors of KNNH have",
        "SphericalHash and BOSL are best at few set bits, POSH at many; FruitFly beats most dense codes.",
        _PROTOCOL,
        _full(_AUTHORS_DATA),
        _quick(_AUTHORS_DATA),
    ),
    Spec(
        "table-1",
        "MAP of the whole base, compared with deep methods",
        "SphericalHash and POSH are competitive with deep methods.",
        f"{_PROTOCOL} The whole base is ranked.",
        _with_extra(_FULL, "full-map"),
        _with_extra(_QUICK, "full-map"),
    ),
    Spec(
        "table-2",
        "MAP@100 of POSH with candidate refinement",
        "Reordering 2, 5 or 10 times as many candidates by the linear decoder helps, 2 times most.",
        f"{_PROTOCOL} The decoder learns from the training vectors.",
        _with_extra(_FULL, "refinement"),
        _with_extra(_QUICK, "refinement"),
    ),
    Spec(
        "places205",
        "MAP@1000 and Precision@1000 on Places205, its coarse quantizer and queries per second",
        "POSH is best on a large set, where SphericalHash is no better than FruitFly.",
        f"5,000 training vectors, all queries, 3 trials. The quick twin: {_QUICK_TRAIN:,} training vectors, "
        "the first 50,000 of the base, 200 queries, 1 trial.",
        tuple(
            scale.unit("places205", *cell, n_train=5000, n_queries=None)
            for cell in product(scale.METHODS, _SCALE_SIZES, _PLACES_SEEDS)
        ),
        tuple(
            scale.unit("places205", *cell, **_SCALE_SMALL)
            for cell in product(scale.METHODS, _QUICK_SIZES, range(1))
        ),
    ),
    Spec(
        "sbiht",
        "SBIHT iteration by iteration",
        "SBIHT meets codes ever better, down to exactly, and gains hardly any accuracy by it.",
        "CIFAR10-GIST, 1,000 vectors and 100 queries of each class, POSH with 16 and 64 of 1,024 bits set, "
        "50 iterations for every vector, MAP@100 of 200 candidates, 3 trials. The quick twin: 300 vectors "
        f"and 50 queries of each class, {_QUICK_TRAIN:,} training vectors, 1 trial.",
        tuple(sbiht.unit(*cell) for cell in product((16, 64), range(3))),
        tuple(
            sbiht.unit(*cell, per_class=(300, 50), n_train=_QUICK_TRAIN)
            for cell in product(_QUICK_SIZES, range(1))
        ),
    ),
    Spec(
        "hash-length",
        "MAP@1000 of codes of 128 to 2,048 bits",
        "For any length, SphericalHash is generally better at 16 set bits and POSH at 64.",
        f"{_PROTOCOL} Here they have 128 to 2,048.",
        _lengths(_FULL, _LENGTHS, _LENGTH_SIZES, _SEEDS),
        _lengths(_QUICK, (256,), _QUICK_SIZES, _QUICK_SEEDS, **_SMALL),
    ),
    Spec(
        "asymmetric",
        "MAP@1000 of sparse methods with asymmetric scoring (beyond the paper)",
        "The query's projection, summed over a document's set bits, ranks better than shared bits do.",
        f"{_PROTOCOL} At most 2,000 queries; gains are of the same queries.",
        _asymmetric(_SIZES, _SEEDS),
        _asymmetric(_QUICK_SIZES, _QUICK_SEEDS, **_SMALL),
    ),
    Spec(
        "mnist-gist-settings",
        "The setting of the GIST features of digits that gives the paper's values (beyond the paper)",
        "Digits were enlarged before their features were computed.",
        "10,500 images, of which 1,050 are queries and 5,000 train, 1 trial; results are cut off at the same "
        "share of the base as in figure 3. Half of the cells choose, half judge. LSH, which is random, has "
        "10 trials. The quick twin has 3,500 images.",
        tuple(
            gist_settings.unit(*setting, lsh_trials=lsh_trials)
            for lsh_trials, setting in product((None, 10), gist_settings.SETTINGS)
        ),
        tuple(gist_settings.unit(side, n_images=3500) for side in (None, 56)),
    ),
    Spec(
        "mnist-gist-128",
        "Figure 3 and table 2 with features of MNIST-GIST that give the paper's values (beyond the paper)",
        "With digits enlarged to 128 pixels, MNIST-GIST agrees with the paper, too.",
        _PROTOCOL,
        _full(("mnist-gist-128",)),
        _quick(("mnist-gist-128",)),
    ),
    Spec(
        "power-hash",
        "MAP@1000 of one hasher for every number of set bits (beyond the paper)",
        "PowerHash is better than the best of the eight methods at 8 to 128 set bits.",
        _PROTOCOL,
        power.units(_DATA, _SIZES, _SEEDS),
        power.units(_DATA, _QUICK_SIZES, _QUICK_SEEDS, **_SMALL),
    ),
    Spec(
        "power-hash-gains",
        "How much the gain of PowerHash differs from query to query (beyond the paper)",
        "The lead of PowerHash is that of other queries, too.",
        f"{_SAMPLE} 1 trial. The quick twin: {_QUICK_SAMPLE}.",
        tuple(gains.unit(*cell, seed=0) for cell in product(_DATA, _SIZES)),
        tuple(gains.unit(*cell, seed=0, **_SMALL) for cell in product(_DATA, _QUICK_SIZES)),
    ),
    Spec(
        "power-hash-rules",
        "MAP@1000 of the rules that PowerHash chooses from (beyond the paper)",
        "No single power is best at all numbers of set bits.",
        f"{_SAMPLE} Of the base, the first 20,000; 1,000 queries, 1 trial. The quick twin: {_QUICK_SAMPLE}.",
        power.rules(_DATA, _SIZES, range(1), n_base=20_000, n_queries=1000),
        power.rules(_DATA, _QUICK_SIZES, range(1), **_SMALL),
    ),
    Spec(
        "scale",
        "The protocol of Places205 on sets without labels, judged by true neighbours (beyond the paper)",
        "POSH is best on a large set, where SphericalHash is no better than FruitFly.",
        "GloVe (340,479 × 100) and image patches (2,428,372 × 128): 10,000 training vectors, 1,000 queries, "
        "5 trials; relevant are the 100 vectors of the largest cosine. The quick twin: 50,000 image patches, "
        f"{_QUICK_TRAIN:,} training vectors, 200 queries, 1 trial.",
        tuple(scale.unit(*cell) for cell in product(_SCALE_DATA, scale.METHODS, _SCALE_SIZES, _SCALE_SEEDS)),
        tuple(
            scale.unit("cifar10-patches", *cell, **_SCALE_SMALL)
            for cell in product(scale.METHODS, _QUICK_SIZES, range(1))
        ),
    ),
)

SPECS: dict[str, Spec] = {spec.name: spec for spec in _SPECS}
