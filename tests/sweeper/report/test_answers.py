"""The answer to which setting is best, from a store alone."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from optuna.distributions import FloatDistribution
from scipy import stats

from sweeper.commands import export
from sweeper.definition import Constraint, Grid, Heatmap, Metric, Search, Sweep
from sweeper.errors import SpecError, StoreError
from sweeper.report.answers import Answer, find_answer
from sweeper.report.figures import figures_of
from sweeper.report.kinds import write_figures
from sweeper.storage.layout import model_path
from sweeper.storage.requests import RequestRows, write_request
from sweeper.storage.rows import Columns
from sweeper.storage.store import Store
from tests.cases import for_each
from tests.user_files import user_folder

__all__ = ["user_folder"]

AUROC = Metric("auroc", "maximize")
AXES = {"beta": (0.5, 1.0, 2.0), "seed": (0, 1, 2)}
SWEEP = Sweep("", {"paper": Grid({"method": "vje"}, AXES)}, figures=(Heatmap(AUROC, "beta", "method"),))
COLUMNS = Columns({"method": str, "beta": float, "seed": int}, ("auroc", "val_auroc"))
CHOSEN = {0.5: [0.8, 0.81, 0.82], 1.0: [0.9, 0.91, 0.95], 2.0: [0.88, 0.92, 0.9]}
"""Setting -> values on validation images. On test images all have 0.1 less."""


FILE = """
from sweeper import Grid, Heatmap, Metric, Sweep

GRID = Grid({"method": "vje"}, {"beta": (0.5, 1.0, 2.0)})
SWEEP = Sweep("", {"paper": GRID}, figures=(Heatmap(Metric("auroc_joint", "maximize"), "beta", "method"),))
"""
"""The sweep of the same name in a user's folder."""


def store_of(
    folder: Path, sweep: Sweep, rows: Sequence[Mapping[str, Any]], columns: Columns = COLUMNS, request: str = "paper"
) -> Store:
    store = Store(folder)
    store.prepare("grid", columns)
    run = {"cohort": "c", "cohort_size": len(rows), "preset": "paper", "status": "finished", "changes": ""}
    store.write("grid", "c", [{**run, **row} for row in rows], columns)
    write_figures(store.files, "grid", figures_of(sweep, "paper"))
    write_request(store.files, "grid", RequestRows(request, "paper", [str(row["trial_id"]) for row in rows]))
    return store


def grid_rows(values: Mapping[float, Sequence[float]] = CHOSEN, prefix: str = "t") -> list[dict[str, Any]]:
    return [
        {"trial_id": f"{prefix}{beta}-{seed}", "method": "vje", "beta": beta, "seed": seed}
        | {"auroc": value - 0.1, "val_auroc": value}
        for beta, of_seeds in values.items()
        for seed, value in enumerate(of_seeds)
    ]


def test_the_answer_has_the_setting_its_figures_and_the_others_not_told_apart(tmp_path: Path) -> None:
    answer = find_answer(store_of(tmp_path, SWEEP, grid_rows()).files, "grid")
    choice, own = answer.choice, CHOSEN[1.0]
    half = stats.t.ppf(0.975, 2) * stats.sem(own)
    logit_half = half / (0.82 * 0.18)
    plain = stats.logistic.cdf(stats.logistic.ppf(0.82) + np.array([-logit_half, logit_half]))
    assert choice.at == {"beta": 1.0} and (choice.n, choice.over, choice.compared) == (3, "3 seeds", 3)
    assert [choice.chosen_mean, choice.mean] == pytest.approx([0.92, 0.82])
    assert choice.low <= plain[0] and choice.high >= plain[1] - 1e-9, "with the luck of the choice"
    assert 0.7 < choice.low < choice.mean < choice.high < 0.95 and choice.chosen_low < 0.92 < choice.chosen_high
    assert (choice.chosen_by, choice.chosen_on, choice.metric) == ("val_auroc", "validation images", "auroc")
    assert choice.not_told_apart == 1 and choice.alike == ({"beta": 2.0},) and choice.trials[0] == "t1.0-2"
    assert (
        str(answer)
        == repr(answer)
        == choice.sentence
        == (
            f"best auroc: 0.820 [{choice.low:.3f}, {choice.high:.3f}] (mean [95 % interval] over 3 seeds, the choice "
            "among 3 counted) at beta=1; chosen on validation images (val_auroc 0.920); 1 of 2 others not told apart "
            "from it: beta=2"
        )
    )
    assert answer.head == "grid (paper): 9 of 9 trials have a result"


@pytest.mark.usefixtures("user_folder")
def test_it_says_how_the_setting_is_trained_again_and_where_its_model_is(tmp_path: Path) -> None:
    store, file = store_of(tmp_path, SWEEP, grid_rows()), tmp_path / "grid.py"
    file.write_text(FILE)
    choice = find_answer(store.files, str(file)).choice
    again = f"sweeper run {file} --preset paper --set beta=1 --store {tmp_path} --fresh"
    export = f"sweeper export {file} --trial t1.0-2 --store {tmp_path}"
    assert (choice.retrain, choice.model, choice.keep) == (again, None, export)
    assert [*choice.lines] == [
        f"train again: {again}",
        f"model: none is kept; to train trial t1.0-2, the best of its 3, again and keep it: {export}",
    ]
    path = model_path("grid", "t1.0-2")
    store.files.write(path, b"weights")
    assert find_answer(store.files, "grid").choice.model == f"{tmp_path}/{path}"


