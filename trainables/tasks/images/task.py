"""Images: a method learns from augmented views and is evaluated by its representations, scores and samples."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from trainables.contract import ImageMethod, Method
from trainables.data.datasets.catalog import DATASETS
from trainables.data.datasets.class_folders import FOLDER
from trainables.data.outliers import OUTLIERS
from trainables.data.own_views import about_views
from trainables.image_trial import ImageTrial
from trainables.learners.data_parallel import SINGLE_PROCESS, Peers
from trainables.metrics.catalog import CohortEvaluator, metric_names
from trainables.metrics.evaluator import EvaluationImages
from trainables.networks.own_encoder import check_own_encoder
from trainables.networks.pretrained import file_digest
from trainables.networks.trial_networks import Networks
from trainables.sections import Value
from trainables.tasks.images.checks import check_sections, shapes_of
from trainables.tasks.images.model import ImageModel, inputs_of
from trainables.tasks.images.preflight import check_classes, check_image_trials, check_splits, dataset_of, load_kept
from trainables.tasks.images.stream import ImageStream, make_splits, stream_key
from trainables.tasks.task import LoadedTask, Methods, RandomBatch, Task, TrialSize
from trainables.validation import is_own

UNKNOWN_CLASSES = 10
"""Number of classes of random examples if a data set's number is known only from files."""


class Images(Task):
    """Representation learning from images."""

    Trial = ImageTrial
    fusible = frozenset({"normal_class", "normal_images", "contamination"})
    step_sections = ("encoder", "layers")
    class_keys = frozenset({"normal_class"})

    def check(self, config: ImageTrial, methods: Methods) -> None:
        check_sections(config, image_method(methods[config.method]), methods)

    def completed(self, values: Mapping[str, Value]) -> Mapping[str, Value]:
        weights = values.get("weights")
        if not weights or values.get("weights_digest"):
            return values
        return {**values, "weights_digest": file_digest(str(weights))}

    def networks(self, config: ImageTrial, initial: bool = False) -> Networks:
        return replace(config.networks, initial=initial)

    def stream_key(self, config: ImageTrial) -> tuple[object, ...]:
        return stream_key(config)

    def keep_data(self, config: ImageTrial, data: Path) -> None:
        dataset_of(config, data)

    def load(
        self,
        configs: Sequence[ImageTrial],
        method: type[Method],
        data: Path,
        device: torch.device,
        peers: Peers,
        raise_if_stopped: Callable[[], None],
    ) -> LoadedTask:
        dataset = dataset_of(configs[0], data)
        by_stream = {stream_key(config): config for config in configs}
        parts = {key: make_splits(dataset, config.data, config.training.seed) for key, config in by_stream.items()}
        streams = {
            key: ImageStream(config, image_method(method), parts[key].test, device, peers)
            for key, config in by_stream.items()
        }
        splits = [parts[stream_key(config)] for config in configs]
        images = EvaluationImages(configs, splits, dataset, data, device, peers, raise_if_stopped)
        evaluator = CohortEvaluator(images, image_method(method))
        _, *shape = dataset.train_images.shape
        shapes = shapes_of(image_method(method), tuple(shape), len(dataset.classes))
        return LoadedTask(streams, evaluator, shapes, inputs_of(dataset))

    def random_batch(self, config: ImageTrial, method: type[Method], examples: int) -> RandomBatch:
        shape, images = config.declaration.shape, image_method(method)
        generator = torch.Generator().manual_seed(0)
        classes = config.declaration.classes or UNKNOWN_CLASSES
        reads = images.reads - {"labels"}
        counts = {name: images.view_count(config.options) if name.startswith("view") else 1 for name in reads}
        batch: dict[str, Any] = {
            name: tuple(torch.rand((examples, *shape), generator=generator) for _ in range(count))
            for name, count in sorted(counts.items())
        }
        if "labels" in images.reads:
            batch["labels"] = torch.randint(classes, (examples,), generator=generator)
        return RandomBatch(config, shapes_of(images, shape, classes), batch)

    def own_network(self, config: ImageTrial) -> str:
        return config.encoder.encoder if is_own(config.encoder.encoder) else ""

    def note(self, config: ImageTrial) -> str:
        return about_views(config.pixel_views.augmentation) if config.pixel_views.augmentation else ""

    def check_own_network(self, config: ImageTrial, examples: int) -> None:
        shape = config.declaration.shape
        check_own_encoder(config.networks.build(shape), config.encoder.encoder, shape, examples)

    def preflight(self, configs: Sequence[ImageTrial], data: Path | None) -> list[TrialSize]:
        return check_image_trials(configs, data)

    def metric_names(self, config: ImageTrial, method: type[Method], classes: int, last: bool) -> tuple[str, ...]:
        return metric_names(config, image_method(method), classes, last)

    def model(
        self,
        config: ImageTrial,
        method: Method,
        inputs: Mapping[str, Any],
        arrays: Mapping[str, Tensor] = MappingProxyType({}),
    ) -> ImageModel:
        assert isinstance(method, ImageMethod)
        return ImageModel(config, method, inputs, arrays)

    def evaluator(
        self, config: ImageTrial, model: nn.Module, data: Path, device: torch.device
    ) -> tuple[Method, CohortEvaluator]:
        assert isinstance(model, ImageModel)
        dataset = replace(load_kept(config, data), mean=model.mean, std=model.std)
        check_classes(config, type(model.method), len(model.classes), dataset)
        splits = make_splits(dataset, config.data, config.training.seed)
        check_splits(config, dataset, splits)
        images = EvaluationImages([config], [splits], dataset, data, device, SINGLE_PROCESS, lambda: None)
        return model.method, CohortEvaluator(images, type(model.method))

    def full_evaluations(self, method: type[Method]) -> Sequence[Mapping[str, Value]]:
        scored = "score" in method.capabilities
        outliers: Mapping[str, Value] = {"outliers": "+".join(OUTLIERS), "held_out": "0"} if scored else {}
        embeddings: Mapping[str, Value] = {
            "few_labels": 5,
            "few_label_draws": 2,
            "geometry": "projection",
            "compare_projection": True,
            "prediction": True,
        }
        classified: Mapping[str, Value] = {"knn": 1, "probe_epochs": 1, **outliers, **embeddings}
        content: Mapping[str, Value] = {"content_probe_epochs": 1, "content_knn": 15, "gmm_n_init": 1}
        decoded: Mapping[str, Value] = {
            "reconstructions": True,
            "samples_per_class": 2,
            "adhoc_epochs": 1,
            "fid_weights": "inception.pth",
        }
        one_class: Mapping[str, Value] = {"dataset": FOLDER, "normal_class": 0, "one_class_scores": "all"}
        sampled: Mapping[str, Value] = {
            "density": "gaussian",
            "density_samples": 16,
            "decoder": "relu_mlp",
            "adhoc_epochs": 1,
        }
        styles = [
            {
                "dataset": name,
                "decoder": "relu_mlp",
                "styles": "+".join(source.declaration.attributes),
                **content,
                **decoded,
            }
            for name, source in DATASETS.items()
            if source.declaration.attributes
        ]
        kinds = (classified, *([] if image_method(method).needs_labels() else [one_class]), sampled, *styles)
        return [{"validation": 0.1, **keys} for keys in kinds]


def image_method(method: type[Method]) -> type[ImageMethod]:
    """The method, typed as an image method."""
    assert issubclass(method, ImageMethod)
    return method
