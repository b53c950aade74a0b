"""What the READMEs and guides say of models, Python runs, sweeps and methods from outside runs as it stands.

Their links lead somewhere, and files and tests that any text names exist. Their lists of methods, data sets and metrics
are complete, and they are short.
"""

import ast
import importlib.util
import itertools
import json
import math
import re
import shlex
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Never

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits

import sweeper
from sweeper.commands import evaluate, export, run, trial
from sweeper.commands.arguments import parse_command
from sweeper.commands.command_line import Parser
from sweeper.commands.console import module_of
from sweeper.commands.sweep_run import SweepRun
from sweeper.definition.user_code import search_folder
from sweeper.errors import SpecError
from sweeper.request import Request
from sweeper.submission import submit
from tests.cases import for_each
from tests.fake_executor import without_ray
from tests.user_files import user_folder
from trainables.catalog import METHODS, import_method
from trainables.config import resolve
from trainables.data.datasets.catalog import DATASETS
from trainables.data.datasets.class_folders import FOLDER
from trainables.data.datasets.own_data import SOURCES as SOURCES_OF_OWN_DATA
from trainables.data.pairs import BRANCHES
from trainables.functions.cohort import FunctionCallbacks, FunctionCohort
from trainables.functions.method import FunctionMethod
from trainables.metrics.meanings import FAMILIES
from trainables.reports import Record, Stopped

ROOT = Path(__file__).parents[1]
FOLDERS = ("sweeper", "trainables", "search_spaces", "cluster", "tests")
GUIDES = ROOT / "sweeper" / "guides"
TRAINABLES = ROOT / "trainables" / "README.md"
OWN_CODE, OWN_DATA = ROOT / "trainables" / "guides" / "own_code.md", ROOT / "trainables" / "guides" / "own_data.md"
PROMISES = ROOT / "sweeper" / "storage" / "README.md"
PAGES = [*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in sorted((ROOT / folder).rglob("*.md")))]
LINES = {ROOT / "README.md": 150, ROOT / "sweeper" / "README.md": 60, **dict.fromkeys(GUIDES.glob("*.md"), 150)}
"""Most lines of a page: what does not fit belongs beside what it is about."""
NARROW: dict[str, Any] = {"axis": {"beta": [0.5, 1.0], "nu": [1.0], "normal_class": [0]}, "cohort": 2}
"""Few trials of the preset, unchanged."""


COMMAND = re.compile(r"(?:\w+=\S+ )?(?:sweeper |python -m sweeper\.)(\w+) (.*)")
"""A command of a page: its name, and its arguments."""


def commands(page: Path) -> list[tuple[str, list[str]]]:
    """Each command of a page and its words: the lines of blocks, and those in the text that do not begin with an
    option. NAME is one of the sweeps."""
    text = re.sub(r"\\\n\s*", "", page.read_text())
    shown = [
        block.splitlines() for language, block in re.findall(r"```(\w*)\n(.*?)```", text, re.DOTALL) if not language
    ]
    inline = (
        " ".join(code.split()) for code in re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    )
    lines = [*itertools.chain(*shown), *(code for code in inline if not re.search(r"[\[|]|^\S+ \w+ -", code))]
    found = [COMMAND.fullmatch(line.partition(" > ")[0].strip()) for line in lines]
    return [
        (match[1], shlex.split(match[2].replace("NAME", "anomaly_grid"), comments=True)) for match in found if match
    ]


def blocks(section: str, page: Path) -> list[tuple[str, str]]:
    """Language and text of each block of code in a section."""
    text = page.read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    return blocks_of(text)


def blocks_of(text: str) -> list[tuple[str, str]]:
    return re.findall(r"```(\w*)\n(.*?)```", text, re.DOTALL)


EXAMPLES = {
    name: text
    for page in (ROOT / "README.md", OWN_CODE)
    for text, name in re.findall(r"```\w+\n(# (\w+\.\w+).*?)```", page.read_text(), re.DOTALL)
}
"""File -> its text, of the user's files whose first line names them."""


def missing_library(words: list[str]) -> str | None:
    """The first library that this machine lacks of those that an example imports, which a command names; None if it
    lacks none, or the command names no example."""
    text = EXAMPLES.get(f"{words[0].split(':')[0].removesuffix('.py')}.py", "") if words else ""
    found = re.findall(r"^(?:import|from) (\w+)", text, re.MULTILINE)
    return next(
        (name for name in found if f"{name}.py" not in EXAMPLES and importlib.util.find_spec(name) is None), None
    )


