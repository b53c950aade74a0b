import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sweeper.definition import Grid, Metric, Sweep
from sweeper.definition.figures import Heatmap, Table, Trajectory
from sweeper.report import publish as findings
from sweeper.report import trajectories
from sweeper.report.densities import Density
from sweeper.results.sentences import Over
from sweeper.storage.files import Files
from sweeper.storage.store import Store

SWEEP = Sweep(
    about="",
    presets={"paper": Grid({}, {})},
    figures=(
        Heatmap(Metric("auroc", "maximize"), "beta", "nu", published={"paper": {(1.0, 3.0): 0.9}}),
        Heatmap(Metric("loss", "minimize"), "beta", "nu"),
    ),
    over="classes",
    breakdown="normal_class",
    correlations=(("auroc", "loss"),),
)


@pytest.fixture
def rows() -> pd.DataFrame:
    grid = [(beta, nu, c) for beta in (0.0, 1.0) for nu in (0.5, 3.0) for c in range(3)]
    frame = pd.DataFrame(grid, columns=["beta", "nu", "normal_class"])
    frame["auroc"] = 0.5 + 0.2 * frame["beta"] + 0.05 * frame["nu"] + 0.01 * frame["normal_class"]
    return frame.assign(loss=1.0 - frame["auroc"], trial_id=[f"t{index}" for index in range(len(frame))])


