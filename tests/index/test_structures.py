"""Structures behind one contract, and choices that are printed from one table each."""

from __future__ import annotations

import inspect
from typing import get_args

import numpy as np
import pytest

import posh
from posh import hashers
from posh.cli import main
from posh.hashers import HASHERS, make_hasher
from posh.index.choices import REFINER_NAMES, SCORINGS, STRUCTURE_NAMES
from posh.index.codes.options import CodeOptions, CodeParams
from posh.index.codes.refine import REFINERS
from posh.index.codes.snapshot import choose_structure
from posh.index.codes.structures import Queries
from posh.index.nearest.options import NearestOptions
from posh.serve import requests
from tests.conftest import clusters

DATA = clusters(300, 8).astype(np.float32)
SPARSE = posh.POSH(32, 4, n_epochs=1, random_state=0).fit(DATA)
DENSE = posh.LSH(12, random_state=0).fit(DATA)
CASES = {
    "packed": (DENSE, {}, "overlap"),
    "segments": (SPARSE, {}, "overlap"),
    "segments, asymmetric": (SPARSE, {}, "asymmetric"),
    "lists": (SPARSE, {"structure": "ivf", "n_lists": 5}, "overlap"),
    "lists, asymmetric": (SPARSE, {"structure": "ivf", "n_lists": 5}, "asymmetric"),
}


@pytest.fixture(params=list(CASES))
def case(request):
    """A structure with 200 documents, its hasher and a function that searches 20 vectors in it."""
    hasher, options, scoring = CASES[request.param]
    index = posh.CodeIndex(hasher, **options)
    snapshot = index.snapshot()
    structure = choose_structure(index.options.structure, hasher).train(
        hasher, index.options, DATA, len(DATA)
    )
    structure = structure.with_codes(snapshot.encode(DATA[:200]), DATA[:200])
    queries = Queries(DATA[200:220], hasher, index.options.query_active, 1)

    def found(structure, k=50, allowed=None):
        params = CodeParams(k, scoring=scoring, oversample=300.0)
        return structure.search(queries, params, allowed)

    return structure, hasher, found


def same(one, other):
    np.testing.assert_array_equal(one.slots, other.slots)
    np.testing.assert_array_equal(one.scores, other.scores)


def test_what_is_removed_or_not_allowed_is_not_found(case):
    structure, _, found = case
    before = found(structure, 200)
    gone = np.arange(0, 200, 3)
    after = found(structure.without(gone), 200)
    allowed = np.ones(200, bool)
    allowed[gone] = False
    same(after, found(structure, 200, allowed))
    assert not np.isin(after.slots, gone).any()
    assert (after.slots[:, -1] == -1).all()
    assert (after.scores[:, -1] == -np.inf).all()
    same(found(structure, 200), before)  # a change makes another object


def test_compacted_documents_have_new_slots_and_old_scores(case):
    structure, _, found = case
    thinned = structure.without(np.arange(0, 200, 3))
    compacted = thinned.compact()
    assert (len(thinned), len(compacted), compacted.n_live) == (200, 133, 133)
    before, after = found(thinned), found(compacted)
    np.testing.assert_array_equal(before.scores, after.scores)
    np.testing.assert_array_equal(before.slots, np.flatnonzero(thinned.live.rows)[after.slots])


def test_arrays_give_the_same_structure(case):
    structure, hasher, found = case
    options = posh.CodeIndex(hasher).options
    again = type(structure).from_arrays(hasher, options, structure.codes.rows, structure.to_arrays())
    same(found(again), found(structure))
    assert (again.nbytes, len(again)) == (structure.nbytes, len(structure))


def test_a_detached_structure_grows_alone(case):
    structure, hasher, _ = case
    other = structure.detach()
    codes = posh.CodeIndex(hasher).snapshot().encode(DATA[200:])
    grown = structure.with_codes(codes, DATA[200:])
    other = other.with_codes(codes[::-1], DATA[200:][::-1])
    assert len(grown) == len(other) == 300
    np.testing.assert_array_equal(grown.codes.rows[200:], other.codes.rows[200:][::-1])
    assert len(structure) == 200


def test_a_scan_without_bounds_visits_all_lists():
    """None in the parameters of a scan: all lists, no candidates beyond k."""
    index = posh.CodeIndex(SPARSE, structure="ivf", n_lists=5).add(DATA)
    structure = index.snapshot().structure
    queries = Queries(DATA[:9], SPARSE, None, 1)
    found = structure.search(queries, CodeParams(20), None)
    np.testing.assert_array_equal(found.slots, posh.CodeIndex(SPARSE).add(DATA).search(DATA[:9], 20).ids)
    assert CodeParams(20).for_candidates(300).k == 20


def test_parameters_are_checked_when_they_are_made():
    assert CodeParams(np.int64(3), n_probe=np.int32(2)) == CodeParams(3, n_probe=2)
    assert type(CodeParams(np.int64(3)).k) is int
    assert hash(CodeParams(3)) == hash(CodeParams(3))
    for wrong in ({"k": 0}, {"scoring": "x"}, {"oversample": 0.5}, {"n_probe": 0}, {"n_threads": 0}):
        with pytest.raises(ValueError, match=f"expected {next(iter(wrong))}"):
            CodeParams(**wrong)
    own = posh.CodeIndex(SPARSE, n_probe=7, oversample=3.0).options
    complete = CodeParams(4, oversample=5.0).complete(own, SPARSE)
    assert complete == CodeParams(4, scoring="overlap", oversample=5.0, n_probe=7)
    assert CodeParams(4).as_arguments().keys() <= inspect.signature(posh.CodeIndex.search).parameters.keys()


def test_every_refiner_name_has_a_class():
    assert tuple(REFINERS) == REFINER_NAMES


def test_every_hasher_is_in_the_table():
    everything = [
        getattr(hashers, name) for name in hashers.__all__ if inspect.isclass(getattr(hashers, name))
    ]
    concrete = {cls.__name__ for cls in everything if not inspect.isabstract(cls)}
    assert concrete == set(HASHERS)
    with pytest.raises(ValueError, match=r"expected method to be one of BOSL, ITQ, .* got 'SHA'"):
        make_hasher("SHA", {})
    with pytest.raises(ValueError, match="expected params among n_bits, random_state, got 'n_active'"):
        make_hasher("LSH", {"n_active": 3})


@pytest.mark.parametrize(
    ("option", "table"), [("structure", STRUCTURE_NAMES), ("scoring", SCORINGS), ("refine", REFINERS)]
)
def test_choices_are_those_of_the_table(option, table, capsys):
    literal, _ = get_args(requests.IndexOptions.model_fields[option].annotation)
    assert get_args(literal) == tuple(table)
    with pytest.raises(ValueError, match=", ".join(repr(name) for name in table)):
        posh.CodeIndex(SPARSE, **{option: "x"})
    with pytest.raises(SystemExit):
        main(["build", "--help"])
    assert f"--{option} {{{','.join(table)}}}" in " ".join(capsys.readouterr().out.split())


def test_the_service_takes_the_methods_of_the_table():
    assert get_args(requests.Fit.model_fields["method"].annotation) == tuple(HASHERS)
    options = {*CodeOptions.names(), *NearestOptions.names()}
    assert set(requests.IndexOptions.model_fields) == options
