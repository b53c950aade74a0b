"""The command line as typed."""

from pathlib import Path

import pytest

from sweeper.cli.arguments import parse


@pytest.mark.parametrize(
    ("options", "folder"),
    [([], Path("images")), (["--plan"], None), (["--plan", "--probe"], Path("images"))],
)
def test_only_a_plan_that_measures_nothing_needs_no_data(options: list[str], folder: Path | None) -> None:
    assert parse(["anomaly_grid", "--data", "images", *options]).data_folder == folder
