"""`--decide`: rounds of further seeds for open claims, what they record, and what is refused."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sweeper import api
from sweeper.claims import Claim, Side
from sweeper.claims import decide as decide_module
from sweeper.claims.interim import read_analyses
from sweeper.claims.judging import judge
from sweeper.definition import Grid, Sweep
from sweeper.errors import SpecError
from sweeper.storage.files import Files
from sweeper.storage.load import load
from tests.fake_executor import without_ray
from tests.sweeper.small_sweeps import FIXED, TINY
from trainables.worker.messages import CohortTask

AUROC = "auroc_joint"
LOW = Side(AUROC, {"beta": 0.5})
OURS = replace(
    TINY,
    name="tiny",
    presets={"digits": Grid(FIXED, {"beta": (0.5, 1.5), "seed": (0, 1, 2)})},
    claims=(
        Claim("X-01", "clear at three seeds", "1", Side(AUROC), ">", -1e6),
        Claim("X-02a", "open for ever, as equal values have no interval", "1", LOW, "~", LOW, 0.1),
        Claim("X-02b", "of one seed", "1", Side(AUROC, {"beta": 0.5, "seed": 0}), ">", 0.0),
        Claim("X-04", "at its margin for ever", "1", LOW, "~", LOW, 0.0),
    ),
)


def decide(store: Path, task: Callable[[CohortTask], None] = lambda task: None, **options: Any) -> Any:
    with without_ray(store, task):
        return api.run(OURS, store=store / "store", **{"decide": True, "most_seeds": 7, "keep": "none", **options})


@pytest.mark.slow
def test_seeds_are_added_where_a_claim_is_open_and_an_interrupted_round_is_continued(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks: list[CohortTask] = []

    def interrupt(task: CohortTask) -> None:
        tasks.append(task)
        if len(tasks) == 3:
            raise KeyboardInterrupt

    files = Files(tmp_path / "store")
    with pytest.raises(KeyboardInterrupt):
        decide(tmp_path, interrupt)
    analyses = read_analyses(files, "tiny", "digits")
    assert analyses and analyses.taken == dict.fromkeys(("X-01", "X-02a", "X-02b", "X-04"), (3,))
    plan = api.plan(OURS, store=tmp_path / "store", decide=True, most_seeds=7)["decide"]
    assert (plan["open"], plan["first_seeds"], plan["at_most"]) == (["X-02a"], [3, 4], 4)
    left_out = "X-04 left out: the value is at the margin, which no number of seeds decides"
    assert plan["expected"] == ["X-02a: no spread seen yet", left_out]
    rows = decide(tmp_path, tasks.append)
    analyses = read_analyses(files, "tiny", "digits")
    assert analyses and analyses.taken == {"X-01": (3,), "X-02a": (3, 5, 7), "X-02b": (3,), "X-04": (3,)}
    assert sorted(zip(rows["beta"], rows["seed"], strict=True)) == [
        *((0.5, seed) for seed in range(7)), (1.5, 0), (1.5, 1), (1.5, 2)
    ]  # fmt: skip
    assert set(rows[rows["seed"] > 2]["changes"]) == {f"seed={seed}" for seed in range(3, 7)}
    assert len(load("tiny", tmp_path / "store", preset="digits")) == 6
    assert len(load("tiny", tmp_path / "store", preset="digits", changes="decided")) == 10
    judged = {each.claim.name: each for each in judge(files, OURS, "digits")}
    assert judged["X-01"].verdict == "holds" and judged["X-01"].level == pytest.approx(1 - 0.05 * 3 / 7)
    assert judged["X-02a"].n == 7 and "interim analysis 3 at 7 seeds" in judged["X-02a"].reason
    assert judge(files, OURS, "digits", "decided") == judge(files, OURS, "digits")
    trained = len(tasks)
    decide(tmp_path, tasks.append)
    out = capsys.readouterr().out
    assert len(tasks) == trained and "X-02a undecided: open for ever" in out.splitlines()[-3]
    assert out.count(left_out) == 3, "once in each run"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"decide": ["X-03"]}, "no claim 'X-03' (did you mean 'X-04'?); there are: X-01, X-02a, X-02b, X-04, X-02"),
        (
            {"sweep": replace(OURS, claims=())},
            "--decide needs claims that the preset can judge, but tiny (digits) has none",
        ),
        ({"sweep": "vje_search", "preset": "digits"}, "--decide needs a grid, but vje_search (digits) is a search"),
        ({"decide": None, "most_seeds": 3}, "--most-seeds requires --decide"),
        (
            {"set": {"lr": 0.01}},
            "a claim is judged by trials with the preset's own settings, any seeds and at least its epochs, but the "
            "request changes lr: --decide decides none",
        ),
        ({"most_seeds": 0}, "--most-seeds must be a whole number of at least 1, but got 0"),
    ],
)
def test_what_cannot_be_decided_is_refused_in_one_line(options: dict[str, Any], said: str, tmp_path: Path) -> None:
    sweep: str | Sweep = options.pop("sweep", OURS)
    with pytest.raises(SpecError) as refused:
        api.plan(sweep, store=tmp_path, **{"decide": True, **options})
    assert said in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.slow
def test_the_level_is_split_for_the_most_seeds_of_the_first(tmp_path: Path) -> None:
    decide(tmp_path, decide=["X-01"])
    with pytest.raises(SpecError, match="`--most-seeds <= 7` must hold, for which the interim analyses of 'digits'"):
        api.plan(OURS, store=tmp_path / "store", decide=True, most_seeds=8)
    with pytest.raises(SpecError, match="were first analysed with seeds 0,1,2; ask for the same"):
        api.plan(OURS, store=tmp_path / "store", decide=True, most_seeds=7, axis={"seed": [0]})
    assert api.plan(OURS, store=tmp_path / "store", decide=["X-02"], most_seeds=4)["decide"]["at_most"] == 1


@pytest.mark.slow
def test_the_plan_names_the_seeds_that_claims_are_expected_to_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the rows of three seeds. One that needs more than the most is left out, and so is one at its margin. One that
    its classes have decided with one seed is open: that says nothing of other seeds."""
    with without_ray(tmp_path):
        api.run(OURS, store=tmp_path / "store", keep="none")
    known = {each.claim.name: each for each in judge(Files(tmp_path / "store"), OURS, "digits")}
    base = replace(known["X-01"], verdict="undecided", difference=1.0, low=-1.0, high=3.0, analyses=(3,))
    found = [
        replace(base, claim=known["X-01"].claim, p=0.3, p_of_analysis=0.2),
        replace(base, claim=known["X-02a"].claim, p=1.0, p_of_analysis=0.8),
        replace(base, claim=known["X-04"].claim, verdict="holds", n=10, over="10 classes of one seed"),
        known["X-02b"],
    ]
    monkeypatch.setattr(decide_module, "judge_at", lambda *_: found)
    plan = api.plan(OURS, store=tmp_path / "store", decide=True, most_seeds=10)
    assert plan["decide"]["expected"] == [
        "X-01: about 9 seeds expected",
        "X-02a left out: about 220 seeds expected, more than --most-seeds 10",
        "X-04: 3 seeds first, to see their spread",
    ]
    assert plan["decide"]["open"] == ["X-01", "X-04"] and plan["decide"]["first_seeds"] == [3, 4]


def test_a_broken_claim_is_refused_before_anything_is_decided(tmp_path: Path) -> None:
    broken = replace(OURS, claims=(Claim("X-05", "a typing error", "1", Side("knm_z"), ">", 0.5),))
    with pytest.raises(SpecError, match="claim X-05: no metric 'knm_z'"):
        api.plan(broken, store=tmp_path, decide=True)
    assert api.plan(broken, store=tmp_path)["trials"] == 6
