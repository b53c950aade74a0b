"""The page on VJE-22 says what its rows say."""

import re
from pathlib import Path

import pandas as pd

import search_spaces

FOLDER = Path(search_spaces.__file__).parent


def test_the_table_is_that_of_the_cells() -> None:
    cells = pd.read_csv(FOLDER / "entropy.csv")
    rows = re.findall(r"^\| ([^|]+) \| ([\d.e-]+) \| (.+) \|$", (FOLDER / "entropy.md").read_text(), re.M)
    assert {(name, float(lr)) for name, lr, _ in rows} == {*cells.groupby(["condition", "lr"]).groups}
    for name, lr, numbers in rows:
        own = cells[(cells["condition"] == name) & (cells["lr"] == float(lr))]
        corner = (own["beta"] >= 1.5) & (own["nu"] >= 5)
        assert (len(own), corner.sum()) == (20, 4)
        correlations = [
            frame[metric].corr(frame["posterior_entropy"])
            for frame, metric in ((own, "auroc_joint"), (own[~corner], "auroc_joint"), (own, "auroc_dir"))
        ]
        ranges = [own.loc[corner, metric].agg(["min", "max"]) for metric in ("auroc_joint", "auroc_dir", "auroc_rad")]
        texts = [*(f"{r:+.2f}" for r in correlations), *(f"{low:.2f} to {high:.2f}" for low, high in ranges)]
        assert numbers.split(" | ") == texts
