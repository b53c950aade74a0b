"""Models of the best epoch of each member, and of any epoch; a resumed training has the same ones."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import pytest

from tests.trainables.small import HERE, three
from tests.trainables.training.judged import pruning, without_seconds
from trainables.data.datasets.catalog import load
from trainables.metrics.scores import auroc
from trainables.reports import EpochRanking, Report, Stopped
from trainables.sections import TrialConfig
from trainables.training.model_file import pack_model, unpack_model
from trainables.training.train import Callbacks, Checkpointing, retrain, train

METRIC = "val_auroc_joint"
BEST = EpochRanking(METRIC, True)
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
    saved: list[bytes] = field(default_factory=list)
    """Checkpoints."""
    notices: list[str] = field(default_factory=list)

    def callbacks(self, ranking: EpochRanking | None) -> Callbacks:
        return Callbacks(
            keep=lambda index, model: self.last.__setitem__(index, pack_model(model, {})),
            ranking=ranking,
            is_kept=self.last.__contains__,
            notify=self.notices.append,
        )


@cache
def whole(ranking: EpochRanking | None = BEST, until: int | None = None) -> tuple[list[Report], Models]:
    models = Models()
    checkpointing, callbacks = Checkpointing(save=models.saved.append, every=0.0), models.callbacks(ranking)
    trained = train(configs(), HERE, width=WIDTH, checkpointing=checkpointing, callbacks=callbacks, until=until)
    return list(trained), models


def best_epochs(reports: list[Report]) -> list[int]:
    """The best epoch of each member, by the reports."""
    values = [[report.members[index].metrics[METRIC] or 0.0 for report in reports] for index in range(3)]
    return [1 + of_member.index(max(of_member)) for of_member in values]


def weights(data: bytes) -> Mapping[str, list[float]]:
    return {name: tensor.tolist() for name, tensor in unpack_model(data).tensors.items()}


@pytest.mark.slow
def test_each_member_has_the_model_of_its_own_best_epoch() -> None:
    reports, models = whole()
    best = best_epochs(reports)
    assert len(set(best)) > 1 and min(best) < EPOCHS
    for index, epoch in enumerate(best):
        until, of_epoch = whole(None, epoch)
        assert unpack_model(models.last[index]).epochs == epoch and len(until) == epoch - 1
        assert models.last[index] == of_epoch.last[index]
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
        again = Models()
        resumed = train(
            configs(), HERE, width=WIDTH, checkpointing=Checkpointing(saved), callbacks=again.callbacks(BEST)
        )
        assert without_seconds(list(resumed)) == without_seconds(reports) and not again.notices
        assert again.last == models.last


@pytest.mark.slow
def test_a_checkpoint_without_the_models_that_are_asked_for_is_not_used() -> None:
    _, plain = whole(None)
    _, models = whole()
    again = Models()
    callbacks = replace(again.callbacks(BEST), stop=lambda: True)
    checkpointing = Checkpointing(plain.saved[-1], lambda data: None)
    with pytest.raises(Stopped, match="at epoch 0 step 1"):
        list(train(configs(), HERE, width=WIDTH, checkpointing=checkpointing, callbacks=callbacks))
    assert again.notices == ["its checkpoint cannot be used: it was made without the models of earlier epochs"]
    again = Models()
    list(
        train(
            configs(),
            HERE,
            width=WIDTH,
            checkpointing=Checkpointing(models.saved[-1]),
            callbacks=again.callbacks(None),
        )
    )
    assert again.last == plain.last and not again.notices, "a training that asks for none takes any"


def test_a_pruned_member_has_no_model() -> None:
    models = Models()
    callbacks = replace(models.callbacks(BEST), judge=pruning({2: {0: "late"}}))
    list(train(configs(), HERE, width=WIDTH, callbacks=callbacks))
    assert sorted(models.last) == [1, 2]


def test_a_trial_is_trained_again_up_to_an_epoch_also_one_without_a_report() -> None:
    config, models = configs()[0], Models()
    reports = list(train([config], HERE, callbacks=models.callbacks(BEST)))
    epoch = BEST.best(reports, 0)
    assert epoch and epoch < EPOCHS
    assert pack_model(retrain(config, HERE, epoch=epoch), {}) == models.last[0]
    silent = replace(config, training=replace(config.training, report_every=EPOCHS))
    assert weights(pack_model(retrain(silent, HERE, epoch=epoch), {})) == weights(models.last[0])