SOURCES = [
    path
    for folder in FOLDERS
    for path in (ROOT / folder).rglob("*")
    if path.is_file() and "__pycache__" not in path.parts
]
MODULES = [path for path in SOURCES if path.suffix == ".py"]
NAMED = re.compile(
    r"(?<![\w./:-])(?:[\w-]+/|\.\./)*[\w-]+\.(?:md|py|js|toml|yaml)(?![\w/(:])|\btest(?:_[a-z0-9]+){3,}\b(?!\.py)"
)
"""Names of files, and of tests, which have more words than other names that begin so."""
OF_USERS = re.compile(r"^(my_\w+|secrets)\.|[A-Z]{4}")
"""Files that users write, and places for names."""


def texts_of(path: Path) -> list[str]:
    """The prose of a file: all of a guide, and of a module its docstrings, comments and short descriptions."""
    if path.suffix == ".md":
        return [path.read_text()]
    nodes = list(ast.walk(ast.parse(path.read_text())))
    said = [node.value for node in nodes if isinstance(node, ast.Expr)]
    said += [node.value for node in nodes if isinstance(node, ast.keyword) and node.arg in ("about", "why", "help")]
    comments = [line for line in path.read_text().splitlines() if line.lstrip().startswith("#")]
    return [*comments, *(str(each.value) for each in said if isinstance(each, ast.Constant))]


@pytest.mark.slow
def test_files_and_tests_that_texts_name_exist() -> None:
    """A file is named by its path, or by the end of it."""
    parts = [path.relative_to(ROOT).parts for path in [*ROOT.glob("*.*"), *SOURCES]]
    known = {"/".join(path[start:]) for path in parts for start in range(len(path))}
    known |= {path.stem for path in MODULES}
    known |= {name for path in MODULES for name in re.findall(r"\bdef (test_\w+)", path.read_text())}
    lacking = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in [*PAGES, *MODULES]
        for text in texts_of(path)
        for name in NAMED.findall(text)
        if name.replace("../", "") not in known | {*EXAMPLES} and not OF_USERS.search(name.rpartition("/")[2])
    ]
    assert not lacking


@pytest.mark.slow
@pytest.mark.usefixtures("unreported")
def test_models_are_used_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with without_ray(tmp_path):
        sweeper.run("anomaly_grid", preset="digits", **NARROW)
    names: dict[str, Any] = {}
    for language, text in blocks("Use a model", GUIDES / "models.md"):
        if language == "python":
            exec(text, names)
        for line in () if language else text.splitlines():
            command = shlex.split(line.removeprefix("sweeper export "))
            assert export.main(command) == 0
    assert len(names["model"].score(names["images"])) == 1797
    assert sweeper.load_model("best.safetensors").config == sweeper.config_of(names["best"])
    (_, commands), (_, of_epoch) = blocks("Models of other epochs", GUIDES / "models.md")
    for line in commands.splitlines():
        words = shlex.split(line, comments=True)[2:]
        narrow = [f"--axis={key}={','.join(map(str, values))}" for key, values in NARROW["axis"].items()]
        with without_ray(tmp_path):
            assert run.main([*words, *narrow, "--cohort=2", "--fresh"]) == 0, line
        exec(of_epoch, names)


@pytest.mark.slow
@pytest.mark.usefixtures("unreported")
def test_models_are_evaluated_on_other_data_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with without_ray(tmp_path):
        sweeper.run("anomaly_grid", preset="digits", **NARROW)
    (tmp_path / "other_lab").mkdir()
    images, labels = load_digits(return_X_y=True)
    for split, part in {"train": slice(0, 1000), "test": slice(1000, None)}.items():
        np.save(f"other_lab/{split}_images.npy", (images.reshape(-1, 8, 8) / 16).astype(np.float32)[part])
        np.save(f"other_lab/{split}_labels.npy", labels[part])
    names: dict[str, Any] = {}
    for language, text in blocks("Other data", GUIDES / "models.md"):
        if language == "python":
            exec(text, names)
        for line in () if language else text.splitlines():
            assert evaluate.main(shlex.split(line, comments=True)[2:]) == 0, line
    own = names["both"][names["both"]["dataset_other"] == "digits"]
    assert len(own) and own["auroc_joint"].tolist() == pytest.approx(own["auroc_joint_other"].tolist(), abs=1e-6)


