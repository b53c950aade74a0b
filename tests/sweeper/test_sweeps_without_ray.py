"""Whole sweeps in this process: from the command line to rows, with cohorts that fail, pruning, populations, optional
sections, a user's own images, and interruptions.

Sweeps with compiled steps in this process: continued searches keep their steps, which have few shapes, and damaged
steps take no trial with them.

Steps are traced, and then run operation by operation.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution

import sweeper
from search_spaces import vje_search
from search_spaces.vje_search import POPULATION
from sweeper.commands import run, sweep_run
from sweeper.definition import registry
from sweeper.report.page.contents import collect
from sweeper.request import SHARED_STORE
from sweeper.storage.files import Files
from sweeper.storage.load import load
from sweeper.storage.rows import Columns
from sweeper.storage.store import Store
from tests.fake_executor import without_ray
from tests.image_files import write_own_images
from tests.sweeper.small_sweeps import rows, small_grid
from tests.trainables.small import TracingCompiler
from tests.user_files import user_folder
from trainables.training.compile_step import RECORD, StepTask, file_hash
from trainables.training.compiled_steps import LibraryFolder
from trainables.worker import worker
from trainables.worker.messages import CohortTask

__all__ = ["user_folder"]

pytestmark = pytest.mark.usefixtures("unreported")


def fail_with(beta: float) -> Callable[[CohortTask], None]:
    """Fails every attempt at a cohort that has a trial with this beta."""

    def fail(task: CohortTask) -> None:
        if any(config.flat()["beta"] == beta for config in task.spec.configs()):
            raise RuntimeError(f"no beta of {beta}")

    return fail


@pytest.mark.slow
def test_the_same_command_again_trains_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tasks: list[CohortTask] = []
    for _ in range(2):
        with without_ray(tmp_path, tasks.append):
            assert run.main(small_grid(tmp_path / "store")) == 0
    frame = rows(tmp_path / "store", "anomaly_grid")
    assert len(tasks) == 2 and len(frame) == 6 and set(frame["status"]) == {"finished"}
    assert "6 finished of 6 trials" in capsys.readouterr().out


@pytest.mark.slow
def test_a_trial_that_cannot_train_fails_alone_and_is_tried_again_by_the_next_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with without_ray(tmp_path, fail_with(beta=1.0)):
        assert run.main(small_grid(tmp_path / "store", "--retries", "0")) == 1
    frame = rows(tmp_path / "store", "anomaly_grid")
    assert frame.groupby("beta")["status"].unique().map(list).to_dict() == {
        0.5: ["finished"], 1.0: ["failed"], 1.5: ["finished"]
    }  # fmt: skip
    assert set(frame.loc[frame["beta"] == 1.0, "error"]) == {"RuntimeError: no beta of 1.0"}
    with without_ray(tmp_path):
        assert run.main(small_grid(tmp_path / "store")) == 0
    assert set(rows(tmp_path / "store", "anomaly_grid")["status"]) == {"finished"}


def interrupted_and_continued(
    command: Callable[[Path], list[str]], name: str, folder: Path
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the rows of a whole run, and of one that was interrupted at its second cohort and continued."""
    tasks: list[CohortTask] = []

    def interrupt(task: CohortTask) -> None:
        tasks.append(task)
        if len(tasks) == 2:
            raise KeyboardInterrupt

    with without_ray(folder):
        assert run.main(command(folder / "whole")) == 0
    with without_ray(folder, interrupt):
        assert run.main(command(folder / "store")) == 130
    assert 0 < len(rows(folder / "store", name)) < len(rows(folder / "whole", name))
    assert (folder / f"store/reports/{name}.html").exists(), "the page of what there is"
    with without_ray(folder):
        assert run.main(command(folder / "store")) == 0
    return rows(folder / "whole", name), rows(folder / "store", name)


