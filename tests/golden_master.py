"""`python -m tests.golden_master record FILE`, and after a change `compare FILE`: whether five sweeps still have the
same rows, figures and pages, bit for bit.

Each sweep trains in this process, one cohort after the other, in cohorts of a given size. Columns that say how a trial
ran, such as its seconds, are left out. Record and compare on the same machine: processors differ in the last bits.
"""

import argparse
import base64
import gzip
import hashlib
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from sweeper.storage.rows import FIXED

ONE_BY_ONE = ("--debug", "--compile", "never", "--cohort", "8", "--keep", "best")
GRID = ("--axis", "beta=0.5,1", "--axis", "nu=0.5,3,10", "--axis", "normal_class=0,1,2", "--axis", "seed=0,1,2")
SWEEPS: Mapping[str, Sequence[str]] = {
    "grid": ("anomaly_grid", "--preset", "digits", "--set", "epochs=4", *GRID),
    "pruned": (*("vje_search", "--preset", "digits"), *("--trials", "24", "--wave", "8", "--sampler", "random")),
    "population": ("vje_search", "--preset", "digits_population", "--trials", "8", "--wave", "8", "--set", "epochs=15"),
    "pairs": ("synthetic_alignment", "--preset", "paper", "--set", "method=jepa_pairs"),
    "one_class": (
        *("one_class_benchmark", "--preset", "digits", "--axis", "method=vje,pixels,autoencoder,geom"),
        *("--axis", "normal_class=0,1", "--axis", "seed=0,1,2", "--set", "epochs=2"),
    ),
}
"""Name -> what is run: a grid, a search with a pruner, a population, pairs, and one-class methods with a ranking."""
VARIES = frozenset({*(name for name, column in FIXED.items() if column.provenance), "course"})
"""Columns, and keys of a page's data, in which two runs of the same code differ."""


def main() -> int:
    """Record the digests, or print what differs from the recorded ones. Returns 1 if something does."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("record", "compare"))
    parser.add_argument("file", type=Path, help="a JSON file: sweep and file of its store -> digest")
    parser.add_argument("--sweep", action="append", choices=tuple(SWEEPS), help="only this one; may be repeated")
    options = parser.parse_args()
    digests: dict[str, str] = {}
    for name in options.sweep or SWEEPS:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "sweeper.run", *SWEEPS[name], *ONE_BY_ONE, "--store", folder]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            digests |= {f"{name}/{file}": _digest(text, folder) for file, text in texts_of(Path(folder))}
    if options.what == "record":
        options.file.write_text(json.dumps(digests, indent=1))
        print(f"{len(digests)} files recorded")
        return 0
    recorded: dict[str, str] = json.loads(options.file.read_text())
    if options.sweep:
        recorded = {file: digest for file, digest in recorded.items() if file.split("/")[0] in options.sweep}
    differing = [file for file in sorted({*recorded, *digests}) if recorded.get(file) != digests.get(file)]
    print("\n".join([*(f"differs: {file}" for file in differing), f"{len(digests)} files, {len(differing)} differ"]))
    return 1 if differing else 0


def texts_of(store: Path) -> Iterator[tuple[str, str]]:
    """Yield the name and the content of every table and page of a store. Files of rows have names of their cohorts, so
    those of a folder are one table."""
    folders = {path.parent for kind in ("trials", "history", "requests") for path in (store / kind).rglob("*.parquet")}
    for folder in sorted(folders):
        yield str(folder.relative_to(store)), _text_of(pd.read_parquet(folder))
    for path in sorted({*store.rglob("*.parquet")} - {path for folder in folders for path in folder.iterdir()}):
        yield str(path.relative_to(store)), _text_of(pd.read_parquet(path))
    for path in sorted((store / "reports").glob("*.html")):
        if found := re.search(r'<script id="report" type="text/plain">(.*?)</script>', path.read_text(), re.DOTALL):
            data = json.loads(gzip.decompress(base64.b64decode(found[1])))
            yield str(path.relative_to(store)), json.dumps(_constant(data), sort_keys=True)


def _text_of(table: pd.DataFrame) -> str:
    table = table[sorted(set(table.columns) - VARIES)]
    rows = table.sort_values([name for name in ("trial_id", "epoch", "metric") if name in table], kind="stable")
    return str(rows.to_json(orient="split", index=False, double_precision=15))


def _constant(data: Any) -> Any:
    """The data of a page without the values that vary: those under a key, and those of a column of trials."""
    if isinstance(data, dict):
        if data.get("name") in VARIES:
            return data["name"]
        return {key: _constant(value) for key, value in data.items() if key not in VARIES}
    return [*map(_constant, data)] if isinstance(data, list) else data


def _digest(text: str, folder: str) -> str:
    """The digest of a text, but for the folder's name: pages show commands with it."""
    return hashlib.sha256(re.sub(re.escape(folder).replace("/", r"\\?/"), "", text).encode()).hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(main())
