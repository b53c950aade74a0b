"""`sweeper compare`: sides as typed, and the comparison of a store's rows."""

from pathlib import Path

import pytest

import sweeper
from sweeper.commands.compare import main
from sweeper.errors import SpecError
from sweeper.report.formatting import MINUS
from sweeper.results.compare import ComparedSide, parse_sides
from sweeper.storage.rows import Columns
from sweeper.storage.store import Store
from tests.cases import for_each

COLUMNS = Columns({"method": str, "nu": float, "seed": int}, ("knn_z",))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with the presets `short` and `long` of a sweep, and a changed request; it is the working folder."""
    rows = [
        row(preset, changes, nu, seed, 0.5 + 0.01 * seed + gain)
        for preset, changes, gain in (("short", "", 0.0), ("long", "", 0.125), ("short", "epochs=5", -0.25))
        for nu in (1.0, 3.0)
        for seed in range(3)
    ]
    Store(tmp_path / "results").write("grid", "c0", rows, COLUMNS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def row(preset: str, changes: str, nu: float, seed: int, knn: float) -> dict[str, object]:
    name = f"{preset}{changes}{nu}{seed}".replace("=", "-")
    values = {"method": "vje", "nu": nu, "seed": seed, "knn_z": knn, "preset": preset, "changes": changes}
    return {"trial_id": name, "status": "finished", **values}


def test_a_side_that_is_no_name_is_refused() -> None:
    with pytest.raises(SpecError, match=r"but got 'nu=20'; for its rows with nu=20 write ,nu=20$"):
        parse_sides("grid:digits,nu=1", "nu=20")


def test_the_second_side_takes_what_it_lacks_from_the_first() -> None:
    a, b = parse_sides("grid:short@x", ":long")
    assert (a, b) == (ComparedSide("grid", "short", {}, "x"), ComparedSide("grid", "long", {}, "x"))
    assert parse_sides("grid:short", "@s3://b/r")[1] == ComparedSide("grid", "short", {}, "s3://b/r")
    a, b = parse_sides("grid:short,terms=dir+rad,nu=1", ",terms=dir")
    assert (a.conditions, b.conditions) == ({"terms": "dir+rad", "nu": "1"}, {"terms": "dir"})
    assert parse_sides("grid:short", "other")[1] == ComparedSide("other"), "the preset belongs to the name"
    assert parse_sides("grid:short", ",changes=epochs=5")[1].conditions == {"changes": "epochs=5"}
    changed = "grid:short,nu=1,changes=epochs=5,7 seed=0,1"
    assert parse_sides(changed, ",nu=3")[1].conditions == {"changes": "epochs=5,7 seed=0,1", "nu": "3"}
    assert parse_sides(changed, ",changes=")[1].conditions == {"changes": ""}
    assert parse_sides(changed, ":long")[1].conditions == {}, "the changes belong to the preset"


@pytest.mark.parametrize(
    ("second", "difference", "lines"),
    [
        (":long", "+0.125", ["pairs: 6, agreeing in nu, seed"]),
        (",changes=epochs=5", f"{MINUS}0.250", ["pairs: 6, agreeing in nu, seed"]),
        (",nu=3", "+0.00", ["pairs: 3, agreeing in seed", "differs: nu: 1, 3 in A, 3 in B"]),
    ],
)
def test_paired_differences_are_printed_and_drawn(
    second: str, difference: str, lines: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["grid:short", second, "--out", "c.png"]) == 0
    out = capsys.readouterr().out
    (knn,) = [line for line in out.splitlines() if line.startswith("knn_z")]
    assert difference in knn.split() and all(line in out for line in lines), out
    assert (folder / "c.png").read_bytes().startswith(b"\x89PNG")


@for_each(("name", "start"), [("c.pdf", b"%PDF-"), ("c.SVG", b"<svg ")])
def test_the_figure_has_the_form_of_its_suffix(name: str, start: bytes, folder: Path) -> None:
    assert main(["grid:short", ":long", "--out", str(folder / name)]) == 0
    assert (folder / name).read_bytes().startswith(start)


def test_from_python_it_is_a_frame(folder: Path) -> None:
    (knn,) = sweeper.compare("grid:short,nu=1", ":long,nu=1", ["knn_z"]).to_dict("records")
    assert knn["difference"] == pytest.approx(0.125) and knn["n"] == 3 and knn["improved"] == 1.0


@pytest.mark.parametrize(
    ("arguments", "law"),
    [
        (["grid:short", ":short"], "the two sides must differ, but both are grid:short in results"),
        (["grid:short", "grad"], "no sweep 'grad' (did you mean 'grid'?); there are: grid"),
        (["grid:short", "@elsewhere"], "elsewhere has no rows"),
        (["grid", ":long"], "grid has rows of several presets; write grid:PRESET with one of: long, short"),
        (["grid:short", ":lang"], "no trial with preset=lang; there are: 'long', 'short'"),
        (["grid:short", ",nu=7"], "grid:short,nu=7 in results: no trial with nu=7; there are: 1.0, 3.0"),
        (["grid:short", ",mu=7"], "no column in the rows of grid 'mu'; there are: trial_id, method, nu, seed"),
        (["grid:short", ",nu"], "a side must be NAME[:PRESET][,KEY=VALUE...][@STORE], but got ',nu'"),
        (["grid:short", ",nu=1,nu=3"], "a side takes each key once, but got nu=1 and nu=3"),
        ([":short", "grid"], "the first side must be NAME"),
        (["grid:short@", "grid"], "a store must follow the @"),
        (["grid:short", ":long", "--metric", "knn_y"], "no metric of both sides 'knn_y' (did you mean 'knn_z'?)"),
        (
            ["grid:short", ":long", "--out", "c.gif"],
            "--out must be a PNG, PDF or SVG in a folder that exists",
        ),
        (["grid:short"], "the following arguments are required: B"),
    ],
)
def test_wrong_requests_are_one_line(
    arguments: list[str], law: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert law in err and err.startswith("error: ") and err.count("\n") == 1 and not out
