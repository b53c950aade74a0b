"""`sweeper figure NAME`: a request's figures as PDF and SVG, from a store alone."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from optuna.distributions import FloatDistribution

from sweeper.commands import figure
from sweeper.definition import Grid, Heatmap, Metric, Search, Sweep, Trajectory
from sweeper.report.figures import figures_of
from sweeper.report.kinds import write_figures
from sweeper.report.studies import write
from sweeper.search.journal import DashboardJournal
from sweeper.storage.layout import file_name, journal_path
from sweeper.storage.requests import RequestRows, write_request
from sweeper.storage.rows import STUDY_COLUMNS, Columns
from sweeper.storage.store import Store
from tests.cases import for_each
from tests.sweeper.report.test_studies import random_study

NAME, KNN = "grid", Metric("knn", "maximize", percent=True)
AXES = {"lr": (0.1, 0.3), "width": (8, 16), "seed": (0, 1, 2)}
HEATMAP = Heatmap(KNN, "lr", "width")
FIGURES = (HEATMAP, Trajectory("training", (KNN,), ("lr",)))


def write_store(folder: Path, *figures: Heatmap | Trajectory) -> str:
    store, columns = Store(folder), Columns({"lr": float, "width": int, "seed": int}, ("knn",))
    run = {"cohort": "c", "cohort_size": 12, "preset": "digits", "changes": "", "status": "finished"}
    rows = [
        {**run, **own, "trial_id": f"t{index}", "knn": 0.5 + 0.03 * index}
        for index, own in enumerate(Grid({}, AXES).combinations())
    ]
    store.prepare(NAME, columns)
    store.write(NAME, "c", rows, columns)
    epochs = [(f"t{index}", epoch, "knn", 0.1 * epoch + 0.01 * index) for index in range(12) for epoch in (1, 2)]
    store.write_history(NAME, "c", epochs)
    sweep = Sweep("about", {"digits": Grid({}, AXES)}, figures=(HEATMAP, *figures))
    write_figures(store.files, NAME, figures_of(sweep, "digits"))
    write_request(store.files, NAME, RequestRows("digits", "digits", [str(row["trial_id"]) for row in rows]))
    return str(folder)


def texts(path: Path) -> list[str]:
    """The texts of an SVG."""
    return ["".join(each.itertext()) for each in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")]


def test_figures_are_written_with_their_caption_or_bare(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, bare, whole = write_store(tmp_path / "store", *FIGURES[1:]), tmp_path / "bare", tmp_path / "whole"
    for folder, arguments in ((bare, ["--bare"]), (whole, [])):
        folder.mkdir()
        assert figure.main([NAME, "--store", store, "--format", "svg", "--out", str(folder), *arguments]) == 0
        assert {path.name for path in folder.iterdir()} == {"knn.svg", "training.svg"}
        captions = capsys.readouterr().out
        assert "knn (%): mean [95 % interval] over 3 seeds" in captions and "by lr, mean [95 % interval]" in captions
        assert f"written to {folder}/knn.svg" in captions
    title = "knn (%): mean [95 % interval] over 3 seeds"
    assert title in texts(whole / "knn.svg") and title not in texts(bare / "knn.svg")
    for path in (bare / "knn.svg", whole / "knn.svg"):
        assert {"lr", "width", "53.00", "80.00"} <= {text.removesuffix("°") for text in texts(path)}
    assert "training" in texts(whole / "training.svg") and "training" not in texts(bare / "training.svg")
    assert {"epoch", "knn (%)", "0.1", "0.3"} <= {*texts(bare / "training.svg")}
    assert not [text for text in texts(bare / "knn.svg") if "grid (digits)" in text or "best" in text]


def test_a_pdf_embeds_its_fonts_and_one_figure_can_be_named(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", *FIGURES[1:])
    assert figure.main([NAME, "--store", store, "--figure", "knn", "--out", str(tmp_path)]) == 0
    assert [path.name for path in tmp_path.glob("*.*")] == ["knn.pdf"]
    content = (tmp_path / "knn.pdf").read_bytes()
    assert content.startswith(b"%PDF-") and b"/FontFile2" in content and b"/Type3" not in content
    assert figure.main([NAME, "--store", store, "--figure", "knn", "--format", "png", "--out", str(tmp_path)]) == 0
    assert (tmp_path / "knn.png").read_bytes().startswith(b"\x89PNG")


def test_a_trajectory_with_the_name_of_a_heatmap_has_a_file_of_its_own(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", Trajectory("knn", (KNN,), ("width",)))
    assert figure.main([NAME, "--store", store, "--format", "svg", "--out", str(tmp_path)]) == 0
    assert {path.name for path in tmp_path.glob("*.svg")} == {"knn.svg", "knn-trajectory.svg"}


def write_search(folder: Path, *names: str) -> Store:
    """Write a search with studies of these names, which have the figures of a run."""
    store, space = Store(folder), {"lr": FloatDistribution(1e-5, 1e-1, log=True), "beta": FloatDistribution(0.0, 1.0)}
    columns = Columns({"lr": float, "beta": float} | STUDY_COLUMNS, ("knn",))
    run = {"cohort": "c", "cohort_size": 1, "preset": "digits", "changes": "", "status": "finished"}
    store.prepare(NAME, columns)
    store.write(NAME, "c", [{**run, "trial_id": "t0", "lr": 0.1, "beta": 0.5, "knn": 0.5, "study": names[0]}], columns)
    sweep = Sweep("about", {"digits": Search(space, {"method": "vje"}, 30, KNN, wave=3)})
    write_figures(store.files, NAME, figures_of(sweep, "digits"))
    write_request(store.files, NAME, RequestRows("digits", "digits", ["t0"]))
    journal = DashboardJournal(folder / journal_path(f"{NAME}/digits"))
    for name in names:
        study = random_study(40, KNN, space=dict(space))
        assert journal.add(name, study) is None
        title = f"{NAME} (digits){f', study {name}' if len(names) > 1 else ''}"
        write(store.files, f"expected/{file_name(name)}", title, study, (KNN,))
    return store


@pytest.mark.slow
def test_charts_of_a_search_are_those_of_its_last_run(tmp_path: Path) -> None:
    write_search(tmp_path / "store", "all")
    assert figure.main([NAME, "--store", str(tmp_path / "store"), "--format", "png", "--out", str(tmp_path)]) == 0
    expected = {path.name: path.read_bytes() for path in (tmp_path / "store/expected/all").glob("*.png")}
    assert {"history.png", "parallel.png", "importance.png", "contour_beta_lr.png"} == {*expected}
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.png")} == expected


@pytest.mark.slow
def test_charts_of_several_studies_stay_in_the_folder(tmp_path: Path) -> None:
    write_search(tmp_path / "store", "../one", "two")
    (out := tmp_path / "out").mkdir()
    words = [NAME, "--store", str(tmp_path / "store"), "--format", "svg", "--out", str(out)]
    assert figure.main([*words, "--figure", "two-history"]) == 0
    assert [path.name for path in out.iterdir()] == ["two-history.svg"]
    assert "grid (digits), study two" in texts(out / "two-history.svg")
    assert figure.main(words) == 0
    assert len([*out.iterdir()]) == 8 and not [path for path in tmp_path.iterdir() if path.suffix == ".svg"]


def test_a_journal_that_cannot_be_read_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = write_search(tmp_path / "store", "all")
    (tmp_path / "store" / journal_path(f"{NAME}/digits")).write_text("{not json\n{}\n")
    assert figure.main([NAME, "--store", store.files.display_uri]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: the journal ") and "cannot be read" in line


@for_each(
    ("arguments", "line"),
    [
        (["--figure", "kn"], "no figure 'kn' (did you mean 'knn'?); there are: knn"),
        (["--format", "eps"], "no value of --format 'eps'; there are: pdf, svg, png"),
        (["--out", "nowhere"], "--out must be a folder that exists, but got 'nowhere'"),
        (["--preset", "paper"], "no rows of preset 'paper'; there are: digits"),
    ],
)
def test_wrong_use_is_one_line(
    arguments: list[str], line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert figure.main([NAME, "--store", write_store(tmp_path / "store"), *arguments]) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert re.fullmatch(f"error: .*{re.escape(line)}.*", error)
