"""Decoded images (SimVAE, Table 7), at the end of training: reconstructions, and samples of a Gaussian fitted to the
training features of each class. For methods without a decoder, a decoder is trained afterwards on frozen features.

Gaussians fitted to the pixels themselves are the baseline that a generative model must beat. Shapes: K members, N
training images, M evaluated images, D features, L classes, S samples of each class, B images of a batch; C channels, H
rows, W columns, pixels in [0, 1]. Leading dimensions of features, such as the members, are kept.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainables.contract import Capability, ImageMethod, Noise
from trainables.image_trial import ImageTrial
from trainables.learners.data_parallel import draw_noise, seeded_generator
from trainables.metrics.evaluator import (
    BATCH,
    EvaluationImages,
    EvaluationSet,
    Floats,
    RepresentationEvaluator,
    Representations,
)
from trainables.metrics.sample_grids import reconstruction_grid, sample_grid
from trainables.metrics.sample_quality import diversity, fid, frechet_digits, reconstruction_mse, sample_accuracy
from trainables.validation import above, at_least, checked

REGULARISATION = 1e-6
"""Added to the variance of each feature, as in scikit-learn's mixtures (`reg_covar`)."""


class ClassGaussians(NamedTuple):
    """One Gaussian for each class, in float64."""

    mean_LD: Tensor
    covariance_LDD: Tensor
    """With `REGULARISATION` on its diagonal."""


def fit_class_gaussians(features_ND: Tensor, labels_N: Tensor, classes: int) -> ClassGaussians:
    """Fit a Gaussian with a full covariance to the features of each class by maximum likelihood, in float64.

    This equals scikit-learn's GaussianMixture with one component. Images whose label is not in 0..classes-1 are
    ignored. Raises ValueError if a class has no image.
    """
    means, covariances = [], []
    for label in range(classes):
        own_nD = features_ND[..., labels_N == label, :].double()
        count = own_nD.shape[-2]
        if not count:
            raise ValueError(f"each of the {classes} classes must have a training image, but class {label} has none")
        mean_1D = own_nD.mean(-2, keepdim=True)
        centred_nD = own_nD - mean_1D
        means.append(mean_1D.squeeze(-2))
        covariances.append(centred_nD.mT @ centred_nD / count)
    ridge_DD = REGULARISATION * torch.eye(features_ND.shape[-1], dtype=torch.float64, device=features_ND.device)
    return ClassGaussians(torch.stack(means, dim=-2), torch.stack(covariances, dim=-3) + ridge_DD)


def sample_class_gaussians(gaussians: ClassGaussians, noise_LSD: Tensor) -> Tensor:
    """Turn standard normal noise into `S` samples of each class, `[L, S, D]`, in the precision of the noise.

    NaN for a class whose covariance is not positive definite in float64, or whose mean is not finite.
    """
    factor_LDD, failed_L = torch.linalg.cholesky_ex(gaussians.covariance_LDD)
    defined_L = (failed_L == 0) & gaussians.mean_LD.isfinite().all(-1)
    samples_LSD = gaussians.mean_LD[..., None, :] + noise_LSD.double() @ factor_LDD.mT
    return torch.where(defined_L[..., None, None], samples_LSD, torch.nan).to(noise_LSD.dtype)


def sample_pixel_gaussians(images_NCHW: Tensor, labels_N: Tensor, noise_LSD: Tensor) -> Tensor:
    """Samples `[L, S, C, H, W]` from a Gaussian fitted to the pixels of each class, clipped to [0, 1]. The noise has a
    dimension for each of the `D = C * H * W` pixels."""
    gaussians = fit_class_gaussians(images_NCHW.flatten(1), labels_N, len(noise_LSD))
    return sample_class_gaussians(gaussians, noise_LSD).clamp(0, 1).unflatten(-1, images_NCHW.shape[1:])


VALIDATION_SHARE = 10
"""One in this many training images is held out to choose the epoch."""