@pytest.mark.parametrize("sweep", ["grid", pytest.param("search", marks=pytest.mark.slow)])
def test_a_sweep_that_was_interrupted_continues_to_the_same_rows(sweep: str, tmp_path: Path) -> None:
    def command(store: Path) -> list[str]:
        if sweep == "grid":
            return small_grid(store)
        options = ["--trials", "8", "--wave", "4", "--pruner", "halving", "--set", "epochs=20", "--cohort", "2"]
        options += ["--set", "width=16"]
        return ["vje_search", "--preset", "digits", "--store", str(store), *options]

    name = "anomaly_grid" if sweep == "grid" else "vje_search"
    whole, continued = interrupted_and_continued(command, name, tmp_path)
    pd.testing.assert_frame_equal(continued, whole)


@pytest.mark.slow
def test_a_search_of_means_that_was_interrupted_continues_to_the_same_rows(tmp_path: Path) -> None:
    """Six proposals of three seeds, two to a cohort, pruned by their means."""
    name = "vje_search"

    def command(store: Path) -> list[str]:
        options = ["--trials", "6", "--wave", "6", "--pruner", "halving", "--set", "epochs=20", "--cohort", "6"]
        options += ["--set", "width=16", "--replicates", "seed=0,1,2"]
        return [name, "--preset", "digits", "--store", str(store), *options]

    whole, continued = interrupted_and_continued(command, name, tmp_path)
    pd.testing.assert_frame_equal(continued, whole)
    proposals = whole.groupby("number")
    assert set(proposals.size()) == {3} and set(proposals["seed"].nunique()) == {3}
    assert (proposals["cohort"].nunique() == 1).all() and (proposals["status"].nunique() == 1).all()
    assert {"finished", "pruned"} == set(whole["status"]) and whole["error"].dropna().str.contains("mean of 3").all()
    (table,) = (tmp_path / "store/studies/vje_search").glob("*/all/trials.parquet")
    reported = pd.read_parquet(table).set_index("number")
    finished = whole[whole["status"] == "finished"].groupby("number")["val_auroc_joint"]
    assert reported.loc[finished.mean().index, "val_auroc_joint"].to_dict() == pytest.approx(finished.mean().to_dict())
    means = finished.mean()
    halves = 4.302653 * finished.std() / 3**0.5 / (means * (1 - means))  # of the logit, by the delta method
    for end, sign in (("low", -1), ("high", 1)):
        ends = 1 / (1 + np.exp(-(np.log(means / (1 - means)) + sign * halves)))
        assert reported.loc[means.index, f"{end}_val_auroc_joint"].to_dict() == pytest.approx(ends.to_dict(), rel=1e-6)
    assert set(reported["replicates"]) == {3}


BOUNDED = """
from dataclasses import replace

from search_spaces.vje_search import DIGITS
from sweeper import Constraint, Sweep

SHORT = DIGITS.changed({"epochs": 2, "width": 16, "report_every": 2}, {})
BOUNDS = (Constraint("val_auroc_dir", ">=", 0.68),)
SWEEP = Sweep(
    about="trials whose direction alone has an AUROC of 0.68",
    presets={"digits": replace(SHORT, pruner=None, trials=8, wave=4, constraints=BOUNDS)},
)
"""