@pytest.mark.slow
def test_one_trial_is_looked_at_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    ((_, text),) = blocks("Look at one trial", GUIDES / "models.md")
    for line in text.splitlines():
        assert trial.main(shlex.split(line, comments=True)[2:]) == 0, line
    out = capsys.readouterr().out
    assert "the loss falls" in out and "forward and loss" in out
    (trace,) = tmp_path.glob("trial-*.json")
    names = {event.get("name") for event in json.loads(trace.read_text())["traceEvents"]}
    assert {"data", "forward", "backward", "optimiser"} <= names
    assert len(pd.read_parquet(tmp_path / "results/trials/sweep=anomaly_grid")) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("unreported")
def test_sweeps_are_run_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With cohorts of ten, as no cluster is measured."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    with without_ray(tmp_path):
        for _, text in blocks("From Python", GUIDES / "running.md"):
            exec(text, names)
            if "mine" not in names:
                assert len(names["rows"]) == 20 and set(names["rows"]["status"]) == {"finished"}
    rows = names["rows"]
    assert list(rows["lr"]) == [0.001, 0.001, 0.003, 0.003] and set(rows["status"]) == {"finished"}
    assert rows["auroc_joint"].min() > 0.8  # no example of rates that are too high
    assert {path.name for path in (tmp_path / "results/trials").iterdir()} == {"sweep=anomaly_grid", "sweep=vje_lr"}


@pytest.mark.slow
@pytest.mark.usefixtures("unreported")
def test_results_are_read_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with without_ray(tmp_path):
        sweeper.run("anomaly_grid", preset="digits", **NARROW)
    names: dict[str, Any] = {}
    for text in re.findall(r"```python\n(.*?)```", (GUIDES / "results.md").read_text(), re.DOTALL):
        exec(text, names)
    assert len(names["rows"]) == 2 and names["best"].at["beta"] in NARROW["axis"]["beta"]
    assert len(names["runs"]) == 2


LISTED = {
    "Methods": METHODS,
    "Data sets": {*DATASETS, *SOURCES_OF_OWN_DATA, FOLDER, *BRANCHES},
    "Metrics": FAMILIES,
}
"""Section with a table of names -> the names."""


@pytest.mark.parametrize("section", LISTED)
def test_lists_of_names_are_complete(section: str) -> None:
    """The first column of a table says the kind, the second has the names."""
    text = TRAINABLES.read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    cells = [line.split("|")[2] for line in text.splitlines() if line.startswith("| ")]
    named = re.findall(r"`(\w+)`", " ".join(cells))
    assert sorted(named) == sorted(LISTED[section])


