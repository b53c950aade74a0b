"""A trained method for users: it takes raw images and prepares them as in training.

Shapes: B images of C channels, H by W pixels; D dimensions, L classes.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from trainables.contract import Capability, ImageMethod
from trainables.data.datasets.class_folders import FOLDER, MADE, read_images
from trainables.data.datasets.dataset import Dataset
from trainables.data.image_files import ImageFiles
from trainables.data.views import PixelViews, prepare, prepare_pixels, scale_pixels
from trainables.image_trial import ImageTrial
from trainables.json_input import Finite, PositiveAmount, PositiveCount, decode
from trainables.learners.data_parallel import draw_noise
from trainables.metrics.evaluator import BATCH, PROJECTION
from trainables.metrics.fitted_scores import FittedScores
from trainables.metrics.one_class_scores import VECTORS
from trainables.metrics.roc import alarm_threshold
from trainables.metrics.scores import HELD_OUT
from trainables.sections import GradientTraining
from trainables.validation import choices

BUFFER = "_vectors_"
"""Prefix of the buffers of training vectors."""


def inputs_of(dataset: Dataset) -> dict[str, Any]:
    """The properties of the training data set that an `ImageModel` needs."""
    return {
        "dataset": dataset.name,
        "classes": list(dataset.classes),
        "levels": dataset.levels,
        "mean": list(dataset.mean),
        "std": list(dataset.std),
        **({"made": MADE[dataset.name]} if dataset.name in MADE else {}),
    }


@dataclass(frozen=True)
class _Inputs:
    """The results of `inputs_of` and `scores.kept_results`, as stored in a model's file."""

    classes: tuple[str, ...]
    levels: PositiveCount
    mean: tuple[Finite, ...]
    std: tuple[PositiveAmount, ...]
    scores: tuple[str, ...] = ()
    score: str | None = None
    score_chosen_by: str | None = None
    alarm_rate: Finite | None = None
    made: str | None = None


