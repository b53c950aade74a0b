"""`sweeper table NAME`: a request's tables as text, from a store alone."""

import itertools
import math
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from optuna.distributions import FloatDistribution
from scipy import stats

import sweeper
from sweeper.commands import table
from sweeper.definition import Grid, Heatmap, Metric, Search, SpecError, Sweep, Table
from sweeper.report import table_documents
from sweeper.report.figures import figures_of
from sweeper.report.kinds import write_figures
from sweeper.storage.layout import end_text_path
from sweeper.storage.requests import RequestRows, write_request
from sweeper.storage.rows import STUDY_COLUMNS, Columns
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


def test_text_is_what_the_last_run_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = Store(write_store(tmp_path, *BOTH))
    words = [NAME, "--store", str(tmp_path), "--format", "text"]
    assert table.main(words) == 2
    assert f"error: there is no text of {NAME} (digits): no run of it has come to its end" in capsys.readouterr().err
    store.files.write(end_text_path(f"{NAME}/digits"), b"accuracy\n\nmethod    probe_z\n")
    assert table.main(words) == 0
    assert capsys.readouterr().out == "accuracy\n\nmethod    probe_z\n"
    assert table.main([*words, "--table", "accuracy"]) == 2
    assert "--table must be left out" in capsys.readouterr().err


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
    assert lines[3:7] == [
        r"\begin{tabular}{lr@{}l}",
        r"\toprule",
        r"method & \multicolumn{2}{c}{probe\_z (\%)} \\",
        r"\midrule",
    ]
    assert lines[7] == r"vje & \textbf{92.00} & ~[85.41, 95.76] \\"
    assert lines[8].startswith(r"smc\_gmje & 91.33 & ~[") and lines[8].endswith(r"]$^\circ$ \\")
    assert lines[9].startswith("byol & 51.00 & ~[") and lines[9].endswith(r"(paper 79.00, $-$28.00) \\")
    assert r"bold: the best of its column, chosen on test images" in lines[2] and r"100 \% is the most}" in lines[2]
    assert text.isascii() and lines[-3:] == [r"\bottomrule", r"\end{tabular}", r"\end{table}"]
    check_latex(text)


def test_markdown_has_either_spread_and_the_papers_figures(tmp_path: Path) -> None:
    store = write_store(tmp_path, ACCURACY)
    (interval,), (deviation,) = (
        table.documents(NAME, store=store),
        table.documents(NAME, store=store, spread="deviation"),
    )
    assert "| vje      | **92.00** [85.41, 95.76]" in interval and "| vje      | **92.00** ± 2.00" in deviation
    assert "mean [95 % interval] over 3 seeds" in interval and "(paper 79.00, \N{MINUS SIGN}28.00)" in interval


def check_latex(text: str) -> None:
    """Assert what LaTeX needs to compile a table: braces and environments that close, rows as wide as the layout, and
    every special character escaped."""
    lines = [line for line in text.splitlines() if not line.startswith("%")]
    bare = re.sub(r"\\(?:[%&#_{}$]|textbackslash\{\}|[a-z]+)", "", "\n".join(lines))
    depths = list(itertools.accumulate({"{": 1, "}": -1}.get(character, 0) for character in bare))
    assert min(depths) >= 0 and depths[-1] == 0
    assert not re.search(r"[%#_\\^~]", re.sub(r"\$[^$]*\$|& ~|\\\\\n", "", bare.replace("\\\\", ""))), bare
    opened = list[str]()
    for kind, name in re.findall(r"\\(begin|end)\{(\w+)\}", "\n".join(lines)):
        assert kind == "begin" or opened.pop() == name
        opened += [name] * (kind == "begin")
    assert not opened
    (layout,) = re.findall(r"\\begin\{tabular\}\{(.*)\}", text)
    rows = [line for line in lines if line.endswith(r" \\")]
    width = len(layout.replace("@{}", ""))
    assert rows and {len(re.findall(r"(?<!\\)&", row)) + 1 + row.count(r"\multicolumn{2}") for row in rows} == {width}
    assert not any(row.startswith("[") for row in rows)


TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1).filter(str.strip)


@given(TEXTS, TEXTS, TEXTS)
@example(r"\input{x} & 100% _#$^~{}", "[a]\n% b", "a & b \\\\")
def test_latex_compiles_whatever_the_labels_and_the_caption_are(label: str, key: str, caption: str) -> None:
    labels = {"vje": label, "method": key}
    for own in (None, caption, ""):
        text = table_documents.latex(CELLS, replace(ACCURACY, labels=labels), style=table_documents.Style(caption=own))
        check_latex(text)
        assert (r"\begin{table}" in text) is (own != "") and ("% accuracy: mean" in text) is (own is not None)


CELLS = pd.DataFrame(
    {"method": ["vje", "byol"], "metric": "probe_z", "mark": ["*", "°"], "criterion": "val_probe_z"}
    | {"mean": [0.9, 0.905], "std": 0.01, "low": [0.85, 0.9], "high": [0.95, 0.91], "iqm": math.nan}
    | {"fixed_std": math.nan, "published": [math.nan, 0.8], "difference": [math.nan, 0.105]}
    | {"count": 3, "missing": 0, "replicates": 3, "fixed": 1}
)
"""The setting of vje was chosen on validation images; on test images that of byol is better."""


def test_bold_is_the_best_number_that_is_shown_and_the_choice_has_its_own_mark() -> None:
    text = table_documents.latex(CELLS, ACCURACY)
    assert r"vje & 90.00 & ~[85.00, 95.00]$^{*}$ \\" in text
    assert r"byol & \textbf{90.50} & ~[90.00, 91.00]$^\circ$ (paper 80.00, +10.50) \\" in text
    said = "bold: the best mean of its column among those not told apart; $^{*}$ chosen on validation images"
    assert said in text and "$^\\circ$ not told apart from the best" in text
    assert "**90.50**" in (source := table_documents.markdown(CELLS, ACCURACY)) and "90.00 [85.00, 95.00]\\*" in source
    equal = table_documents.latex(CELLS.assign(mean=[0.90499, 0.90501]), ACCURACY)
    assert equal.count(r"\textbf{90.50}") == 2, "numbers that are shown as equal are equally bold"
    apart = table_documents.latex(CELLS.assign(mark=["*", ""]), ACCURACY)
    assert r"\textbf{90.00}" in apart and r"\textbf{90.50}" not in apart, "it is told apart from the best"
    lacking = table_documents.latex(CELLS.assign(mean=math.nan), ACCURACY)
    assert r"\textbf" not in lacking and "vje & --" in lacking, "what was chosen has no number on test images"
    of_test = table_documents.latex(CELLS.assign(criterion="probe_z", mean=[0.92, 0.905]), ACCURACY)
    assert "$^{*}$" not in of_test and r"\textbf{92.00}" in of_test


