"""Every method reports, for every evaluation, the metrics that are promised before it trains."""

import pytest

from tests.trainables.small import IMAGE_METHODS
from tests.trainables.tasks.images.evaluators.tiny import evaluated, trial
from trainables.catalog import task_of
from trainables.data.datasets.catalog import DATASETS
from trainables.data.outliers import CORRUPTIONS
from trainables.metrics import generation
from trainables.sections import Value
from trainables.training.metric_names import metric_names

pytestmark = pytest.mark.usefixtures("tiny_datasets")

ON_ALL_DATASETS = ("vae", "vje")
"""Methods that are evaluated on all data sets, one with a decoder and one without; the others on the digits."""
EVALUATIONS = [
    pytest.param(name, keys, id="-".join(str(part) for part in (name, *keys.values())[:3]))
    for name, method in IMAGE_METHODS.items()
    for keys in task_of(name).full_evaluations(method)
    if name in ON_ALL_DATASETS or keys.get("dataset", "digits") == "digits"
]


@pytest.mark.parametrize(("name", "keys"), EVALUATIONS)
def test_metrics_are_those_promised_in_order(
    name: str, keys: dict[str, Value], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the last report and before. Outliers are those that need no other data set, and there are no weights for a
    FID."""
    monkeypatch.setattr(generation, "fid", lambda samples_KNCHW, *others: [0.0] * len(samples_KNCHW))
    local: dict[str, Value] = {"outliers": "+".join((*CORRUPTIONS, "held_out"))} if "outliers" in keys else {}
    config = trial(name, **{**keys, **local})
    classes = DATASETS[config.data.dataset].declaration.classes
    for last in (True, False):
        promised = task_of(name).metric_names(config, IMAGE_METHODS[name], classes, last)
        assert tuple(evaluated(config, last=last)) == promised
        names = metric_names(config, classes, last)
        assert names[len(names) - len(promised) :] == promised