class ImageModel(nn.Module):
    """A trained method in evaluation mode that takes images in the form of its data set.

    Images are a batch as a tensor or NumPy array: uint8 from 0 to the data set's white (`levels`: 255, or 16 for
    `digits`), or floats in [0, 1]. Their shape is `[B, C, H, W]` or `[B, H, W, C]`, and may be `[B, H, W]` for one
    channel. H and W are those of the data set. The model binarises and normalises the images as in training.

    `embed`, `score`, `reconstruct` and `classify` compute no gradients and take any number of images, which they
    process `BATCH` at a time, as in a sweep. Calling the model returns the representation z of a batch with gradients,
    for fine-tuning.
    """

    alarm_rate: float | None
    """The false-alarm rate of `threshold`, from `load_model(..., alarm_rate=0.01)` or an exported file."""

    def __init__(
        self,
        config: ImageTrial,
        method: ImageMethod,
        inputs: Mapping[str, Any],
        arrays: Mapping[str, Tensor] = MappingProxyType({}),
    ) -> None:
        """`inputs`: the result of `inputs_of` for the data set and, together with `arrays`, what was kept of the
        trial's anomaly scores."""
        super().__init__()
        self.config, self.method = config, method
        self.image_shape = method.image_shape
        known: _Inputs = decode(_Inputs, inputs)
        channels = self.image_shape[0]
        if not len(known.mean) == len(known.std) == channels:
            raise ValueError(f"mean and std must have {channels} values, one for each channel")
        self.classes: tuple[str, ...] = known.classes
        """Names of the classes of the data set."""
        self.levels: int = known.levels
        """The pixel value of white in uint8 images."""
        self.mean: tuple[float, ...] = known.mean
        """Mean of each channel over the training images, for pixels in [0, 1]; their smallest value if contrast is
        normalised."""
        self.std: tuple[float, ...] = known.std
        """Standard deviation of each channel, likewise, or their range."""
        self.made: str | None = known.made or MADE.get(config.data.dataset)
        """How image files became the arrays that it was trained on; None for images that were no files."""
        self.scores: tuple[str, ...] = known.scores or method.scores
        """Names of the model's anomaly scores; the first is the default."""
        self.chosen_by: str | None = known.score_chosen_by
        """The metric by which `chosen_score` was chosen; None for the default score, if there was no choice or no
        metric for it."""
        self._chosen = known.score
        self.held_out: dict[str, Tensor] = {
            name.removeprefix(HELD_OUT): array_N for name, array_N in arrays.items() if name.startswith(HELD_OUT)
        }
        """Scores `[N]` of held-out normal images, by name; empty without held-out images."""
        for name, array_N in self.held_out.items():
            if array_N.ndim != 1 or array_N.isnan().any():
                raise ValueError(f"the held-out scores {name} must be numbers [N]")
        self._vectors: dict[str, str] = {}
        """Name of a fitted score -> name of the training vectors `[N, D]` to which it is fitted."""
        for name, vectors_ND in arrays.items():
            if name.startswith(VECTORS):
                self._add_vectors(name.removeprefix(VECTORS), vectors_ND)
        self._fitted: dict[tuple[str, torch.device], FittedScores] = {}
        for name in self.scores:
            choices("score", name, (*method.scores, *self._vectors))
        for name in (*self.held_out, *filter(None, [self._chosen])):
            choices("score", name, self.scores)
        self.alarm_rate = known.alarm_rate
        training = config.training
        self._autocast = isinstance(training, GradientTraining) and training.precision == "bfloat16"
        self.eval()

    def forward(self, images: Any) -> Tensor:
        """The representation z `[B, D]` of a batch, with gradients."""
        with self._precision():
            z_BD: Tensor = self.method(self.prepare(images))
        return z_BD

    def load_images(self, paths: Iterable[str | os.PathLike[str]]) -> Tensor:
        """Image files as the model was trained on them, uint8 `[B, C, H, W]`: by the same resize, which its scores
        depend on. Raises DataError, with one line, for a file that cannot be decoded, and ValueError if its training
        images were no files, or were made of files in another way than this version of the code does."""
        name, names = self.config.data.dataset, [os.fspath(path) for path in paths]
        if name not in MADE:
            raise ValueError(
                f"the model was trained on {name}, whose images are no files that this package resizes, so give it "
                f"arrays of {_shape_text(self.image_shape)}, made as those of its training"
            )
        if self.made != MADE[name]:
            raise ValueError(
                f"the model was trained on images made so: {self.made}; this version of the code makes them otherwise: "
                f"{MADE[name]}"
            )
        channels, side, _ = self.image_shape
        if name == FOLDER:
            return read_images(names, side, channels)
        return ImageFiles(Path(), np.array([os.fsencode(path) for path in names]), side)[:]

    @torch.no_grad()
    def embed(self, images: Any) -> dict[str, Tensor]:
        """Vectors `[B, D]` of the images by name: the representation z, and any other vectors of the method."""

        def embed(pixels_BCHW: Tensor, _: int) -> dict[str, Tensor]:
            return self.method.embed(prepare(pixels_BCHW, *self._scaling))

        return self._in_batches("embed", images, embed)

    @property
    def chosen_score(self) -> str:
        """Name of the anomaly score that `score` and `threshold` use by default: the best score on validation images,
        or else the first score (see `chosen_by`)."""
        return self._named(None)

    @torch.no_grad()
    def score(self, images: Any, name: str | None = None) -> Tensor:
        """Anomaly scores `[B]`, higher for more anomalous images: `chosen_score`, or the score in `scores` with this
        name. Raises ValueError if there is no such score."""
        name = self._named(name)
        return self.score_all(images, [name])[name]

    @torch.no_grad()
    def score_all(self, images: Any, names: Sequence[str] | None = None) -> dict[str, Tensor]:
        """Anomaly scores `[B]` by name, for all `scores` or only these `names`. Images are encoded once for all fitted
        scores, and once for all of the method's own scores."""
        names = [self._named(name) for name in (self.scores if names is None else names)]
        of_vectors = {name: vector for name in names if (vector := self._vectors.get(name))}
        vectors, own = {*of_vectors.values()}, len(of_vectors) < len(names)

        def compute(pixels_BCHW: Tensor, start: int) -> dict[str, Tensor]:
            batch_BCHW, found = prepare(pixels_BCHW, *self._scaling), dict[str, Tensor]()
            if own:
                noise = draw_noise(
                    self.method.score_noise(len(pixels_BCHW)), "scores", start, device=pixels_BCHW.device
                )
                decoded = [prepare_pixels(pixels_BCHW, *self._scaling)] if self.method.scores_pixels else []
                found |= self.method.score(batch_BCHW, noise, *decoded)
            if vectors - {PROJECTION}:
                found |= {f"{VECTORS}{name}": x_BD for name, x_BD in self.method.embed(batch_BCHW).items()}
            if PROJECTION in vectors:
                found[f"{VECTORS}{PROJECTION}"] = self.method.project(batch_BCHW)
            return found

        found = self._in_batches("score" if own else "embed", images, compute)
        for name, vector in of_vectors.items():
            found[name] = self._fitted_score(name, vector, found[f"{VECTORS}{vector}"])
        return {name: found[name] for name in names}

    def _add_vectors(self, vector: str, vectors_ND: Tensor) -> None:
        """Register the training vectors with this name, and the scores that are fitted to them."""
        if vectors_ND.ndim != 2 or not len(vectors_ND):
            raise ValueError(f"the training vectors {vector} must be [N, D], but are {[*vectors_ND.shape]}")
        self.register_buffer(f"{BUFFER}{vector}", vectors_ND, persistent=False)
        self._vectors |= {f"{score}_{vector}": vector for score in self.config.evaluation.fitted_scores}

    def _fitted_score(self, name: str, vector: str, x_BD: Tensor) -> Tensor:
        """A score `[B]` of vectors with this name. It is fitted to the training vectors on first use."""
        train_ND: Tensor = getattr(self, f"{BUFFER}{vector}")
        key, score = (name, train_ND.device), name.removesuffix(f"_{vector}")
        if key not in self._fitted:
            seed, standardize = self.config.training.seed, self.config.evaluation.one_class_standardize
            self._fitted[key] = FittedScores([score], train_ND[None], [seed], standardize=standardize)
        return self._fitted[key](x_BD[None])[score][0]

    @property
    def threshold(self) -> float:
        """Images with a higher `score` are flagged. On average this flags at most the share `alarm_rate` of new normal
        images. Raises ValueError without a rate."""
        if self.alarm_rate is None:
            raise ValueError("a threshold needs a false-alarm rate: load_model(..., alarm_rate=0.01)")
        return self.threshold_at(self.alarm_rate)

    def threshold_at(self, rate: float, name: str | None = None) -> float:
        """The threshold of `chosen_score`, or of the score with this name, at a false-alarm rate (see
        `roc.alarm_threshold`). Raises ValueError for a rate that needs more held-out images."""
        held_out_N = self.held_out.get(self._named(name), torch.empty(0))
        return alarm_threshold(held_out_N.double().numpy(), rate)

    def _named(self, name: str | None) -> str:
        """The name of an anomaly score, by default the chosen one."""
        if not self.scores:
            raise ValueError(f"{self.config.method} has no anomaly scores")
        if name is None:
            return self._chosen or self.scores[0]
        choices("score", name, self.scores)
        return name

    @torch.no_grad()
    def reconstruct(self, images: Any) -> Tensor:
        """The decoded representations, `[B, C, H, W]` in [0, 1]. Raises ValueError if the method has no decoder."""

        def reconstruct(pixels_BCHW: Tensor, _: int) -> dict[str, Tensor]:
            return {"images": self.method.decode(self.method.embed(prepare(pixels_BCHW, *self._scaling))["z"])}

        return self._in_batches("decode", images, reconstruct)["images"]

    @property
    def has_heat(self) -> bool:
        """Whether the model says where an image is anomalous (`heat`)."""
        return bool({"decode", "heat"} & self.method.capabilities) or self._nearest_pixels is not None

    @torch.no_grad()
    def heat(self, images: Any) -> Tensor:
        """How anomalous each pixel is, `[B, H, W]`, at least 0: what the method itself says (`ImageMethod.heat`); or
        the squared error of the reconstruction, summed over channels; or for `method=pixels` the squared difference
        from the nearest training image, of prepared pixels. Raises ValueError if the model has none of these."""
        if not self.has_heat:
            raise ValueError(
                f"a heat map needs a method that decodes, patchcore, or method=pixels with a fitted score, but got "
                f"{self.config.method}"
            )
        train_ND = self._nearest_pixels

        def compute(pixels_BCHW: Tensor, _: int) -> dict[str, Tensor]:
            own_BCHW = prepare(pixels_BCHW, *self._scaling)
            if "heat" in self.method.capabilities:
                return {"heat": self.method.heat(own_BCHW)}
            if train_ND is not None:
                nearest_B = torch.cdist(own_BCHW.flatten(1), train_ND).argmin(1)
                differences_BCHW = own_BCHW - train_ND[nearest_B].view_as(own_BCHW)
            else:
                decoded_BCHW = self.method.decode(self.method.embed(own_BCHW)["z"])
                differences_BCHW = prepare_pixels(pixels_BCHW, *self._scaling) - decoded_BCHW
            return {"heat": differences_BCHW.square().sum(1)}

        return self._in_batches("embed", images, compute)["heat"]

    @property
    def _nearest_pixels(self) -> Tensor | None:
        """The training images as prepared pixels, `[N, D]`, of a model whose representation they are."""
        return getattr(self, f"{BUFFER}z", None) if self.method.embeds_pixels else None

    @torch.no_grad()
    def classify(self, images: Any) -> Tensor:
        """Probabilities `[B, L]` of the `classes`, in their order. Raises ValueError if the method cannot classify."""

        def classify(pixels_BCHW: Tensor, _: int) -> dict[str, Tensor]:
            return {"logits": self.method.classify(prepare(pixels_BCHW, *self._scaling))}

        return self._in_batches("classify", images, classify)["logits"].softmax(-1)

    def prepare(self, images: Any) -> Tensor:
        """The images `[B, C, H, W]` as the encoder takes them, on the model's device. Raises ValueError for images of
        the wrong shape, type or range."""
        return prepare(self._scaled(images), *self._scaling)

    @property
    def _scaling(self) -> tuple[PixelViews, tuple[float, ...], tuple[float, ...]]:
        """The arguments that turn pixels in [0, 1] into the input of networks."""
        return self.config.pixel_views, self.mean, self.std

    def _scaled(self, images: Any) -> Tensor:
        """The images `[B, C, H, W]` in [0, 1], on the model's device."""
        pixels_BCHW = self._pixels(self._in_order(torch.as_tensor(images)))
        device = next(self.method.buffers(), next(self.method.parameters(), pixels_BCHW)).device
        return pixels_BCHW.to(device)

    def _in_order(self, images: Tensor) -> Tensor:
        """The images with their channels first."""
        channels, height, width = self.image_shape
        if tuple(images.shape[1:]) == (channels, height, width):
            return images
        if tuple(images.shape[1:]) == (height, width, channels):
            return images.permute(0, 3, 1, 2)
        if channels == 1 and tuple(images.shape[1:]) == (height, width):
            return images.unsqueeze(1)
        how = f"; it was trained on {self.made}: model.load_images(paths) does that" if self.made else ""
        raise ValueError(
            f"images must have the shape [B, {channels}, {height}, {width}] or [B, {height}, {width}, {channels}], but "
            f"got {[*images.shape]}{how}"
        )

    def _pixels(self, images_BCHW: Tensor) -> Tensor:
        """The images in [0, 1]."""
        whole = images_BCHW.dtype == torch.uint8
        if not whole and not images_BCHW.is_floating_point():
            raise ValueError(f"images must be uint8, or floats in [0, 1], but got {images_BCHW.dtype}")
        most = self.levels if whole else 1
        if images_BCHW.numel() and not (images_BCHW.min() >= 0 and images_BCHW.max() <= most):
            low, high = float(images_BCHW.min()), float(images_BCHW.max())
            kind = "uint8" if whole else "float"
            raise ValueError(f"pixels of {kind} images must be in [0, {most}], but got {low:g} to {high:g}")
        return scale_pixels(images_BCHW, self.levels) if whole else images_BCHW.float()

    def _in_batches(
        self, capability: Capability, images: Any, compute: Callable[[Tensor, int], Mapping[str, Tensor]]
    ) -> dict[str, Tensor]:
        """The results of `compute` for all images. It is called with `BATCH` images in [0, 1] and the index of the
        first."""
        if capability not in self.method.capabilities:
            have = ", ".join(sorted(self.method.capabilities))
            raise ValueError(f"{self.config.method} must be able to {capability} for this call, but can only {have}")
        images = torch.as_tensor(images)
        starts = range(0, max(1, len(images)), BATCH)
        with self._precision():
            batches = [compute(self._scaled(images[start : start + BATCH]), start) for start in starts]
        return {name: torch.cat([batch[name] for batch in batches]) for name in batches[0]}

    def _precision(self) -> torch.autocast:
        """The precision of the networks in training."""
        device = next(self.method.parameters(), torch.empty(0)).device
        return torch.autocast(device.type, torch.bfloat16, enabled=self._autocast)


def _shape_text(shape: Sequence[int]) -> str:
    """Return e.g. `32 x 32 pixels and 3 channels`."""
    channels, height, width = shape
    return f"{height} x {width} pixels and {channels} channel{'s' if channels > 1 else ''}"
