import json
from pathlib import Path

import pytest

from sweeper.commands.arguments import parse
from sweeper.packing.cluster import SlotResources, Slots
from sweeper.packing.compilation import StudySteps, WaveCutter
from sweeper.packing.cuts import (
    describe_cuts,
    record_cuts,
    record_halved,
    record_paths,
    recorded_cuts,
    recorded_halves,
    recorded_threads,
    requested_cut,
    settled_cuts,
)
from sweeper.packing.profiler import fixed_shape
from sweeper.planning import cohorts
from sweeper.planning.cohorts import Cohort, Cut, Trial, cut, group
from sweeper.storage.files import Files
from sweeper.storage.layout import checkpoint_path
from tests.cases import for_each
from tests.sweeper.planning.test_cohorts import make


def cutter(*arguments: str, slots: int = 2, studies: int = 1, **steps: StudySteps) -> WaveCutter:
    here = Slots((SlotResources({"CPU": 1.0}, slots),), local=True)
    return WaveCutter(here, studies, requested_cut(parse(["a", *arguments])), steps)


def cohorts_of(
    sizes: list[int], *arguments: str, slots: int = 2, studies: int = 1, whole: bool = False
) -> list[Cohort]:
    """Return the cohorts of a wave; `sizes` has the number of trials of each shape."""
    trials = [Trial(f"{shape}.{i}", {"width": shape}) for shape, size in enumerate(sizes) for i in range(size)]
    groups = group(trials, lambda trial: trial.config["width"], lambda trial: 0)
    return list(cut(groups, cutter(*arguments, slots=slots, studies=studies).cut(groups, whole)))


@for_each(
    ("sizes", "slots", "studies", "expected"),
    [
        ([32], 2, 1, [16, 16]),
        ([32], 1, 1, [32]),
        ([22, 8, 2], 2, 1, [11, 11, 8, 2]),
        ([6, 15, 6, 5], 2, 1, [6, 15, 6, 5]),
        ([12], 2, 8, [12]),  # other studies fill the slots
        ([12], 4, 2, [6, 6]),
        ([3], 8, 1, [1, 1, 1]),
    ],
)
def test_no_cohort_has_more_than_its_slots_part_of_a_wave(
    sizes: list[int], slots: int, studies: int, expected: list[int]
) -> None:
    cohorts = cohorts_of(sizes, slots=slots, studies=studies)
    assert [len(cohort.trials) for cohort in cohorts] == expected
    assert all(cohort.width == len(cohort.trials) for cohort in cohorts)


def test_a_slots_part_is_of_whole_proposals() -> None:
    """Five proposals of three trials on two slots: cohorts of eight would be three."""
    trials = [Trial(f"{number}.{seed}", {"number": number}) for number in range(5) for seed in range(3)]
    groups = group(trials, lambda trial: 0, lambda trial: trial.config["number"])
    cuts = cutter().cut(groups, False, 3)
    assert [len(cohort.trials) for cohort in cut(groups, cuts)] == [9, 6]


def test_a_population_is_never_split() -> None:
    assert [len(cohort.trials) for cohort in cohorts_of([9], slots=3, whole=True)] == [9]
    assert [cohort.width for cohort in cohorts_of([9], "--cohort", "4", "--stack", "2", whole=True)] == [2]


def test_a_requested_cut_is_used() -> None:
    cohorts = cohorts_of([9], "--cohort", "4", "--stack", "2")
    assert [(len(cohort.trials), cohort.width) for cohort in cohorts] == [(3, 2)] * 3


def test_members_that_several_workers_train_are_stepped_in_turn() -> None:
    trials = [Trial(str(i), {"workers": 2}) for i in range(4)]
    groups = group(trials, lambda trial: 0, lambda trial: 0)
    assert cutter().cut(groups, False) == [Cut(2, 1)]


def test_compiled_stacks_of_a_search_have_one_width_whatever_their_cohorts() -> None:
    """Trials of shape 1 have compiled steps; with a cohort of less than the width its members are stepped in turn."""
    configs = [{"method": "vje", "width": shape} for shape in (0, 1)]
    trials = [
        Trial(f"{config['width']}.{i}", config, {"study_id": "study"})
        for config, size in zip(configs, (5, 13), strict=True)
        for i in range(size)
    ]
    groups = group(trials, lambda trial: trial.config["width"], lambda trial: 0)
    compiled = StudySteps(4, shapes=(fixed_shape(configs[1]),))

    def cuts(*arguments: str, whole: bool = False) -> list[Cut]:
        return cutter(*arguments, study=compiled).cut(groups, whole)

    assert cuts() == [Cut(9, 9), Cut(9, 4, compiled=True)]
    assert cuts(whole=True) == [Cut(5, 5), Cut(13, 4, compiled=True)]
    assert cuts("--cohort", "20", "--stack", "15") == [Cut(20, 15), Cut(20, 13, compiled=True)]


