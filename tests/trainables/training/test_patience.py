"""Trials that end early, finished, once their metric on validation images has not become better for some epochs."""

import re
from functools import cache

import pytest

from tests.trainables.small import HERE, config_of, content_of, metrics_of
from tests.trainables.training.judged import without_seconds
from tests.trainables.training.test_kept_models import Models, weights
from trainables.reports import EpochRanking, Report
from trainables.sections import TrialConfig, Value
from trainables.training.checks import check_trials
from trainables.training.model_file import pack_model, unpack_model
from trainables.training.train import Checkpointing, retrain, train

METRIC, AT_END, EPOCHS = "val_auroc_joint", "auroc_knn2_z", 6
BEST = EpochRanking(METRIC, True)
PATIENCE = (2, 1, 0, 1)


def configs(patience: tuple[int, ...] = PATIENCE) -> list[TrialConfig]:
    """Members that are best in different epochs, each with its patience."""
    keys: dict[str, Value] = {
        "validation": 0.2, "report_every": 1, "lr": 0.1, "epochs": EPOCHS, "batch_size": 40, "encoder": "mlp",
        "one_class_scores": "knn2", "patience_metric": METRIC, "sheets": True,
    }  # fmt: skip
    return [config_of(patience=own, beta=0.2 * index, seed=index % 2, **keys) for index, own in enumerate(patience)]


@cache
def trained(width: int, ranking: EpochRanking | None = BEST) -> tuple[list[Report], Models]:
    models = Models()
    checkpointing = Checkpointing(save=models.saved.append, every=0.0)
    callbacks = models.callbacks(ranking)
    return list(train(configs(), HERE, width=width, checkpointing=checkpointing, callbacks=callbacks)), models


def ends(reports: list[Report]) -> list[int]:
    """Epochs after which members are out of patience, by the reports of a training without any."""
    found = []
    for index, patience in enumerate(PATIENCE):
        values = [float(metrics[METRIC] or 0) for metrics in metrics_of(reports, index)]
        best = [values.index(max(values[: epoch + 1])) for epoch in range(EPOCHS)]
        over = [epoch + 1 for epoch in range(EPOCHS) if patience and epoch - best[epoch] >= patience]
        found.append(min([*over, EPOCHS]))
    return found


@pytest.mark.slow
def test_members_end_in_the_epoch_in_which_their_patience_is_over() -> None:
    """In turn, as a stack of others rounds otherwise."""
    plain = list(train(configs((0, 0, 0, 0)), HERE, width=1))
    (reports, models), (_, at_end) = trained(1), trained(1, None)
    expected, last = ends(plain), reports[-1]
    assert len({*expected}) > 2 and last.done and last.epoch == max(expected)
    for index, (member, epoch) in enumerate(zip(last.members, expected, strict=True)):
        assert (member.status, member.epochs_run, member.error) == ("finished", epoch, None)
        assert AT_END in member.metrics and member.pictures
        assert [metrics[METRIC] for metrics in metrics_of(reports[:epoch], index)] == [
            metrics[METRIC] for metrics in metrics_of(plain[:epoch], index)
        ]
        alone = unpack_model(models.last[index])
        assert alone.epochs == BEST.best(plain[:epoch], index)
        assert unpack_model(at_end.last[index]).epochs == epoch
        if epoch == min(expected):
            again = retrain(configs()[index], HERE)
            assert again.epochs == epoch
            assert weights(pack_model(again, {})) == weights(at_end.last[index])


@pytest.mark.slow
def test_a_resumed_training_ends_the_same_members_and_has_their_models() -> None:
    reports, models = trained(2)
    early = min(member.epochs_run for member in reports[-1].members)
    for saved in models.saved[2::12]:
        epoch = content_of(saved)["standing"]["epoch"]
        before = [index for index, member in enumerate(reports[-1].members) if member.epochs_run <= epoch]
        again = Models({index: models.last[index] for index in before})
        resumed = train(configs(), HERE, width=2, checkpointing=Checkpointing(saved), callbacks=again.callbacks(BEST))
        assert without_seconds(list(resumed)) == without_seconds(reports) and not again.notices
        assert again.last == models.last
    again = Models()
    late = next(saved for saved in models.saved if content_of(saved)["standing"]["epoch"] >= early)
    list(train(configs(), HERE, width=2, checkpointing=Checkpointing(late), callbacks=again.callbacks(BEST)))
    assert again.notices and again.last == models.last, "a model that is missing is trained again"


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        (
            {"patience_metric": ""},
            "a patience_metric on validation images, such as val_knn_z, but got patience=1, patience_metric=''",
        ),
        ({"validation": 0.0}, "reported while trials of vje train, but val_auroc_joint is not; add validation=0.2"),
        ({"patience_metric": f"val_{AT_END}"}, f"but val_{AT_END} is not; there are: val_"),
        ({"patience_metric": "val_var_mean"}, "a metric with a direction (maximize or minimize), but got val_var_mean"),
    ],
)
def test_a_metric_that_patience_cannot_wait_for_is_one_line(keys: dict[str, Value], line: str) -> None:
    config = config_of(**{"patience": 1, "patience_metric": METRIC, "validation": 0.2, **keys})
    with pytest.raises(ValueError, match=re.escape(line)):
        check_trials([config], None)


def test_a_trial_without_patience_is_the_trial_that_it_was() -> None:
    assert not {"patience", "patience_metric"} & config_of().flat().keys()
