"""Nothing that a name, a store or a server holds reaches a terminal or a file as a control character."""

import ast
import contextlib
import csv
import gzip
import io
import json
import tempfile
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import Phase, given, settings

from sweeper.commands import list as list_command
from sweeper.commands import merge, rm, run, table
from sweeper.commands.best import main as best
from sweeper.commands.compare import main as compare
from sweeper.definition import Grid, Metric, Sweep, Table
from sweeper.printing import UNPRINTABLE, print, printable
from sweeper.report import charts
from sweeper.report.figures import figures_of
from sweeper.report.kinds import write_figures
from sweeper.report.page import document, publish
from sweeper.report.table_documents import FORMULA_STARTS
from sweeper.storage.layout import leases_folder
from sweeper.storage.lease import Content
from sweeper.storage.requests import RequestRows, write_request
from sweeper.storage.rows import Columns
from sweeper.storage.store import Store
from tests.cases import for_each
from tests.cluster.files import ROOT
from tests.image_files import write_own_images

FORGED = "error: forged"
"""A line that no output has."""
SIGNS = "aZ é中β🫨=+-@\\{}%&#_^~$\"'<|*`"
CONTROLS = "\n\r\t\x00\x1b\x07\x7f\x9b\u202e\u2066\u200b\u2028\ufeff\U000e0041\uffff"
TEXTS = st.lists(st.sampled_from([*SIGNS, *CONTROLS, f"\n{FORGED}\n"]), min_size=4, max_size=12).map("".join)
"""Names with characters of all kinds."""


def check(text: str) -> None:
    """Check that a text of several lines has no unprintable character, and no line that is only part of a name."""
    assert not {char for char in text if unicodedata.category(char) in UNPRINTABLE} - {"\n"}
    assert FORGED not in text.splitlines()


@given(st.text() | TEXTS)
def test_only_unprintable_characters_are_escaped(text: str) -> None:
    shown = printable(text)
    check(shown)
    assert "\n" not in shown and printable(shown) == shown
    if not any(unicodedata.category(char) in UNPRINTABLE or char == "\uffff" for char in text):
        assert shown == text


def test_text_of_all_languages_stays() -> None:
    for text in ("é", "中文", "β", "🫨", "e\u0301", "a b", "\xa0", "\u3000"):
        assert printable(text) == text
    assert printable("a\x1b[31m\u202e\udcff\nb") == r"a\x1b[31m\u202e\udcff\nb"


def test_no_secret_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    print("s3://user:password@host/bucket", "\x1b", sep=" ")
    assert capsys.readouterr().out == "s3://host/bucket \\x1b\n"


def test_all_that_is_printed_passes_one_function() -> None:
    for path in sorted((ROOT / "sweeper").rglob("*.py")):
        name, tree = path.relative_to(ROOT).as_posix(), ast.parse(path.read_text())
        nodes = [*ast.walk(tree)]
        used = any(isinstance(node, ast.Name) and node.id == "print" for node in nodes)
        imported = any(
            isinstance(node, ast.ImportFrom)
            and node.module == "sweeper.printing"
            and "print" in [alias.name for alias in node.names]
            for node in tree.body
        )
        assert not used or imported or name == "sweeper/printing.py", name
        written = {ast.unparse(node) for node in nodes if isinstance(node, ast.Attribute)}
        assert not written & {"sys.stdout.write", "sys.stderr.write", "sys.stdout.buffer", "sys.stderr.buffer"}, name


WRITE_CHECK = Metric("probe_z", "maximize", percent=True)
COLUMNS = Columns({"method": str, "seed": int}, ("probe_z",))
NAME = "ssl_benchmark"
LEASE = f"{leases_folder(NAME)}/lease.json"


def store_of(folder: Path, name: str) -> Store:
    """A store in which whatever is text contains `name`."""
    store, figure = Store(folder), Table(f"of {name}", ("method",), (WRITE_CHECK,), note=name)
    grid = Grid({}, {"method": ("vje", "byol"), "seed": (0, 1, 2)})
    known = {"cohort": "c", "cohort_size": 9, "preset": "digits", "error": name, "host": name, "device": name}
    rows = [
        {**known, "trial_id": f"t{letter}{seed}", "changes": changes, "method": method, "seed": seed, "probe_z": value}
        for letter, method, changes, value in (("a", name, "", 0.9), ("b", "vje", "", 0.8), ("c", "byol", name, 0.7))
        for seed in range(3)
    ]
    store.prepare(NAME, COLUMNS)
    store.write(NAME, "c", [{**row, "status": "finished" if row["seed"] else "failed"} for row in rows], COLUMNS)
    sweep = Sweep(name, {"digits": grid}, figures=(figure,), over="seeds")
    write_figures(store.files, NAME, figures_of(sweep, "digits"))
    write_request(store.files, NAME, RequestRows("digits", "digits", [str(row["trial_id"]) for row in rows[:6]]))
    lease = Content(f"host {name}", "boot", 1, 1.0, name, name, [])
    store.files.write(LEASE, json.dumps(asdict(lease)).encode())
    return store


