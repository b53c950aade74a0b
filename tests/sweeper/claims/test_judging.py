"""`sweeper claims`: verdicts of the rows of a store."""

import errno
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
from scipy import special, stats

from sweeper.claims import Claim, Filter, Side
from sweeper.claims.judging import Judged, by_row, counts_text, judge, write
from sweeper.commands import claims as command
from sweeper.definition import Grid, Metric, Sweep, Table, registry
from sweeper.definition.judging import JUDGING
from sweeper.planning.plan import Plan
from sweeper.record.page import write_claims
from sweeper.report import publish
from sweeper.report.figures import figures_of
from sweeper.report.kinds import write_figures
from sweeper.report.page.contents import collect
from sweeper.storage import local_disk
from sweeper.storage.files import Files
from sweeper.storage.layout import claims_folder, claims_path
from sweeper.storage.load import load
from sweeper.storage.requests import request_name
from sweeper.storage.rows import Columns
from sweeper.storage.store import Store
from tests.cases import for_each
from tests.sweeper.claims.stored_rows import write_rows
from tests.sweeper.small_sweeps import FIXED, TINY

AUROC = "auroc_joint"
CLAIMS = (
    Claim("X-01", "finite", "1", Side(AUROC, {"beta": 0.5}), ">", -1.0),
    Claim("X-02", "below", "1", Side(AUROC, {"beta": 0.5}), ">", 1000.0),
    Claim("X-03a", "one seed", "1", Side(AUROC, {"beta": 0.5, "seed": 0}), ">", 0.0),
    Claim("X-03b", "a number", "1", Side(AUROC), "~", 0.5, 100.0),
    Claim("X-04", "better beta", "1", Side(AUROC, {}, "argmax", "beta"), "~", 1.0, 9.0),
    Claim("X-06", "the loss settles", "1", Side("loss", {}, "settled", "epoch"), ">", 0.0),
    Claim("X-05", "loss over epochs", "1", Side("loss", {"epoch": Filter(">", 0)}), ">", -1e9),
)
SEEDS = {"digits": Grid(FIXED, {"beta": (0.5, 1.5), "seed": (0, 1, 2)})}
OURS = Sweep(TINY.about, SEEDS, figures=TINY.figures, name="tiny", claims=CLAIMS)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a run in this process, of six trials."""
    from sweeper import api

    folder = tmp_path_factory.mktemp("claims")
    api.run(OURS, preset="digits", store=folder, debug=True)
    return folder


@pytest.mark.slow
def test_a_real_run_gives_verdicts(store: Path) -> None:
    judged = {each.claim.name: each for each in judge(Files(store), OURS, "digits")}
    verdicts = {name: each.verdict for name, each in judged.items()}
    assert verdicts["X-01"] == "holds" and verdicts["X-02"] == "refuted" and verdicts["X-03b"] == "holds"
    assert verdicts["X-03a"] == "undecided" and judged["X-03a"].reason == "one replicate: an interval needs 3 seeds"
    assert judged["X-03a"].n == 1 and judged["X-03a"].low != judged["X-03a"].low  # NaN, not zero
    assert verdicts["X-04"] == "holds" and verdicts["X-05"] == "holds" and judged["X-01"].n == 3
    assert 1 <= judged["X-06"].left <= 2
    assert by_row([*judged.values()])["X-03"] == "undecided"


SETS = Sweep(
    "a mean over data sets",
    {"digits": Grid({"method": "random"}, {"dataset": ("digits", "mnist"), "seed": (0, 1, 2, 3)})},
    figures=TINY.figures,
    name="sets",
    claims=(Claim("X-11", "above a half", "1", Side("knn_z"), ">", 0.5),),
)


def _written(folder: Path, sets: Mapping[str, Sequence[float | None]], changes: str = "", **keys: str | int) -> None:
    """A store of `sets`, with `knn_z` of each seed of each data set, of a request with `changes`."""
    types = {name: type(value) for name, value in keys.items()}
    store, columns = Store(folder), Columns({"dataset": str, "seed": int, **types}, ("knn_z",))
    store.prepare("sets", columns)
    now = datetime(2026, 1, 1, tzinfo=UTC)
    run = {
        "preset": "digits",
        "changes": changes,
        **keys,
        "status": "finished",
        "started": now,
        "ended": now,
        "cohort": "c",
    }
    rows = [
        {"trial_id": f"{index}-{seed}", "dataset": dataset, "seed": seed, "knn_z": value, **run}
        for index, (dataset, values) in enumerate(sets.items())
        for seed, value in enumerate(values)
    ]
    store.write("sets", "c", rows, columns)


@pytest.mark.parametrize("lacking", [0, 1])
def test_data_sets_are_no_replicates(tmp_path: Path, lacking: int) -> None:
    """A replicate is the mean over its data sets, whose difference widens no interval; one without all is left out."""
    sets = {"digits": [0.99 - 0.001 * seed for seed in range(4)], "mnist": [0.1] * (4 - lacking)}
    _written(tmp_path, sets)
    (judged,) = judge(Files(tmp_path), SETS, "digits")
    assert judged.verdict == "holds" and judged.n == 4 - lacking and judged.data == "digits, mnist"
    means = [(sets["digits"][seed] + 0.1) / 2 for seed in range(4 - lacking)]
    centre, error = sum(means) / len(means), stats.sem(means)
    half = stats.t.ppf(0.975, len(means) - 1) * error / (centre * (1 - centre))
    interval = special.expit(special.logit(centre) + np.array([-half, half])) - 0.5
    assert (judged.low, judged.high) == pytest.approx(tuple(interval), abs=1e-12)
    assert [row["trial"] for row in judged.trials] == [
        f"{index}-{seed}" for index, values in enumerate(sets.values()) for seed in range(len(values))
    ]


def test_equal_replicates_have_a_reason_and_no_verdict(tmp_path: Path) -> None:
    _written(tmp_path, {"digits": [0.9] * 4, "mnist": [0.8] * 4})
    (judged,) = judge(Files(tmp_path), SETS, "digits")
    assert (judged.verdict, judged.reason) == ("undecided", "all replicates are equal: they show no spread")


def test_trials_from_before_a_metric_are_run_again(tmp_path: Path) -> None:
    _written(tmp_path, {"digits": [None] * 4, "mnist": [None] * 4})
    (judged,) = judge(Files(tmp_path), SETS, "digits")
    assert (judged.verdict, judged.reason) == ("not run", "the trials were trained before knn_z existed")
    assert judged.command == f"sweeper run sets --preset digits --store {tmp_path} --fresh"


def test_a_verdict_on_other_images_than_the_claim_is_about_says_so(tmp_path: Path) -> None:
    """A preset with one data set alone stands in for that of the paper."""
    fashion = Side("knn_z", {"dataset": "fashion_mnist"})
    sweep = replace(
        SETS,
        presets={"digits": Grid({"method": "random", "dataset": "digits"}, {"seed": (0, 1, 2, 3)})},
        claims=(Claim("X-12", "above a half", "1", fashion, ">", 0.5),),
    )
    _written(tmp_path, {"digits": [0.9, 0.91, 0.92, 0.93]})
    (judged,) = judge(Files(tmp_path), sweep, "digits")
    assert (judged.verdict, judged.reason) == ("holds", "on digits in place of fashion_mnist")


FIGURE = Table("k-NN", ("method",), (Metric("knn_z", "maximize"),), published={"digits": {("random",): {"knn_z": 0.8}}})
OF_DIGITS = replace(
    SETS,
    presets={"digits": Grid({"method": "random", "dataset": "digits", "epochs": 5}, {"seed": (0, 1, 2)})},
    figures=(FIGURE,),
)
OWN: Mapping[str, str | int] = {"method": "random", "dataset": "digits", "epochs": 5}


@for_each(
    ("changes", "keys", "counts"),
    [
        ("seed=3,4", {}, True),
        ("epochs=9", {"epochs": 9}, True),
        ("epochs=2", {"epochs": 2}, False),
        ("dataset=folder-1f3a9c", {"dataset": "folder"}, False),
        ("dataset=my_data:Screws-1f3a9c", {"dataset": "my_data:Screws"}, False),
        ("method=my_method:Mine", {"method": "my_method:Mine"}, False),
        ("encoder=my_nets:Tiny", {"encoder": "my_nets:Tiny"}, False),
        ("augmentation=my_views:Stain seed=3", {"augmentation": "my_views:Stain"}, False),
    ],
)
def test_a_claim_and_a_figure_of_a_paper_are_of_its_preset_alone(
    changes: str, keys: dict[str, str | int], counts: bool, tmp_path: Path
) -> None:
    """Neither is beside rows of other data, of other methods or settings, or of fewer epochs."""
    keys = {**OWN, **keys}
    dataset = str(keys.pop("dataset"))
    _written(tmp_path, {dataset: [0.9, 0.91, 0.92, 0.93]}, changes, **keys)
    files, request = Files(tmp_path), request_name("digits", changes)
    (judged,) = write(files, OF_DIGITS, "digits", changes)
    assert judged.verdict == ("holds" if counts else "not run")
    said = f"{JUDGING}, but the request changes {changes.partition('=')[0]}"
    assert (said in judged.reason) != counts and (said in counts_text([judged])) != counts
    assert bool(files.list(claims_folder("sets"))) == counts
    text = publish.write(files, publish.Subject("sets", OF_DIGITS, "digits", "", request), load("sets", files))
    assert ("paper" in text) == counts
    write_figures(files, "sets", figures_of(OF_DIGITS, "digits"))
    (shown,) = collect(files, "sets").report["requests"]
    assert shown["published"] == counts


def test_a_verdict_of_other_data_in_an_earlier_table_is_replaced(tmp_path: Path) -> None:
    _written(tmp_path, {"folder": [0.9, 0.91, 0.92, 0.93]}, "dataset=folder-1f3a9c")
    path = claims_path("sets", request_name("digits", "dataset=folder-1f3a9c"))
    Files(tmp_path).write(path, b"holds")
    write(Files(tmp_path), OF_DIGITS, "digits", "dataset=folder-1f3a9c")
    assert list(pd.read_parquet(tmp_path / path)["verdict"]) == ["not run"]


def test_a_store_without_rows_says_what_to_run(tmp_path: Path) -> None:
    for each in judge(Files(tmp_path), OURS, "digits"):
        assert (each.verdict, each.reason) == ("not run", "no rows")
        assert each.command == f"sweeper run tiny --preset digits --store {tmp_path}"


@pytest.mark.slow
def test_the_command_writes_a_table(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(registry, "find", lambda name: OURS)
    assert command.main(["tiny", "--store", str(store), "--holm"]) == 0
    assert "7 claims: " in capsys.readouterr().out
    assert (store / "reports" / "claims.html").exists()  # written by the run, too
    table = pd.read_parquet(store / "claims" / "sweep=tiny")
    assert {trial["side"] for trial in table["trials"][0]} == {"left"}
    assert list(table["claim"]) == [claim.name for claim in CLAIMS]
    assert table["low"].isna().any() and not table["low"].isna().all()


def test_misses_are_an_expectation_of_single_intervals_and_a_bound_of_holms() -> None:
    judged = [Judged("tiny", "", "digits", CLAIMS[0], "holds", low=0.1, high=0.2)] * 16
    assert "each of 16 intervals misses the truth with 5 %: 0.8 misses expected (--holm)" in command.summary(judged)
    assert "some verdict is wrong by chance with at most 5 % probability" in command.summary(judged, holm=True)


def test_verdicts_on_a_store_that_is_read_only_are_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(path: Path, data: bytes) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    _written(tmp_path, {"digits": [0.9, 0.91, 0.92, 0.93], "mnist": [0.8, 0.82, 0.81, 0.83]})
    monkeypatch.setattr(registry, "find", lambda name: SETS)
    monkeypatch.setattr(local_disk, "replace", refuse)
    monkeypatch.setenv("SWEEPER_STORE_TIMEOUT", "0")
    assert command.main(["sets", "--store", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert "1 claims: 1 holds" in out and "page: " not in out
    assert err.startswith("note: the verdicts above are not written: store ") and err.endswith(
        "Read-only file system\n"
    )


def test_the_command_leaves_no_store_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(registry, "find", lambda name: OURS)
    assert command.main(["tiny", "--store", str(tmp_path / "absent"), "--holm"]) == 0
    line = f"sweeper run tiny --preset digits --store {tmp_path / 'absent'}"
    assert f"7 claims not run: {line}" in capsys.readouterr().out
    assert not (tmp_path / "absent").exists()
    assert command.main(["tiny", "--preset", "other", "--store", str(tmp_path / "absent")]) == 2
    assert "no preset 'other'" in capsys.readouterr().err


def test_a_broken_claim_spoils_no_run_and_is_refused_by_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = replace(SETS, claims=(Claim("X-05", "a typing error", "1", Side("knm_z"), ">", 0.5),))
    _written(tmp_path, {"digits": [0.9, 0.91, 0.92, 0.93], "mnist": [0.8, 0.82, 0.81, 0.83]})
    lines = list[str]()
    plan = SimpleNamespace(name="sets", sweep=broken, preset="digits", changes=SimpleNamespace(text=""))
    assert write_claims(cast(Plan, plan), Files(tmp_path), lines.append) is None
    (line,) = lines
    assert line.startswith("the claims of sets are not judged: claim X-05: no metric 'knm_z'")
    monkeypatch.setattr(registry, "find", lambda name: broken)
    assert command.main(["sets", "--store", str(tmp_path)]) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert error.startswith("error: claim X-05: no metric 'knm_z'")


OF_CLASSES = Sweep(
    "classes",
    {"paper": Grid({"dataset": "digits"}, {"method": ("a", "b"), "normal_class": tuple(range(8)), "seed": (0, 1, 2)})},
    figures=(Table("k-NN", ("method",), (Metric("knn_z", "maximize"),)),),
    name="sets",
)
A_SIDE, B_SIDE = Side("knn_z", {"method": "a"}), Side("knn_z", {"method": "b"})
CLASSES = range(8)


def _of_classes(folder: Path, claim: Claim, values: Mapping[Any, float], **changes: Any) -> Judged:
    """The claim as judged by (method, class, seed) -> k-NN accuracy."""
    rows = [
        {"method": method, "dataset": "digits", "normal_class": index, "seed": seed, "knn_z": value}
        for (method, index, seed), value in values.items()
    ]
    keys = {"method": str, "dataset": str, "normal_class": int, "seed": int}
    write_rows(folder, "sets", keys, ("knn_z",), rows)
    (judged,) = judge(Files(folder), replace(OF_CLASSES, claims=(claim,), **changes), "paper")
    return judged


def _noise(scale: float, *shape: int) -> np.ndarray:
    return scale * np.random.default_rng(0).standard_normal(shape)


def test_the_interval_of_a_class_averaged_figure_is_over_seeds(tmp_path: Path) -> None:
    """However far apart the classes are. A seed that lacks a class is left out."""
    noise = _noise(0.01, 8, 4)
    values = {("a", index, seed): 0.1 * index + 0.1 + noise[index, seed] for index in CLASSES for seed in range(4)}
    means = [np.mean([values["a", index, seed] for index in CLASSES]) for seed in range(4)]
    judged = _of_classes(tmp_path / "4", Claim("X-20", "a mean", "1", A_SIDE, "~", 0.45, 0.02), values)
    assert (judged.verdict, judged.n, judged.left) == ("holds", 4, pytest.approx(np.mean(means)))
    del values["a", 7, 3]
    judged = _of_classes(tmp_path / "3", Claim("X-20", "a mean", "1", A_SIDE, "~", 0.45, 0.02), values)
    assert (judged.n, judged.left, judged.reason) == (3, pytest.approx(np.mean(means[:3])), "")


def test_classes_that_the_preset_has_and_no_row_are_said(tmp_path: Path) -> None:
    values = {("a", index, seed): 0.9 + 0.01 * seed for index in range(3) for seed in range(3)}
    judged = _of_classes(tmp_path, Claim("X-21", "a mean", "1", A_SIDE, ">", 0.5), values)
    assert (judged.verdict, judged.reason) == ("holds", "over 3 of 8 classes")


def test_random_classes_are_replicates(tmp_path: Path) -> None:
    values = {("a", index, seed): 0.7 + 0.01 * index + 0.001 * seed for index in CLASSES for seed in range(3)}
    claim = Claim("X-22", "a mean", "1", A_SIDE, ">", 0.5)
    assert _of_classes(tmp_path / "fixed", claim, values).n == 3
    assert _of_classes(tmp_path / "random", claim, values, random=("normal_class",)).n == 8


def test_what_takes_no_seed_is_a_number_beside_seeds(tmp_path: Path) -> None:
    """On either side of a claim. Two such sides have no spread, and are compared over classes."""
    noise = _noise(0.01, 8, 4)
    values: dict[tuple[str, int, int | None], float] = {("b", index, None): 0.80 + 0.01 * index for index in CLASSES}
    values |= {("a", index, seed): 0.9 + noise[index, seed] for index in CLASSES for seed in range(4)}
    means = [np.mean([values["a", index, seed] for index in CLASSES]) for seed in range(4)]
    ahead = _of_classes(tmp_path / "ahead", Claim("X-23", "ahead", "1", A_SIDE, ">", B_SIDE), values)
    behind = _of_classes(tmp_path / "behind", Claim("X-23", "behind", "1", B_SIDE, "<", A_SIDE), values)
    assert (ahead.verdict, ahead.n, behind.verdict, behind.n) == ("holds", 4, "holds", 4)
    assert (ahead.right, behind.left) == (pytest.approx(0.835), pytest.approx(0.835))
    low, high = stats.ttest_1samp(np.array(means) - 0.835, 0).confidence_interval(0.95)
    assert (behind.low, behind.high) == pytest.approx((-high, -low))
    assert (ahead.low, ahead.high) == pytest.approx((low, high), abs=1e-4)  # a share's is on the logit scale
    alone = {key: value for key, value in values.items() if key[0] == "b"}
    judged = _of_classes(tmp_path / "alone", Claim("X-23", "a number", "1", B_SIDE, ">", 0.5), alone)
    assert (judged.verdict, judged.reason) == (
        "undecided",
        "one replicate: no interval, because the method takes no seed",
    )
    best = Side("knn_z", {}, "largest", "method")
    judged = _of_classes(tmp_path / "best", Claim("X-23", "the better", "1", best, ">", 0.85), values)
    assert (judged.n, judged.left) == (4, pytest.approx(np.mean(means))), "it counts as having every seed"


def test_two_settings_of_one_seed_are_compared_over_classes(tmp_path: Path) -> None:
    """Where there are enough of these; else, and of what is no mean, the verdict waits for seeds."""
    values = {("b", index, 0): 0.6 + 0.02 * index for index in CLASSES}
    values |= {("a", index, 0): 0.7 + 0.023 * index for index in CLASSES}
    better = Claim("X-24", "better", "1", A_SIDE, ">", B_SIDE)
    judged = _of_classes(tmp_path / "8", better, values)
    assert (judged.verdict, judged.n, judged.over) == ("holds", 8, "8 classes of one seed")
    assert judged.reason == "over 8 classes of one seed: it says nothing of other seeds"
    uneven = values | {("b", index, 1): 0.1 for index in CLASSES} | {("b", index, 2): 0.5 for index in range(7)}
    uneven = {key: value for key, value in uneven.items() if key[0] == "a" or key[2] > 0}
    judged = _of_classes(tmp_path / "uneven", better, uneven)
    assert judged.n == 8 and judged.left - judged.right == pytest.approx(judged.difference), "the means of the classes"
    few = {key: value for key, value in values.items() if key[1] < 5}
    needs = "one replicate: an interval needs 3 seeds; over 5 of 8 classes"
    assert _of_classes(tmp_path / "5", better, few).reason == needs
    best = Claim("X-24", "better", "1", Side("knn_z", {}, "largest", "method"), ">", B_SIDE)
    assert _of_classes(tmp_path / "best", best, values).reason == needs.partition(";")[0]


def test_the_best_of_several_is_compared_with_itself_without_an_error(tmp_path: Path) -> None:
    """The difference of the best and one of them is at least 0, so it is judged by how far the others are ahead."""
    noise = _noise(0.01, 2, 8, 4)
    values = {
        (method, index, seed): 0.8 - 0.1 * number + noise[number, index, seed]
        for number, method in enumerate("ab")
        for index in CLASSES
        for seed in range(4)
    }
    best, least = (Side("knn_z", {}, take, "method") for take in ("largest", "smallest"))
    for name, left, right, ends in (
        ("best", best, A_SIDE, (0, 0)), ("reversed", A_SIDE, best, (0, 0)), ("least", least, B_SIDE, (0, 0)),
    ):  # fmt: skip
        judged = _of_classes(tmp_path / name, Claim("X-25", "as good", "1", left, "~", right, 0.02), values)
        assert (judged.verdict, judged.low, judged.high, judged.reason) == ("holds", *ends, ""), name
    judged = _of_classes(tmp_path / "worse", Claim("X-25", "as good", "1", best, "~", B_SIDE, 0.02), values)
    assert judged.verdict == "refuted" and judged.difference == pytest.approx(0.1, abs=0.01)


def test_a_deviation_over_classes_is_that_of_each_seed(tmp_path: Path) -> None:
    noise = _noise(0.005, 8, 3)
    values = {("a", index, seed): 0.5 + 0.02 * index + noise[index, seed] for index in CLASSES for seed in range(3)}
    side = Side("knn_z", {"method": "a"}, "deviation", "normal_class")
    judged = _of_classes(tmp_path, Claim("X-26", "small", "1", side, "<", 0.1), values)
    stds = [np.std([values["a", index, seed] for index in CLASSES], ddof=1) for seed in range(3)]
    interval = stats.ttest_1samp(np.array(stds) - 0.1, 0).confidence_interval(0.95)
    assert judged.verdict == "holds" and (judged.low, judged.high) == pytest.approx(tuple(interval))


WITHOUT_CLAIMS = """
import sys
from pathlib import Path
from sweeper import api
from tests.fake_executor import without_ray
from tests.sweeper.small_sweeps import TINY
from sweeper.definition import Grid
from dataclasses import replace

folder = Path(sys.argv[1])
two = Grid({**TINY.presets["digits"].fixed, "beta": 0.5}, {"seed": (0, 1)})
with without_ray(folder):
    rows = api.run(replace(TINY, name="tiny", presets={"digits": two}), store=folder / "store", keep="none")
assert len(rows) == 2 and (folder / "store" / "reports" / "tiny.html").exists()
print([name for name in sys.modules if name.startswith("sweeper.claims")])
"""


@pytest.mark.slow
def test_a_run_without_claims_does_not_import_them(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_CLAIMS, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1] == "[]"