@pytest.mark.parametrize("page", LINES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_is_short(page: Path) -> None:
    assert len(page.read_text().splitlines()) <= LINES[page]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_a_file_and_its_section(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", page.read_text())
    for path, section in links:
        target = page.parent / path if path else page
        assert target.is_file(), f"{page}: {path}"
        titles = re.findall(r"^#+ (.+)", target.read_text(), re.M) if section else []
        assert not section or section in {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_promise_of_a_store_names_a_test_that_exists() -> None:
    text = PROMISES.read_text()
    promises = [
        line for line in text.splitlines() if line.startswith("| ") and not re.match(r"\| (promise|what) \|", line)
    ]
    assert len(promises) > 15 and all(re.search(r"::\w+|the same \|$", line) for line in promises)
    for path, name in re.findall(r"`([\w/]+\.py)::(\w+)`", text):
        assert re.search(rf"^(def|class) {name}\b", (ROOT / "tests" / path).read_text(), re.M), f"{path}::{name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_all_that_users_import_of_this_project_is_in_one_package(page: Path) -> None:
    """Code says `import sweeper`, or imports its public names; the folders below it are the implementation."""
    text = page.read_text()
    modules = re.findall(r"\b(?:from|import) ((?:sweeper|trainables|search_spaces)\b[\w.]*)", text)
    assert {*modules} <= {"sweeper"}
    names = [name for line in re.findall(r"\bfrom sweeper import ([\w, ]+)", text) for name in line.split(", ")]
    assert {*names} <= {*sweeper.__all__}


__all__ = ["user_folder"]

TEXT = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text()
EXAMPLE = TEXT[TEXT.index("## From outside") : TEXT.index("## Add a sweep")]


@pytest.fixture
def example(user_folder: Path) -> Path:
    """The working directory with the two files of the example."""
    method, sweep = re.findall(r"```python\n(.*?)```", EXAMPLE, re.DOTALL)
    (user_folder / "my_method.py").write_text(method)
    (user_folder / "my_sweep.py").write_text(sweep)
    return user_folder


def _commands() -> list[list[str]]:
    """The words of each command line of the example, without `sweeper` and the comment."""
    lines = re.findall(r"^sweeper (.*?) *(?:#.*)?$", EXAMPLE, re.MULTILINE)
    return [line.split() for line in lines]


@pytest.mark.slow
def test_its_commands_run(example: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (describe, method), (plan, *planned), (start, *started), (submit, *submitted) = _commands()
    assert (describe, plan, start, submit) == ("describe", "plan", "run", "submit")
    assert run.main(["--describe", method]) == 0
    described = capsys.readouterr().out
    assert "The representation of a noisy view" in described and "* sigma=0.3  (sigma >= 0)" in described
    store = tmp_path / "store"
    assert run.main([*planned, "--plan", "--store", str(store)]) == 0
    out, err = capsys.readouterr()
    assert "trials     27: 0 finished" in out and err == ""  # no note: it can be stacked
    with without_ray(tmp_path):
        assert run.main([*started, "--store", str(store)]) == 0
    rows = pd.read_parquet(store / "trials/sweep=my_sweep")
    assert len(rows) == 9 and set(rows["status"]) == {"finished"} and set(rows["method"]) == {"my_method:Denoise"}
    assert rows["loss_error"].notna().all() and rows["knn_z"].min() > 0.5
    assert (store / "heatmaps/my_sweep").is_dir() and submitted[0] == "my_sweep.py"


((_, SEARCH),) = [block for block in blocks_of((GUIDES / "searches.md").read_text()) if block[0] == "python"]


def test_the_search_of_the_guide_has_every_field() -> None:
    """In one call, so that a reader finds each beside the others."""
    (call,) = [
        node
        for node in ast.walk(ast.parse(SEARCH))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Search"
    ]
    assert {keyword.arg for keyword in call.keywords} == {field.name for field in fields(sweeper.Search)}


@pytest.mark.slow
@pytest.mark.usefixtures("unreported")
def test_the_search_of_the_guide_runs(user_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each study begins with what is given, and prunes, and has all replicates of a proposal."""
    (user_folder / "my_search.py").write_text(SEARCH)
    assert run.main(["my_search.py", "--plan", "--store", "store"]) == 0
    planned = capsys.readouterr().out
    assert "  constraint val_auroc_dir >= 0.7\n" in planned and "waves of 8, tpe, Halving(first=4" in planned
    assert "    if lr_schedule is exponential\n      lr_gamma       0.8 to 1\n" in planned
    with without_ray(user_folder):
        assert run.main(["my_search.py", "--store", "store"]) == 0
    rows = pd.read_parquet("store/trials/sweep=my_search")
    assert len(rows) == 2 * 16 * 3 and set(rows["status"]) == {"finished", "pruned"}
    first = rows[rows["number"] == 0]
    assert len(first) == 6 and set(first["lr"]) == {0.003} and set(first["lr_schedule"]) == {"one_cycle"}


@pytest.mark.slow
def test_rungs_of_a_grid_are_planned_as_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (text,) = [text for _, text in blocks("Waves and rungs", GUIDES / "searches.md")]
    for line in text.splitlines():
        words = shlex.split(line, comments=True)[2:]
        assert run.main([*words, "--plan", "--store", str(tmp_path / "store")]) == 0, line
        out = capsys.readouterr().out
        assert "  objective  maximize val_auroc_joint\n" in out
        assert out.count("56 trials in waves of 56, grid, Halving") + out.count("56 proposals x 3 replicates") == 10


def write_examples(folder: Path) -> None:
    for name, text in EXAMPLES.items():
        (folder / name).write_text(text)


OWN_LINES = [
    *(line for _, text in blocks("Your own sweep", ROOT / "README.md") for line in text.splitlines()),
    *(line for _, text in blocks_of(OWN_CODE.read_text()) for line in text.splitlines()),
]
TRAINED = [shlex.split(line, comments=True)[2:] for line in OWN_LINES if line.startswith("sweeper run ")]
FEWER = {"boosting_search.py": ["--trials=6", "--wave=3"]}
"""A sweep's file -> options with which it is a short one."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [each for each in TRAINED if "my_" not in str(each)], ids=lambda words: words[0].split()[0]
)
def test_functions_and_commands_train_as_written(
    words: list[str], user_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pruner ends some trials, and all others finish. Whoever lacks a library skips its example."""
    if missing := missing_library(words):
        pytest.skip(f"{missing} is not installed")
    write_examples(user_folder)
    assert run.main([*words, *FEWER.get(words[0], []), "--debug", "--store", "store"]) == 0
    (folder,) = (user_folder / "store/trials").iterdir()
    rows = pd.read_parquet(folder)
    pruned = "--pruner" in words
    assert set(rows["status"]) == ({"finished", "pruned"} if pruned else {"finished"}), rows[["status", "error"]]
    metric = words[words.index("--metric") + 1] if "--metric" in words else "accuracy"
    spread = rows.loc[rows["status"] == "finished", metric]
    assert len(rows) > 1 and spread.nunique() > 1
    assert metric != "accuracy" or 0.8 < spread.max() <= 1
    assert metric in capsys.readouterr().out
    if "--keep" in words:
        kept, *_ = (user_folder / "store/models").rglob("*.safetensors")
        assert sweeper.load_model("store", kept.stem, methods=[words[0]])["0.weight"].shape == (64, 64)


@pytest.mark.slow
def test_the_loop_resumes_from_what_it_has_saved(user_folder: Path) -> None:
    write_examples(user_folder)
    search_folder(user_folder)
    method = import_method("loop:train")
    assert issubclass(method, FunctionMethod)
    config = resolve({"method": "loop:train", "epochs": 6})
    checkpoints = list[bytes]()

    def train(resumed: bytes | None, most: float) -> list[Record]:
        """The reports of a training that ends when it has saved so many checkpoints."""
        records = list[Record]()
        callbacks = FunctionCallbacks(
            lambda report: records.extend(report.new),
            stop=lambda: len(checkpoints) >= most,
            save=checkpoints.append,
            save_every=0,
        )
        FunctionCohort([config], method, torch.device("cpu"), callbacks).train(resumed)
        return records

    with pytest.raises(Stopped):
        train(None, most=3)
    resumed = train(checkpoints[-1], most=math.inf)
    assert [record.epoch for record in resumed] == [1, 2, 3, 4, 5, 6] and len(checkpoints) > 6
    checkpoints.clear()
    assert train(None, most=math.inf) == resumed


@pytest.mark.slow
def test_one_trial_of_a_function_is_trained_alone_and_exported(
    user_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The model of a trial whose run kept none is trained again."""
    write_examples(user_folder)
    assert trial.main(["digits_width.py", "lr=0.1", "width=16", "seed=0"]) == 0
    assert re.search(r"epoch 1  accuracy .*finished after 10 epochs", capsys.readouterr().out, re.DOTALL)
    assert trial.main(["loop:train", "--profile"]) == 2
    assert "but loop:train is a function" in capsys.readouterr().err
    assert run.main(["loop:train", "--set", "epochs=2", "--keep", "none", "--debug"]) == 0
    (row,) = sweeper.load("loop.train").to_dict("records")
    assert export.main(["loop:train", "--trial", row["trial_id"], "--out", "model.safetensors"]) == 0
    assert sweeper.load_model("model.safetensors", methods=["loop:train"])["0.weight"].shape == (64, 64)


def test_a_pruner_refuses_a_function_without_epochs(user_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_examples(user_folder)
    words = ["boosting:train", "--set=rate=0.1", "--axis=leaves=4,8", "--metric=accuracy", "--mode=max"]
    assert run.main([*words, "--pruner=halving", "--plan"]) == 2
    assert "a function needs a parameter `epochs`, but boosting:train has none" in capsys.readouterr().err


def test_examples_of_own_code_are_short_and_import_nothing_of_this_project() -> None:
    of_sweeps = {name for name, text in EXAMPLES.items() if "SWEEP = " in text}
    for name, text in EXAMPLES.items():
        code = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
        assert len(code) <= 25, name
        assert name in of_sweeps or not re.search(r"^(?:import|from) (sweeper|trainables)", text, re.MULTILINE), name
    assert {"digits.py", "loop.py", "fit.awk"} <= EXAMPLES.keys() - of_sweeps and of_sweeps


OWN = OWN_DATA.read_text().split("## Your own data\n")[1]


@pytest.fixture
def own_files(user_folder: Path) -> Path:
    """The working directory with the files of a data set, an encoder and views."""
    texts = re.findall(r"```python\n(.*?)```", OWN, re.DOTALL)
    for name, text in zip(("my_data", "my_nets", "my_views"), texts, strict=True):
        (user_folder / f"{name}.py").write_text(text)
    return user_folder


@pytest.mark.slow
@pytest.mark.usefixtures("own_files")
def test_own_data_encoders_and_views_are_planned_as_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commands = re.findall(r"^sweeper plan (.*)$", OWN, re.MULTILINE)
    for command in commands:
        assert run.main([*command.split(), "--plan", "--store", str(tmp_path / "store")]) == 0
        out, err = capsys.readouterr()
        assert "trials     1: 0 finished" in out and "400 training and 100 test images of 4x64x64, floats" in err
    assert "the views my_views:pipeline declare no noise" in err and len(commands) == 4


@pytest.mark.slow
@pytest.mark.usefixtures("own_files")
def test_own_data_encoder_and_views_train_together(tmp_path: Path) -> None:
    keys: dict[str, Any] = {
        "dataset": "my_data:Cells",
        "encoder": "my_nets:TinyViT",
        "augmentation": "my_views:Stain",
        "width": 16,
    }
    axis: dict[str, Any] = {"method": ["simclr"], "seed": [0, 1]}
    with without_ray(tmp_path):
        rows = sweeper.run("ssl_benchmark", preset="digits", set={**keys, "epochs": 1}, axis=axis, cohort=2)
    assert len(rows) == 2 and set(rows["status"]) == {"finished"} and set(rows["augmentation"]) == {"my_views:Stain"}


class _Accepted(BaseException):
    """Ends a command that has read its words."""


@pytest.mark.slow
@pytest.mark.usefixtures("own_files")
@for_each("page", [page for page in PAGES if commands(page)])
def test_every_command_is_accepted(
    page: Path, user_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is read, and the trials that it would train are planned."""
    monkeypatch.setenv("WANDB_MODE", "offline")  # as the guide sets it
    method, sweep = re.findall(r"```python\n(.*?)```", EXAMPLE, re.DOTALL)
    simclr = "\n\nfrom trainables.methods.baselines.simclr import SimCLR\n\n\nclass MyMethod(SimCLR):\n    pass\n"
    (user_folder / "my_method.py").write_text(method + simclr)
    (user_folder / "my_sweep.py").write_text(sweep)
    (user_folder / "my_search.py").write_text(SEARCH)
    write_examples(user_folder)
    for part in ("train/good", "test/good", "test/bad"):
        (folder := user_folder / "my_images" / part).mkdir(parents=True, exist_ok=True)
        for index in range(100):
            Image.fromarray(np.full((9, 9), len(part) * 10 + index, np.uint8)).save(folder / f"{index}.png")
    for name, words in commands(page):
        if missing_library(words):
            continue
        try:
            with monkeypatch.context() as patches:
                status = _status(name, words, user_folder, patches)
        except SpecError as error:
            status = str(error)
        assert not status, f"sweeper {name} {shlex.join(words)}: {status} {capsys.readouterr().err}"


def _status(name: str, words: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> int | str:
    """The status of a command that plans, but trains, submits and reads nothing. Raises SpecError."""
    if name in ("run", "plan"):
        command = parse_command(words)
        if isinstance(command, Request):
            warm_start = None  # the store is empty
            SweepRun.planned(replace(command, plan=True, store=str(folder / "store"), warm_start=warm_start))
        return 0

    def accept(*_: object) -> Never:
        raise _Accepted

    if name == "trial":
        for function in ("train_alone", "overfit", "print_profile", "_write", "_print_log"):
            monkeypatch.setattr(trial, function, accept)
    elif name == "submit":
        monkeypatch.setenv("RAY_AUTH_TOKEN", "abc")
        monkeypatch.setattr(submit, "connect", accept)
        monkeypatch.setattr(submit.slurm, "send", accept)
        monkeypatch.setattr(submit, "_is_visible", lambda _: False)  # the bucket
    else:
        parse = Parser.parse_args
        monkeypatch.setattr(Parser, "parse_args", lambda *arguments: accept(parse(*arguments)))
    try:
        return module_of(name).main(words)
    except _Accepted:
        return 0
