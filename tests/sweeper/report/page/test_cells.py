"""The cells that a page computes are those of Python: `cells.js` in a real browser."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import sweeper.report.page
from sweeper.definition.metric import SPREADS
from sweeper.definition.sweep import SEEDS, Repeats
from sweeper.report.formatting import json_values
from sweeper.report.heatmaps import colour_scale, pivot
from sweeper.results.estimates import unit_halves
from sweeper.results.replicates import MEASURED, beside
from sweeper.results.sentences import Over, beside_text, described
from sweeper.storage.rows import plain_value
from tests.sweeper.report.page.browsers import browser, tab

SCRIPTS = ("data.js", "formats.js", "cells.js", "axes.js")
RUN = """
return given.map(({ rows, axes, repeats, bounds, halves, nouns }) => {
  const has = (name) => rows.some((row) => name in row);
  const column = (name) => has(name) && new Column({ name, bounds, values: rows.map((row) => row[name]) });
  const trials = rows.map((_, trial) => trial);
  const entries = trials.map((trial) => ({ trial, labels: {} }));
  const repeated = repetition(repeats, column, trials, axes);
  const [down, across] = axes.map((name) => hyperparameterAxis(column(name)));
  const { cells } = pivot(entries, column("auroc"), down, across, repeated, halves);
  const spreads = Object.keys(SPREADS);
  return {
    cells,
    captions: spreads.map((spread) => described(cells, nouns, spread)),
    texts: spreads.map((spread) => cells.map((cell) => besideText(beside(cell, spread), (value) => value.toFixed(3)))),
    colours: colourRange(cells, bounds),
  };
});
"""
OVER = Over("seeds", "classes")
HALVES = json_values(pd.Series(unit_halves(20)))
Rows = Sequence[Mapping[str, Any]]


def case_of(
    rows: Rows, axes: Sequence[str] = ("lr", "patience"), repeats: Repeats = SEEDS, bounds: list[float] | None = None
) -> dict[str, Any]:
    """What the browser is given."""
    shared = {"halves": HALVES, "nouns": asdict(OVER), "repeats": asdict(repeats)}
    return {**shared, "rows": rows, "axes": axes, "bounds": bounds}


def of_page(cases: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    folder = Path(sweeper.report.page.__path__[0]) / "browser"
    scripts = "\n".join((folder / name).read_text() for name in SCRIPTS)
    with browser() as chromium, tab(chromium) as page:
        found: list[dict[str, Any]] = page.tab.evaluate(f"(given) => {{ {scripts}\n{RUN} }}", cases)
    return found


def of_python(case: Mapping[str, Any]) -> pd.DataFrame:
    repeats = Repeats(*map(tuple, case["repeats"].values()))
    frame = pd.DataFrame(case["rows"])
    return pivot(frame, "auroc", tuple(case["axes"]), repeats, case["bounds"] is not None)


def check(case: Mapping[str, Any], found: Mapping[str, Any]) -> pd.DataFrame:
    """Check that a page has the cells of Python, and says the same of them. Returns these."""
    cells, (down, across) = of_python(case), case["axes"]
    for cell, own in zip(found["cells"], cells.to_dict("records"), strict=True):
        assert (cell["row"], cell["column"]) == (plain_value(own[down]), plain_value(own[across]))
        own = {name: own[name] for name in MEASURED}
        assert {name: cell[name] for name in MEASURED} == pytest.approx(own, rel=1e-9, abs=1e-12, nan_ok=True)
    assert found["captions"] == [described(cells, OVER, spread) for spread in SPREADS]
    assert found["texts"] == [
        [beside_text(beside(cell, spread), lambda value: f"{value:.3f}") for cell in cells.to_dict("records")]
        for spread in SPREADS
    ]
    scale = colour_scale(cells, case["bounds"])
    colours = {"low": scale.low, "high": scale.high, "widened": scale.widened}
    assert found["colours"] == pytest.approx(colours, rel=1e-9, abs=1e-9)
    return cells


@pytest.mark.slow
def test_the_cells_of_a_page_are_those_of_python() -> None:
    """Of one to six replicates, equal ones among them, with nulls on an axis, as seeds and as values."""
    rng, rows = np.random.default_rng(0), list[dict[str, Any]]()
    for count, (lr, patience) in enumerate(itertools.product((0.1, 0.2, 0.3), (5, None))):
        seeds = (None, *range(count))
        values = [0.5] * len(seeds) if lr == 0.3 else rng.random(len(seeds)).tolist()
        rows += [
            {"lr": lr, "patience": patience, "seed": seed, "auroc": value}
            for seed, value in zip(seeds, values, strict=True)
        ]
    rows += [
        {"lr": 0.1, "patience": 5, "seed": None, "auroc": 0.9},
        {"lr": 0.2, "patience": None, "seed": 7, "auroc": None},
    ]
    case = case_of(rows)
    (found,) = of_page([case])
    cells = check(case, found)
    assert set(cells["replicates"]) == {*range(1, 7)} and cells["low"].isna().any() and cells["low"].notna().any()


KINDS = (SEEDS, Repeats(("seed", "normal_class"), ("held_out",)), Repeats(("seed",), ("nothing", "normal_class")))
"""Fixed classes, random ones, and a hyperparameter that no row has."""


def random_case(number: int) -> dict[str, Any]:
    """Trials of several classes and seeds with values that may be equal, missing or infinite, in cells of which some
    have no trial, and others several of a seed and class."""
    rng = np.random.default_rng(number)
    classes, seeds = rng.integers(1, 5), rng.integers(1, 7)
    complete, repeated, level = rng.choice([0.3, 0.8, 1.0]), rng.random() < 0.3, rng.choice([0.5, 0.9, 0.99])
    rows, lacking = list[dict[str, Any]](), rng.choice([1, 3])
    for lr, patience, of, seed in itertools.product((0.1, 0.2), (5, None), range(classes), range(seeds)):
        for _ in range(1 + (repeated and rng.integers(3) == 0)):
            value: float | None = float(rng.beta(20 * level, 20 * (1 - level)))
            kind = rng.random()
            value = None if kind < 0.05 else level if kind < 0.2 else math.inf if kind > 0.995 else value
            own = {"normal_class": None if of == lacking else int(of), "seed": None if seed == 5 else int(seed)}
            if rng.random() < complete:
                rows.append({"lr": lr, "patience": patience, **own, "auroc": value})
    if number % 7 == 0:  # the values of a cell are equal
        rows = [{**row, "auroc": float(level) if row["lr"] == 0.1 else row["auroc"]} for row in rows]
    if number % 5 == 0:  # these are no shares
        rows = [{**row, "auroc": row["auroc"] and (number % 2 + 1.1) * row["auroc"]} for row in rows]
    axes = [("lr", "patience"), ("lr", "normal_class"), ("seed", "patience")][number % 3]
    return case_of(rows, axes, KINDS[number // 3 % 3], [0.0, 1.0] if rng.random() < 0.6 else None)


@pytest.mark.slow
def test_the_cells_of_a_page_are_those_of_python_for_any_classes_and_seeds() -> None:
    cases = [case for case in map(random_case, range(150)) if case["rows"]]
    every = pd.concat([check(case, found) for case, found in zip(cases, of_page(cases), strict=True)])
    known = every[every["low"].notna()]
    assert len(known) > 100 and (every["fixed"] > 1).sum() > 100 and every["iqm"].notna().sum() > 100
    is_askew = (known["high"] - known["mean"]) < 0.99 * (known["mean"] - known["low"])
    assert is_askew.sum() > 20 and (~is_askew).sum() > 20, "shares, and others"
    assert (every["replicates"] * every["fixed"] < every["count"]).any(), "several trials of a seed and class"
    assert ((every["replicates"] == 1) & (every["count"] > every["fixed"])).any(), "no seed has all classes"