def test_a_paper_names_what_it_prints_and_leaves_out_the_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = str(write_store(tmp_path, replace(ACCURACY, labels={"byol": "BYOL", "vje": "VJE"})))
    words = [NAME, "--store", store, "--format", "latex", "--columns", "mean", "--caption", "Ours wins"]
    assert table.main([*words, "--label", "vje=Ours", "--label", "probe_z=Accuracy"]) == 0
    comment, *lines = capsys.readouterr().out.splitlines()
    assert comment.startswith("% accuracy: mean over 3 seeds; bold") and "interval" not in comment
    assert lines[2:] == [
        *(r"\caption{Ours wins}", r"\begin{tabular}{lr@{}l}", r"\toprule"),
        *(r"method & \multicolumn{2}{c}{Accuracy} \\", r"\midrule"),
        *(r"Ours & \textbf{92.00} & \\", r"smc\_gmje & 91.33 & $^\circ$ \\", r"BYOL & 51.00 & \\"),
        *(r"\bottomrule", r"\end{tabular}", r"\end{table}"),
    ]
    assert table.main([NAME, "--store", store, "--format", "csv", "--columns", "mean,n"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "method,metric,mean,n"


def test_a_heatmap_is_a_table_as_well(tmp_path: Path) -> None:
    paper = {"digits": {("vje", 0): 90.0}}
    store = write_store(tmp_path, Heatmap(PROBE, "method", "seed", published=paper))
    (text,) = table.documents(NAME, store=store)
    assert text.startswith("# probe_z\n") and "| vje      | 90.00 (paper 90.00, +0.00)" in text
    found = sweeper.table(NAME, store=store)
    assert list(found)[:4] == ["method", "seed", "metric", "mean"] and len(found) == 9
    assert found["mean"].tolist() == pytest.approx([value for values in VALUES.values() for value in values])
    both = write_store(tmp_path / "both", ACCURACY, Heatmap(LOSS, "method", "seed"))
    assert len(table.documents(NAME, store=both)) == 1, "the preset has a table of its own"
    assert sweeper.table(NAME, table="loss", store=both)["metric"].unique().tolist() == ["loss"]
    with pytest.raises(SpecError, match=r"no table 'los' .*; there are: accuracy, loss"):
        sweeper.table(NAME, table="los", store=both)
    with pytest.raises(SpecError, match="several tables, of which table=NAME must choose one: accuracy, losses"):
        sweeper.table(NAME, store=write_store(tmp_path / "two", *BOTH))


def test_a_search_has_a_table_of_the_best_settings_of_its_studies(tmp_path: Path) -> None:
    space = {"lr": FloatDistribution(0.0, 1.0)}
    spaces = tuple(Search(space, {"method": method}, 3, PROBE, wave=3) for method in VALUES)
    store, sweep = Store(tmp_path), Sweep("about", {"digits": spaces})
    columns = Columns({"method": str, "lr": float, "dataset": str} | STUDY_COLUMNS, ("probe_z",))
    run = {"cohort": "c", "cohort_size": 9, "preset": "digits", "changes": "", "status": "finished", "dataset": "a"}
    rows = [
        {**run, "trial_id": f"{method}{number}", "method": method, "lr": value, "probe_z": value, "number": number}
        | {"study": method, "study_id": f"s-{method}"}
        for method, values in VALUES.items()
        for number, value in enumerate(values)
    ]
    store.prepare(NAME, columns)
    store.write(NAME, "c", rows, columns)
    write_figures(store.files, NAME, figures_of(sweep, "digits"))
    write_request(store.files, NAME, RequestRows("digits", "digits", (), [f"s-{method}" for method in VALUES]))
    found = sweeper.table(NAME, store=tmp_path)
    assert found.set_index("method")["mean"].to_dict() == pytest.approx(
        {name: max(own) for name, own in VALUES.items()}
    )
    assert table.documents(NAME, store=tmp_path)[0].startswith("# best\n")


@pytest.mark.parametrize(
    ("figures", "arguments", "line"),
    [
        (BOTH, ["--table", "acuracy"], "no table 'acuracy' (did you mean 'accuracy'?); there are: accuracy, losses"),
        (BOTH, ["--format", "csv"], "--format csv writes one table, which --table must name: accuracy, losses"),
        (BOTH, ["--format", "docx"], "no value of --format 'docx'; there are: markdown, html, latex, csv"),
        (BOTH, ["--preset", "paper"], "no rows of preset 'paper'; there are: digits"),
        (BOTH, ["--out", "nowhere/table.md"], "--out nowhere/table.md cannot be written: No such file or directory"),
        (BOTH, ["--columns", "mean,n"], "no value of --columns 'n'; there are: mean, spread, iqm, count, paper"),
        (BOTH[:1], ["--format", "csv", "--columns", "spread"], "no value of --columns 'spread'; there are: mean, low"),
        (BOTH[:1], ["--format", "csv", "--caption", "x"], "--caption and --label are for Markdown, HTML and LaTeX"),
        (BOTH, ["--label", "Ours"], "--label takes KEY=VALUE, but got 'Ours'"),
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
