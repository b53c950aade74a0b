"""The models of a cohort's members that are kept: of the last epoch or the best one, and of every so many epochs.

The best models so far are part of the progress, and so of each checkpoint: a training that is resumed has the same
ones. Those of every so many epochs are handed over at once, and before any checkpoint of a later epoch.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from torch import Tensor

from trainables.reports import KeptEpochs, Report
from trainables.training.checkpoint import BestEpoch, Progress
from trainables.training.cohort import Cohort
from trainables.training.model_file import TrainedModel

Keep = Callable[[int, TrainedModel], None]
"""Takes the index of a member and its model."""


class ModelKeeper:
    """Hands over models of a cohort that trains. All peers make the same calls; the first one alone keeps models."""

    def __init__(self, cohort: Cohort, kept: KeptEpochs, keep: Keep | None, keep_epoch: Keep | None) -> None:
        self._cohort, self._kept, self._keep, self._keep_epoch = cohort, kept, keep, keep_epoch

    def begin(self, progress: Progress) -> Progress:
        """The progress from which training starts or continues."""
        if self._kept.metric is None:
            return replace(progress, best=())
        return progress if progress.best else replace(progress, best=(None,) * len(progress.ended))

    def after_epoch(self, progress: Progress) -> Progress:
        """Called when an epoch has been trained, and reported where that is due, and no verdict has been applied yet:
        the weights are those that the report is of. Returns the progress with the members that are at their best."""
        epoch, every, is_last = progress.epoch, self._kept.every, progress.epoch == self._cohort.epochs
        if every and progress.running and (epoch % every == 0 or is_last) and not (is_last and not self._kept.metric):
            if not is_last:
                self._cohort.evaluate_to_keep()
            if self._keep_epoch:
                for index, model in self._cohort.trained_models(progress.running):
                    self._keep_epoch(index, model if is_last else replace(model, epoch=epoch))
        reported = progress.reports and progress.reports[-1].epoch == epoch
        return self._with_best(progress, progress.reports[-1]) if self._kept.metric and reported else progress

    def _with_best(self, progress: Progress, report: Report) -> Progress:
        best = list[BestEpoch | None]()
        for index, (known, member) in enumerate(zip(progress.best, report.members, strict=True)):
            value = member.metrics.get(self._kept.metric or "")
            if index not in progress.running:
                best.append(None)
            elif value is None or (known and not self._kept.better(value, known.value)):
                best.append(known)
            else:
                best.append(BestEpoch(report.epoch, value, self._cohort.tensors_of(index)))
        return replace(progress, best=tuple(best))

    def after_training(self, progress: Progress) -> None:
        """Called after the last report, before it is yielded."""
        earlier = {
            index: best
            for index, best in enumerate(progress.best)
            if best and index in progress.running and best.epoch < self._cohort.epochs
        }
        if earlier:
            self._cohort.load_tensors({index: best.tensors for index, best in earlier.items()})
            self._cohort.evaluate_to_keep()
        if self._keep:
            for index, model in self._cohort.trained_models(progress.running):
                self._keep(index, replace(model, epoch=earlier[index].epoch) if index in earlier else model)


def lacks_models(
    progress: Progress, cohort: Cohort, kept: KeptEpochs, epochs_kept: Callable[[int], Collection[int]] | None
) -> bool:
    """Whether models of earlier epochs that are to be kept are neither in a checkpoint's progress nor kept: it was made
    by a training that was asked for others. `epochs_kept` returns the epochs of which the model of a member is kept;
    None where another peer keeps them."""
    due = range(kept.every, progress.epoch + 1, kept.every) if kept.every else ()
    if due and epochs_kept and not all(set(due) <= set(epochs_kept(index)) for index in progress.running):
        return True
    if kept.metric is None:
        return False
    known = progress.best or (None,) * len(progress.ended)
    return any(
        _best_epoch(progress.reports, index, kept) != (best.epoch if best else None)
        or (best is not None and not _alike(best.tensors, cohort.tensors_of(index)))
        for index, best in enumerate(known)
        if index in progress.running
    )


def _best_epoch(reports: Sequence[Report], index: int, kept: KeptEpochs) -> int | None:
    """The epoch in which the metric of a member was best, the first of several; None if it has had no value."""
    best, found = math.nan, None
    for report in reports:
        value = report.members[index].metrics.get(kept.metric or "")
        if value is not None and (found is None or kept.better(value, best)):
            best, found = value, report.epoch
    return found


def _alike(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> bool:
    """Whether they have equal names, shapes and types."""
    return first.keys() == second.keys() and all(
        (first[name].shape, first[name].dtype) == (second[name].shape, second[name].dtype) for name in second
    )
