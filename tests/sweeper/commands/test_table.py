"""`sweeper table NAME`: a request's tables as text, from a store alone."""

import re
import shlex
from pathlib import Path

import pandas as pd
import pytest
from scipy import stats

from sweeper.commands import table
from sweeper.definition import Grid, Heatmap, Metric, Sweep, Table
from sweeper.report.figures import figures_of
from sweeper.report.kinds import write_figures
from sweeper.storage.requests import RequestRows, write_request
from sweeper.storage.rows import Columns
from sweeper.storage.store import Store

GUIDE = Path(__file__).parents[3] / "sweeper/guides/results.md"
PROBE, LOSS = Metric("probe_z", "maximize", percent=True), Metric("loss", "minimize")
GRID = Grid({}, {"method": ("vje", "smc_gmje", "byol"), "seed": (0, 1, 2)})
PUBLISHED = {"digits": {("byol",): {"probe_z": 79.0}}}
VALUES = {"vje": (0.90, 0.92, 0.94), "smc_gmje": (0.91, 0.90, 0.93), "byol": (0.50, 0.51, 0.52)}
COLUMNS = Columns({"method": str, "seed": int}, ("probe_z", "loss"))
NAME = "ssl_benchmark"


def write_store(folder: Path, *figures: Table | Heatmap) -> Path:
    store, sweep = Store(folder), Sweep("about", {"digits": GRID}, figures=figures, over="seeds")
    run = {"cohort": "c", "cohort_size": 9, "preset": "digits", "changes": "", "status": "finished"}
    rows = [
        {**run, "trial_id": f"{method}{seed}", "method": method, "seed": seed, "probe_z": value, "loss": -value}
        for method, values in VALUES.items()
        for seed, value in enumerate(values)
    ]
    store.prepare(NAME, COLUMNS)
    store.write(NAME, "c", rows, COLUMNS)
    write_figures(store.files, NAME, figures_of(sweep, "digits"))
    write_request(store.files, NAME, RequestRows("digits", "digits", [str(row["trial_id"]) for row in rows]))
    return folder


ACCURACY = Table("accuracy", ("method",), (PROBE,), published=PUBLISHED, note="100 % is the most")
BOTH = (ACCURACY, Table("losses", ("method",), (LOSS,)))


def test_commands_run_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_store(Path("results"), *BOTH)
    for line in re.findall(r"^sweeper table (.*)$", GUIDE.read_text(), re.MULTILINE):
        assert table.main(shlex.split(line, comments=True)) == 0, line
    assert re.findall("^# (.*)$", capsys.readouterr().out, re.MULTILINE) == ["accuracy", "losses"]
    assert Path("table.tex").read_text().startswith(r"\begin{table}")
    rows = pd.read_csv("table.csv").set_index("method")
    assert {"mean", "low", "high", "n", "std", "published", "mark"} <= {*rows} and set(rows["n"]) == {3}
    for method, values in VALUES.items():
        p = sum(values) / 3
        half = stats.t.ppf(0.975, 2) * stats.sem(values) / (p * (1 - p))
        ends = [stats.logistic.cdf(stats.logistic.ppf(p) + sign * half) for sign in (-1, 1)]
        assert rows.loc[method, "mean"] == pytest.approx(sum(values) / 3)
        assert rows.loc[method, ["low", "high"]].tolist() == pytest.approx(ends)
    assert rows["published"].dropna().to_dict() == {"byol": 0.79}
    assert rows["mark"].fillna("").to_dict() == {"vje": "best", "smc_gmje": "not told apart", "byol": ""}


def test_latex_has_the_best_in_bold_and_no_character_that_it_does_not_take(tmp_path: Path) -> None:
    (text,) = table.documents(NAME, table="accuracy", form="latex", store=write_store(tmp_path, *BOTH))
    lines = text.splitlines()
    assert lines[4:8] == [r"\toprule", r"method & probe\_z (\%) \\", r"\midrule", lines[7]]
    assert lines[7] == r"vje & \textbf{92.00 [85.41, 95.76]} \\"
    assert lines[8].startswith(r"smc\_gmje & 91.33 [") and lines[8].endswith(r"]$^\circ$ \\")
    assert lines[9].startswith("byol & 51.00 [") and lines[9].endswith(r"(paper 79.00, $-$28.00) \\")
    assert r"bold: the best of its column" in lines[2] and r"100 \% is the most}" in lines[2] and text.isascii()
    assert not re.search(r"(?<!\\)[%#_]", text) and lines[-3:] == [r"\bottomrule", r"\end{tabular}", r"\end{table}"]


def test_markdown_has_either_spread_and_the_papers_figures(tmp_path: Path) -> None:
    store = write_store(tmp_path, ACCURACY)
    (interval,), (deviation,) = (
        table.documents(NAME, store=store),
        table.documents(NAME, store=store, spread="deviation"),
    )
    assert "| vje      | 92.00 [85.41, 95.76]\\*" in interval and "| vje      | 92.00 ± 2.00\\*" in deviation
    assert "mean [95 % interval] over 3 seeds" in interval and "(paper 79.00, \N{MINUS SIGN}28.00)" in interval


@pytest.mark.parametrize(
    ("figures", "arguments", "line"),
    [
        (BOTH, ["--table", "acuracy"], "no table 'acuracy' (did you mean 'accuracy'?); there are: accuracy, losses"),
        (BOTH, ["--format", "csv"], "--format csv writes one table, which --table must name: accuracy, losses"),
        (BOTH, ["--format", "docx"], "no value of --format 'docx'; there are: markdown, latex, csv"),
        (BOTH, ["--preset", "paper"], "no rows of preset 'paper'; there are: digits"),
        (BOTH, ["--out", "nowhere/table.md"], "--out nowhere/table.md cannot be written: No such file or directory"),
        ((Heatmap(PROBE, "method", "seed"),), [], "must have a table, but has heatmap"),
        ((Table("bad", ("method",), (PROBE,)),), ["--store", "empty"], "no trials of sweep 'ssl_benchmark'"),
    ],
)
def test_wrong_use_is_one_line(
    figures: tuple[Table | Heatmap, ...],
    arguments: list[str],
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    write_store(Path("results"), *figures)
    assert table.main([NAME, *arguments]) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert error.startswith("error: ") and line in error
