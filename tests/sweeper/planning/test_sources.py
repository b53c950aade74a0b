"""Sources of cohorts, and a queue that drivers share."""

import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from unittest.mock import Mock

import pytest

from sweeper.planning import sources
from sweeper.planning.cohorts import Cohort, Cut, cut, halves
from sweeper.planning.sources import CohortQueue, Sharing
from sweeper.runtime import Machine
from sweeper.storage.files import Files
from sweeper.storage.lease import Lease
from tests.cases import for_each
from tests.sweeper.packing.fake_cluster import members
from tests.sweeper.storage.interleaved import Interleaving

EIGHT, THREE = cut([members(8), members(3)], [Cut(8, 8), Cut(3, 3)])


def drained(queue: CohortQueue) -> list[Cohort]:
    cohorts = []
    while cohort := queue.next():
        cohorts.append(cohort)
    return cohorts


def test_cohorts_come_in_order_until_none_is_left() -> None:
    queue = CohortQueue([EIGHT, THREE])
    assert not queue.exhausted and drained(queue) == [EIGHT, THREE] and queue.exhausted
    assert set(queue.cohorts) == {EIGHT.id, THREE.id}


def test_trials_that_have_a_row_are_left_out() -> None:
    queue = CohortQueue([EIGHT, THREE], dict.fromkeys([trial.id for trial in EIGHT.trials[:5]], "finished"))
    first, *_ = drained(queue)
    assert first.id == EIGHT.id and first.trials == EIGHT.trials[5:]


def test_a_cohort_is_halved_as_a_whole_and_the_rest_of_its_halves_is_trained() -> None:
    recorded: list[str] = []
    finished = dict.fromkeys([trial.id for trial in EIGHT.trials[:5]], "finished")
    queue = CohortQueue([EIGHT], finished, record_halved=recorded.append)
    (cohort,) = drained(queue)
    (second,) = queue.halve(cohort)
    assert second.id == halves(EIGHT)[1].id and second.trials == EIGHT.trials[5:] and recorded == [EIGHT.id]
    quarter, _ = queue.halve(second)
    assert {second.id, quarter.id} <= set(queue.cohorts)


def cohorts_of(count: int, size: int) -> list[Cohort]:
    return list(cut([members(count)], [Cut(size, 1)]))


class Clock:
    """Goes on by what the drivers do, so that leases end while others work."""

    now = 0.0

    def __call__(self) -> float:
        self.now += 0.5
        return self.now


def queue(folder: Path, whole: list[Cohort], statuses: Mapping[str, str], say: Mock | None = None) -> CohortQueue:
    lease = Lease(Files(folder), "s", "digits")
    lease.open()
    return CohortQueue(whole, dict(statuses), sharing=Sharing(lease, lambda: statuses, say or Mock(), clock=Clock()))


def drain(source: CohortQueue, limit: int = 50) -> list[Cohort]:
    """What it gives until it gives nothing for a while."""
    given = [source.next() for _ in range(limit)]
    return [cohort for cohort in given if cohort]


def test_the_first_driver_takes_from_the_front_and_the_second_from_the_back(tmp_path: Path) -> None:
    whole = cohorts_of(6, 1)
    first, second = (queue(tmp_path, whole, {}) for _ in range(2))
    given = [(source.next() or whole[0]).id for source in (first, second, first, second)]
    assert given == [whole[0].id, whole[5].id, whole[1].id, whole[4].id]
    for source in (first, second):
        assert source._sharing
        source._sharing.lease.close()


def test_what_another_has_trained_is_left_out_and_counted(tmp_path: Path) -> None:
    whole, statuses, say = cohorts_of(6, 2), dict[str, str](), Mock()
    first, second = queue(tmp_path, whole, statuses), queue(tmp_path, whole, statuses, say)
    theirs, ours = first.next(), second.next()
    assert theirs and ours
    (left,) = drain(second)
    assert not second.exhausted and say.call_args.args[0].startswith("waiting for 2 trials of another driver: ")
    assert say.call_count == 1
    statuses |= {trial.id: "finished" for trial in theirs.trials}
    assert first._sharing
    first._sharing.lease.close()
    assert drain(second) == [] and second.exhausted
    elsewhere = second.trained_elsewhere()
    assert elsewhere and elsewhere.cohorts == 1 and elsewhere.statuses == {t.id: "finished" for t in theirs.trials}
    assert second.trained_elsewhere() is None and left.id not in (theirs.id, ours.id)


def test_what_a_driver_leaves_is_taken_over_but_not_what_failed_there(tmp_path: Path) -> None:
    whole, statuses = cohorts_of(3, 3), dict[str, str]()
    first, second = queue(tmp_path, whole, statuses), queue(tmp_path, whole, statuses)
    assert first.next() and drain(second) == [] and not second.exhausted
    one, two, three = (trial.id for trial in whole[0].trials)
    statuses |= {one: "finished", two: "failed"}
    assert first._sharing
    first._sharing.lease.close()
    (taken,) = drain(second)
    assert taken.id == whole[0].id and [trial.id for trial in taken.trials] == [three]
    assert second.cohorts[taken.id] == taken and second.exhausted


def test_claims_of_cohorts_that_end_at_once_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "SOON", 1e9)
    source = queue(tmp_path, cohorts_of(300, 1), {})
    assert source._sharing
    claim = Mock(wraps=source._sharing.lease.claim)
    monkeypatch.setattr(source._sharing.lease, "claim", claim)
    assert len(drain(source, 300)) == 300 and source.exhausted
    sizes = [len(call.args[0]) for call in claim.call_args_list]
    assert sizes[:7] == [1, 2, 4, 8, 16, 32, 64] and max(sizes) == 64


@pytest.mark.slow
@for_each("deaths", [0, 1, 2])
@for_each("seed", range(16))
def test_every_trial_gets_one_row(seed: int, deaths: int, tmp_path: Path) -> None:
    """Three drivers on three machines, one of which cuts its cohorts otherwise. `deaths` of them are killed."""
    world, clock = Interleaving(tmp_path, seed), Clock()
    choice = random.Random(seed)
    victims = choice.sample("xyz", deaths)
    world.kill_at = {choice.randrange(5, 150): victim for victim in victims}
    begun, rows, statuses = Counter[str](), Counter[str](), dict[str, str]()

    def drive(name: str, files: Files, choice: random.Random) -> None:
        lease = Lease(files, "s", machine=Machine(name, ""), clock=clock, renewal_seconds=1e6)

        def read() -> Mapping[str, str]:
            world.pause(name)
            return dict(statuses)

        for _ in range(choice.randrange(10)):
            world.pause(name)
        lease.open()
        planned = read()
        whole = cohorts_of(12, {"x": 2, "y": 2, "z": 3}[name])
        source = CohortQueue(whole, planned, sharing=Sharing(lease, read, clock=clock))
        running: list[Cohort] = []
        while not source.exhausted or running:
            lease.renew()
            if len(running) < 2 and (cohort := source.next()):
                begun.update(trial.id for trial in cohort.trials)
                running.append(cohort)
            elif running and choice.random() < 0.5:
                cohort = running.pop(choice.randrange(len(running)))
                world.pause(name)
                ids = [trial.id for trial in cohort.trials]
                rows.update(ids)
                statuses.update(dict.fromkeys(ids, "finished"))
                source.completed(cohort.id, [{"trial_id": trial} for trial in ids], [])
        lease.close()

    world.run({name: drive for name in "xyz"})
    assert world.killed <= set(victims)
    assert rows == Counter(trial.id for cohort in cohorts_of(12, 1) for trial in cohort.trials)
    if not deaths:
        assert max(begun.values()) == 1
