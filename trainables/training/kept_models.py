"""The kept models of a cohort's members: of the last or the best epoch.

The best models so far are part of the progress and thus of each checkpoint, so a resumed training has the same models.
Models of members that end early are handed over immediately, before any checkpoint of a later epoch.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from torch import Tensor

from trainables.reports import EpochRanking, Report
from trainables.training.checkpoint import BestEpoch, Progress
from trainables.training.cohort import TrainingCohort
from trainables.training.model_file import TrainedModel

Keep = Callable[[int, TrainedModel], None]
"""Takes the index of a member and its model."""


class ModelKeeper:
    """Hands over the models of a training cohort. All peers make the same calls; only the first one keeps models."""

    def __init__(self, cohort: TrainingCohort, ranking: EpochRanking | None, keep: Keep | None) -> None:
        self._cohort, self._ranking, self._keep = cohort, ranking, keep

    def begin(self, progress: Progress) -> Progress:
        """The progress from which training starts or continues."""
        if self._ranking is None:
            return replace(progress, best=())
        return progress if progress.best else replace(progress, best=(None,) * len(progress.ended))

    def after_epoch(self, progress: Progress) -> Progress:
        """Called after an epoch was trained and, if due, reported, but before a verdict is applied: the weights are the
        ones in the report. Returns the progress with updated best epochs."""
        if self._ranking and progress.reports and progress.reports[-1].epoch == progress.epoch:
            return self._with_best(progress, progress.reports[-1], self._ranking)
        return progress

    def hand_over(self, progress: Progress) -> None:
        """Hand over the current models of the running members."""
        self._cohort.evaluate_to_keep(progress.running)
        self._hand_over({index: progress.epoch for index in progress.running})

    def _with_best(self, progress: Progress, report: Report, ranking: EpochRanking) -> Progress:
        best = list[BestEpoch | None]()
        for index, (known, member) in enumerate(zip(progress.best, report.members, strict=True)):
            value = member.metrics.get(ranking.metric)
            if index not in progress.running:
                best.append(None)
            elif value is None or (known and not ranking.better(value, known.value)):
                best.append(known)
            else:
                best.append(BestEpoch(report.epoch, value, self._cohort.tensors_of(index)))
        return replace(progress, best=tuple(best))

    def finish(self, progress: Progress, members: Sequence[int]) -> None:
        """Called when these members have finished and had their final evaluation, before it is reported. May change
        their weights."""
        epoch = progress.epoch
        best = {index: progress.best[index] for index in members} if progress.best else {}
        earlier = {index: model for index, model in best.items() if model and model.epoch < epoch}
        if earlier:
            self._cohort.load_tensors({index: model.tensors for index, model in earlier.items()})
            self._cohort.evaluate_to_keep(members)
        self._hand_over({index: earlier[index].epoch if index in earlier else epoch for index in members})

    def _hand_over(self, epochs: Mapping[int, int]) -> None:
        """Hand over models of members. `epochs`: index of each member -> the epoch of its model."""
        if self._keep:
            for index, model in self._cohort.trained_models(epochs):
                own = epochs[index]
                self._keep(index, replace(model, epoch=own) if own < self._cohort.epochs else model)


def lacks_models(
    progress: Progress, cohort: TrainingCohort, ranking: EpochRanking | None, is_kept: Callable[[int], bool] | None
) -> bool:
    """Whether models of earlier epochs that must be kept are neither in a checkpoint's progress nor kept already,
    because the checkpoint comes from a training that kept other models. `is_kept` is None if no models are kept, or
    another peer keeps them."""
    if is_kept:
        finished = [index for index, member in enumerate(progress.ended) if member and member.status == "finished"]
        if not all(map(is_kept, finished)):
            return True
    if ranking is None:
        return False
    known = progress.best or (None,) * len(progress.ended)
    return any(
        ranking.best(progress.reports, index) != (best.epoch if best else None)
        or (best is not None and not _alike(best.tensors, cohort.tensors_of(index)))
        for index, best in enumerate(known)
        if index in progress.running
    )


def _alike(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> bool:
    """Whether two sets of tensors have equal names, shapes and types."""
    return first.keys() == second.keys() and all(
        (first[name].shape, first[name].dtype) == (second[name].shape, second[name].dtype) for name in second
    )