@pytest.mark.slow
def test_a_search_with_constraints_that_was_interrupted_continues_to_the_same_rows(
    user_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The best trial of all is feasible; that of the infeasible ones keeps no model."""
    (user_folder / "bounded.py").write_text(BOUNDED)
    whole, continued = interrupted_and_continued(
        lambda store: ["bounded.py", "--store", str(store)], "bounded", tmp_path
    )
    pd.testing.assert_frame_equal(continued, whole)
    feasible = whole[whole["val_auroc_dir"] >= 0.68]
    assert 0 < len(feasible) < len(whole) == 8
    best = feasible["val_auroc_joint"].idxmax()
    assert [path.stem for path in (tmp_path / "store/models/sweep=bounded").iterdir()] == [best]
    infeasible = f"{8 - len(feasible)} of 8 settings are infeasible (val_auroc_dir >= 0.68)"
    *_, sentence = (line for line in capsys.readouterr().out.splitlines() if line.startswith("best "))
    assert infeasible in sentence
    answer = sweeper.best("bounded.py", store=str(tmp_path / "store"))
    assert answer.choice.trials == (best,) and infeasible in str(answer)


CONDITIONAL = """
from dataclasses import replace

from optuna.distributions import CategoricalDistribution, IntDistribution

from search_spaces.vje_search import DIGITS
from sweeper import Sweep, When

SHORT = DIGITS.changed({"epochs": 4, "width": 16, "report_every": 2, "nu": 3.0}, {})
SPACE = {**SHORT.space, "lr_schedule": CategoricalDistribution(("cosine", "one_cycle"))}
WARMUP = When("lr_schedule", "cosine", {"warmup_epochs": IntDistribution(1, 2)})
SEARCH = replace(SHORT, space=SPACE, conditions=(WARMUP,), pruner=None, trials=12, wave=4)
SWEEP = Sweep(about="a warm-up where there is none already", presets={"digits": SEARCH})
"""


@pytest.mark.slow
def test_a_search_with_conditions_that_was_interrupted_continues_to_the_same_rows(
    user_folder: Path, tmp_path: Path
) -> None:
    """Three waves, the last of which TPE proposes from the others."""
    (user_folder / "warm.py").write_text(CONDITIONAL)
    whole, continued = interrupted_and_continued(lambda store: ["warm.py", "--store", str(store)], "warm", tmp_path)
    pd.testing.assert_frame_equal(continued, whole)
    drawn = whole["lr_schedule"] == "cosine"
    assert 0 < drawn.sum() < len(whole) == 12 and set(whole["status"]) == {"finished"}
    assert whole.loc[drawn, "warmup_epochs"].isin([1, 2]).all() and (whole.loc[~drawn, "warmup_epochs"] == 0).all()


@pytest.mark.slow
def test_a_search_prunes_at_rungs_across_cohorts(tmp_path: Path) -> None:
    options = ["--trials", "8", "--wave", "8", "--pruner", "halving", "--set", "epochs=20", "--cohort", "2"]
    with without_ray(tmp_path):
        assert run.main(["vje_search", "--preset", "digits", "--store", str(tmp_path / "store"), *options]) == 0
    frame = rows(tmp_path / "store", "vje_search")
    pruned = frame[frame["status"] == "pruned"]
    assert len(frame) == 8 and 0 < len(pruned) < 8 and (pruned["epochs_run"] < 20).all()
    assert pruned["error"].str.contains("was not among the best").all()


def test_a_search_can_begin_with_the_rows_of_a_grid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = {"method": str, "dataset": str, "normal_class": int, "beta": float, "nu": float, "lr": float}
    columns = Columns(
        {**keys, "weight_decay": float, "held_out": str, "outliers": str, "validation": float, "epochs": int},
        ("val_auroc_joint",),
    )
    common = {"status": "finished", "method": "vje", "dataset": "digits", "normal_class": 1, "nu": 1.0, "lr": 0.01}
    common |= {"weight_decay": 1e-4, "held_out": "", "outliers": "", "validation": 0.2, "val_auroc_joint": 0.9}
    common |= {"epochs": 2}
    betas = (0.1, 1.0, 2.0, 5.0)
    grid = [common | {"trial_id": f"t{i}", "beta": beta} for i, beta in enumerate(betas)]
    unmatched = [grid[0] | {"trial_id": "u0", "status": "failed"}, grid[0] | {"trial_id": "u1", "normal_class": 2}]
    unmatched += [grid[0] | {"trial_id": "u2", "validation": 0.1}, grid[0] | {"trial_id": "u3", "epochs": 5}]
    Store(tmp_path).write("a_grid", "c", [*grid, *unmatched], columns)
    arguments = ["--trials", "4", "--wave", "4", "--set", "epochs=2", "--set", "width=128", "--pruner", "none"]
    command = ["vje_search", "--preset", "digits", "--store", str(tmp_path), *arguments]
    with without_ray(tmp_path):
        assert run.main([*command, "--warm-start", "a_grid"]) == 0
    out, err = capsys.readouterr()
    assert "7 trials (3 earlier): 7 complete" in out and "begins with 3 of the 8 rows of 'a_grid'; " in err
    assert "1 with epochs=5 do not count" in err
    (definition,) = (tmp_path / "studies/vje_search").glob("*.json")
    assert [params["beta"] for params, _ in json.loads(definition.read_text())["results"]] == [0.1, 1.0, 2.0]
    assert run.main([*command, "--plan"]) == 0
    assert "4 to run" in capsys.readouterr().out, "a study without a warm start is another one"


@pytest.mark.slow
def test_a_population_keeps_the_whole_schedule_of_each_member(tmp_path: Path) -> None:
    arguments = ["--trials", "8", "--wave", "8", "--set", "epochs=20"]
    with without_ray(tmp_path):
        assert run.main(["vje_search", "--preset", "digits_population", "--store", str(tmp_path), *arguments]) == 0
    frame = load("vje_search", str(tmp_path)).set_index("number")
    assert len(frame) == 8 and set(frame["status"]) <= {"finished", "diverged"} and frame["cohort"].nunique() == 1
    assert POPULATION.population
    moved = frame["schedule"].dropna().map(json.loads)
    assert len(moved) >= 1
    for number, entries in moved.items():
        for entry in entries:
            assert (
                entry["epoch"] % POPULATION.population.every == 0
                and entry["from"] != number
                and set(entry) >= {"beta", "nu", "lr", "weight_decay"}
            )


OPTIMISER = ["optimiser", "lr_schedule", "adam_epsilon"]
OPTIMISERS: Mapping[str, BaseDistribution] = {
    "optimiser": CategoricalDistribution(("sgd", "adam")),
    "lr": FloatDistribution(1e-4, 1e-2, log=True),
}


@pytest.mark.slow
def test_an_axis_of_optimisers_changes_no_row_of_sgd(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with without_ray(tmp_path):
        assert run.main(small_grid(tmp_path / "plain")) == 0
        assert run.main(small_grid(tmp_path / "both", "--axis", "optimiser=sgd,adam")) == 0
    assert "12 finished of 12 trials" in capsys.readouterr().out
    plain, both = (rows(tmp_path / store, "anomaly_grid") for store in ("plain", "both"))
    sgd, adam = (both[both["optimiser"] == optimiser] for optimiser in ("sgd", "adam"))
    assert sgd[OPTIMISER].drop_duplicates().to_numpy().tolist() == [["sgd", "cosine", 1e-8]]
    assert len(sgd) == len(adam) == 6
    pd.testing.assert_frame_equal(sgd[plain.columns], plain)
    assert adam[OPTIMISER].drop_duplicates().to_numpy().tolist() == [["adam", "cosine", 1e-8]]
    assert set(adam["status"]) == {"finished"}
    assert not set(adam["loss"]) & set(sgd["loss"]) and set(adam["changes"].str.split().str[-1]) >= {"optimiser=adam"}


@pytest.mark.slow
def test_an_axis_with_sgd_alone_is_no_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with without_ray(tmp_path):
        assert run.main(small_grid(tmp_path / "store")) == 0
    before = rows(tmp_path / "store", "anomaly_grid")
    assert run.main(small_grid(tmp_path / "store", "--axis", "optimiser=sgd", "--plan")) == 0
    assert "6: 6 finished" in capsys.readouterr().out
    pd.testing.assert_frame_equal(rows(tmp_path / "store", "anomaly_grid"), before)


@pytest.mark.slow
def test_a_search_over_optimisers_continues_from_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It learns from them which trials had the optimiser that is the default."""
    fixed = {key: value for key, value in vje_search.DIGITS.fixed.items() if key not in OPTIMISERS}
    search = replace(
        vje_search.DIGITS, space=OPTIMISERS, fixed={**fixed, "epochs": 2}, trials=8, wave=4, pruner=None, sampler="tpe"
    )
    sweep = replace(vje_search.SWEEP, presets={"digits": search})
    monkeypatch.setattr(registry, "find", lambda name: sweep)

    def command(store: str, trials: int) -> list[str]:
        return ["vje_search", "--store", str(tmp_path / store), "--trials", str(trials)]

    with without_ray(tmp_path):
        assert run.main(command("whole", 8)) == run.main(command("store", 4)) == run.main(command("store", 8)) == 0
    frame = rows(tmp_path / "store", "vje_search")
    assert len(frame) == 8 and {*frame["optimiser"]} == {"sgd", "adam"}
    pd.testing.assert_frame_equal(frame, rows(tmp_path / "whole", "vje_search"))


FOLDER_KEYS = {"dataset": "folder", "epochs": 1, "batch_size": 4, "validation": 0, "image_size": 8, "image_channels": 1}
DOGS = ["anomaly_grid", "--preset", "digits", "--axis", "beta=1", "--axis", "nu=1", "--normal-class", "dog"]
OWN_IMAGES = [*DOGS, *(word for key, value in FOLDER_KEYS.items() for word in ("--set", f"{key}={value}"))]


@pytest.mark.slow
def test_other_images_are_other_trials(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = [write_own_images(tmp_path / name, seed=seed) for seed, name in enumerate(("one", "two"))]
    store = tmp_path / "store"
    with without_ray(tmp_path):
        for folder in folders:
            assert run.main([*OWN_IMAGES, "--data", str(folder), "--store", str(store)]) == 0
        folders[0].rename(tmp_path / "moved")
        capsys.readouterr()
        assert run.main([*OWN_IMAGES, "--data", str(tmp_path / "moved"), "--store", str(store)]) == 0
    out = capsys.readouterr().out
    assert "trials to run" not in out and "): nothing left to train; writing figures and page\n" in out, out
    rows = pd.read_parquet(store / "trials/sweep=anomaly_grid")
    names = collect(Files(store), "anomaly_grid").report["classes"]
    assert set(names) == set(rows["image_digest"]) and all("dog" in classes for classes in names.values())
    assert len(rows) == 2 and rows["trial_id"].nunique() == rows["image_digest"].nunique() == 2
    assert set(rows["status"]) == {"finished"} and set(rows["normal_class"]) == {1}
    assert rows["auroc_joint"].between(0, 1).all() and len(list((store / "requests/anomaly_grid").iterdir())) == 2


def test_a_damaged_image_is_refused_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    images = write_own_images(tmp_path / "images")
    file = images / "test/fox/1.jpg"
    file.write_bytes(file.read_bytes()[:-30])
    monkeypatch.setattr(sweep_run, "connected", lambda *_, **__: pytest.fail("Ray must not start"))
    assert run.main([*OWN_IMAGES, "--data", str(images), "--store", str(tmp_path / "store")]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: the image {file} cannot be decoded (") and error.count("\n") == 1


def test_test_images_that_are_training_images_are_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images = write_own_images(tmp_path / "images")
    same = next((images / "train/dog").iterdir())
    (images / f"test/dog/same{same.suffix}").write_bytes(same.read_bytes())
    assert run.main([*OWN_IMAGES, "--data", str(images), "--store", str(tmp_path / "store"), "--plan"]) == 0
    assert "; warning: 1 of the test images are training images, too" in capsys.readouterr().err


def test_a_store_that_is_lost_with_the_cluster_of_a_job_is_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ray job submit -- python -m sweeper.run anomaly_grid` runs in a copy of the working folder on the head."""
    monkeypatch.chdir(tmp_path)
    small = ["anomaly_grid", "--preset", "digits", "--set", "epochs=1", "--axis", "nu=1", "--axis", "beta=1"]
    small += ["--axis", "normal_class=1"]
    note = f"note: {SHARED_STORE}, but got 'results', which is lost with the cluster"
    with without_ray(tmp_path / "scratch"):
        assert run.main(small) == 0
        assert "note:" not in capsys.readouterr().err
        monkeypatch.setenv(sweep_run.IN_A_JOB, "{}")
        assert run.main([*small, "--store", str(tmp_path / "results"), "--fresh"]) == 0
        assert "note:" not in capsys.readouterr().err
        assert run.main([*small, "--fresh"]) == 0
        assert note in capsys.readouterr().err


SEARCH = ["vje_search", "--set", "width=32", "--store"]
COMMANDS = {
    "search": [*SEARCH, "STORE", "--preset", "digits", "--set", "epochs=12", "--trials", "18", "--wave", "18"],
    "population": [
        *SEARCH,
        "STORE",
        "--preset",
        "digits_population",
        "--set",
        "epochs=6",
        "--trials",
        "8",
        "--wave",
        "4",
    ],
}
STACK = [
    *("anomaly_grid", "--preset", "digits", "--axis", "beta=0.5,1", "--axis", "nu=0.5", "--axis", "normal_class=0"),
    *("--set", "epochs=1", "--set", "width=16", "--cohort", "2", "--compile", "always"),
]
"""Two trials in a stack."""


@pytest.mark.slow
@pytest.mark.parametrize(("sweep", "widths"), [("search", {4, 1}), ("population", {4})])
def test_a_continued_search_keeps_its_compiled_steps(
    sweep: str, widths: set[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The two cohorts of the search have nine trials, eight of them in stacks of four; a half is pruned."""
    compiler = TracingCompiler()
    monkeypatch.setattr(worker, "StepCompiler", lambda notify: compiler)
    tasks: list[CohortTask] = []

    def interrupt(task: CohortTask) -> None:
        tasks.append(task)
        if len(tasks) == 2:
            raise KeyboardInterrupt

    def main(store: Path, *options: str) -> int:
        return run.main([str(store) if part == "STORE" else part for part in [*COMMANDS[sweep], *options]])

    with without_ray(tmp_path):
        assert main(tmp_path / "whole", "--compile", "always") == 0
    with without_ray(tmp_path, interrupt):
        assert main(tmp_path / "store", "--compile", "always") == 130
    with without_ray(tmp_path):
        assert main(tmp_path / "store") == 0
    name = "vje_search"
    pd.testing.assert_frame_equal(rows(tmp_path / "store", name), rows(tmp_path / "whole", name))
    assert set(load(name, str(tmp_path / "store"))["compiled"]) == {True}
    assert {task.step.size for task, _ in compiler.traced} == widths


@pytest.mark.slow
def test_half_a_library_is_a_line_and_no_trial_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Loaded, a half of a real one crashes the process that trains; these cannot be loaded at all, which would be
    another line. They would be compiled anew; here the compiler is gone meanwhile, and the steps are not compiled."""

    def compile_step(folder: LibraryFolder, task: StepTask, wait: Callable[[], None]) -> None:
        library = folder._library(task)
        library.write_bytes(b"machine code")
        digests = {library.name: file_hash(str(library))}
        library.with_suffix(RECORD).write_text(json.dumps({"code": {}, "parts": [], "digests": digests}))

    def printed(store: str, what: str) -> list[str]:
        with without_ray(tmp_path):
            assert run.main([*STACK, "--store", str(tmp_path / store)]) == 0
        return [line for line in capsys.readouterr().out.splitlines() if what in line]

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(LibraryFolder, "_compile", compile_step)
    assert printed("whole", "steps are not compiled: a compiled step cannot be loaded: ")
    libraries = list((tmp_path / "cache/sweeper/steps").glob("*.so"))
    for library in libraries:
        library.write_bytes(library.read_bytes()[: library.stat().st_size // 2])
    monkeypatch.setenv("CXX", "/nowhere/g++")
    (line,) = printed("damaged", "is damaged")
    for library in libraries:
        assert f"the compiled step {library} is damaged, so it is compiled again" in line
    assert line.endswith("steps are not compiled: there is no C++ compiler (g++) on this machine")
    frame = rows(tmp_path / "damaged", "anomaly_grid")
    assert set(frame["status"]) == {"finished"}
    assert set(load("anomaly_grid", str(tmp_path / "damaged"))["compiled"]) == {False}
    pd.testing.assert_frame_equal(frame, rows(tmp_path / "whole", "anomaly_grid"))
