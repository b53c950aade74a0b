"""Evaluator of a density of representations (GMJE, 5.3): its volume, and the images that are decoded from its samples.

Shapes: K members, N images of the bank, T evaluated images, S samples, M components, D dimensions; images of C
channels, H by W pixels in [0, 1].
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from trainables.contract import Capability, ImageMethod
from trainables.evaluation.anomaly import Floats
from trainables.evaluation.generation.confidence import confident_coverage, confident_share
from trainables.evaluation.generation.digits_classifier import digits_classifier
from trainables.evaluation.generation.digits_metrics import frechet_digits
from trainables.evaluation.generation.image_classifier import train_image_classifier
from trainables.evaluation.generation.latent_map import latent_map
from trainables.evaluation.generation.latent_mixtures import mean_trace, mean_volume, spread
from trainables.evaluation.generation.sheets import sample_sheet
from trainables.learners.data_parallel import seeded_generator
from trainables.tasks.images.config import ImageTrial
from trainables.tasks.images.evaluators.evaluation_images import BATCH, EvaluationImages, EvaluationSet
from trainables.tasks.images.evaluators.evaluator import RepresentationEvaluator, Representations
from trainables.tasks.images.evaluators.generation import CLASSIFIED
from trainables.tasks.images.evaluators.latents import FIRST_SEED, Latents
from trainables.tasks.images.latent_density import GRID, OWN

SHOWN = 10 * GRID
"""Images on a sheet: ten rows of sixteen."""
MOST_MAPPED, MAPPED_SHARE = 2000, 4
"""Most test images on a map, and how many of them there are for each sample."""


class LatentDensityEvaluator(RepresentationEvaluator):
    """Volume, trace and spread of a density of unit representations, and quality of its decoded samples."""

    def __init__(self, images: EvaluationImages) -> None:
        super().__init__(images)
        self._latents: tuple[Representations, Latents] | None = None
        self._classifier: Callable[[Tensor], Tensor] | None = None

    @classmethod
    def needs(cls, config: ImageTrial) -> Mapping[Capability, str]:
        return {"density": "density"} if config.latent_density.density in OWN else {}

    @classmethod
    def metric_names(cls, config: ImageTrial, method: type[ImageMethod], classes: int, last: bool) -> Sequence[str]:
        asked = config.latent_density
        if not last or not asked.evaluated:
            return ()
        names = ["density_volume", "density_trace", "spread"] if asked.sampled else []
        names += ["frechet_digits"] if asked.decoded and config.data.dataset in CLASSIFIED else []
        return (*names, "sample_confident", "sample_coverage")

    def metrics(self, vectors: Representations, tested: EvaluationSet) -> dict[str, Floats]:
        asked, metrics = self.config.latent_density, dict[str, Floats]()
        if asked.sampled:
            mixtures = self._latents_of(vectors).mixtures
            for name, measure in (("density_volume", mean_volume), ("density_trace", mean_trace), ("spread", spread)):
                metrics[name] = np.array([measure(mixture) for mixture in mixtures])
        images_KSCHW = self._judged(vectors, tested)
        if asked.decoded and self.config.data.dataset in CLASSIFIED:
            pixels_TCHW = torch.cat([pixels for pixels, _ in self.images.pixels(tested.images)])
            metrics["frechet_digits"] = frechet_digits(images_KSCHW, pixels_TCHW).numpy()
        probabilities_KSL = torch.stack([self._classify(images_SCHW) for images_SCHW in images_KSCHW])
        metrics["sample_confident"] = confident_share(probabilities_KSL, asked.density_confidence).numpy()
        metrics["sample_coverage"] = confident_coverage(probabilities_KSL, asked.density_confidence).numpy()
        return metrics

    def pictures(self, vectors: Representations, tested: EvaluationSet) -> Sequence[Mapping[str, bytes]]:
        """Ten rows of sixteen decoded samples, and a map of samples among the evaluated images' representations."""
        asked = self.config.latent_density
        if not asked.density_pictures:
            return ()
        by_member = []
        shown_KSCHW = self._judged(vectors, tested, SHOWN)
        shown_KSCHW = shown_KSCHW[:, : shown_KSCHW.shape[1] // GRID * GRID]
        labels = [str(FIRST_SEED + row) if asked.sampled else "" for row in range(shown_KSCHW.shape[1] // GRID)]
        for member, images_SCHW in enumerate(shown_KSCHW):
            self.images.raise_if_stopped()
            files = {"samples.png": sample_sheet(images_SCHW.unflatten(0, (-1, GRID)).cpu(), labels)}
            if asked.sampled:
                files |= self._map(self._latents_of(vectors), member, tested)
            by_member.append(files)
        return by_member

    def _map(self, latents: Latents, member: int, tested: EvaluationSet) -> dict[str, bytes]:
        """The file of a member's map; none if its representations or samples are not finite."""
        test_TD = latents.of_images(tested, MOST_MAPPED)[member]
        samples_SD = latents.samples[member][: len(test_TD) // MAPPED_SHARE]
        if not (test_TD.isfinite().all() and samples_SD.isfinite().all()):
            return {}
        components = len(latents.mixtures[member].means_MD)
        return {"tsne.npz": latent_map(samples_SD, test_TD, tested.labels[: len(test_TD)], components)}

    def _judged(self, vectors: Representations, tested: EvaluationSet, most: int | None = None) -> Tensor:
        """The images `[K, S, C, H, W]` that are judged, or the first of them: decoded samples, or what is judged in
        their place."""
        asked = self.config.latent_density
        if not asked.decoded:
            pixels_TCHW = torch.cat([pixels for pixels, _ in self.images.pixels(tested.images)])[:most]
            return pixels_TCHW.expand(vectors.stack.size, *pixels_TCHW.shape)
        latents = self._latents_of(vectors)
        return latents.decoded_samples[:, :most] if asked.sampled else latents.decode(latents.of_images(tested, most))

    def _latents_of(self, vectors: Representations) -> Latents:
        """The latents of one stack's members, whose decoders are trained once."""
        if self._latents is None or self._latents[0] is not vectors:
            self._latents = vectors, Latents(vectors, self.images)
        return self._latents[1]

    def _classify(self, images_SCHW: Tensor) -> Tensor:
        """Probabilities `[S, L]` of the classes, on the CPU; NaN for an image that is not finite."""
        if self._classifier is None:
            self._classifier = self._train_classifier()
        logits = [self._classifier(batch_BCHW).double().cpu() for batch_BCHW in images_SCHW.split(BATCH)]
        finite_S = images_SCHW.isfinite().flatten(1).all(-1).cpu()
        return torch.where(finite_S[:, None], torch.cat(logits).softmax(-1), torch.nan)

    def _train_classifier(self) -> Callable[[Tensor], Tensor]:
        """The yardstick of all trials on these data, so its start depends on no trial's seed."""
        images, name = self.images, self.config.data.dataset
        if name in CLASSIFIED:
            return digits_classifier()
        pixels_NCHW = torch.cat([pixels for pixels, _ in images.pixels(images.bank_images)])
        generator = seeded_generator("classifier of samples", name)
        return train_image_classifier(
            pixels_NCHW, images.bank_labels, images.classes, generator, images.raise_if_stopped
        )
