import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from PIL import Image

from sweeper.report import sample_grids
from sweeper.report.formatting import MINUS
from sweeper.report.sample_grids import COMPRESSION, PAD, LatentMap, draw_latent_maps, map_caption
from sweeper.report.sample_grids import png as picture_of
from sweeper.storage.files import Files

ORIGINAL = (0, 0, 0)
Colour = tuple[int, int, int]


def grid(colours: Sequence[Colour], width: int = 30) -> Image.Image:
    """A sample grid with a row, ten pixels high, of each colour."""
    rows = [np.full((10, width, 3), colour, np.uint8) for colour in colours]
    return Image.fromarray(np.concatenate(rows))


def png(picture: Image.Image) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return buffer.getvalue()


def read(path: Path) -> np.ndarray:
    return np.asarray(Image.open(path))


def rows_of(*trials: tuple[str, str, str, int]) -> pd.DataFrame:
    return pd.DataFrame(trials, columns=["trial_id", "dataset", "method", "seed"])


def write_sample_grids(files: Files, trial: str, level: int) -> None:
    """Write a trial's sample grids, whose colour has this red level."""
    files.write(f"sheets/grid/{trial}/reconstructions.png", png(grid([ORIGINAL, (level, 0, 0)])))
    files.write(f"sheets/grid/{trial}/samples.png", png(grid([(level, 0, 0)])))


def test_the_originals_stand_once_above_the_reconstructions_of_all_methods() -> None:
    composed = sample_grids.reconstructions({"vae": grid([ORIGINAL, (9, 0, 0)]), "vje": grid([ORIGINAL, (8, 0, 0)])})
    assert composed.size == (30, 30)
    assert [composed.getpixel((15, row)) for row in (5, 15, 25)] == [ORIGINAL, (9, 0, 0), (8, 0, 0)]


def test_images_of_all_methods_stand_below_each_other_however_long_their_labels_are() -> None:
    """Labels are on the left, so sample grids are aligned on the right."""
    composed = np.asarray(
        sample_grids.reconstructions({"a": grid([ORIGINAL, (9, 0, 0)]), "long": grid([ORIGINAL, (8, 0, 0)], width=50)})
    )
    assert composed.shape == (30, 50, 3)
    assert (composed[:20, :20] == 255).all() and (composed[15, 20:] == (9, 0, 0)).all()
    assert (composed[25] == (8, 0, 0)).all()


@pytest.mark.parametrize(("count", "lines"), [(1, 1), (4, 1), (5, 2), (9, 3)])
def test_samples_of_at_most_four_methods_stand_beside_each_other(count: int, lines: int) -> None:
    colours = [(level, 100, 200) for level in range(count)]
    composed = np.asarray(sample_grids.samples({str(colour[0]): grid([colour]) for colour in colours}))
    abreast = min(count, sample_grids.ABREAST)
    assert composed.shape == (lines * (sample_grids.TITLE + 10), abreast * 30 + (abreast - 1) * sample_grids.GAP, 3)
    for index, colour in enumerate(colours):
        line, column = divmod(index, sample_grids.ABREAST)
        y, x = (line + 1) * (sample_grids.TITLE + 10) - 10, column * (30 + sample_grids.GAP)
        assert (composed[y : y + 10, x : x + 30] == colour).all()
        title = composed[y - sample_grids.TITLE : y, x : x + 30]
        assert title.min() < 128 and title.max() == 255, "a name in dark ink on white"


def test_a_data_set_shows_each_methods_first_seed_in_the_order_of_the_plan(tmp_path: Path) -> None:
    files = Files(tmp_path)
    rows = rows_of(
        ("a", "digits", "vje", 1), ("b", "digits", "vje", 0), ("c", "digits", "vae", 0), ("d", "mnist", "vae", 0),
        ("e", "digits", "vae", 0),
    )  # fmt: skip
    for level, trial in enumerate("abcde", 1):
        write_sample_grids(files, trial, level)
    sample_grids.write_sample_grids(files, "grid", "grid/paper", rows)
    kinds = ("reconstructions", "samples")
    assert files.list("sheets/grid/paper") == [f"{data}-{kind}.png" for data in ("digits", "mnist") for kind in kinds]
    digits = read(tmp_path / "sheets/grid/paper/digits-reconstructions.png")
    assert digits[:, 15, 0].tolist() == [*[0] * 10, *[2] * 10, *[3] * 10], "seed 0 of vje, and the first vae"
    assert (read(tmp_path / "sheets/grid/paper/mnist-reconstructions.png")[15] == (4, 0, 0)).all()


