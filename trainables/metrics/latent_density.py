"""Densities of representations of unit length (GMJE, 4.8 and 5.3): fitting, sampling and measuring Gaussian mixtures,
the images decoded from their samples, and a map of latents.

Densities are float64. A component whose covariance is not positive definite gives NaN in its samples and in the volume.
Shapes: K members, N images of the bank, T evaluated images, S samples, M components, D dimensions; images of C
channels, H by W pixels in [0, 1].
"""

import io
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from trainables.contract import Capability, ImageMethod, Noise
from trainables.image_trial import GRID, OWN, ImageTrial
from trainables.learners.data_parallel import draw_noise, numpy_seed, seeded_generator
from trainables.losses.linear_algebra import cholesky, log_det
from trainables.losses.particles import multinomial_indices
from trainables.metrics.evaluator import (
    BATCH,
    EvaluationImages,
    EvaluationSet,
    Floats,
    RepresentationEvaluator,
    Representations,
)
from trainables.metrics.generation import CLASSIFIED, train_decoder
from trainables.metrics.sample_classifiers import digits_classifier, train_image_classifier
from trainables.metrics.sample_grids import sample_grid
from trainables.metrics.sample_quality import confident_coverage, confident_share, frechet_digits
from trainables.validation import whole

REGULARISATION = 1e-6
"""Added to the variance of each dimension of a fitted density, as in scikit-learn's mixtures (`reg_covar`)."""


class Mixture(NamedTuple):
    """A mixture of Gaussians."""

    logits_M: Tensor
    """Logarithms of the weights up to a constant: zeros are uniform weights."""
    means_MD: Tensor
    covariances_MDD: Tensor


def fit_gaussian(z_ND: Tensor) -> Mixture:
    """One Gaussian with the mean and covariance (divisor N) of the latents."""
    mean_D, z_ND = z_ND.double().mean(0), z_ND.double()
    centred_ND = z_ND - mean_D
    covariance_DD = centred_ND.mT @ centred_ND / len(z_ND) + REGULARISATION * _identity(z_ND)
    return Mixture(z_ND.new_zeros(1), mean_D[None], covariance_DD[None])


def fit_gmm(z_ND: Tensor, components: int, steps: int, random_state: int) -> Mixture:
    """scikit-learn's Gaussian mixture with full covariances, initialised by k-means, after at most `steps` EM steps.
    All NaN if a latent is not finite, or if there are fewer distinct latents than components. Raises ValueError unless
    `components` and `steps` are at least 1."""
    whole("components", components, 1)
    whole("steps", steps, 1)
    size, device = z_ND.shape[-1], z_ND.device
    mixture = None
    if bool(z_ND.isfinite().all()) and len(z_ND.unique(dim=0)) >= components:
        mixture = _fitted(z_ND, components, steps, random_state)
    if mixture is None:
        nan = torch.tensor(math.nan, dtype=torch.float64, device=device)
        return Mixture(nan.expand(components), nan.expand(components, size), nan.expand(components, size, size))
    return Mixture(*(part.to(device) for part in mixture))


def _fitted(z_ND: Tensor, components: int, steps: int, random_state: int) -> Mixture | None:
    """The mixture, on the CPU; None if a covariance cannot be inverted."""
    from sklearn.exceptions import ConvergenceWarning  # here: importing scikit-learn would delay every worker
    from sklearn.mixture import GaussianMixture

    gmm = GaussianMixture(components, max_iter=steps, reg_covar=REGULARISATION, random_state=random_state)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            gmm.fit(z_ND.cpu().double().numpy())
        except ValueError:  # "some components have ill-defined empirical covariance"
            return None
    weights_M, *moments = map(torch.from_numpy, (gmm.weights_, gmm.means_, gmm.covariances_))
    return Mixture(weights_M.log(), *moments)


