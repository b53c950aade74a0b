"""The commands that an answer prints: each plans exactly the trials of the best setting."""

import json
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import event, given, reject, settings
from hypothesis import strategies as st

import sweeper
from sweeper.commands import export, trial
from sweeper.commands.arguments import parse
from sweeper.commands.best import main as best_command
from sweeper.definition import registry
from sweeper.definition.space import parts_of
from sweeper.errors import SpecError
from sweeper.models import defaults_of
from sweeper.planning.prepare import prepare
from sweeper.report.answers import Answer, Choice, find_answer
from sweeper.report.figures import figures_of
from sweeper.report.kinds import write_figures
from sweeper.storage.layout import class_names_path
from sweeper.storage.load import load
from sweeper.storage.requests import write_request
from sweeper.storage.rows import Columns
from sweeper.storage.store import Store
from tests.cases import for_each
from tests.fake_executor import without_ray
from tests.image_files import write_own_images
from tests.user_files import DENOISE, forget_modules, user_folder

__all__ = ["user_folder"]

OWN = """
from optuna.distributions import FloatDistribution
from sweeper import Grid, Metric, Search, Sweep, Table

SMALL = {"dataset": "digits", "encoder": "mlp", "width": 8, "epochs": 2, "knn": 5}
OWN = {**SMALL, "method": "own_method:Denoise"}
VJE = {**SMALL, "method": "vje"}
TABLE = Table("knn", ("method", "lr"), (Metric("knn_z", "maximize"),))
BYOL = {**SMALL, "method": "byol"}
SEARCH = Search({"lr": FloatDistribution(0.001, 0.1)}, BYOL, 4, Metric("knn_z", "maximize"), wave=2)
SWEEP = Sweep(
    "mine",
    {
        "one": Grid(OWN, {"sigma": (0.1, 0.2), "lr": (0.01, 0.02), "seed": (0, 1)}),
        "several": (
            Grid({**OWN, "optimiser": "adam"}, {"sigma": (0.1, 0.2), "seed": (0, 1)}),
            Grid(OWN, {"lr": (0.01, 0.02), "seed": (0, 1)}),
            Grid({**VJE, "clip_grad_norm": 1.0}, {"beta": (0.5, 1.0), "optimiser": ("sgd", "adam")}),
            Grid({**VJE, "dataset": "fashion_mnist"}, {"beta": (0.5, 1.0)}),
        ),
        "mixed": (Grid(OWN, {"sigma": (0.1, 0.2)}), Grid(BYOL, {"seed": (0, 1)}), SEARCH),
    },
    (TABLE,),
)
"""
SHIPPED = [
    *("anomaly_grid:digits", "anomaly_grid:controls", "augmentation_ablation:digits", "normal_images:digits"),
    *("loss_ablation:digits", "nu_ablation:paper", "j_ablation:paper", "ssl_cifar10:digits", "simvae_content:digits"),
    *("one_class_benchmark:fashion", "latent_generation:digits", "variance_ablation:digits", "memory_bank:digits"),
    *("ood_detection:digits", "synthetic_alignment:paper", "vje_search:digits", "ssl_search:digits"),
]
CHANGES = [
    *("--set epochs=4", "--set optimiser=adam", "--axis optimiser=sgd,adam", "--axis lr=0.5,0.25", "--set lr=5e-06"),
    *("--axis seed=3,1", "--set seed=7", "--axis clip_grad_norm=0.5,inf", "--set clip_grad_norm=inf", "--set tau=0.3"),
    *("--axis sigma=0.1,0.3", "--axis normal_class=0,2", "--set validation=0.1", "--set width=16", "--set beta=0.25"),
    *("--trials 3", "--sampler random", "--replicates seed=0,1", "--wave 1"),
]


