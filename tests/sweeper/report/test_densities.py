"""Figures of conditional densities: which trials they show, what is drawn, and what is left out."""

import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import LineCollection
from matplotlib.lines import Line2D
from PIL import Image

from sweeper.report import densities
from sweeper.report.densities import Density, draw_densities, draw_parameters, write
from sweeper.storage.files import Files

X = np.linspace(-1, 1, 21)


def _density(components: int, sigma: float = 0.1) -> Density:
    means = np.stack([X * slope for slope in range(components)], axis=1)
    weights = np.full(means.shape, 1 / components)
    branches = np.stack([X, -X, 0 * X], axis=1)
    return Density(X, weights, means, np.full(means.shape, sigma), branches, np.array(0.05), X, X + 0.05)


def _file(density: Density) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **density._asdict())
    return file.getvalue()


def _y(line: Line2D) -> np.ndarray:
    return np.asarray(line.get_ydata(), dtype=np.float64)


def _rows(*trials: tuple[str, str, str, int]) -> pd.DataFrame:
    return pd.DataFrame(trials, columns=["trial_id", "dataset", "model", "seed"])


def _keep(folder: Path, **densities_by_trial: bytes) -> Files:
    files = Files(folder)
    for trial, content in densities_by_trial.items():
        files.write(f"sheets/grid/{trial}/density.npz", content)
    return files


@pytest.mark.slow
def test_each_data_set_has_a_panel_for_each_model_of_its_first_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[tuple[str, dict[str, Density], str]] = []
    for name in ("draw_densities", "draw_parameters"):

        def record(shown: dict[str, Density], title: str, name: str = name) -> object:
            drawn.append((name, shown, title))
            return draw_densities(shown, title)

        monkeypatch.setattr(densities, name, record)
    contents = {trial: _file(_density(count)) for trial, count in (("a", 1), ("b", 2), ("c", 8), ("d", 3), ("e", 3))}
    rows = _rows(
        ("e", "one", "MDN", 1), ("d", "one", "MDN", 0), ("c", "one", "GNG", 0), ("a", "one", "JEPA", 0),
        ("missing", "one", "EM", 0), ("b", "two", "MDN", 5),
    )  # fmt: skip
    write(_keep(tmp_path, **contents), "grid", "grid/paper", rows, ("model",), "grid (paper)")
    counts = [(name, {label: d.means.shape[1] for label, d in shown.items()}, title) for name, shown, title in drawn]
    assert counts == [
        ("draw_densities", {"MDN": 3, "GNG": 8, "JEPA": 1}, "grid (paper): one, seed 0"),
        ("draw_parameters", {"MDN": 3}, "grid (paper): one, seed 0"),
        ("draw_densities", {"MDN": 2}, "grid (paper): two, seed 5"),
        ("draw_parameters", {"MDN": 2}, "grid (paper): two, seed 5"),
    ]
    names = {f"{dataset}-{kind}.png" for dataset in ("one", "two") for kind in ("densities", "parameters")}
    pictures = {path.name: Image.open(path) for path in (tmp_path / "sheets/grid/paper").iterdir()}
    assert pictures.keys() == names and all(picture.format == "PNG" for picture in pictures.values())


def test_bands_are_as_opaque_as_their_weights() -> None:
    weights = np.stack([np.linspace(0, 1, 21), np.linspace(1, 0, 21)], axis=1)
    panel = draw_densities({"MDN": _density(2)._replace(weights=weights)}, "title").axes[0]
    shades = [np.asarray(image.get_array())[0, :, 3] for image in panel.images]
    assert np.allclose(shades, densities.BAND * weights.T)
    first, second = [lines for lines in panel.collections if isinstance(lines, LineCollection)]
    colours = [np.asarray(lines.get_colors()) for lines in (first, second)]
    assert not np.allclose(colours[0][0, :3], colours[1][0, :3]) and np.allclose(colours[0][:, 3], colours[1][::-1, 3])
    assert [_y(line)[0] for line in panel.get_lines()] == [-1, 1, 0], "the true branches"


def test_many_components_have_one_colour() -> None:
    assert len(set(_density(30).colours)) == 1 and len(set(_density(5).colours)) == 5


def test_parameters_are_drawn_over_x() -> None:
    figure = draw_parameters({"MDN": _density(3, sigma=0.2)}, "title")
    weights, means, sigmas = figure.axes
    assert [axis.get_title("left") for axis in figure.axes] == [
        *("MDN: weights", "MDN: means", "MDN: standard deviations")
    ]
    assert np.allclose([_y(line) for line in weights.get_lines()[:3]], 1 / 3)
    *components, truth = sigmas.get_lines()
    assert np.allclose([_y(line) for line in components], 0.2) and sigmas.get_ylim()[0] == 0
    assert np.allclose(_y(truth), 0.05)
    assert len(means.get_lines()) == 6, "three components and three branches"


def test_damaged_densities_are_reported_and_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    files = _keep(tmp_path, a=b"damaged", b=_file(_density(1)))
    monkeypatch.setattr(files, "log", lines.append)
    rows = _rows(("a", "one", "MDN", 0), ("b", "one", "JEPA", 0))
    write(files, "grid", "grid/paper", rows, ("model",))
    assert len(lines) == 1 and "'sheets/grid/a/density.npz' cannot be shown" in lines[0]
    assert [path.name for path in (tmp_path / "sheets/grid/paper").iterdir()] == ["one-densities.png"]


def test_sweeps_without_densities_have_no_figure(tmp_path: Path) -> None:
    write(Files(tmp_path), "grid", "grid/paper", _rows(("a", "one", "MDN", 0)), ("model",))
    assert not (tmp_path / "sheets").exists()
