"""Images: a method learns from augmented views of them, and is judged by its representations, scores and samples."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import torch

from trainables.config.trial_config import TrialConfig, Value
from trainables.contract import ImageMethod, Method
from trainables.data.datasets.catalog import load
from trainables.data.datasets.dataset import Dataset
from trainables.data.datasets.declarations import DECLARATIONS
from trainables.data.outliers import OUTLIERS
from trainables.learners.data_parallel import Peers
from trainables.networks.decoders import check_decoder
from trainables.networks.encoders import ENCODERS
from trainables.tasks.images.cohort_evaluator import CohortEvaluator
from trainables.tasks.images.config import PUBLISHED_SIZES, ImageTrial, Networks
from trainables.tasks.images.evaluators.catalog import metric_names
from trainables.tasks.images.evaluators.evaluation_images import EvaluationImages
from trainables.tasks.images.preflight import check_image_trials
from trainables.tasks.images.stream import ImageStream, make_splits, stream_key
from trainables.tasks.task import LoadedTask, Methods, PreflightResult, Task


class Images(Task):
    """Representation learning from images."""

    Trial = ImageTrial
    fusible = frozenset({"normal_class"})

    def check(self, config: ImageTrial, methods: Methods) -> None:
        method, evaluation, encoder = image_method(methods[config.method]), config.evaluation, config.encoder.encoder
        if method.outputs > 1 and encoder in PUBLISHED_SIZES:
            sized = ", ".join(name for name in ENCODERS if name not in PUBLISHED_SIZES)
            raise ValueError(
                f"{config.method} needs an encoder whose size can be chosen, but {encoder} has its published size; "
                f"there are: {sized}"
            )
        declared = DECLARATIONS[config.data.dataset]
        if "decode" in method.capabilities:
            check_decoder(config.layers.decoder, declared.shape)
        if config.data.normal_class is not None:
            for name, value, off in (
                ("knn", evaluation.knn, 0),
                ("probe_epochs", evaluation.probe_epochs, 0),
                ("outliers", evaluation.outliers, ""),
                ("held_out", config.data.held_out, ""),
            ):
                if value != off:
                    raise ValueError(f"{name} needs trials on all classes, but got {name}={value} with a normal_class")
        if evaluation.outliers and not method.scores:
            scoring = [name for name, other in methods.items() if "score" in other.capabilities]
            raise ValueError(
                f"{config.method} has no anomaly scores for outliers; those that have them are: {', '.join(scoring)}"
            )
        if "held_out" in evaluation.outlier_sets and not config.data.held_out:
            raise ValueError("outliers=held_out needs classes that are held out, but got held_out=''")

    def networks(self, config: ImageTrial) -> Networks:
        return config.networks

    def stream_key(self, config: ImageTrial) -> tuple[object, ...]:
        return stream_key(config)

    def keep_data(self, config: ImageTrial, data: Path) -> None:
        dataset_of(config.data.dataset, data)

    def load(
        self,
        configs: Sequence[ImageTrial],
        method: type[Method],
        data: Path,
        device: torch.device,
        peers: Peers,
        raise_if_stopped: Callable[[], None],
    ) -> LoadedTask:
        dataset = dataset_of(configs[0].data.dataset, data)
        by_stream = {stream_key(config): config for config in configs}
        parts = {key: make_splits(dataset, config.data) for key, config in by_stream.items()}
        streams = {
            key: ImageStream(config, image_method(method), parts[key].test, device, peers)
            for key, config in by_stream.items()
        }
        splits = [parts[stream_key(config)] for config in configs]
        images = EvaluationImages(configs, splits, dataset, data, device, peers, raise_if_stopped)
        evaluator = CohortEvaluator(images, image_method(method))
        _, channels, height, width = dataset.train_images.shape
        return LoadedTask(streams, evaluator, {"views": (channels, height, width)})

    def preflight(
        self,
        configs: Sequence[ImageTrial],
        data: Path | None,
        metric_names: Callable[[TrialConfig, int, bool], tuple[str, ...]],
    ) -> list[PreflightResult]:
        return check_image_trials(configs, data, metric_names)

    def metric_names(self, config: ImageTrial, method: type[Method], classes: int, last: bool) -> tuple[str, ...]:
        return metric_names(config, image_method(method), classes, last)

    def full_evaluations(self, method: type[Method]) -> Sequence[Mapping[str, Value]]:
        scored = "score" in method.capabilities
        outliers: Mapping[str, Value] = {"outliers": "+".join(OUTLIERS), "held_out": "0"} if scored else {}
        all_classes = {"validation": 0.1, "knn": 1, "probe_epochs": 1, **outliers}
        return all_classes, {"validation": 0.1, "normal_class": 0}


def image_method(method: type[Method]) -> type[ImageMethod]:
    """The method as one that learns from images."""
    assert issubclass(method, ImageMethod)
    return method


@lru_cache(maxsize=1)
def dataset_of(name: str, data: Path) -> Dataset:
    """Load a data set and keep it: one process trains many cohorts on the same data set."""
    return load(name, data)
