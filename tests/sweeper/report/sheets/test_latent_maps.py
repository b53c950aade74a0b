"""Maps of latents: which trials are shown, what is drawn, and the ceilings that the caption gives."""

import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import PathCollection
from PIL import Image

from sweeper.report import sheets
from sweeper.report.formatting import MINUS
from sweeper.report.sheets import LatentMap, draw_latent_maps, map_caption
from sweeper.storage.files import Files

S, M = 5, 12


def a_map(components: int = 10, dimensions: int = 32) -> LatentMap:
    places = np.random.default_rng(0).normal(size=(S + M, 2)).astype(np.float32)
    return LatentMap(places[:S], places[S:], (np.arange(M) % 3 - 1).astype(np.int16), dimensions, components)


def write_map(files: Files, trial: str, latent_map: LatentMap) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, **vars(latent_map))
    files.write(f"sheets/grid/{trial}/tsne.npz", buffer.getvalue())


def test_a_panel_has_every_sample_and_every_test_image() -> None:
    rows = pd.Series({"density_volume": -231.4, "spread": np.nan})
    figure = draw_latent_maps({"gje, gmm": a_map(), "gje": a_map()}, {"gje, gmm": rows, "gje": rows}, "grid (digits)")
    assert len(figure.axes) == 2
    unknown, known, samples = (part for part in figure.axes[0].collections if isinstance(part, PathCollection))
    labels = a_map().labels
    assert np.array_equal(samples.get_offsets(), a_map().samples)
    assert np.array_equal(known.get_offsets(), a_map().test[labels >= 0])
    assert np.shape(unknown.get_offsets())[0] == (labels < 0).sum()
    assert len(np.unique(known.get_facecolor(), axis=0)) == 2, "a colour for each class"
    assert [text.get_text() for text in figure.axes[0].texts] == ["gje, gmm", f"volume {MINUS}231"]


@pytest.mark.parametrize(
    ("components", "ceiling"),
    [((50, 50), "volume -D log D = -621 (D = 128), spread sqrt(2K/(K-1)) = 1.43 (K = 50)"), ((1,), "= -621 (D = 128)")],
)
def test_the_caption_has_the_ceilings_of_unit_vectors(components: tuple[int, ...], ceiling: str) -> None:
    """One Gaussian has no spread."""
    text = map_caption({str(index): a_map(count, 128) for index, count in enumerate(components)})
    assert text.startswith(f"t-SNE of {S} samples and {M} images") and text.endswith(ceiling.replace("-", MINUS))


def test_trials_without_a_map_or_with_a_damaged_one_are_passed_over(tmp_path: Path) -> None:
    lines: list[str] = []
    files = Files(tmp_path, log=lines.append)
    rows = pd.DataFrame(
        [("a", "digits", "gje", 0), ("b", "digits", "simclr", 0), ("c", "digits", "pixels", 0)],
        columns=["trial_id", "dataset", "method", "seed"],
    )
    files.write("sheets/grid/c/samples.png", b"")
    sheets.write_latent_maps(files, "grid", "grid/digits", rows)
    assert files.list("sheets/grid/digits") == []
    files.write("sheets/grid/a/tsne.npz", b"PK\x03\x04 is no archive")
    write_map(files, "b", a_map())
    sheets.write_latent_maps(files, "grid", "grid/digits", rows)
    picture = Image.open(tmp_path / "sheets/grid/digits/digits-tsne.png")
    assert picture.width > 400 and [line for line in lines if "sheets/grid/a/tsne.npz' cannot be shown" in line]
