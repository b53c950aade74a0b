"""The page of a sweep: its size, the time to write it, and how fast a browser shows it and answers.

    python -m tests.benchmarks.bench_page [TRIALS ...]

Each store has the columns of `anomaly_grid` with random metrics at five epochs, or at one where a page lacks most
trials. A browser opens its page from the file. Times are of one run, from the navigation, a click or a key until the
result is on the screen. Ratios are to the page of the fewest trials.
"""

import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from sweeper.definition import registry
from sweeper.report.figures import figures_of
from sweeper.report.kinds import write_figures
from sweeper.report.page import publish
from sweeper.report.page.aggregates import MAX_TRIALS
from sweeper.report.page.document import compressed_library
from sweeper.storage.rows import Columns
from sweeper.storage.store import Store
from tests.sweeper.report.page.browsers import Watched, browser, tab

NAME = "anomaly_grid"
BETAS, NUS = np.linspace(0, 2, 7).tolist(), [0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0]
METRICS = (
    *("loss", "loss_dir", "loss_rad", "loss_kl"),
    *(f"{split}auroc_{score}" for split in ("", "val_") for score in ("joint", "dir", "rad", "variance", "entropy")),
    *(f"{split}posterior_{part}" for split in ("", "val_") for part in ("entropy", "variance")),
)
CONSTANT = {"method": "vje", "dataset": "digits", **{f"key{index}": 0.5 for index in range(35)}}
COLUMNS = Columns(
    {
        **{name: type(value) for name, value in CONSTANT.items()},
        "beta": float,
        "nu": float,
        "normal_class": int,
        "seed": int,
    },
    METRICS,
)
EPOCHS = (10, 20, 30, 40, 50)
PAINTED = "() => new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)))"
"""Resolves when what was changed is on the screen."""


def fill(folder: Path, trials: int) -> Store:
    """Write a store with so many rows, and reports of each metric of each trial."""
    epochs = EPOCHS if trials <= MAX_TRIALS else EPOCHS[-1:]
    store, rng = Store(folder), np.random.default_rng(0)
    store.prepare(NAME, COLUMNS)
    write_figures(store.files, NAME, figures_of(registry.find(NAME), "digits"))
    values = rng.random((trials, len(epochs), len(METRICS)))
    now = datetime.now(UTC)
    run = {"status": "finished", "cohort": "c", "cohort_size": 280, "epochs_run": 50, "device": "cpu", "host": "here"}
    fixed = {**CONSTANT, **run, "preset": "digits", "changes": "", "started": now, "ended": now}
    rows = [
        {
            **fixed,
            "trial_id": f"{index:016x}",
            "beta": BETAS[index % 7],
            "nu": NUS[index // 7 % 8],
            "normal_class": index // 56 % 10,
            "seed": index // 560,
            "seconds": float(values[index, 0, 0]),
            **dict(zip(METRICS, values[index, -1].tolist(), strict=True)),
        }
        for index in range(trials)
    ]
    history = [
        (f"{trial:016x}", epoch, metric, float(values[trial, place, column]))
        for trial in range(trials)
        for place, epoch in enumerate(epochs)
        for column, metric in enumerate(METRICS)
    ]
    store.write(NAME, "c", rows, COLUMNS)
    store.write_history(NAME, "c", history)
    return store


CELL = "document.querySelectorAll('#heatmap path[role=button]')[9]"
FILTER = "const box = document.querySelector('#rows input[type=search]'); box.value = {!r};"
METRIC = "const box = document.querySelector('#heatmap select'); box.value = 'auroc_dir';"
ACTIONS = {
    "click a cell": f"{CELL}.dispatchEvent(new KeyboardEvent('keydown', {{key: 'Enter', bubbles: true}}))",
    "sort": "document.querySelector('#rows button[data-column=loss]').click()",
    "filter by a condition": f"{FILTER.format('auroc_joint>0.5')} box.dispatchEvent(new Event('input'))",
    "filter by a word": f"{FILTER.format('00a')} box.dispatchEvent(new Event('input'))",
    "another metric": f"{METRIC} box.dispatchEvent(new Event('change'))",
}
"""What is done -> JavaScript that does it."""


class Stopwatch:
    """Measures seconds, and seconds that a tab's main thread has a core, which other processes do not change."""

    def __init__(self, watched: Watched) -> None:
        self._session = watched.tab.context.new_cdp_session(watched.tab)
        self._session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def now(self) -> tuple[float, float]:
        metrics = self._session.send("Performance.getMetrics")["metrics"]
        (busy,) = (metric["value"] for metric in metrics if metric["name"] == "TaskDuration")
        return time.perf_counter(), busy


def measure(chromium: Any, address: str) -> Iterator[tuple[str, float, float]]:
    """Yield what is done in the browser, how many seconds it takes, and how many of the page's main thread."""
    with tab(chromium) as watched:
        stopwatch = Stopwatch(watched)
        begun = stopwatch.now()
        watched.tab.goto(address, wait_until="commit")
        watched.tab.wait_for_selector("#heatmap path[role=button]")
        yield "open", *differences(begun, stopwatch.now())
        watched.tab.locator("#rows").scroll_into_view_if_needed()
        watched.tab.wait_for_selector("#rows tbody tr")
        for name, action in ACTIONS.items():
            begun = stopwatch.now()
            watched.tab.evaluate(f"() => {{ {action} }}")
            watched.tab.evaluate(PAINTED)
            yield name, *differences(begun, stopwatch.now())
        assert watched.complaints == []


def differences(begun: tuple[float, float], ended: tuple[float, float]) -> tuple[float, float]:
    return ended[0] - begun[0], ended[1] - begun[1]


def main(sizes: list[int]) -> None:
    compressed_library()
    first: dict[str, float] = {}
    with browser() as chromium:
        for trials in sorted(sizes):
            with tempfile.TemporaryDirectory() as folder:
                store = fill(Path(folder), trials)
                begun = time.process_time()
                path = publish.write(store.files, NAME)
                seconds = time.process_time() - begun
                size = (Path(folder) / path).stat().st_size
                print(f"{trials:,} trials: {size / 1e6:.2f} MB, written in {seconds:.2f} s of a core")
                for name, wall, busy in measure(chromium, f"file://{folder}/{path}"):
                    ratio = busy / first.setdefault(name, busy)
                    print(f"  {name}: {wall:.2f} s, main thread {busy:.2f} s, {ratio:.1f} times as long", flush=True)


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]] or [560, 10_000, 100_000])