def test_cuts_in_words() -> None:
    assert describe_cuts([Cut(4, 4), Cut(3, 1), Cut(4, 4), Cut(1, 1)]) == [
        "up to 4 trials each, 4 stacked as one",
        "up to 3 trials each, trained in turn",
        "one trial each",
    ]


def test_a_stack_is_as_wide_as_its_cohort_unless_requested_otherwise() -> None:
    assert requested_cut(parse(["a"])) is None
    assert requested_cut(parse(["a", "--cohort", "4"])) == Cut(4, 4)
    assert requested_cut(parse(["a", "--cohort", "4", "--stack", "1"])) == Cut(4, 1)


def test_a_cut_is_settled_as_requested_before_it_is_as_recorded(tmp_path: Path) -> None:
    plan, files = make(), Files(tmp_path)
    assert settled_cuts(parse(["a"]), plan, files) is None
    record_cuts(files, plan, [Cut(3, 3), Cut(2, 1)], measured=None)
    assert settled_cuts(parse(["a"]), plan, files) == [Cut(3, 3), Cut(2, 1)]
    assert settled_cuts(parse(["a", "--cohort", "4"]), plan, files) == [Cut(4, 4)] * 2


def test_a_cut_is_kept_for_its_own_plan(tmp_path: Path) -> None:
    files = Files(tmp_path)
    assert recorded_cuts(files, make()) is None
    cuts = [Cut(3, 3), Cut(2, 1)]
    record_cuts(files, make(), cuts, measured=[[{"width": 1}]])
    assert recorded_cuts(files, make(statuses={"t0": "finished"})) == cuts
    assert recorded_cuts(files, make(5)) is None
    (file,) = (tmp_path / "cuts/sweep=grid").iterdir()
    assert json.loads(file.read_text())["measured"] == [[{"width": 1}]]


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"cuts": [{"size": 3}]}', b'{"cuts": [{"size": 3, "width": 3}]}']
)
def test_a_damaged_record_counts_as_absent(tmp_path: Path, content: bytes) -> None:
    """The last record has one cut, but the plan has two groups."""
    files = Files(tmp_path)
    record_cuts(files, make(), [Cut(3, 3)] * 2, measured=None)
    (file,) = (tmp_path / "cuts/sweep=grid").iterdir()
    file.write_bytes(content)
    assert recorded_cuts(files, make()) is None


def test_the_threads_of_a_process_are_kept(tmp_path: Path) -> None:
    files = Files(tmp_path)
    assert recorded_threads(files, make()) == 1
    record_cuts(files, make(), [Cut(3, 3)] * 2, measured=None, threads=4)
    assert recorded_threads(files, make()) == 4 and recorded_threads(files, make(5)) == 1


def test_halves_are_kept_and_belong_to_the_records_of_the_plan_with_their_cohort(tmp_path: Path) -> None:
    """The second cohort that is halved is of another plan of the same sweep."""
    files, cuts = Files(tmp_path), [Cut(3, 3)] * 2
    assert recorded_halves(files, "grid") == set()
    record_cuts(files, make(), cuts, measured=None)
    first, _ = cohorts.cut(make().groups, cuts)
    for cohort_id in (first.id, "another"):
        record_halved(files, "grid", cohort_id)
    assert recorded_halves(files, "grid") == {first.id, "another"} and recorded_halves(files, "other") == set()
    cut_path, *halved_paths = record_paths(files, make())
    assert [path.rpartition("/")[2] for path in halved_paths] == [first.id]
    assert files.read(cut_path) and files.read(halved_paths[0]) == b""


def test_checkpoints_of_halves_belong_to_the_records_of_the_plan_and_go_first(tmp_path: Path) -> None:
    """A fresh run that archived the record of the halving knows nothing of the halves."""
    files, cuts = Files(tmp_path), [Cut(3, 3)] * 2
    record_cuts(files, make(), cuts, measured=None)
    first, second = cohorts.cut(make().groups, cuts)
    halves = cohorts.halves(first)
    halved = next(half for half in halves if len(half.trials) > 1)
    for cohort in (first, halved):
        record_halved(files, "grid", cohort.id)
    known = [checkpoint_path("grid", cohort.id) for cohort in (first, *halves, *cohorts.halves(halved))]
    known.append(f"{checkpoint_path('grid', halved.id)}.why")
    for path in (*known, checkpoint_path("grid", second.id)):
        files.write(path, b"")
    assert set(record_paths(files, make())[: len(known)]) == set(known)
