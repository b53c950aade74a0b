"""The worked example of CONTRIBUTING.md runs as it stands: a sweep and a method from outside."""

import re
from pathlib import Path

import pandas as pd
import pytest

import sweeper.run as run
from tests.fake_executor import without_ray
from tests.user_files import user_folder

__all__ = ["user_folder"]

TEXT = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text()
EXAMPLE = TEXT[TEXT.index("## From outside") : TEXT.index("## Add a sweep")]


@pytest.fixture
def example(user_folder: Path) -> Path:
    """The working directory with the two files of the example."""
    method, sweep = re.findall(r"```python\n(.*?)```", EXAMPLE, re.DOTALL)
    (user_folder / "my_method.py").write_text(method)
    (user_folder / "my_sweep.py").write_text(sweep)
    return user_folder


def _commands() -> list[list[str]]:
    """The words of each command line of the example, without `sweeper` and the comment."""
    lines = re.findall(r"^sweeper (.*?) *(?:#.*)?$", EXAMPLE, re.MULTILINE)
    return [line.split() for line in lines]


@pytest.mark.slow
def test_its_commands_run(example: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (describe, method), (plan, *planned), (start, *started), (submit, *submitted) = _commands()
    assert (describe, plan, start, submit) == ("describe", "run", "run", "submit")
    assert run.main(["--describe", method]) == 0
    described = capsys.readouterr().out
    assert "The representation of a noisy view" in described and "* sigma=0.3  (sigma >= 0)" in described
    store = tmp_path / "store"
    assert run.main([*planned, "--store", str(store)]) == 0
    out, err = capsys.readouterr()
    assert "trials     27: 0 finished" in out and err == ""  # no note: it can be stacked
    with without_ray(tmp_path):
        assert run.main([*started, "--store", str(store)]) == 0
    rows = pd.read_parquet(store / "trials/sweep=my_sweep")
    assert len(rows) == 9 and set(rows["status"]) == {"finished"} and set(rows["method"]) == {"my_method:Denoise"}
    assert rows["loss_error"].notna().all() and rows["knn_z"].min() > 0.5
    assert (store / "heatmaps/my_sweep").is_dir() and submitted[0] == "my_sweep.py"
