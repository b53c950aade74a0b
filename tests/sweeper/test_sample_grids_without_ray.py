"""Pictures from the workers of a sweep to the store: samples and reconstructions, densities of latents."""

import io
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sweeper.commands import restore, run
from sweeper.definition import Grid, Metric, Sweep, Table, Value, registry
from sweeper.storage.load import load
from tests.fake_executor import without_ray
from trainables.metrics import latent_density

SMALL: dict[str, Value] = {
    "dataset": "digits_tint", "encoder": "relu_mlp", "hidden": "32", "decoder_hidden": "32", "features": 4,
    "batch_size": 256, "epochs": 2, "report_every": 1, "reconstructions": True, "samples_per_class": 2,
}  # fmt: skip
GRIDS = ["reconstructions.png", "samples.png"]


@pytest.fixture(autouse=True)
def sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep of two seeds of VAE and SimCLR, whose decoder is trained for the sample grids."""
    methods: tuple[dict[str, Value], ...] = (
        {"method": "vae"},
        {"method": "simclr", "projector_width": 8, "adhoc_epochs": 1},
    )
    grids = tuple(Grid({**SMALL, **own}, {"sheets": (True,), "seed": (0, 1)}) for own in methods)
    table = Table("errors", ("method",), (Metric("reconstruction_mse", "minimize"),))
    monkeypatch.setattr(registry, "find", lambda name: Sweep(about="", presets={"digits": grids}, figures=(table,)))


def train(folder: Path, *words: str) -> int:
    with without_ray(folder):
        return run.main(["decoded", "--store", str(folder / "store"), "--cohort", "2", *words])


def contents(folder: Path) -> dict[str, bytes]:
    """Path below `sheets/decoded` -> content."""
    root = folder / "store/sheets/decoded"
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*.png")}


def pixels(picture: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(picture)), int)


@pytest.mark.slow
def test_each_trial_has_its_sample_grids_and_the_sweep_has_one_with_all_methods(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(tmp_path) == 0
    rows, grids = load("decoded", str(tmp_path / "store")), contents(tmp_path)
    of_trials = {f"{trial}/{name}" for trial in rows["trial_id"] for name in GRIDS}
    assert len(rows) == 4 and grids.keys() == of_trials | {f"digits/digits_tint-{name}" for name in GRIDS}
    assert len({grids[path] for path in of_trials}) == 8, "members of a cohort have their own pictures"
    assert re.search(rf"figures: {tmp_path}/store/(sheets|.*,sheets.)/decoded/digits\n", capsys.readouterr().out)
    one = Image.open(io.BytesIO(grids[f"{rows['trial_id'][0]}/reconstructions.png"]))
    both = Image.open(io.BytesIO(grids["digits/digits_tint-reconstructions.png"]))
    assert both.height == 3 * (one.height // 2), "the originals, and a row for each of the two methods"


def test_trials_that_ask_for_no_sample_grids_have_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(tmp_path, "--axis", "sheets=false", "--axis", "seed=0", "--set", "samples_per_class=0") == 0
    assert not (tmp_path / "store/sheets").exists() and "sheets:" not in capsys.readouterr().out


@pytest.mark.slow
def test_sample_grids_that_a_fresh_run_replaces_come_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(tmp_path) == 0
    before = contents(tmp_path)
    for path in before:
        (tmp_path / "store/sheets/decoded" / path).write_bytes(b"older")
    capsys.readouterr()
    assert train(tmp_path, "--fresh", "--axis", "seed=0") == 0
    words = shlex.split(capsys.readouterr().out.split("sweeper restore ")[1].splitlines()[0])
    again = contents(tmp_path)
    older = {path for path, content in again.items() if content == b"older"}
    assert len(older) == 4, "the grids of seed 1"
    own = {path for path in before if not path.startswith("digits/")}  # the others are drawn of both seeds
    for path in own - older:  # of a stack of one where it was of two: equal up to rounding
        np.testing.assert_allclose(pixels(again[path]), pixels(before[path]), atol=2)
    assert restore.main(words) == 0
    assert set(contents(tmp_path)[path] for path in before) == {b"older"}


DENSITIES: dict[str, Value] = {
    "dataset": "digits", "encoder": "relu_mlp", "hidden": "32", "decoder_hidden": "32", "features": 4,
    "batch_size": 256, "epochs": 1, "adhoc_epochs": 1, "projector_width": 0, "density_samples": 160,
    "density_components": 3, "density_pictures": True, "seed": 0,
}  # fmt: skip


@pytest.mark.slow
def test_figures_and_table_are_drawn_and_drawn_again_by_a_run_that_has_nothing_to_train(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """SimCLR has a mixture, GJE one Gaussian. Maps take no time."""
    own = {"simclr": "gmm", "gje": "gaussian"}
    grids = tuple(Grid({**DENSITIES, "method": name, "density": density}, {}) for name, density in own.items())
    metrics = (Metric("sample_confident", "maximize", percent=True), Metric("density_volume"), Metric("spread"))
    shown = Table("densities", ("method", "density"), metrics, note="the ceiling is 7")
    monkeypatch.setattr(latent_density, "tsne", lambda z_ND: z_ND[:, :2].cpu().numpy())
    monkeypatch.setattr(registry, "find", lambda name: Sweep(about="", presets={"digits": grids}, figures=(shown,)))
    assert train(tmp_path) == 0
    rows, store = load("decoded", str(tmp_path / "store")), tmp_path / "store"
    assert rows["spread"].notna().tolist() == [density == "gmm" for density in rows["density"]]
    assert rows[["density_volume", "density_trace", "sample_confident"]].notna().all(axis=None)
    figures = [store / f"sheets/decoded/digits/digits-{kind}.png" for kind in ("samples", "tsne")]
    table = store / "tables/decoded/digits/densities.md"
    assert "the ceiling is 7" in table.read_text()
    for trial in rows["trial_id"]:
        with np.load(store / f"sheets/decoded/{trial}/tsne.npz") as parts:
            assert len(parts["samples"]) == 134 and len(parts["test"]) == 537
    for path in (*figures, table):
        path.unlink()
    assert train(tmp_path) == 0 and "the ceiling is 7" in capsys.readouterr().out
    assert all(path.exists() for path in (*figures, table))
