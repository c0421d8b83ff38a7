"""Threads that search while others write and reindex: every answer is that of some moment."""

from __future__ import annotations

import threading
import time
from collections import Counter
from unittest import mock

import numpy as np
import pytest

import posh
from posh.collection import indexing, masks, snapshot
from tests.collection.implementations import DATA, OTHER, SPARSE
from tests.index.test_threads import SECONDS

TEAMS = 12
KINDS = {"written", "deleted", "reindexed", "compacted", "searched", "looked"}


class Teams:
    """Items come in pairs with equal vectors and payloads: an answer with half of a pair is a torn one.

    The first half of the teams is replaced all the time and so never missing; the others come and go.
    """

    def __init__(self, collection: posh.Collection) -> None:
        self.collection = collection
        self.stop = threading.Event()
        self.failures: list[str] = []
        self.done: Counter[str] = Counter()
        collection.upsert([f"stays {i}" for i in range(100)], DATA[:100], [{"team": None}] * 100)
        for team in range(TEAMS):
            self.put(team, np.random.default_rng(team))

    def put(self, team: int, rng: np.random.Generator) -> None:
        vectors = np.repeat(DATA[rng.integers(600, size=1)], 2, axis=0)
        payload = {"team": team, "round": int(rng.integers(1000))}
        self.collection.upsert([f"{team} a", f"{team} b"], vectors, [payload] * 2)

    def write(self, rng: np.random.Generator) -> str:
        team = int(rng.integers(TEAMS))
        if team >= TEAMS // 2 and rng.random() < 0.5:
            assert self.collection.delete([f"{team} a", f"{team} b"]) in (0, 2)
            return "deleted"
        self.put(team, rng)
        return "written"

    def maintain(self, rng: np.random.Generator) -> str:
        if rng.random() < 0.5:
            self.collection.reindex([SPARSE, OTHER][int(rng.integers(2))])
            return "reindexed"
        self.collection.compact()
        return "compacted"

    def ask(self, rng: np.random.Generator) -> str:
        team = int(rng.integers(TEAMS))
        filters = [None, {"team": team}, {"round": {"gte": 0}}, {"team": {"gte": 0}}, {"not": {"team": None}}]
        filter_ = filters[int(rng.integers(len(filters)))]
        query = DATA[rng.integers(600, size=2)]
        for ids, scores in zip(*self.collection.search(query, 200, filter=filter_, n_threads=1), strict=True):
            found = ids[ids != None]  # noqa: E711  # element by element
            self.check(found.tolist(), dict(zip(found, scores, strict=False)), filter_)
        return "searched"

    def look(self, rng: np.random.Generator) -> str:
        team = int(rng.integers(TEAMS))
        items = list(self.collection.items({"team": team}))
        rounds = {(item.payload["round"], item.vector.tobytes()) for item in items}
        if len(rounds) > 1 or len(items) not in ((2,) if team < TEAMS // 2 else (0, 2)):
            self.failures.append(f"items of team {team}: {items}")
        if self.collection.count({"team": team}) not in ((2,) if team < TEAMS // 2 else (0, 2)):
            self.failures.append(f"the count of team {team}")
        pair = self.collection.get([f"{team} a", f"{team} b"])
        if (pair[0] is None) != (pair[1] is None) or (pair[0] and pair[0].payload != pair[1].payload):
            self.failures.append(f"one of {pair}")
        return "looked"

    def check(self, ids: list[str], scores: dict[str, float], filter_: dict | None) -> None:
        members = Counter(number.split()[0] for number in ids if not number.startswith("stays"))
        torn = [team for team, n in members.items() if n != 2 or scores[f"{team} a"] != scores[f"{team} b"]]
        asked = [filter_["team"]] if filter_ and isinstance(filter_.get("team"), int) else range(TEAMS)
        missing = [team for team in asked if team < TEAMS // 2 and str(team) not in members]
        stayed = sum(number.startswith("stays") for number in ids)
        if torn or missing or len(set(ids)) < len(ids) or stayed != (100 if filter_ is None else 0):
            self.failures.append(f"{filter_}: torn {torn}, missing {missing}, {stayed} stayed, {ids}")

    def run(self, job, seed: int) -> None:
        rng = np.random.default_rng(seed)
        try:
            while not self.stop.is_set():
                self.done[job(rng)] += 1
        except BaseException as error:
            self.failures.append(repr(error))
            raise


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_every_answer_is_that_of_some_moment(tmp_path):
    limits = [
        (indexing, "WORTH", 50),
        (indexing, "BLOCK", 32),
        (masks, "FEW", 3),
        (snapshot, "_SPARE", 40),
    ]
    patches = [mock.patch.object(*limit) for limit in limits]
    for patch in patches:
        patch.start()
    with posh.Collection(tmp_path, SPARSE) as collection:
        teams = Teams(collection)
        jobs = [teams.write, teams.write, teams.maintain, teams.ask, teams.ask, teams.look]
        workers = [threading.Thread(target=teams.run, args=(job, i)) for i, job in enumerate(jobs)]
        for worker in workers:
            worker.start()
        begun = time.monotonic()
        while time.monotonic() < begun + SECONDS or (
            not teams.failures and set(teams.done) != KINDS and time.monotonic() < begun + 120
        ):
            time.sleep(0.01)
        teams.stop.set()
        for worker in workers:
            worker.join()
        assert not teams.failures, teams.failures[0]
        assert set(teams.done) == KINDS
        assert len(collection) == 100 + collection.count({"team": {"gte": 0}})
    for patch in patches:
        patch.stop()


def test_closing_while_others_work(tmp_path):
    """They are told that it is closed; what was written is there."""
    for i in range(5):
        collection = posh.Collection(tmp_path / str(i), SPARSE)
        teams = Teams(collection)
        outcomes: list[str] = []

        def work(job, seed, outcomes=outcomes):
            rng = np.random.default_rng(seed)
            try:
                while True:
                    job(rng)
            except ValueError as error:
                outcomes.append(str(error))

        jobs = [teams.write, teams.maintain, teams.ask, teams.look]
        workers = [threading.Thread(target=work, args=(job, seed)) for seed, job in enumerate(jobs)]
        for worker in workers:
            worker.start()
        time.sleep(0.05 * i)
        collection.close()
        for worker in workers:
            worker.join()
        assert len(outcomes) == 4
        assert all("got a closed one" in outcome for outcome in outcomes), outcomes
        assert not teams.failures, teams.failures[0]
        with posh.Collection(tmp_path / str(i)) as again:
            assert again.count({"team": None}) == 100
            assert again.search(DATA[0], 1).scores[0, 0] > 0


def test_searches_do_not_wait_for_a_write(tmp_path):
    """With filters that are not known yet too."""
    collection = posh.Collection(tmp_path, SPARSE).upsert(range(10), DATA[:10], [{"a": i} for i in range(10)])
    with collection._store.writing() as connection:  # the lock and a transaction, held by this thread
        connection.execute("INSERT INTO fields VALUES ('a', 2, 3, 77)")
        answers: list = []
        asking = threading.Thread(
            target=lambda: answers.append(
                (
                    collection.search(DATA[3], 1).ids[0, 0],
                    collection.search(DATA[5], 1, filter={"a": {"gt": 3}}).ids[0, 0],
                    collection.count({"a": {"lte": 3}}),
                    collection.get([3])[0].id,
                    [item.id for item in collection.items({"a": 7})],
                )
            )
        )
        asking.start()
        asking.join(timeout=60)
        assert not asking.is_alive()
        connection.execute("DELETE FROM fields WHERE seq = 77")
    assert answers == [(3, 5, 4, 3, [7])]
    collection.close()