def printed(command: Callable[[Sequence[str]], int], *arguments: str) -> str:
    """What a command prints."""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
        command(arguments)
    check(out.getvalue())
    return out.getvalue()


@pytest.fixture(scope="module")
def patched() -> Iterator[pytest.MonkeyPatch]:
    """Pages without their charts: half of the time that a page takes goes into the library that draws them."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(document, "compressed_library", lambda: gzip.compress(b""))
        yield patched


@pytest.mark.slow
@settings(max_examples=6, deadline=None, phases=(Phase.generate,))
@given(name=TEXTS)
def test_what_a_store_holds_is_printed_and_written_printable(patched: pytest.MonkeyPatch, name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = store_of(Path(folder, "store"), name)
        where = ["--store", store.files.uri]
        for command, words in (
            (list_command, [store.files.uri]),
            (rm, [f"{NAME}:digits, {name}", *where]),
            (merge, [store.files.uri, f"{folder}/other"]),
        ):
            printed(command.main, *words)
            store.files.delete(LEASE)  # the other commands would wait for its driver
        assert "t" in printed(best, NAME, *where)
        printed(best, NAME, "--changes", name, *where)
        for other in (f"{NAME}:digits,method={name}", f"{name}:digits"):
            sides = f"{NAME}:digits,method=vje@{store.files.uri}", other
            printed(compare, *sides, "--out", f"{folder}/compare.png")
        for form in ("markdown", "latex"):
            printed(table.main, NAME, "--format", form, *where)
        out = Path(folder, "table.csv")
        printed(table.main, NAME, "--format", "csv", "--out", str(out), *where)
        check(out.read_text())
        for cell in (cell for line in csv.reader(out.read_text().splitlines()) for cell in line):
            with contextlib.suppress(ValueError):
                float(cell)
                continue
            assert not cell.lstrip().startswith(FORMULA_STARTS), cell
        publish.write(store.files, NAME)
        for page in Path(folder).rglob("*.html"):
            check(page.read_text().replace("\t", ""))


@for_each(
    ("value", "cell"),
    [
        ("=HYPERLINK(1)", "'=HYPERLINK(1)"),
        ("-0.5", "-0.5"),
        ("+1+cmd|' /C calc'!A0", "'+1+cmd|' /C calc'!A0"),
        ("@SUM(1)", "'@SUM(1)"),
        ("\t=1", "\\t=1"),
        (" =1", "' =1"),
        ("\uff1d1", "'\uff1d1"),
        ("a-b", "a-b"),
    ],
)
def test_no_cell_of_a_csv_file_is_a_formula(tmp_path: Path, value: str, cell: str) -> None:
    store = store_of(tmp_path, value)
    (text,) = table.documents(NAME, form="csv", changes="", store=store.files.uri)
    methods = {float(row["mean"]): row["method"] for row in csv.DictReader(text.splitlines())}
    assert {round(mean, 6): method for mean, method in methods.items()} == {0.9: cell, 0.8: "vje"}


def test_a_label_does_not_end_the_process_that_draws_it() -> None:
    chart = {"data": {"values": charts.hole("rows")}, "mark": "bar", "encoding": {"x": {"field": "a"}}}
    assert charts.png(chart, rows=[{"a": "\x1b[2J\x00\ufffe\udcff"}]).startswith(b"\x89PNG")


@pytest.mark.slow
def test_class_folders_of_any_name_are_printed_in_one_line(
    tmp_path: Path, patched: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = f"b\x1b[2J\u202e\n{FORGED}\n\udcff"
    images = write_own_images(tmp_path / "images", ("a", odd, "$x_{$"))
    data = ["--set", "dataset=folder", "--set", "batch_size=4", "--data", str(images), "--axis", "beta=1"]
    words = ["anomaly_grid", "--preset", "digits", *data, "--axis", "seed=0,1", "--axis", "nu=1", "--set", "epochs=1"]
    store = ["--store", str(tmp_path / "store")]
    for more in (["--plan"], ["--debug"], ["--debug"]):
        assert run.main([*words, *store, "--normal-class", odd, *more]) == 0
    assert best(["anomaly_grid", *store]) == 0
    out, err = capsys.readouterr()
    check(out)
    check(err)
    assert r"b\x1b[2J\u202e\nerror: forged\n\udcff" in err