def sample(mixture: Mixture, uniform_S: Tensor, normal_SD: Tensor) -> Tensor:
    """Samples `[S, D]`: `z = mu_k + L_k eps`, where k is the first component whose cumulative weight exceeds the
    uniform number, and L_k is the Cholesky factor of its covariance (GMJE, 4.8)."""
    component_S = multinomial_indices(mixture.logits_M.double(), uniform_S.double())
    samples_SD = mixture.means_MD.double()[component_S]
    for component, factor_DD in enumerate(cholesky(mixture.covariances_MDD.double())):
        own_S = component_S == component
        samples_SD[own_S] += normal_SD[own_S].double() @ factor_DD.mT
    return samples_SD


def to_sphere(z_ND: Tensor) -> Tensor:
    """Latents scaled to unit length."""
    return F.normalize(z_ND, dim=-1)


def mean_volume(mixture: Mixture) -> float:
    """`logdet S_k`, averaged over components. For latents of unit length it is at most `-D log D`, because the trace of
    their covariance is at most 1."""
    return log_det(cholesky(mixture.covariances_MDD.double())).mean().item()


def mean_trace(mixture: Mixture) -> float:
    """`tr S_k`, averaged over components: at most 1 for latents of unit length."""
    return mixture.covariances_MDD.double().diagonal(dim1=-2, dim2=-1).sum(-1).mean().item()


def spread(mixture: Mixture) -> float:
    """Mean distance between the means of two components; NaN for a single component. For M points on the unit sphere it
    is at most `sqrt(2 M / (M - 1))`, the edge length of a regular simplex."""
    count = len(mixture.means_MD)
    return torch.pdist(mixture.means_MD.double().cpu()).mean().item() if count > 1 else math.nan


NEIGHBOUR = 3
"""A sample is near a real latent if it is at least as close as that latent's third nearest real neighbour."""


def precision(samples_SD: Tensor, real_TD: Tensor) -> float:
    """Share of samples that are near a real latent (improved precision, Kynkaanniemi et al. 2019). NaN if a value is
    not finite, or with fewer than four real latents."""
    if len(real_TD) <= NEIGHBOUR or not (samples_SD.isfinite().all() and real_TD.isfinite().all()):
        return math.nan
    samples_SD, real_TD = samples_SD.double(), real_TD.double()
    radius_T = torch.cdist(real_TD, real_TD).topk(NEIGHBOUR + 1, largest=False).values[:, -1]
    return (torch.cdist(samples_SD, real_TD) <= radius_T).any(1).double().mean().item()


def _identity(z_ND: Tensor) -> Tensor:
    return torch.eye(z_ND.shape[-1], dtype=torch.float64, device=z_ND.device)


SEED = 0
PERPLEXITY = 30.0
"""Effective number of neighbours of a point; reduced for fewer than 91 points."""


def tsne(z_ND: Tensor) -> NDArray[np.float32]:
    """The position `[N, 2]` of each latent on the map, from scikit-learn's t-SNE initialised with the principal
    components."""
    from sklearn.manifold import TSNE  # here: importing scikit-learn would delay every worker

    perplexity = min(PERPLEXITY, (len(z_ND) - 1) / 3)
    model = TSNE(2, perplexity=perplexity, init="pca", random_state=SEED)
    places_N2: NDArray[np.float32] = model.fit_transform(z_ND.cpu().double().numpy()).astype(np.float32)
    return places_N2


def latent_map(samples_SD: Tensor, test_MD: Tensor, labels_M: Tensor, components: int) -> bytes:
    """A map of samples and test latents together, as an `.npz` file: `samples` `[S, 2]`, `test` `[M, 2]`, `labels`
    `[M]`, and the numbers `dimensions` and `components` of the density."""
    places_N2 = tsne(torch.cat([samples_SD, test_MD]))
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        samples=places_N2[: len(samples_SD)],
        test=places_N2[len(samples_SD) :],
        labels=labels_M.cpu().numpy().astype(np.int16),
        dimensions=np.int64(test_MD.shape[-1]),
        components=np.int64(components),
    )
    return buffer.getvalue()


