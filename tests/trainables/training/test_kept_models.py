"""Models of earlier epochs: of every so many, and of each member's best; a resumed training has the same ones."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import pytest

from tests.trainables.small import HERE, content_of, three
from tests.trainables.training.judged import pruning, without_seconds
from trainables.data.datasets.catalog import load
from trainables.metrics.scores import auroc
from trainables.reports import EpochRanking, KeptEpochs, Report, Stopped
from trainables.sections import TrialConfig
from trainables.training.model_file import TrainedModel, pack_model, unpack_model
from trainables.training.train import Callbacks, Checkpointing, retrain, train

METRIC = "val_auroc_joint"
BOTH = KeptEpochs(2, EpochRanking(METRIC, True))
EPOCHS = 5
WIDTH = 2
"""A stack of two members, and one of one."""


def configs() -> list[TrialConfig]:
    """Three members that report after each of five epochs; at this learning rate they are best in different ones."""
    return three(
        validation=0.2, report_every=1, lr=0.3, epochs=EPOCHS, batch_size=40, encoder="mlp", one_class_scores="knn2"
    )


@dataclass
class Models:
    """The files that a training keeps."""

    last: dict[int, bytes] = field(default_factory=dict)
    """By member."""
    of_epoch: dict[tuple[int, int], bytes] = field(default_factory=dict)
    """By member and epoch."""
    saved: list[bytes] = field(default_factory=list)
    """Checkpoints."""
    notices: list[str] = field(default_factory=list)

    def callbacks(self, kept: KeptEpochs) -> Callbacks:
        def keep_epoch(index: int, model: TrainedModel) -> None:
            self.of_epoch[index, model.epochs] = pack_model(model, {})

        return Callbacks(
            keep=lambda index, model: self.last.__setitem__(index, pack_model(model, {})),
            kept=kept,
            keep_epoch=keep_epoch if kept.every else None,
            kept_of=lambda index: [
                *(epoch for own, epoch in self.of_epoch if own == index),
                *([None] if index in self.last else []),
            ],
            notify=self.notices.append,
        )


@cache
def whole(kept: KeptEpochs = BOTH) -> tuple[list[Report], Models]:
    models = Models()
    checkpointing = Checkpointing(save=models.saved.append, every=0.0)
    reports = list(train(configs(), HERE, width=WIDTH, checkpointing=checkpointing, callbacks=models.callbacks(kept)))
    return reports, models


def best_epochs(reports: list[Report]) -> list[int]:
    """The best epoch of each member, by the reports."""
    values = [[report.members[index].metrics[METRIC] or 0.0 for report in reports] for index in range(3)]
    return [1 + of_member.index(max(of_member)) for of_member in values]


def weights(data: bytes) -> Mapping[str, list[float]]:
    return {name: tensor.tolist() for name, tensor in unpack_model(data).tensors.items()}


@pytest.mark.slow
def test_each_member_has_the_model_of_its_own_best_epoch_and_those_of_every_so_many() -> None:
    reports, models = whole()
    best = best_epochs(reports)
    assert len(set(best)) > 1 and min(best) < EPOCHS
    assert sorted(models.of_epoch) == [(index, epoch) for index in range(3) for epoch in (2, 4, EPOCHS)]
    _, each = whole(KeptEpochs(1))
    for index, epoch in enumerate(best):
        model = unpack_model(models.last[index])
        assert model.epochs == epoch
        same = each.of_epoch[index, epoch] if epoch < EPOCHS else each.last[index]
        assert models.last[index] == same
    assert weights(models.of_epoch[0, EPOCHS]) == weights(each.last[0])
    assert without_seconds(reports) == without_seconds(list(train(configs(), HERE, width=WIDTH)))


def test_the_model_of_the_best_epoch_gives_what_was_reported_there() -> None:
    reports, models = whole()
    digits = load("digits", HERE)
    for index, epoch in enumerate(best_epochs(reports)):
        model: Any = unpack_model(models.last[index]).build()
        outlier_N = digits.test_labels.numpy() != model.config.data.normal_class
        scores = model.score(digits.test_images[:].permute(0, 2, 3, 1).numpy(), "joint").double().numpy()
        reported = reports[epoch - 1].members[index].metrics["auroc_joint"]
        assert float(auroc(scores[None], outlier_N[None])[0]) == pytest.approx(reported, abs=2e-3)
        assert model.threshold_at(0.2)


@pytest.mark.slow
def test_a_resumed_training_has_the_same_models() -> None:
    reports, models = whole()
    assert len(models.saved) > EPOCHS
    for saved in models.saved[1::7]:
        standing = content_of(saved)["standing"]
        before = {at: data for at, data in models.of_epoch.items() if at[1] <= standing["epoch"]}
        again = Models(of_epoch=before)
        resumed = train(
            configs(), HERE, width=WIDTH, checkpointing=Checkpointing(saved), callbacks=again.callbacks(BOTH)
        )
        assert without_seconds(list(resumed)) == without_seconds(reports) and not again.notices
        assert (again.last, again.of_epoch) == (models.last, models.of_epoch)


@pytest.mark.slow
def test_a_checkpoint_without_the_models_that_are_asked_for_is_not_used() -> None:
    _, plain = whole(KeptEpochs())
    _, models = whole()
    late = plain.saved[-1]
    for kept in (KeptEpochs(2), replace(BOTH, every=None)):
        again = Models()
        callbacks = replace(again.callbacks(kept), stop=lambda: True)
        with pytest.raises(Stopped, match="at epoch 0 step 1"):
            list(
                train(
                    configs(),
                    HERE,
                    width=WIDTH,
                    checkpointing=Checkpointing(late, lambda data: None),
                    callbacks=callbacks,
                )
            )
        assert again.notices == ["its checkpoint cannot be used: it was made without the models of earlier epochs"]
    again = Models()
    list(
        train(
            configs(),
            HERE,
            width=WIDTH,
            checkpointing=Checkpointing(models.saved[-1]),
            callbacks=again.callbacks(KeptEpochs()),
        )
    )
    assert again.last == plain.last and not again.notices, "a training that asks for none takes any"


def test_a_pruned_member_has_the_models_of_its_epochs_and_no_other() -> None:
    models = Models()
    callbacks = replace(models.callbacks(BOTH), judge=pruning({2: {0: "late"}}))
    list(train(configs(), HERE, width=WIDTH, callbacks=callbacks))
    assert sorted(models.last) == [1, 2] and (0, 2) in models.of_epoch and (0, 4) not in models.of_epoch


def test_a_trial_is_trained_again_up_to_an_epoch() -> None:
    config = replace(configs()[0], training=replace(configs()[0].training, report_every=EPOCHS))
    models = Models()
    list(train([config], HERE, callbacks=models.callbacks(KeptEpochs(3))))
    assert pack_model(retrain(config, HERE, epoch=3), {}) == models.of_epoch[0, 3]