@pytest.mark.usefixtures("user_folder")
def test_seeds_that_were_added_are_trained_again_in_their_order(tmp_path: Path) -> None:
    rows = [{**row, "changes": "decided", "ended": _at(9 - row["seed"])} for row in grid_rows()]
    store, file = store_of(tmp_path, SWEEP, rows, request="paper, decided"), tmp_path / "grid.py"
    file.write_text(FILE)
    again = f"sweeper run {file} --preset paper --set beta=1 --axis seed=0,1,2 --store {tmp_path} --fresh"
    assert find_answer(store.files, str(file)).choice.retrain == again
    assert find_answer(store.files, "grid").choice.retrain is None, "the store does not know the file"


def test_the_request_with_the_latest_result_answers_unless_another_is_named(tmp_path: Path) -> None:
    store = store_of(tmp_path, SWEEP, [{**row, "ended": _at(1)} for row in grid_rows()])
    later = {beta: [value - 0.3 for value in values] for beta, values in CHOSEN.items()}
    rows = [{**row, "changes": "epochs=5", "ended": _at(2)} for row in grid_rows(later, "u")]
    run = {"cohort": "d", "cohort_size": 9, "preset": "paper", "status": "finished"}
    store.write("grid", "d", [{**run, **row} for row in rows], COLUMNS)
    write_request(store.files, "grid", RequestRows("paper, epochs=5", "paper", [row["trial_id"] for row in rows]))

    def found(**options: Any) -> Answer:
        return find_answer(store.files, "grid", **options)

    assert found().request == "paper, epochs=5" and found(changes="").request == "paper"
    assert found(preset="paper", changes="").choice.mean == pytest.approx(0.82)
    with pytest.raises(SpecError, match=r"no rows of preset 'papr' \(did you mean 'paper'\?\); there are: paper"):
        found(preset="papr")
    with pytest.raises(SpecError, match="no request changes its preset by 'lr=1'; there are: 'epochs=5', ''"):
        found(changes="lr=1")
    with pytest.raises(StoreError, match="no trials of sweep 'gird'; there are: grid"):
        find_answer(store.files, "gird")


def _at(day: int) -> Any:
    import datetime

    return datetime.datetime(2026, 1, day, tzinfo=datetime.UTC)


@pytest.mark.usefixtures("user_folder")
def test_a_front_has_no_best_setting_unless_a_metric_ranks(tmp_path: Path) -> None:
    objectives = (Metric("auroc", "maximize"), Metric("loss", "minimize"))
    search = Search({"beta": FloatDistribution(0, 1)}, {"method": "vje"}, 2, objectives, wave=1)
    columns = Columns({"method": str, "beta": float, "study": str, "number": int}, ("auroc", "loss"))
    rows = [
        {"trial_id": f"t{number}", "method": "vje", "beta": 0.1 * number, "study": "all", "number": number}
        | {"auroc": 0.5 + 0.1 * number, "loss": 1.0 + number}
        for number in range(3)
    ]
    files = store_of(tmp_path, Sweep("", {"paper": search}), rows, columns).files
    front = find_answer(files, "grid")
    assert front.text == (
        "no single setting is best by auroc (higher), loss (lower): the search has a front; --metric ranks by one"
    )
    with pytest.raises(SpecError, match="one setting must be best, but there are 0"):
        _ = front.choice
    (file := tmp_path / "grid.py").write_text(FILE)
    choice = find_answer(files, str(file), metric="loss").choice
    assert choice.sentence == "best loss: 1.00 at beta=0 (trial 0); chosen on training data"
    assert choice.alike == () and "--trial t0" in str(choice.keep)
    again = f"sweeper trial {file} t0 --preset paper --store {tmp_path}"
    assert choice.retrain == again and next(choice.lines) == f"train again: {again} (trial t0)"


@for_each(("bound", "best"), [(2, 1), (0.5, None)])
def test_of_a_search_the_best_setting_is_feasible(
    bound: float, best: int | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the answer and for `sweeper export`, from the store alone."""
    space, bounds = {"beta": FloatDistribution(0, 1)}, (Constraint("loss", "<=", bound),)
    search = Search(space, {"method": "vje"}, 3, Metric("auroc", "maximize"), wave=1, constraints=bounds)
    columns = Columns({"method": str, "beta": float, "study": str, "number": int}, ("auroc", "loss"))
    rows = [
        {"trial_id": f"t{number}", "method": "vje", "beta": 0.1 * number, "study": "all", "number": number}
        | {"auroc": 0.5 + 0.1 * number, "loss": 1.0 + number}
        for number in range(3)
    ]
    folder = tmp_path / str(bound)
    answer = find_answer(store_of(folder, Sweep("", {"paper": search}), rows, columns).files, "grid")
    assert [choice.trials for choice in answer.choices] == ([] if best is None else [(f"t{best}",)])
    infeasible = f"{3 if best is None else 1} {'' if best is None else 'of 3 '}settings "
    assert infeasible in answer.text and f"infeasible (loss <= {bound:g})" in answer.text
    if best is None:
        assert export.main(["grid", "--best", "auroc", "--store", str(folder)]) == 2
        assert "no trial has finished with a value of auroc and meets loss <= 0.5, so" in capsys.readouterr().err


def test_rows_without_what_they_are_best_by_need_a_metric(tmp_path: Path) -> None:
    """As in a store of which the files of the pages are gone."""
    store = store_of(tmp_path, SWEEP, [{**row, "auroc": None, "val_auroc": None} for row in grid_rows()])
    assert str(find_answer(store.files, "grid")) == "no trial has finished with a value of auroc yet"
    store = store_of(tmp_path / "other", SWEEP, grid_rows())
    store.files.delete_folder("reports")
    with pytest.raises(SpecError, match="the store does not say what 'paper' is best by, so --metric must: "):
        find_answer(store.files, "grid")