FIRST_SEED = 1000
"""Seed of the first 16 samples; each further group of 16 takes the next seed. All trials use the same seeds."""


class Latents:
    """The unit representations of one stack's members, their densities and their decoders."""

    def __init__(self, vectors: Representations, images: EvaluationImages) -> None:
        self._vectors, self._asked = vectors, images.config.latent_density
        self._dataset = images.config.data.dataset
        bank_KND = to_sphere(vectors.bank()["z"])
        self._decoders = [
            train_decoder(images, bank_ND, seed) for bank_ND, seed in zip(bank_KND, vectors.seeds, strict=True)
        ]
        generator = seeded_generator("images of densities", self._dataset)
        chosen_N = torch.randperm(bank_KND.shape[1], generator=generator)[: self._asked.density_images]
        self.mixtures = self._mixtures(bank_KND[:, chosen_N.sort().values.to(bank_KND.device)])

    @torch.no_grad()
    def decode(self, z_KSD: Tensor) -> Tensor:
        """Images `[K, S, C, H, W]`."""
        decoded = [
            torch.cat([decoder(z_BD) for z_BD in z_SD.split(BATCH)])
            for decoder, z_SD in zip(self._decoders, z_KSD, strict=True)
        ]
        return torch.stack(decoded)

    def of_images(self, tested: EvaluationSet, most: int | None = None) -> Tensor:
        """The latents `[K, T, D]` of the evaluated images, or of the first `most` images."""
        return to_sphere(self._vectors.test(tested)["z"][:, :most])

    @cached_property
    def decoded_samples(self) -> Tensor:
        """Images `[K, S, C, H, W]` decoded from the samples."""
        return self.decode(self.samples)

    @cached_property
    def samples(self) -> Tensor:
        """Samples `[K, S, D]` of the members' densities, on the sphere."""
        bank_KND, seeds = self._vectors.bank()["z"], range(self._asked.density_samples // GRID)
        noises = {"uniform": Noise((GRID,), kind="uniform"), "normal": Noise((GRID, bank_KND.shape[-1]))}
        drawn = [draw_noise(noises, "density", FIRST_SEED + seed, device=bank_KND.device) for seed in seeds]
        uniform_S, normal_SD = (torch.cat([noise[name] for noise in drawn]) for name in noises)
        samples_KSD = torch.stack([sample(mixture, uniform_S, normal_SD) for mixture in self.mixtures])
        return to_sphere(samples_KSD).to(bank_KND.dtype)

    def _mixtures(self, z_KND: Tensor) -> list[Mixture]:
        """The density of each member; empty if the trial needs no samples."""
        asked = self._asked
        if not asked.sampled:
            return []
        if asked.density == "gaussian":
            return [fit_gaussian(z_ND) for z_ND in z_KND]
        if asked.density == "gmm":
            return [
                fit_gmm(z_ND, asked.density_components, asked.density_steps, numpy_seed("density", self._dataset, seed))
                for z_ND, seed in zip(z_KND, self._vectors.seeds, strict=True)
            ]
        own = self._vectors.stack.evaluate("density")
        logits_KM = own["logits"] if asked.density == "own_weighted" else torch.zeros_like(own["logits"])
        return [*map(Mixture, logits_KM, own["means"], own["covariances"])]


SHOWN = 10 * GRID
"""Images on a sample grid: ten rows of sixteen."""
MOST_MAPPED, MAPPED_SHARE = 2000, 4
"""Maximum number of test images on a map, and the number of test images per sample."""


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
        names = ["density_volume", "density_trace", "spread", "sample_precision"] if asked.sampled else []
        names += ["frechet_digits"] if asked.decoded and config.data.dataset in CLASSIFIED else []
        return (*names, "sample_confident", "sample_coverage")

    def metrics(self, vectors: Representations, tested: EvaluationSet) -> dict[str, Floats]:
        asked, metrics = self.config.latent_density, dict[str, Floats]()
        if asked.sampled:
            mixtures = self._latents_of(vectors).mixtures
            for name, measure in (("density_volume", mean_volume), ("density_trace", mean_trace), ("spread", spread)):
                metrics[name] = np.array([measure(mixture) for mixture in mixtures])
            latents = self._latents_of(vectors)
            pairs = zip(latents.samples, latents.of_images(tested, MOST_MAPPED), strict=True)
            metrics["sample_precision"] = np.array([precision(*pair) for pair in pairs])
        images_KSCHW = self._judged(vectors, tested)
        if asked.decoded and self.config.data.dataset in CLASSIFIED:
            pixels_TCHW = torch.cat([pixels for pixels, _ in self.images.pixels(tested.images)])
            metrics["frechet_digits"] = frechet_digits(images_KSCHW, pixels_TCHW).numpy()
        probabilities_KSL = torch.stack([self._classify(images_SCHW) for images_SCHW in images_KSCHW])
        metrics["sample_confident"] = confident_share(probabilities_KSL, asked.density_confidence).numpy()
        metrics["sample_coverage"] = confident_coverage(probabilities_KSL, asked.density_confidence).numpy()
        return metrics

    def pictures(self, vectors: Representations, tested: EvaluationSet) -> Sequence[Mapping[str, bytes]]:
        """A grid of 10 rows of 16 decoded samples, and a map of the samples and the evaluated images'
        representations."""
        asked = self.config.latent_density
        if not asked.density_pictures:
            return ()
        by_member = []
        shown_KSCHW = self._judged(vectors, tested, SHOWN)
        shown_KSCHW = shown_KSCHW[:, : shown_KSCHW.shape[1] // GRID * GRID]
        labels = [str(FIRST_SEED + row) if asked.sampled else "" for row in range(shown_KSCHW.shape[1] // GRID)]
        for member, images_SCHW in enumerate(shown_KSCHW):
            self.images.raise_if_stopped()
            files = {"samples.png": sample_grid(images_SCHW.unflatten(0, (-1, GRID)).cpu(), labels)}
            if asked.sampled:
                files |= self._map(self._latents_of(vectors), member, tested)
            by_member.append(files)
        return by_member

    def _map(self, latents: Latents, member: int, tested: EvaluationSet) -> dict[str, bytes]:
        """The file of a member's map; empty if its representations or samples are not finite."""
        test_TD = latents.of_images(tested, MOST_MAPPED)[member]
        samples_SD = latents.samples[member][: len(test_TD) // MAPPED_SHARE]
        if not (test_TD.isfinite().all() and samples_SD.isfinite().all()):
            return {}
        components = len(latents.mixtures[member].means_MD)
        return {"tsne.npz": latent_map(samples_SD, test_TD, tested.labels[: len(test_TD)], components)}

    def _judged(self, vectors: Representations, tested: EvaluationSet, most: int | None = None) -> Tensor:
        """The images `[K, S, C, H, W]` to evaluate, or the first `most`: decoded samples, or the reference images
        instead."""
        asked = self.config.latent_density
        if not asked.decoded:
            pixels_TCHW = torch.cat([pixels for pixels, _ in self.images.pixels(tested.images)])[:most]
            return pixels_TCHW.expand(vectors.stack.size, *pixels_TCHW.shape)
        latents = self._latents_of(vectors)
        return latents.decoded_samples[:, :most] if asked.sampled else latents.decode(latents.of_images(tested, most))

    def _latents_of(self, vectors: Representations) -> Latents:
        """The latents of one stack's members, cached so that decoders are trained once."""
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
        """Trains the classifier from a start that does not depend on a trial's seed, so that trials on the same data
        are comparable."""
        images, name = self.images, self.config.data.dataset
        if name in CLASSIFIED:
            return digits_classifier()
        pixels_NCHW = torch.cat([pixels for pixels, _ in images.pixels(images.bank_images)])
        generator = seeded_generator("classifier of samples", name)
        return train_image_classifier(
            pixels_NCHW, images.bank_labels, images.classes, generator, images.raise_if_stopped
        )