def test_heatmaps_and_tables_are_in_the_store(tmp_path: Path, rows: pd.DataFrame) -> None:
    findings.write(Files(tmp_path), findings.Subject("grid", SWEEP, "paper"), rows)
    names = {path.name for path in (tmp_path / "heatmaps/grid/paper").iterdir()}
    figures = {f"{metric}.{kind}" for metric in ("auroc", "loss") for kind in ("parquet", "png")}
    assert names == figures | {"breakdown.parquet", "correlations.parquet"}
    cells = pd.read_parquet(tmp_path / "heatmaps/grid/paper/auroc.parquet")
    assert len(cells) == 4 and (cells["count"] == 3).all()
    assert (tmp_path / "heatmaps/grid/paper/auroc.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_figures_of_presets_and_of_changed_requests_stand_side_by_side(tmp_path: Path, rows: pd.DataFrame) -> None:
    files, both = Files(tmp_path), replace(SWEEP, figures=(*SWEEP.figures, *TABLES.figures))
    for index, folder in enumerate(("", "grid/paper, epochs=5", "grid/digits")):
        subject = findings.Subject("grid", both, "paper", folder)
        findings.write(files, subject, rows.assign(trial_id="a", auroc=rows["auroc"] + index))
    means = [
        pd.read_parquet(tmp_path / f"heatmaps/grid/{folder}/auroc.parquet")["mean"].min()
        for folder in ("paper", "paper, epochs=5", "digits")
    ]
    assert means == pytest.approx([means[0], means[0] + 1, means[0] + 2])
    for kind in ("heatmaps", "tables", "trajectories"):
        assert files.list(f"{kind}/grid") == ["digits", "paper", "paper, epochs=5"]


def test_the_text_has_the_cells_the_best_setting_by_class_and_the_correlation(
    tmp_path: Path, rows: pd.DataFrame
) -> None:
    between = rows[rows["beta"] == 0.0].assign(beta=0.5, trial_id=[f"u{index}" for index in range(6)])
    cells, table, classes, correlation = findings.write(
        Files(tmp_path), findings.Subject("grid", SWEEP, "paper"), pd.concat([rows, between], ignore_index=True)
    ).split("\n\n")
    assert cells.startswith(
        "auroc: mean ± standard deviation over 3 classes; * is the best setting, chosen on test images"
    )
    assert table.splitlines()[-1].split() == ["1", "0.735", "±", "0.010°", "0.860", "±", "0.010*"]
    assert classes.startswith("auroc by normal_class at the best setting, chosen on test images\n")
    assert [line.split()[:4] for line in classes.splitlines()[3:]] == [
        ["1", "3", str(c), f"0.8{5 + c}0"] for c in range(3)
    ]
    assert correlation.startswith("correlation over the cells of beta x nu") and "\N{MINUS SIGN}1.000" in correlation
    table = pd.read_parquet(tmp_path / "heatmaps/grid/paper/breakdown.parquet")
    assert table["normal_class"].tolist() == [0, 1, 2] and set(table["beta"]) == {1.0}


def test_intervals_over_seeds_have_as_many_decimals_as_their_means(tmp_path: Path, rows: pd.DataFrame) -> None:
    again = [
        rows.assign(seed=seed, auroc=rows["auroc"] + seed / 700, trial_id=f"{seed}" + rows["trial_id"])
        for seed in range(3)
    ]
    text = findings.write(
        Files(tmp_path), findings.Subject("grid", SWEEP, "paper"), pd.concat(again, ignore_index=True)
    )
    classes = next(part for part in text.split("\n\n") if "by normal_class" in part)
    assert classes.splitlines()[1].split()[-3:] == ["%", "interval]", "replicates"]
    for line in classes.splitlines()[3:]:
        assert {len(text.strip("[],")) for text in line.split()[3:6]} == {len("0.004")}, line


def test_a_correlation_over_few_cells_is_not_printed(tmp_path: Path, rows: pd.DataFrame) -> None:
    assert "correlation" not in findings.write(Files(tmp_path), findings.Subject("grid", SWEEP, "paper"), rows)


def test_the_text_says_what_was_chosen_on_validation_images(tmp_path: Path, rows: pd.DataFrame) -> None:
    chosen = rows.assign(val_auroc=1 - rows["auroc"])
    _, _, classes = findings.write(Files(tmp_path), findings.Subject("grid", SWEEP, "paper"), chosen).split("\n\n")
    assert classes.startswith("auroc by normal_class at the best setting, chosen on validation images (val_auroc)\n")
    assert [line.split()[:4] for line in classes.splitlines()[3:]] == [
        ["0", "0.5", str(c), f"0.5{25 + 10 * c}"] for c in range(3)
    ]


def test_without_tables_the_text_has_the_cells(tmp_path: Path, rows: pd.DataFrame) -> None:
    plain = replace(SWEEP, breakdown=None, correlations=())
    heading, _ = findings.write(Files(tmp_path), findings.Subject("grid", plain, "paper"), rows).split("\n\n")
    assert heading.startswith("auroc: mean ± standard deviation over 3 classes; *")
    assert not list(tmp_path.rglob("breakdown.parquet")) and not list(tmp_path.rglob("correlations.parquet"))


def test_rows_without_a_value_are_no_error(tmp_path: Path, rows: pd.DataFrame) -> None:
    failed = rows.assign(auroc=None, loss=None)
    findings.write(Files(tmp_path), findings.Subject("grid", SWEEP, "paper"), failed)
    assert pd.read_parquet(tmp_path / "heatmaps/grid/paper/auroc.parquet")["mean"].isna().all()


def test_one_cell_is_enough(tmp_path: Path, rows: pd.DataFrame) -> None:
    text = findings.write(Files(tmp_path), findings.Subject("grid", SWEEP, "paper"), rows.head(1))
    assert "0.525" in text and (tmp_path / "heatmaps/grid/paper/auroc.png").exists()


@pytest.mark.parametrize("seeds", [1, 2])
def test_a_heatmap_says_what_it_averages_over(
    seeds: int, tmp_path: Path, rows: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three classes with two seeds each are two replicates, each with the mean over the classes."""
    nouns: list[Over] = []
    written = findings.heatmaps.write

    def write(*arguments: Any, **options: Any) -> pd.DataFrame:
        nouns.append(options["over"])
        return written(*arguments, **options)

    monkeypatch.setattr(findings.heatmaps, "write", write)
    repeated = pd.concat(
        [rows.assign(seed=seed, trial_id=rows["trial_id"] + f"-{seed}") for seed in range(seeds)], ignore_index=True
    )
    findings.write(Files(tmp_path), findings.Subject("grid", SWEEP, "paper"), repeated)
    assert nouns == [Over("seeds" if seeds > 1 else "replicates", "classes")] * 2


def test_pictures_name_sweep_preset_and_data_set_and_use_percent(
    tmp_path: Path, rows: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    captions: list[dict[str, Any]] = []
    written = findings.heatmaps.write

    def write(*arguments: Any, **options: Any) -> pd.DataFrame:
        captions.append({"about": arguments[2].about})
        return written(*arguments, **options)

    monkeypatch.setattr(findings.heatmaps, "write", write)
    monkeypatch.setattr(trajectories, "write", lambda *_, **options: captions.append(options))
    auroc = Metric("auroc", "maximize", percent=True)
    shares = replace(SWEEP, figures=(Heatmap(auroc, "beta", "nu"), Trajectory("t", (auroc,), ("beta",))))
    text = findings.write(
        Files(tmp_path), findings.Subject("grid", shares, "paper"), rows.assign(dataset=["cifar10"] * 11 + ["stl10"])
    )
    assert [options["about"] for options in captions] == ["grid (paper), data sets cifar10, stl10"] * 2
    assert "\n\nauroc (%) by normal_class at" in text and " 72.500" in text
    captions.clear()
    findings.write(Files(tmp_path), findings.Subject("grid", SWEEP, "paper"), rows.assign(dataset="digits"))
    assert [options["about"] for options in captions] == ["grid (paper), data set digits"] * 2


KNN = Metric("knn", "maximize", percent=True)
TABLES = Sweep(
    about="",
    presets={"paper": Grid({}, {})},
    figures=(
        Table("probe", ("method", "k"), (KNN,), published={"paper": {("vje", 30): {"knn": 90.0}}}),
        Table("posterior", ("method",), (Metric("entropy", "minimize"),)),
        Trajectory("training", (KNN,), by=("method",)),
    ),
)
METHODS = pd.DataFrame({"trial_id": ["a", "b"], "method": ["vje", "simclr"], "k": [30.0, None], "knn": [0.91, 0.7]})


def test_a_sweep_may_have_tables_and_trajectories_alone(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write_history("grid", "c0", [(trial, epoch, "knn", 0.1 * epoch) for trial in "abz" for epoch in (1, 2)])
    text = findings.write(store.files, findings.Subject("grid", TABLES, "paper"), METHODS)
    probe, posterior = text.split("\n\nposterior: ")
    assert probe.startswith("probe\n") and "91.00 (paper 90.00, +1.00)" in probe
    assert posterior == "no trial has a value yet"
    files = {
        str(path.relative_to(tmp_path))
        for kind in ("tables", "trajectories")
        for path in tmp_path.glob(f"{kind}/grid/*/*")
    }
    assert files == {
        *(f"tables/grid/paper/{name}.{kind}" for name in ("probe", "posterior") for kind in ("parquet", "md")),
        *(f"trajectories/grid/paper/training.{kind}" for kind in ("parquet", "png")),
    }
    points = pd.read_parquet(tmp_path / "trajectories/grid/paper/training.parquet")
    assert points["method"].tolist() == ["vje"] * 2 + ["simclr"] * 2 and (points["count"] == 1).all()
    assert not (tmp_path / "heatmaps").exists()


def test_a_trajectory_without_any_history_is_drawn_empty(tmp_path: Path) -> None:
    findings.write(Files(tmp_path), findings.Subject("grid", TABLES, "paper"), METHODS)
    assert pd.read_parquet(tmp_path / "trajectories/grid/paper/training.parquet").empty


def test_tables_come_first_and_a_metric_that_no_row_has_is_null(tmp_path: Path, rows: pd.DataFrame) -> None:
    both = replace(SWEEP, figures=(*SWEEP.figures, Table("all", ("beta", "width"), (Metric("auroc", "maximize"),))))
    text = findings.write(Files(tmp_path), findings.Subject("grid", both, "paper"), rows.drop(columns=["loss", "nu"]))
    assert [part.split()[0] for part in text.split("\n\n")[::2]] == ["all", "auroc"]
    assert pd.read_parquet(tmp_path / "heatmaps/grid/paper/loss.parquet")["mean"].isna().all()
    assert pd.read_parquet(tmp_path / "tables/grid/paper/all.parquet")["width"].isna().all()


def test_what_cannot_be_made_of_its_data_is_a_line_and_the_rest_is_made(tmp_path: Path, rows: pd.DataFrame) -> None:
    """A text column as a metric, and a sample grid whose arrays are NaN and of other lengths than each other."""
    lines: list[str] = []
    files = Files(tmp_path, log=lines.append)
    odd = Metric("odd", "maximize")
    sweep = replace(
        SWEEP,
        figures=(
            Heatmap(odd, "beta", "nu"),
            SWEEP.figures[0],
            Table("bad", ("beta",), (odd,)),
            Table("good", ("beta",), (Metric("auroc", "maximize"),)),
        ),
    )
    rows = rows.assign(odd="text", trial_id="a", dataset="digits", method="vje", seed=0)
    buffer = io.BytesIO()
    arrays: dict[str, Any] = {name: np.full((3 + i, 2), np.nan) for i, name in enumerate(Density._fields)}
    np.savez(buffer, **arrays)
    files.write("sheets/grid/a/density.npz", buffer.getvalue())
    text = findings.write(files, findings.Subject("grid", sweep, "paper"), rows)
    failed = [line.split("grid/paper: ")[1].split(" cannot be shown: ")[0] for line in lines]
    assert failed == ["heatmap of odd", "table bad", "sample grids of densities"]
    assert all("\n" not in line for line in lines)
    assert text.startswith("good\n") and (tmp_path / "heatmaps/grid/paper/auroc.png").exists()
