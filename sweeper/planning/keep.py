"""Which models a request keeps: by which metric epochs are ranked, and which models could not be written."""

from __future__ import annotations

from dataclasses import replace

from sweeper.definition.metric import VALIDATION, Metric
from sweeper.definition.sweep import Sweep
from sweeper.errors import SpecError
from sweeper.option_values import Keep
from sweeper.planning.plan import Plan
from sweeper.storage.files import Files
from sweeper.storage.models import read_kept, unwritten_models
from trainables.reports import EpochRanking


def epoch_ranking(plan: Plan, keep: Keep) -> EpochRanking | None:
    """How a run with this `--keep` ranks the epochs of a trial to keep the model of the best one; None if it keeps that
    of the last epoch. Raises SpecError if epochs have no single ranking."""
    if not keep.best_epoch:
        return None
    metric = epoch_metric(plan.sweep, plan.preset, "--keep best-epoch")
    return EpochRanking(metric.name, metric.ranking_direction == "maximize")


def epoch_metric(sweep: Sweep, preset: str, asked: str) -> Metric:
    """The metric on validation images that ranks the epochs of a trial, as it ranks trials, which an option or a key
    has `asked` for. Raises SpecError if the preset has several."""
    objectives = sweep.objectives(preset)
    if len(objectives) > 1 and not sweep.grids(preset):
        names = ", ".join(metric.name for metric in objectives)
        raise SpecError(f"{asked} needs one metric that ranks epochs, but the search has several: {names}")
    metric = sweep.headline(preset)
    return replace(metric, name=f"{VALIDATION}{metric.name.removeprefix(VALIDATION)}")


def missing_models(files: Files, plan: Plan, keep: Keep) -> frozenset[str]:
    """The plan's trials whose model is to be kept but could not be written, by a run with this `--keep`."""
    if keep.trials == "none":
        return frozenset()
    unwritten = unwritten_models(files, plan.name).intersection(plan.ids)
    return unwritten if keep.trials == "all" else unwritten & read_kept(files, plan.request_folder)
