"""The cells that a page computes are those of Python: `cells.js` in a real browser."""

import itertools
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import sweeper.report.page
from sweeper.report.formatting import json_values
from sweeper.report.heatmaps import pivot
from sweeper.report.verdicts import half_widths
from sweeper.storage.rows import plain_value
from tests.sweeper.report.page.browsers import browser, tab

SCRIPTS = ("data.js", "formats.js", "cells.js", "axes.js")
RUN = """
const { rows, halves } = given;
const column = (name) => ({ name, at: (trial) => rows[trial][name] });
const entries = rows.map((_, trial) => ({ trial, labels: {} }));
const axes = ["lr", "patience"].map((name) => hyperparameterAxis(column(name)));
return JSON.stringify( // NaN as null
  pivot(entries, column("auroc"), ...axes, (trial) => String(rows[trial].seed), halves).cells,
);
"""


def cells_of_page(rows: Sequence[dict[str, Any]], halves: Sequence[float | None]) -> list[dict[str, Any]]:
    folder = Path(sweeper.report.page.__path__[0]) / "browser"
    scripts = "\n".join((folder / name).read_text() for name in SCRIPTS)
    with browser() as chromium, tab(chromium) as page:
        text = page.tab.evaluate(f"(given) => {{ {scripts}\n{RUN} }}", {"rows": rows, "halves": halves})
    found: list[dict[str, Any]] = json.loads(text)
    return found


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
    frame = pd.DataFrame(rows)
    cells = pivot(frame, "auroc", ("lr", "patience"), ("seed",))
    cells = cells.assign(
        row=cells["lr"], column=cells["patience"], half=cells["high"] - cells["mean"], n=cells["replicates"]
    )
    expected = [
        {
            name: plain_value(cell[name])
            for name in ("row", "column", "mean", "std", "half", "iqm", "n", "count", "missing")
        }
        for cell in cells.to_dict("records")
    ]
    halves = json_values(pd.Series(half_widths(np.ones(8), np.arange(8))))
    found = cells_of_page(rows, halves)
    for cell, own in zip(found, expected, strict=True):
        assert {name: cell[name] for name in own} == pytest.approx(own)
    assert {cell["n"] for cell in found} == {*range(1, 7)} and any(math.isnan(half) for half in cells["half"])
