"""The tables of a request for some of a sweep's methods and data sets: on the terminal, in the store, on the page."""

import warnings
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from sweeper.plan.cohorts import enumerate_trials
from sweeper.report import publish
from sweeper.report.figures import views_of
from sweeper.report.page import findings
from sweeper.spec import Sweep, registry
from sweeper.spec.space import change_space, parts_of
from sweeper.storage.files import Files
from sweeper.storage.rows import plain_value
from trainables.config import keys, resolve
from trainables.data.datasets.catalog import DATASETS
from trainables.training.metric_names import metric_names

CONTENT = ("mlp_probe_and_knn", "linear_probe_and_mixture", "clusters", "clusters_in_batches", "probes_at_best_epoch")


def rows_of(sweep: Sweep, preset: str, **axes: tuple[Any, ...]) -> pd.DataFrame:
    """Rows of all trials of a request that narrows these axes of a preset, each metric with a value."""
    parts = parts_of(change_space(sweep.presets[preset], {}, axes, keys))
    combinations = (combination for part in parts for combination in part.combinations())
    trials = enumerate_trials(combinations, lambda combination: resolve(combination).flat())
    return pd.DataFrame(
        [
            {
                **trial.config,
                **{name: 0.5 for name in metric_names(resolve(trial.config), classes(str(trial.config["dataset"])))},
                "trial_id": trial.id,
                "status": "finished",
            }
            for trial in trials
        ]
    )


def classes(dataset: str) -> int:
    return DATASETS[dataset].declaration.classes if dataset in DATASETS else 0


def shown_tables(sweep: Sweep, preset: str, rows: pd.DataFrame, folder: Path) -> tuple[str, dict[str, pd.DataFrame]]:
    """The text, and the tables in the store. The page has the same tables and cells."""
    own = sweep.for_preset(preset)
    text = publish.write(Files(folder), sweep.name, own, preset, rows)
    stored = {path.stem: pd.read_parquet(path) for path in (folder / "tables").rglob("*.parquet")}
    views = views_of(own, preset)
    on_page = {table.name: findings.table(views, table, rows) for table in own.tables}
    assert {name for name, table in on_page.items() if table} == set(stored)
    for view in own.tables:
        if table := on_page[view.name]:
            cells = stored[view.name]
            assert all(len(values) == len(cells) for values in table["cells"].values())
            for axis in view.axes:
                assert set(table["cells"][axis]) == set(map(plain_value, cells[axis]))
    return text, stored


def test_a_request_for_some_methods_and_one_data_set_shows_these_alone(tmp_path: Path) -> None:
    sweep = registry.find("simvae_content")
    rows = rows_of(sweep, "paper", method=("vae", "simvae"), dataset=("mnist",))
    text, tables = shown_tables(sweep, "paper", rows, tmp_path)
    assert set(tables) == set(CONTENT)
    for cells in tables.values():
        assert set(cells["method"]) == {"vae", "simvae"} and set(cells["dataset"]) == {"mnist"}
        assert (cells["count"] == 3).all()
    assert "(paper 97.80" in text
    for absent in ("simclr", "vicreg", "cifar10", "celeba", "no trial has a value yet"):
        assert absent not in text.split("best probe_mlp")[0]


def test_a_whole_request_keeps_the_rows_that_only_the_paper_has() -> None:
    """VJE's paper has baselines on ImageNet that no trial is."""
    sweep = registry.find("imagenet_linear")
    (table,) = sweep.tables
    assert len(table.published["paper"]) == 6
    views = views_of(sweep, "paper")
    found = findings.table(views, table, pd.DataFrame({"method": ["vje"], "probe_z": [0.6], "trial_id": ["a"]}))
    assert found and {"simclr", "byol", "swav"} < set(found["cells"]["method"])


@pytest.mark.parametrize(
    ("name", "axes", "tables"),
    [
        ("ssl_benchmark", {"method": ("simclr",)}, {"accuracy", "embeddings"}),
        ("ssl_cifar10", {"method": ("random",)}, {"accuracy", "weighted_knn"}),
        ("collapse_ablation", {"method": ("random",)}, {"untrained"}),
        ("collapse_ablation", {"method": ("hsic",)}, {"collapse"}),
        ("synthetic_alignment", {"method": ("gmje_em",), "dataset": ("synthetic_b",)}, {"densities"}),
    ],
)
def test_no_table_is_empty_and_no_row_was_not_asked_for(
    name: str, axes: dict[str, tuple[Any, ...]], tables: set[str], tmp_path: Path
) -> None:
    warnings.simplefilter("error", UserWarning)  # of figures that cannot be shown
    sweep = registry.find(name)
    rows = rows_of(sweep, "paper", **axes)
    text, stored = shown_tables(sweep, "paper", rows, tmp_path)
    assert set(stored) == tables
    for cells in stored.values():
        assert (cells["count"] + cells["missing"] > 0).any()
        for axis, asked in axes.items():
            if axis in cells:
                assert set(cells[axis]) == set(asked)
    assert not any(f"\n{view.name}: " in f"\n{text}" for view in sweep.tables if view.name not in tables)
