"""Sweeps on pairs in this process, whose members are fitted or learn by gradients: from rows to figures."""

from pathlib import Path

import pytest

from sweeper.commands import run
from sweeper.storage.load import load
from tests.fake_executor import without_ray

pytestmark = pytest.mark.usefixtures("undrawn")

PAIRS = (
    "--set", "examples=300", "--set", "epochs=2", "--set", "steps=300", "--set", "batch_size=300",
    "--set", "nodes=6", "--axis", "seed=111", "--axis", "dataset=synthetic_a",
    "--axis", "method=gmje_gng,gmje_mdn_pairs",
)  # fmt: skip


def _run_pairs(folder: Path, *words: str) -> int:
    with without_ray(folder):
        return run.main(["synthetic_alignment", "--store", str(folder / "store"), "--cohort", "2", *PAIRS, *words])


@pytest.mark.slow
def test_a_sweep_of_fitted_and_gradient_members_has_one_table_and_figures_that_a_continued_one_draws_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run_pairs(tmp_path) == 0
    out = capsys.readouterr().out
    rows = load("synthetic_alignment", str(tmp_path / "store"))
    assert len(rows) == 5 and set(rows["status"]) == {"finished"}
    assert rows["nll_excess"].notna().all() and list(rows.loc[rows["pi_error"].isna(), "method"]) == ["gmje_gng"]
    (text,) = (tmp_path / "store/tables").rglob("end.txt")
    shown = text.read_text()
    assert "sweeper table " in out
    assert all(label in shown for label in ("GMJE-GNG", "GMJE-MDN, not annealed", "synthetic_a: nll_excess"))
    assert dict(zip(rows["method"], rows["epochs"], strict=True)) == {"gmje_gng": 1, "gmje_mdn_pairs": 2}
    pictures = {path.name: path for path in (tmp_path / "store/sheets").rglob("*.png")}
    kinds = ("densities", "parameters")
    assert set(pictures) == {f"synthetic_a-{kind}.png" for kind in kinds}
    before = {name: path.read_bytes() for name, path in pictures.items()}
    for path in pictures.values():
        path.unlink()
    assert _run_pairs(tmp_path) == 0
    assert {name: path.read_bytes() for name, path in pictures.items()} == before


def test_keys_of_images_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run_pairs(tmp_path, "--set", "knn=3") == 2
    assert "no method of these trials has the key 'knn' to change" in capsys.readouterr().err
