"""A small sweep in a store, with all that a page shows: spread, nulls, infinity, errors, trials without a row."""

import io
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
from PIL import Image

from sweeper.definition import Grid, Heatmap, Metric, Selection, Sweep, Table, Trajectory
from sweeper.report.figures import figures_of
from sweeper.report.kinds import write_figures
from sweeper.storage.layout import sample_grid_path
from sweeper.storage.rows import Columns
from sweeper.storage.store import Store

NAME = "grid"
AXES = {"beta": (0.0, 0.5, 1.0), "nu": (0.5, 3.0, math.inf), "seed": (0, 1)}
ERROR = '<script>window.attacked = true</script> & "quotes"'
SELECTIONS = (
    Selection({"setting": "no width"}, {"width": None}),
    Selection({"setting": "all"}, {"flip": True}),
    Selection({"setting": "beta 1, nu inf"}, {"beta": 1.0, "nu": math.inf}),
    Selection({"setting": "none"}, {"method": "gje"}),
)
SWEEP = Sweep(
    about="a grid of <b>three</b> axes",
    presets={"paper": Grid({"method": "vje"}, AXES)},
    figures=(
        Heatmap(Metric("auroc_joint", "maximize"), "beta", "nu", published={"paper": {(1.0, 0.5): 0.75}}),
        Heatmap(Metric("loss", "minimize"), "setting", "nu", selections=SELECTIONS),
        Table(
            "by_beta",
            ("beta",),
            (Metric("knn_z", "maximize", percent=True),),
            published={"paper": {(1.0,): {"knn_z": 93.0}}},
            labels={"beta": "KL weight", "1": "one", "knn_z": "k-NN"},
        ),
        Trajectory("training", (Metric("loss", "minimize"),), ("beta",)),
    ),
    over="seeds",
)
COLUMNS = Columns(
    {"method": str, "dataset": str, "beta": float, "nu": float, "seed": int, "flip": bool, "width": int},
    ("auroc_joint", "knn_z", "loss"),
)
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
EPOCHS = (1, 2, 3)


def fill(folder: Path, *, name: str = NAME, repeat: int = 1) -> Store:
    """Write `18 * repeat` rows, of which the last one failed, and the history of one trial more."""
    store, rng = Store(folder), np.random.default_rng(0)
    write_figures(store.files, name, figures_of(SWEEP, "paper"))
    store.prepare(name, COLUMNS)
    combinations = [
        {"beta": beta, "nu": nu, "seed": seed + 2 * part}
        for part in range(repeat)
        for beta in AXES["beta"]
        for nu in AXES["nu"]
        for seed in AXES["seed"]
    ]
    rows, history = [], []
    for index, combination in enumerate(combinations):
        trial, failed = f"trial{index:05d}", index == len(combinations) - 1
        metrics = {} if failed else dict(zip(COLUMNS.metrics, rng.random(3).tolist(), strict=True))
        run = {"status": "failed" if failed else "finished", "error": ERROR if failed else None, "host": "here"}
        times = {"started": BEGIN, "ended": BEGIN + timedelta(seconds=index), "seconds": float(rng.random())}
        fixed = {"method": "vje", "dataset": "digits", "flip": True, "width": None if index == 0 else 64}
        request = {"preset": "paper", "changes": "", "cohort": "c0", "cohort_size": 18, "epochs_run": 3}
        rows.append({"trial_id": trial, **combination, **fixed, **metrics, **run, **times, **request})
        history += [] if failed else [(trial, epoch, "loss", float(rng.random())) for epoch in EPOCHS]
        history += [] if failed else [(trial, EPOCHS[-1], name, metrics[name]) for name in ("loss", "knn_z")]
    store.write(name, "c0", rows, COLUMNS)
    store.write_history(name, "c0", history)
    store.write_history(name, "c1", [("training", epoch, "loss", 1 / epoch) for epoch in EPOCHS])
    return store


def picture(side: int = 8) -> bytes:
    """A PNG of noise, which does not compress."""
    buffer = io.BytesIO()
    pixels = np.random.default_rng(1).integers(0, 255, (side, side, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def add_sample_grids(store: Store, *, side: int = 8) -> None:
    """Add a sample grid that compares methods, and one of a trial."""
    store.files.write(f"sheets/{NAME}/paper/digits-samples.png", picture(side))
    store.files.write(sample_grid_path(NAME, "trial00000", "samples.png"), picture(side))
