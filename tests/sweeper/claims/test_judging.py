"""`python -m sweeper.claims`: verdicts of the rows of a store."""

import errno
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import special, stats

from sweeper.claims import Claim, Condition, Side
from sweeper.claims import __main__ as command
from sweeper.claims.judging import Judged, by_row, counts_text, judge, write
from sweeper.report import publish
from sweeper.report.figures import figures_of
from sweeper.report.kinds import write_figures
from sweeper.report.page.contents import collect
from sweeper.spec import Grid, Metric, Sweep, Table, registry
from sweeper.spec.judging import JUDGING
from sweeper.storage import local_disk
from sweeper.storage.files import Files
from sweeper.storage.layout import claims_folder, claims_path
from sweeper.storage.load import load
from sweeper.storage.requests import request_name
from sweeper.storage.rows import Columns
from sweeper.storage.store import Store
from tests.cases import for_each
from tests.sweeper.small_sweeps import FIXED, TINY

AUROC = "auroc_joint"
CLAIMS = (
    Claim("X-01", "finite", "1", Side(AUROC, {"beta": 0.5}), ">", -1.0),
    Claim("X-02", "below", "1", Side(AUROC, {"beta": 0.5}), ">", 1000.0),
    Claim("X-03a", "one seed", "1", Side(AUROC, {"beta": 0.5, "seed": 0}), ">", 0.0),
    Claim("X-03b", "a number", "1", Side(AUROC), "~", 0.5, 100.0),
    Claim("X-04", "better beta", "1", Side(AUROC, {}, "argmax", "beta"), "~", 1.0, 9.0),
    Claim("X-06", "the loss settles", "1", Side("loss", {}, "settled", "epoch"), ">", 0.0),
    Claim("X-05", "loss over epochs", "1", Side("loss", {"epoch": Condition(">", 0)}), ">", -1e9),
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
    assert judged.command == f"python -m sweeper.run sets --preset digits --store {tmp_path} --fresh"


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
        assert each.command == f"python -m sweeper.run tiny --preset digits --store {tmp_path}"


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
    monkeypatch.setenv("SWEEPER_PATIENCE", "0")
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
    line = f"python -m sweeper.run tiny --preset digits --store {tmp_path / 'absent'}"
    assert f"7 claims not run: {line}" in capsys.readouterr().out
    assert not (tmp_path / "absent").exists()
    assert command.main(["tiny", "--preset", "other", "--store", str(tmp_path / "absent")]) == 2
    assert "no preset 'other'" in capsys.readouterr().err
