"""A store that an earlier version of the code wrote: read, and continued without training anything anew.

`earlier_store/` has the rows and the history of the two presets below, as version 0.1.0 wrote them. A trial that gets
another id here would be trained again in every store of that version: a key that is added later to a section keeps the
ids of trials that have its default (`trainables.sections.added`).
"""

import shutil
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from optuna.distributions import FloatDistribution

import sweeper.run as run
from sweeper.spec import Grid, Metric, Search, Sweep, Table, registry
from sweeper.storage.load import load
from tests.sweeper.small_sweeps import FIXED

AUROC = Metric("val_auroc_joint", "maximize")
SWEEP = Sweep(
    about="a grid of two trials and a search of two waves",
    presets={
        "grid": Grid({**FIXED, "seed": 0}, {"beta": (0.5, 1.5)}),
        "search": Search(
            {"beta": FloatDistribution(0.1, 3.0, log=True)},
            {**FIXED, "optimiser": "adam"},
            trials=4,
            metric=AUROC,
            wave=2,
            sampler="random",
        ),
    },
    tables=(Table("auroc", ("beta",), (Metric("auroc_joint", "maximize"),)),),
    name="earlier",
)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(registry, "find", lambda name: SWEEP)
    monkeypatch.setattr(run, "connected", lambda *_, **__: pytest.fail("nothing must be trained"))
    shutil.copytree(Path(__file__).parent / "earlier_store", tmp_path / "store")
    return tmp_path / "store"


@pytest.mark.parametrize(("preset", "count"), [("grid", 2), ("search", 4)])
def test_an_earlier_store_is_read_and_continued(
    preset: str, count: int, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = load("earlier", store, preset=preset)
    assert run.main(["earlier", "--preset", preset, "--store", str(store)]) == 0
    out, err = capsys.readouterr()
    assert f"{count} finished of {count} trials" in out and "do not count" not in err
    (line,) = [line for line in out.splitlines() if line.startswith(f"request '{preset}': ")]
    rows = eval(line.partition(": ")[2], {"pd": pd})
    assert set(rows["trial_id"]) == set(before["trial_id"]) == set(load("earlier", store, preset=preset)["trial_id"])


@pytest.mark.parametrize("preset", ["grid", "search"])
def test_rows_of_an_earlier_definition_are_told_and_left_out(
    preset: str, store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    space = SWEEP.presets[preset]
    assert isinstance(space, Grid | Search)
    now = replace(SWEEP, presets={preset: replace(space, fixed={**space.fixed, "lr": 0.01, "width": 32})})
    monkeypatch.setattr(registry, "find", lambda name: now)
    assert run.main(["earlier", "--store", str(store), "--axis", "normal_class=0", "--plan"]) == 0
    out, err = capsys.readouterr()
    count = 2 if preset == "grid" else 4
    assert f"{count} to run" in out and f"note: {count} rows of '{preset}'" in err
    assert "lr was 0.02, is 0.01" in err and "width was 16, is 32" in err and err.count(" was ") == 2
    assert run.main(["earlier", "--store", str(store), "--set", "epochs=3", "--plan"]) == 0
    assert "do not count" not in capsys.readouterr().err, "another request"
