"""A wrong search ends with exit status 2 and one line, before any Ray process starts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from sweeper.definition import Halving, Heatmap, Metric, Population, Search, SpecError, Sweep, Value, registry
from sweeper.storage.rows import Columns
from sweeper.storage.store import Store
from tests.cases import for_each
from tests.sweeper.commands.refusals import CommandLine, command_line_of

FIXED: dict[str, Value] = {"method": "vje", "dataset": "digits", "epochs": 4, "report_every": 1, "normal_class": 8}
AUROC = Metric("auroc_joint", "maximize")
Refuse = Callable[..., str]


@pytest.fixture
def command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    return command_line_of(tmp_path, capsys, monkeypatch)


@pytest.fixture
def refuse(command_line: CommandLine, monkeypatch: pytest.MonkeyPatch) -> Refuse:
    """Returns the error line of a search over beta with the given changes and command-line arguments."""

    def line(*arguments: str, fixed: dict[str, Any] | None = None, **changes: Any) -> str:
        options: dict[str, Any] = {"space": {"beta": FloatDistribution(0.1, 2.0)}, "trials": 4, "wave": 2}
        options |= {"metric": AUROC, "fixed": FIXED | (fixed or {})} | changes
        remaining = {key: value for key, value in options["fixed"].items() if key not in options["space"]}
        search = Search(**(options | {"fixed": remaining}))
        monkeypatch.setattr(registry, "find", lambda name: Sweep("about", {"digits": search}))
        return command_line.refuse(*arguments, name="a_search").error

    return line


SPACES: list[tuple[dict[str, BaseDistribution], str]] = [
    ({"nu": FloatDistribution(-1.0, 2.0)}, "`nu > 0` must hold, but got nu=-1.0"),
    ({"momentum": FloatDistribution(0.5, 1.0)}, "`momentum < 1` must hold, but got momentum=1.0"),
    ({"width": FloatDistribution(8, 64)}, "width must be a whole number, but got width=8.0"),
    ({"width": IntDistribution(0, 64)}, "`width >= 1` must hold, but got width=0"),
    (
        {"encoder": CategoricalDistribution(["mlp", "mpl"])},
        "no encoder 'mpl' (did you mean 'mlp'?) (encoder is set by preset 'digits'); there are: ",
    ),
    (
        {"betta": FloatDistribution(0, 1)},
        "no key 'betta' (did you mean 'beta'?) (betta is set by preset 'digits'); --describe vje lists ",
    ),
    ({"batch_size": IntDistribution(16, 4096)}, "batch_size must not exceed the 122 training images"),
    ({"workers": IntDistribution(1, 2)}, "workers must be fixed or an axis in a search, but it is searched"),
    (
        {"validation": FloatDistribution(0.1, 0.3)},
        "validation must be fixed or an axis in a search, but it is searched",
    ),
]


@pytest.mark.parametrize(
    ("space", "error"), SPACES, ids=lambda value: ",".join(value) if isinstance(value, dict) else ""
)
def test_a_distribution_that_leaves_the_legal_range(
    refuse: Refuse, space: dict[str, BaseDistribution], error: str
) -> None:
    assert refuse(space=space).startswith(error)


def test_an_objective_that_is_not_reported(refuse: Refuse) -> None:
    error = refuse(metric=Metric("knn_z", "maximize"))
    assert error.startswith("these trials do not report knn_z; they report: loss, ") and "auroc_joint" in error


def test_a_pruner_without_reports_before_the_end(refuse: Refuse) -> None:
    error = refuse(pruner=Halving(1), fixed={"report_every": 4})
    assert error.startswith("a pruner needs a report before the last epoch for each of its 1 brackets")
    patience = {"patience": 1, "patience_metric": "val_auroc_joint", "validation": 0.2}
    error = refuse(pruner=Halving(1), fixed=patience)
    assert error.startswith("a pruner or a population compares trials at the same epochs, so patience must be 0")
    classes = {"normal_class": None, "probe_epochs": 1, "knn": 5}
    error = refuse(pruner=Halving(1), fixed=classes, metric=Metric("probe_z", "maximize"))
    assert "needs a metric that is reported during training, but probe_z is" in error
    assert "knn_z" in error


def test_epochs_are_not_searched_where_members_are_compared(refuse: Refuse) -> None:
    error = "epochs must be fixed in a search with a pruner or a population, but it is searched"
    space: dict[str, BaseDistribution] = {"epochs": IntDistribution(2, 8)}
    assert refuse(space=space, pruner=Halving(1)) == f"{error} (epochs is set by preset 'digits')"


@pytest.mark.parametrize(
    ("space", "population", "error"),
    [
        ({"width": IntDistribution(8, 64)}, Population(1), "a population can only adapt numeric hyperparameters"),
        ({"nu": CategoricalDistribution([1.0, 2.0])}, Population(1), "a population can only adapt numeric"),
        ({"seed": IntDistribution(0, 9)}, Population(1), "a population can only adapt numeric hyperparameters"),
        ({"beta": FloatDistribution(0.1, 1)}, Population(4), "the `every` of a population must be a multiple of"),
    ],
)
def test_a_population_that_cannot_adapt(
    refuse: Refuse, space: dict[str, BaseDistribution], population: Population, error: str
) -> None:
    assert refuse(space=space, population=population, sampler="random").startswith(error)


@for_each(
    ("arguments", "error"),
    [
        (["--wave", "5"], "`wave <= trials` must hold, but got wave=5, trials=4"),
        (["--trials", "1"], "`wave <= trials` must hold, but got wave=2, trials=1"),
        (["--trials", "0"], "--trials must be a whole number of at least 1, but got 0"),
        (["--sampler", "tpo"], "no sampler 'tpo' (did you mean 'tpe'?); there are: tpe, gp, "),
        (["--sampler", "cmaes"], "cmaes needs a space of at least two numbers"),
        (["--pruner", "hiperband"], "no pruner 'hiperband' (did you mean 'hyperband'?)"),
        (["--search-seed", "x"], "--search-seed must be a whole number"),
        (["--warm-start", "anomaly_grid"], "--warm-start needs rows, but store "),
        (["--warm-start", " "], "--warm-start must name a sweep"),
        (["--set", "beta=1"], "a search must have at least one key in its space, but it is empty"),
        (["--set", "nu=-1"], "`nu > 0` must hold, but got nu=-1.0"),
        (["--axis", "seed=0,0"], "the values of axis seed must differ, but 0 is there twice"),
    ],
)
def test_arguments_that_do_not_fit_a_search_are_refused(refuse: Refuse, arguments: list[str], error: str) -> None:
    assert refuse(*arguments).startswith(error)


@pytest.mark.parametrize("arguments", [["--trials", "8"], ["--wave", "2"], ["--warm-start", "anomaly_grid"]])
def test_options_of_searches_are_refused_for_a_grid(command_line: CommandLine, arguments: list[str]) -> None:
    assert (
        command_line.refuse(*arguments).error
        == "anomaly_grid (digits) is a grid, and takes no options of searches but --pruner"
    )


def test_rows_without_values_for_a_search(command_line: CommandLine, refuse: Refuse) -> None:
    row = {"trial_id": "t", "status": "finished", "method": "vje", "dataset": "cifar10", "beta": 1.0}
    columns = Columns({"method": str, "dataset": str, "beta": float}, ("auroc_joint",))
    Store(command_line.store).write("other", "c", [row | {"auroc_joint": 0.9}], columns)
    assert refuse("--warm-start", "other").startswith("no finished row of sweep 'other' fits study 'all': a row")


def test_directions_that_contradict_each_other() -> None:
    search = Search({"beta": FloatDistribution(0, 1)}, FIXED, 4, Metric("var_mean", "minimize"), wave=2)
    heatmap = Heatmap(Metric("var_mean", "maximize"), "beta", "nu")
    with pytest.raises(SpecError, match="var_mean is both maximized and minimized"):
        Sweep("about", {"digits": search}, (heatmap,))


def test_replicates_that_cannot_be_are_refused(refuse: Refuse, command_line: CommandLine) -> None:
    grid = command_line.refuse("--replicates", "seed=0,1")
    assert grid.error == "anomaly_grid (digits) is a grid, and takes no options of searches but --pruner"
    assert "need a key that is not searched, but beta is" in refuse("--replicates", "beta=0.5,1")
    assert "at least two values, and different ones, but seed has 0" in refuse("--replicates", "seed=0")
    assert refuse("--replicates", "sed=0,1").startswith("no key 'sed' (did you mean 'seed'?)")
    assert refuse("--replicates", "seed=0,x") == "seed must be a whole number, but got seed=x"
    assert refuse("--replicates", "seed=0,1", "--axis", "seed=0,1") == (
        "seed must be given by --axis or by --replicates, but is given by both"
    )
    assert refuse("--replicates", "tau=0.1,0.2") == "no method of these searches has the key 'tau' to replicate"
    assert "normal_class must be one of 0..9 for digits, but got 99" in refuse("--replicates", "normal_class=8,99")
    law = "a pruner compares the mean of a proposal's replicates, which must train in one cohort, but "
    pruned = ("--pruner", "halving", "--replicates")
    assert refuse(*pruned, "width=8,16").startswith(law + "width cannot differ in one; search without one")
    assert refuse(*pruned, "seed=0,1,2", "--cohort", "2").startswith(law + "of its 3 replicates --cohort 2 holds fewer")
    steps = refuse(*pruned, "normal_class=3,8", "--set", "batch_size=62")
    assert steps.startswith(law + "by normal_class an epoch has ")