def answered(
    folder: Path, words: Sequence[str], lost: float = 0, data: str | None = None, facts: Mapping[str, str] = {}
) -> Answer:
    """The answer after a run whose trials have values that follow from their ids, and of which some are `lost`.
    `facts` are columns of rows."""
    places = ["--store", str(folder), *(["--data", data] if data else [])]
    request = parse([*words, *places, "--plan"])
    plan, columns = prepare(request, store := Store(folder))
    metric = plan.headline.name.removeprefix("val_")
    columns = Columns(columns.hyperparameters, (metric,))
    store.prepare(plan.name, columns)
    values = {each.id: int(each.id[:8], 16) / 16**8 for each in plan.trials}
    run = {"cohort": "c", "cohort_size": 1, "status": "finished"}
    rows = [
        {**run, "trial_id": each.id, **each.config, **each.facts, **facts, metric: values[each.id]}
        for each in plan.trials
        if int(each.id[8:12], 16) / 16**4 >= lost
    ]
    store.write(plan.name, "c", rows, columns)
    write_figures(store.files, plan.name, figures_of(plan.sweep, plan.preset))
    write_request(store.files, plan.name, plan.request_rows)
    return find_answer(store.files, words[0], data=data, defaults=defaults_of)


def trained(command: str) -> list[str]:
    """The trials that a command trains, in a new process that knows nothing."""
    kind, reference, *words = shlex.split(command)[1:]
    if kind == "run":
        assert words.pop() == "--fresh"
        return [each.id for each in prepare(parse([reference, *words, "--plan"]), Store("/nowhere"))[0].trials]
    assert kind == "trial"
    request = parse([reference, *words[1:], "--plan"])
    store = Store(request.store)
    return [trial.chosen(prepare(request, store)[0], words[:1], store).id]


def check(choice: Choice, is_run: bool) -> None:
    """`is_run`: whether a run has the trials of the setting alone; else it may be `sweeper trial`."""
    assert choice.retrain and "=none" not in choice.retrain
    found, is_alone = trained(choice.retrain), choice.retrain.startswith("sweeper trial")
    assert sorted(found) == sorted(choice.trials[:1] if is_alone else choice.trials), choice.retrain
    assert not (is_run and is_alone), choice.retrain


@st.composite
def requests(draw: st.DrawFn, sweeps: Sequence[str]) -> list[str]:
    """A sweep, a preset and options: some narrow keys of the preset, others change it."""
    name, _, preset = draw(st.sampled_from(sweeps)).rpartition(":")
    values: dict[str, dict[str, None]] = {}
    for part in parts_of(registry.find(name).presets[preset]):
        for key in ("dataset", "normal_images", *part.axes, "method"):
            values.setdefault(key, {}).update((str(value), None) for value in part.values(key))
    words, keys = [name, "--preset", preset], list(filter(values.get, values))
    for key in draw(st.lists(st.sampled_from(keys), max_size=3, unique=True)):
        some = draw(st.lists(st.sampled_from([*values[key]]), min_size=1, max_size=2, unique=True))
        words += ["--axis", f"{key}={','.join(some)}"]
    for change in draw(st.lists(st.sampled_from(CHANGES), max_size=3, unique=True)):
        words += change.split()
    return words


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(requests(SHIPPED), st.sampled_from((0, 0, 0.3)))
def test_the_command_plans_the_trials_of_the_best_setting(words: list[str], lost: float) -> None:
    """Of shipped sweeps: whole and narrowed, changed and not, with all rows and so far."""
    parts = parts_of(registry.find(words[0]).presets[words[2]])
    no_run = lost or any(part.searched or part.pinned for part in parts)
    with tempfile.TemporaryDirectory() as folder:
        try:
            answer = answered(Path(folder) / "a store", words, lost)
        except SpecError:
            reject()  # options that do not fit
        for choice in answer.choices:
            event(" ".join(str(choice.retrain).split()[:2]))
            check(choice, is_run=not no_run)


OWN_REQUESTS = [
    *("one", "one --set sigma=0.2", "one --axis lr=0.01 --set epochs=3", "one --axis optimiser=sgd,adam"),
    *("one --set optimiser=adam", "one --set optimiser=sgd", "several", "several --set method=own_method:Denoise"),
    *("several --set sigma=0.3", "several --set epochs=3 --axis seed=1,2", "several --set optimiser=sgd"),
    *("several --set clip_grad_norm=inf", "mixed", "mixed --set epochs=3", "mixed --set sigma=0.1 --trials 2"),
    *("mixed --search-seed 3", "several --set method=vje --axis optimiser=adam,sgd --set dataset=digits"),
]


