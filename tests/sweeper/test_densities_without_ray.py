"""Densities of latents, from the workers of a sweep to its table and figures, and again by the next run."""

from pathlib import Path

import numpy as np
import pytest

from sweeper.run import main
from sweeper.spec import Grid, Grids, Metric, Sweep, Table, Value, registry
from sweeper.storage.load import load
from tests.fake_executor import without_ray
from trainables.metrics import latent_density

SMALL: dict[str, Value] = {
    "dataset": "digits", "encoder": "relu_mlp", "hidden": "32", "decoder_hidden": "32", "features": 4,
    "batch_size": 256, "epochs": 1, "adhoc_epochs": 1, "projector_width": 0, "density_samples": 160,
    "density_components": 3, "density_pictures": True, "seed": 0,
}  # fmt: skip


@pytest.fixture(autouse=True)
def sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep of SimCLR with a mixture and of GJE with one Gaussian. Maps take no time."""
    own = {"simclr": "gmm", "gje": "gaussian"}
    grids = Grids(tuple(Grid({**SMALL, "method": name, "density": density}, {}) for name, density in own.items()))
    metrics = (Metric("sample_confident", "maximize", percent=True), Metric("density_volume"), Metric("spread"))
    table = Table("densities", ("method", "density"), metrics, note="the ceiling is 7")
    monkeypatch.setattr(latent_density, "tsne", lambda z_ND: z_ND[:, :2].cpu().numpy())
    monkeypatch.setattr(registry, "find", lambda name: Sweep(about="", presets={"digits": grids}, tables=(table,)))


def train(folder: Path, *words: str) -> int:
    with without_ray(folder):
        return main(["latent", "--store", str(folder / "store"), *words])


@pytest.mark.slow
def test_figures_and_table_are_drawn_and_drawn_again_by_a_run_that_has_nothing_to_train(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(tmp_path) == 0
    rows, store = load("latent", str(tmp_path / "store")), tmp_path / "store"
    assert rows["spread"].notna().tolist() == [density == "gmm" for density in rows["density"]]
    assert rows[["density_volume", "density_trace", "sample_confident"]].notna().all(axis=None)
    figures = [store / f"sheets/latent/digits/digits-{kind}.png" for kind in ("samples", "tsne")]
    table = store / "tables/latent/digits/densities.md"
    assert "the ceiling is 7" in table.read_text()
    for trial in rows["trial_id"]:
        with np.load(store / f"sheets/latent/{trial}/tsne.npz") as parts:
            assert len(parts["samples"]) == 134 and len(parts["test"]) == 537
    for path in (*figures, table):
        path.unlink()
    assert train(tmp_path) == 0 and "the ceiling is 7" in capsys.readouterr().out
    assert all(path.exists() for path in (*figures, table))
