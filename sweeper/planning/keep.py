"""Which models a request keeps: of which epochs, by which metric, and which could not be written."""

from __future__ import annotations

from dataclasses import replace

from sweeper.errors import SpecError
from sweeper.option_values import Keep
from sweeper.planning.plan import Plan
from sweeper.spec.metric import VALIDATION, Metric
from sweeper.spec.sweep import Sweep
from sweeper.storage.files import Files
from sweeper.storage.models import read_best, unwritten_models
from trainables.reports import EpochRanking, KeptEpochs


def kept_epochs(plan: Plan, keep: Keep) -> KeptEpochs:
    """Of which epochs a run with this `--keep` keeps models. Raises SpecError if epochs have no single ranking."""
    if not keep.best_epoch:
        return KeptEpochs(keep.every)
    metric = epoch_metric(plan.sweep, plan.preset, "--keep best-epoch")
    return KeptEpochs(keep.every, EpochRanking(metric.name, metric.ranking_direction == "maximize"))


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
    models = unwritten_models(files, plan.name)
    wanted = {trial for trial, epoch in models if epoch is None or (keep.every and epoch % keep.every == 0)}
    unwritten = frozenset(wanted.intersection(plan.ids))
    return unwritten if keep.trials == "all" else unwritten & read_best(files, plan.request_folder)