@pytest.mark.slow
@for_each("request_words", OWN_REQUESTS)
def test_so_do_those_of_a_sweep_and_a_method_of_the_user(user_folder: Path, request_words: str) -> None:
    """Of one grid, of several for the same method, and of grids beside a search; in a process that knows nothing of the
    method, and from each place whose name the user types."""
    (user_folder / "own_method.py").write_text(DENOISE)
    (folder := user_folder / "my sweeps").mkdir(exist_ok=True)
    (folder / "my_sweep.py").write_text(OWN)
    file = "./my sweeps/my_sweep.py"
    preset, *options = request_words.split()
    store = user_folder / request_words
    answered(store, [file, "--preset", preset, *options], data="my data")
    forget_modules(user_folder)
    answer = find_answer(Store(store).files, file, data="my data", defaults=defaults_of)
    assert answer.choices
    for choice in answer.choices:
        assert choice.retrain and "--data 'my data'" in choice.retrain and f"'{file}'" in choice.retrain
        forget_modules(user_folder)
        check(choice, is_run="study" not in choice.question)


@for_each("classes", [("cat", "dog", "fox"), ("1", "0", "2")])
def test_a_class_of_own_images_is_named_and_their_folder_is_said(tmp_path: Path, classes: tuple[str, ...]) -> None:
    images = write_own_images(tmp_path / "own images", classes)
    words = ["anomaly_grid", "--preset", "digits", "--set", "dataset=folder", "--set", "batch_size=4"]
    narrowed = ["--axis", "beta=1", "--axis", "nu=1", "--axis", f"normal_class={','.join(classes[:2])}"]
    store = Store(tmp_path / "store")
    answered(tmp_path / "store", [*words, *narrowed], data=str(images))
    digest = load("anomaly_grid", str(tmp_path / "store"))["image_digest"][0]
    store.files.write(class_names_path("anomaly_grid", digest), json.dumps(classes).encode())
    choice = find_answer(store.files, "anomaly_grid", data=str(images), defaults=defaults_of).choice
    check(choice, is_run=True)
    assert f"--axis normal_class={classes[0]},{classes[1]} " in str(choice.retrain)
    assert shlex.quote(str(images)) in str(choice.retrain) and shlex.quote(str(images)) in str(choice.keep)


@pytest.mark.slow
def test_by_its_name_in_the_store_a_sweep_of_the_user_is_exported_and_its_file_is_asked_for(
    user_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (user_folder / "own_method.py").write_text(DENOISE)
    (user_folder / "my_sweep.py").write_text(OWN)
    with without_ray(user_folder):
        sweeper.run("my_sweep.py", keep="none", axis={"sigma": [0.1], "lr": [0.01], "seed": [0]})
    more = capsys.readouterr().out.splitlines()[-1]
    assert more.startswith("sweeper best my_sweep.py --preset one")
    assert best_command(shlex.split(more, comments=True)[2:]) == 0
    assert "train again: sweeper run my_sweep.py --preset one --set sigma=0.1" in capsys.readouterr().out
    forget_modules(user_folder)
    assert best_command(["my_sweep"]) == 0
    *_, keep, hint = capsys.readouterr().out.splitlines()
    assert hint == "to train it again, name the file of the sweep in place of its name: sweeper best FILE.py"
    words = shlex.split(keep.partition(" keep it: ")[2])
    assert words[:3] == ["sweeper", "export", "my_sweep"] and words[5:7] == ["--method", "own_method:Denoise"]
    assert export.main(words[2:]) == 0


def test_of_rows_of_an_earlier_definition_the_command_has_what_was_defined_otherwise(tmp_path: Path) -> None:
    """Also a key at its default, which is null in the rows, as that of an optional section or of earlier trials."""
    words = ["anomaly_grid", "--preset", "digits", "--axis", "beta=1", "--set", "lr=0.05", "--set", "optimiser=adam"]
    store = Store(tmp_path)
    answered(tmp_path, words, facts={"changes": ""})
    store.files.delete_folder("requests")
    choice = find_answer(store.files, "anomaly_grid", defaults=defaults_of).choice
    assert "--set lr=0.05" in str(choice.retrain) and "--set optimiser=adam" in str(choice.retrain)
    check(choice, is_run=True)