class AdhocDecoder(NamedTuple):
    """A trained decoder and its validation losses."""

    decoder: nn.Module
    """In evaluation mode, with the weights of the epoch that had the smallest validation loss."""
    validation_losses: list[float]
    """Mean squared error on the held-out images after each epoch."""


@checked
class AdhocTraining:
    """Training settings of an ad-hoc decoder, which is trained with Adam."""

    epochs: Annotated[int, at_least(1)]
    patience: Annotated[int, at_least(1)]
    """Consecutive epochs without a smaller validation loss after which training ends."""
    lr: Annotated[float, above(0)] = 1e-4
    batch_size: Annotated[int, at_least(1)] = 128
    """Maximum batch size. All batches are of equal size."""


@torch.enable_grad()
def train_adhoc_decoder(
    decoder: nn.Module,
    features_ND: Tensor,
    images_NCHW: Tensor,
    training: AdhocTraining,
    *,
    generator: torch.Generator,
    raise_if_stopped: Callable[[], None] = lambda: None,
) -> AdhocDecoder:
    """Train a copy of `decoder` to map features to images with pixels in [0, 1], with the mean squared error as the
    loss.

    A tenth of the images is held out. `generator` (on the CPU) draws them and the order of the others. The decoder and
    the features must be on the same device; the images may be on another. Features that are not finite give losses of
    NaN. `raise_if_stopped` is called before each epoch. Raises ValueError unless there are at least 2 images.
    """
    count = len(features_ND)
    if count < 2:
        raise ValueError(f"an ad-hoc decoder needs at least 2 training images, but got {count}")
    decoder = copy.deepcopy(decoder)
    optimiser = torch.optim.Adam(decoder.parameters(), lr=training.lr)
    held_out = max(1, count // VALIDATION_SHARE)
    validation, learnt = torch.randperm(count, generator=generator).split([held_out, count - held_out])
    losses: list[float] = []
    best, best_weights = 0, copy.deepcopy(decoder.state_dict())
    while len(losses) < min(training.epochs, best + 1 + training.patience):
        raise_if_stopped()
        order = learnt[torch.randperm(len(learnt), generator=generator)]
        for batch in _batches(order, training.batch_size):
            optimiser.zero_grad()
            _squared_errors(decoder.train(), features_ND, images_NCHW, batch).mean().backward()
            optimiser.step()
        losses.append(_validation_loss(decoder.eval(), features_ND, images_NCHW, validation, training.batch_size))
        if len(losses) == 1 or losses[-1] < losses[best]:
            best, best_weights = len(losses) - 1, copy.deepcopy(decoder.state_dict())
    decoder.load_state_dict(best_weights)
    return AdhocDecoder(decoder.eval(), losses)


@torch.no_grad()
def _validation_loss(
    decoder: nn.Module, features_ND: Tensor, images_NCHW: Tensor, indices: Tensor, batch_size: int
) -> float:
    """Mean squared error over these images and their pixels."""
    sums = [
        _squared_errors(decoder, features_ND, images_NCHW, batch).sum(dtype=torch.float64)
        for batch in _batches(indices, batch_size)
    ]
    return torch.stack(sums).sum().item() / (len(indices) * images_NCHW[0].numel())


def _squared_errors(decoder: nn.Module, features_ND: Tensor, images_NCHW: Tensor, batch: Tensor) -> Tensor:
    """Squared errors `[B, C, H, W]` of the pixels of a batch of indices."""
    decoded_BCHW = decoder(features_ND[batch.to(features_ND.device)])
    images_BCHW = images_NCHW[batch.to(images_NCHW.device)]
    return F.mse_loss(decoded_BCHW, images_BCHW.to(decoded_BCHW), reduction="none")


def _batches(indices: Tensor, batch_size: int) -> tuple[Tensor, ...]:
    """Batches of all indices whose sizes differ by at most 1, so that none is too small for BatchNorm."""
    return indices.tensor_split(-(-len(indices) // batch_size))


CLASSIFIED = ("digits",)
"""Data sets whose samples the digit classifier evaluates."""
PER_ROW = 10
"""Images in a row of a sample grid."""


class Decoders:
    """Decodes the representations of one stack's members with their own decoders or with ad-hoc decoders."""

    def __init__(self, vectors: Representations, images: EvaluationImages) -> None:
        self._vectors = vectors
        self._trained: list[Callable[[Tensor], Tensor]] = []
        if "decode" not in vectors.method.capabilities:
            bank_KND = vectors.bank()["z"]
            self._trained = [
                train_decoder(images, z_ND, seed) for z_ND, seed in zip(bank_KND, vectors.seeds, strict=True)
            ]

    @torch.no_grad()
    def __call__(self, z_KBD: Tensor) -> Tensor:
        """Images `[K, B, C, H, W]`."""
        if not self._trained:
            decoded: Tensor = self._vectors.stack.evaluate_each("decode", z_KBD)
            return decoded
        return torch.stack([decoder(z_BD) for decoder, z_BD in zip(self._trained, z_KBD, strict=True)])


def train_decoder(images: EvaluationImages, bank_ND: Tensor, seed: int) -> Callable[[Tensor], Tensor]:
    """A decoder trained on one member's frozen representations of the bank. The member's seed determines the initial
    weights, the held-out images and the order of images."""
    config = images.config
    key, own = (config.data.dataset, seed), config.generation
    pixels_NCHW = torch.cat([pixels for pixels, _ in images.pixels(images.bank_images)])
    with torch.random.fork_rng(devices=[]):
        # torch.manual_seed would also seed the accelerators
        torch.default_generator.manual_seed(seeded_generator("adhoc decoder weights", *key).initial_seed())
        decoder = config.networks.build_decoder(bank_ND.shape[-1], tuple(pixels_NCHW.shape[1:]))
    return train_adhoc_decoder(
        decoder.to(images.device),
        bank_ND,
        pixels_NCHW,
        AdhocTraining(own.adhoc_epochs, own.adhoc_patience, own.adhoc_lr),
        generator=seeded_generator("adhoc decoder", *key),
        raise_if_stopped=images.raise_if_stopped,
    ).decoder


class GenerationEvaluator(RepresentationEvaluator):
    """Reconstruction error, and quality and diversity of samples."""

    def __init__(self, images: EvaluationImages) -> None:
        super().__init__(images)
        self._decoders: tuple[Representations, Decoders] | None = None

    @classmethod
    def needs(cls, config: ImageTrial) -> Mapping[Capability, str]:
        """A decoder, unless an ad-hoc decoder is trained afterwards."""
        generation = config.generation
        if generation.adhoc_epochs or not generation.decodes:
            return {}
        return {"decode": "reconstructions" if generation.reconstructions else "samples_per_class"}

    @classmethod
    def metric_names(cls, config: ImageTrial, method: type[ImageMethod], classes: int, last: bool) -> Sequence[str]:
        generation = config.generation
        names = ["reconstruction_mse"] if generation.reconstructions else []
        if generation.samples_per_class:
            names += ["diversity"]
            names += ["frechet_digits", "sample_accuracy"] if config.data.dataset in CLASSIFIED else []
            names += ["fid"] if generation.fid_weights else []
        return names if last else ()

    def metrics(self, vectors: Representations, tested: EvaluationSet) -> dict[str, Floats]:
        decode, generation = self._decoders_of(vectors), self.config.generation
        metrics: dict[str, Floats] = {}
        if generation.reconstructions:
            metrics["reconstruction_mse"] = self._reconstruction_mse(decode, vectors, tested)
        if generation.samples_per_class:
            metrics |= self._of_samples(self._samples(decode, vectors, generation.samples_per_class), tested)
        return metrics

    def pictures(self, vectors: Representations, tested: EvaluationSet) -> list[dict[str, bytes]]:
        """Reconstructions of the first images and samples of each class, if the trial requests them."""
        if not self.config.generation.sheets:
            return []
        decode, generation = self._decoders_of(vectors), self.config.generation
        by_member: list[dict[str, bytes]] = [{} for _ in range(vectors.stack.size)]
        if generation.reconstructions:
            pixels_NCHW = next(self.images.pixels(tested.images))[0][:PER_ROW]
            decoded_KNCHW = decode(vectors.test(tested)["z"][:, :PER_ROW])
            for pictures, decoded_NCHW in zip(by_member, decoded_KNCHW, strict=True):
                grid = reconstruction_grid(pixels_NCHW.cpu(), {self.config.method: decoded_NCHW.cpu()})
                pictures["reconstructions.png"] = grid
        if generation.samples_per_class:
            count = min(PER_ROW, generation.samples_per_class)
            for pictures, samples_LSCHW in zip(by_member, self._samples(decode, vectors, count), strict=True):
                pictures["samples.png"] = sample_grid(samples_LSCHW.cpu(), self.images.dataset.classes)
        return by_member

    def _decoders_of(self, vectors: Representations) -> Decoders:
        """The decoders of one stack's members, cached."""
        if self._decoders is None or self._decoders[0] is not vectors:
            self._decoders = vectors, Decoders(vectors, self.images)
        return self._decoders[1]

    def _reconstruction_mse(self, decode: Decoders, vectors: Representations, tested: EvaluationSet) -> Floats:
        """Mean squared error `[K]` of the pixels of the evaluated images."""
        z_KMD = vectors.test(tested)["z"]
        total_K = torch.zeros(len(z_KMD), dtype=torch.float64)
        for pixels_BCHW, batch in self.images.pixels(tested.images):
            total_K += reconstruction_mse(pixels_BCHW, decode(z_KMD[:, batch])).cpu() * len(pixels_BCHW)
        return (total_K / z_KMD.shape[1]).numpy()

    def _samples(self, decode: Decoders, vectors: Representations, count: int) -> Tensor:
        """`count` decoded samples of each class, `[K, L, S, C, H, W]`, of Gaussians fitted to the classes'
        representations in the bank."""
        images = self.images
        bank_KND = vectors.bank()["z"]
        noise = {"samples": Noise((images.classes, count, bank_KND.shape[-1]))}
        noise_LSD = draw_noise(noise, "samples", self.config.data.dataset, device=images.device)["samples"]
        z_KLSD = torch.stack(
            [
                sample_class_gaussians(fit_class_gaussians(bank_ND, images.bank_labels, images.classes), noise_LSD)
                for bank_ND in bank_KND
            ]
        )
        decoded = [decode(z_KBD) for z_KBD in z_KLSD.flatten(1, 2).split(BATCH, dim=1)]
        return torch.cat(decoded, dim=1).unflatten(1, (images.classes, count))

    def _of_samples(self, samples_KLSCHW: Tensor, tested: EvaluationSet) -> dict[str, Floats]:
        """Metrics `[K]` of the samples."""
        generation, device = self.config.generation, self.images.device
        samples_KNCHW = samples_KLSCHW.flatten(1, 2)
        pixels_MCHW = torch.cat([pixels for pixels, _ in self.images.pixels(tested.images)])
        metrics = {"diversity": diversity(samples_KNCHW, pixels_MCHW).cpu().numpy()}
        if self.config.data.dataset in CLASSIFIED:
            labels_N = torch.arange(self.images.classes).repeat_interleave(generation.samples_per_class)
            metrics["frechet_digits"] = frechet_digits(samples_KNCHW, pixels_MCHW).cpu().numpy()
            metrics["sample_accuracy"] = sample_accuracy(samples_KNCHW, labels_N).cpu().numpy()
        if generation.fid_weights:
            metrics["fid"] = np.array(fid(samples_KNCHW, pixels_MCHW, Path(generation.fid_weights), device))
        return metrics
