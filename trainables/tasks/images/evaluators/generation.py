"""Evaluators of decoded images (SimVAE, section 8), at the end of training: reconstructions and samples.

Shapes: K members, N images, L classes, S samples of each class, D dimensions; images of C channels, H by W pixels in
[0, 1].
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from trainables.contract import Capability, ImageMethod, Noise
from trainables.evaluation.anomaly import Floats
from trainables.evaluation.generation.adhoc_decoder import train_adhoc_decoder
from trainables.evaluation.generation.class_gaussians import fit_class_gaussians, sample_class_gaussians
from trainables.evaluation.generation.digits_metrics import frechet_digits, sample_accuracy
from trainables.evaluation.generation.fid import fid
from trainables.evaluation.generation.pixels import diversity, reconstruction_mse
from trainables.evaluation.generation.sheets import reconstruction_sheet, sample_sheet
from trainables.learners.data_parallel import draw_noise, seeded_generator
from trainables.tasks.images.config import ImageTrial
from trainables.tasks.images.evaluators.evaluation_images import BATCH, EvaluationImages, EvaluationSet
from trainables.tasks.images.evaluators.evaluator import RepresentationEvaluator, Representations

CLASSIFIED = ("digits",)
"""Data sets whose samples are judged by the classifier of digits."""
ON_SHEETS = 10
"""Images in a row of a sheet."""


class Decoders:
    """Decodes the representations of one stack's members: by their own decoders, or by ones trained for that."""

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
    """A decoder of one member's frozen representations of the bank. Its first weights, the images held out and their
    order are drawn by the member's seed."""
    config = images.config
    key = (config.data.dataset, seed)
    pixels_NCHW = torch.cat([pixels for pixels, _ in images.pixels(images.bank_images)])
    with torch.random.fork_rng(devices=[]):
        # torch.manual_seed would seed the accelerators as well
        torch.default_generator.manual_seed(seeded_generator("adhoc decoder weights", *key).initial_seed())
        decoder = config.networks.build_decoder(bank_ND.shape[-1], tuple(pixels_NCHW.shape[1:]))
    return train_adhoc_decoder(
        decoder.to(images.device),
        bank_ND,
        pixels_NCHW,
        epochs=config.generation.adhoc_epochs,
        patience=config.generation.adhoc_patience,
        generator=seeded_generator("adhoc decoder", *key),
        lr=config.generation.adhoc_lr,
        raise_if_stopped=images.raise_if_stopped,
    ).decoder


class GenerationEvaluator(RepresentationEvaluator):
    """Error of reconstructions, and quality and spread of samples."""

    def __init__(self, images: EvaluationImages) -> None:
        super().__init__(images)
        self._decoders: tuple[Representations, Decoders] | None = None

    @classmethod
    def needs(cls, config: ImageTrial) -> Mapping[Capability, str]:
        """A decoder, unless one is trained afterwards."""
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
        """Reconstructions of the first images and samples of each class, as far as the trial asks for them."""
        if not self.config.generation.sheets:
            return []
        decode, generation = self._decoders_of(vectors), self.config.generation
        by_member: list[dict[str, bytes]] = [{} for _ in range(vectors.stack.size)]
        if generation.reconstructions:
            pixels_NCHW = next(self.images.pixels(tested.images))[0][:ON_SHEETS]
            decoded_KNCHW = decode(vectors.test(tested)["z"][:, :ON_SHEETS])
            for pictures, decoded_NCHW in zip(by_member, decoded_KNCHW, strict=True):
                sheet = reconstruction_sheet(pixels_NCHW.cpu(), {self.config.method: decoded_NCHW.cpu()})
                pictures["reconstructions.png"] = sheet
        if generation.samples_per_class:
            count = min(ON_SHEETS, generation.samples_per_class)
            for pictures, samples_LSCHW in zip(by_member, self._samples(decode, vectors, count), strict=True):
                pictures["samples.png"] = sample_sheet(samples_LSCHW.cpu(), self.images.dataset.classes)
        return by_member

    def _decoders_of(self, vectors: Representations) -> Decoders:
        """The decoders of one stack's members, made once."""
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
        """Metrics `[K]` of samples."""
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