def test_a_trial_without_sample_grids_is_passed_over_for_the_next_seed(tmp_path: Path) -> None:
    files = Files(tmp_path)
    write_sample_grids(files, "b", 2)
    sample_grids.write_sample_grids(
        files, "grid", "grid/paper", rows_of(("a", "digits", "vje", 0), ("b", "digits", "vje", 1))
    )
    assert (read(tmp_path / "sheets/grid/paper/digits-reconstructions.png")[15] == (2, 0, 0)).all()


def test_a_method_may_have_one_of_the_two_sample_grids(tmp_path: Path) -> None:
    files = Files(tmp_path)
    files.write("sheets/grid/a/samples.png", png(grid([(1, 0, 0)])))
    sample_grids.write_sample_grids(files, "grid", "grid/paper", rows_of(("a", "digits", "vje", 0)))
    assert files.list("sheets/grid/paper") == ["digits-samples.png"]


def test_without_sample_grids_nothing_is_written(tmp_path: Path) -> None:
    files = Files(tmp_path)
    sample_grids.write_sample_grids(files, "grid", "grid/paper", pd.DataFrame({"beta": [1.0]}))
    write_sample_grids(files, "other", 1)
    sample_grids.write_sample_grids(files, "grid", "grid/paper", rows_of(("a", "digits", "vje", 0)))
    assert files.list("sheets/grid") == ["other"]


@pytest.mark.parametrize("keep", [0, 30, 45])
def test_a_damaged_sample_grid_is_named_and_left_out(tmp_path: Path, keep: int) -> None:
    lines: list[str] = []
    files = Files(tmp_path, log=lines.append)
    for level, trial in enumerate("ab", 1):
        write_sample_grids(files, trial, level)
    files.write("sheets/grid/a/samples.png", png(grid([(1, 0, 0)]))[:keep])
    sample_grids.write_sample_grids(
        files, "grid", "grid/paper", rows_of(("a", "digits", "vje", 0), ("b", "digits", "vae", 0))
    )
    assert read(tmp_path / "sheets/grid/paper/digits-samples.png").shape[1] == 30
    assert len(lines) == 1 and "'sheets/grid/a/samples.png' cannot be shown: " in lines[0]


def test_each_density_of_a_method_has_a_sample_grid_of_its_own(tmp_path: Path) -> None:
    """Named beside the method; a trial without one has the method's name alone."""
    files = Files(tmp_path)
    rows = rows_of(*((trial, "digits", "gje", 0) for trial in "abc"), ("d", "digits", "gje", 1))
    rows["density"] = ["gmm", "gaussian", None, "gmm"]
    for level, trial in enumerate("abcd", 1):
        write_sample_grids(files, trial, level)
    titles = sample_grids.first_trials(files, "grid", rows)
    assert titles == {"digits": {"gje, gmm": "a", "gje, gaussian": "b", "gje": "c"}}
    rows["density"] = "none"
    assert sample_grids.first_trials(files, "grid", rows) == {"digits": {"gje": "a"}}


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
    sample_grids.write_latent_maps(files, "grid", "grid/digits", rows)
    assert files.list("sheets/grid/digits") == []
    files.write("sheets/grid/a/tsne.npz", b"PK\x03\x04 is no archive")
    write_map(files, "b", a_map())
    sample_grids.write_latent_maps(files, "grid", "grid/digits", rows)
    picture = Image.open(tmp_path / "sheets/grid/digits/digits-tsne.png")
    assert picture.width > 400 and [line for line in lines if "sheets/grid/a/tsne.npz' cannot be shown" in line]


def test_the_picture_is_the_one_of_matplotlibs_own_tight_box() -> None:
    figure = Figure(figsize=(3, 2))
    axes = figure.add_axes((0.1, 0.1, 0.6, 0.5))
    axes.plot([0, 1], [0, 1e6])
    axes.set_ylabel("a label that lies outside")
    figure.text(0.1, 1.1, "above")
    picture = picture_of(figure)
    expected = io.BytesIO()
    settings = {"compress_level": COMPRESSION}
    figure.savefig(
        expected, format="png", dpi=160, facecolor="white", bbox_inches="tight", pad_inches=PAD, pil_kwargs=settings
    )
    assert picture == expected.getvalue()
