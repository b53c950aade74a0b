"""Images: a method learns from augmented views of them, and is judged by its representations, scores and samples."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import torch

from trainables.config.trial_config import Value
from trainables.contract import ImageMethod, Method
from trainables.data.datasets.catalog import load
from trainables.data.datasets.dataset import Dataset
from trainables.data.datasets.declarations import DECLARATIONS
from trainables.data.outliers import OUTLIERS
from trainables.evaluation.generation.fid import check_fid
from trainables.learners.data_parallel import Peers
from trainables.networks.decoders import check_decoder
from trainables.networks.encoders import ENCODERS
from trainables.tasks.images.cohort_evaluator import CohortEvaluator
from trainables.tasks.images.config import PUBLISHED_SIZES, ImageTrial, Networks
from trainables.tasks.images.evaluators.catalog import metric_names
from trainables.tasks.images.evaluators.evaluation_images import EvaluationImages
from trainables.tasks.images.preflight import check_image_trials
from trainables.tasks.images.stream import ImageStream, make_splits, stream_key
from trainables.tasks.task import LoadedTask, Methods, Task, TrialSize
from trainables.validation import choices


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
                ("content_probe_epochs", config.content.content_probe_epochs, 0),
                ("content_knn", config.content.content_knn, 0),
                ("gmm_n_init", config.content.gmm_n_init, 0),
                ("reconstructions", config.generation.reconstructions, False),
                ("samples_per_class", config.generation.samples_per_class, 0),
                ("held_out", config.data.held_out, ""),
            ):
                if value != off:
                    raise ValueError(f"{name} needs trials on all classes, but got {name}={value} with a normal_class")
        if evaluation.outliers and not method.scores:
            scoring = [name for name, other in methods.items() if "score" in other.capabilities]
            raise ValueError(
                f"{config.method} has no anomaly scores for outliers; those that have them are: {', '.join(scoring)}"
            )
        _check_batches(config, method)
        self._check_content(config, declared.attributes)
        self._check_generation(config, methods)
        if "held_out" in evaluation.outlier_sets and not config.data.held_out:
            raise ValueError("outliers=held_out needs classes that are held out, but got held_out=''")

    def _check_content(self, config: ImageTrial, attributes: Collection[str]) -> None:
        """Raise ValueError for an attribute that the data set lacks."""
        for name in config.content.style_names:
            if not attributes:
                raise ValueError(f"{config.data.dataset} has no attributes for styles, but got styles={name}")
            choices("styles", name, attributes)

    def _check_generation(self, config: ImageTrial, methods: Methods) -> None:
        """Raise ValueError if images are to be decoded that cannot be."""
        generation = config.generation
        if generation.decodes and "decode" not in methods[config.method].capabilities:
            if not generation.adhoc_epochs:
                decoding = [name for name, other in methods.items() if "decode" in other.capabilities]
                raise ValueError(
                    f"{config.method} has no decoder, so reconstructions and samples need adhoc_epochs of at least 1; "
                    f"methods with a decoder are: {', '.join(decoding)}"
                )
            check_decoder(config.layers.decoder, DECLARATIONS[config.data.dataset].shape)
        if generation.samples_per_class and config.data.held_out:
            raise ValueError("samples_per_class needs training images of each class, but some are held out")
        if generation.fid_weights:
            check_fid(Path(generation.fid_weights))

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

    def preflight(self, configs: Sequence[ImageTrial], data: Path | None) -> list[TrialSize]:
        return check_image_trials(configs, data)

    def metric_names(self, config: ImageTrial, method: type[Method], classes: int, last: bool) -> tuple[str, ...]:
        return metric_names(config, image_method(method), classes, last)

    def full_evaluations(self, method: type[Method]) -> Sequence[Mapping[str, Value]]:
        scored = "score" in method.capabilities
        outliers: Mapping[str, Value] = {"outliers": "+".join(OUTLIERS), "held_out": "0"} if scored else {}
        classified: Mapping[str, Value] = {"knn": 1, "probe_epochs": 1, **outliers}
        content: Mapping[str, Value] = {"content_probe_epochs": 1, "content_knn": 15, "gmm_n_init": 1}
        decoded: Mapping[str, Value] = {"reconstructions": True, "samples_per_class": 2, "adhoc_epochs": 1}
        styles = [
            {"dataset": name, "decoder": "relu_mlp", "styles": "+".join(declared.attributes), **content, **decoded}
            for name, declared in DECLARATIONS.items()
            if declared.attributes
        ]
        return [{"validation": 0.1, **keys} for keys in (classified, {"normal_class": 0}, *styles)]


def _check_batches(config: ImageTrial, method: type[ImageMethod]) -> None:
    """Raise ValueError if a batch of so many views has no image, or cannot be split."""
    if config.batches.batch_unit == "images" or method.fitted():
        return
    size, views = config.gradient.batch_size, method.encoded_count(config.options)
    if size < 2 * views:
        raise ValueError(
            f"a batch must have the views of at least 2 images, so batch_size must be at least {2 * views} for "
            f"{config.method} with batch_unit=views, but got batch_size={size}"
        )
    if config.gradient.workers > 1:
        raise ValueError(f"batch_unit=views needs one worker, but got workers={config.gradient.workers}")


def image_method(method: type[Method]) -> type[ImageMethod]:
    """The method as one that learns from images."""
    assert issubclass(method, ImageMethod)
    return method


@lru_cache(maxsize=1)
def dataset_of(name: str, data: Path) -> Dataset:
    """Load a data set and keep it: one process trains many cohorts on the same data set."""
    return load(name, data)
