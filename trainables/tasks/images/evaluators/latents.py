"""Densities of the unit representations of one stack's members: their mixtures, samples and decoded images.

Shapes: K members, N images of the bank, T evaluated images, S samples, D dimensions; images of C channels, H by W
pixels in [0, 1].
"""

from functools import cached_property

import torch
from torch import Tensor

from trainables.contract import Noise
from trainables.evaluation.generation.latent_mixtures import Mixture, fit_gaussian, fit_gmm, sample, to_sphere
from trainables.learners.data_parallel import draw_noise, numpy_seed, seeded_generator
from trainables.tasks.images.evaluators.evaluation_images import BATCH, EvaluationImages, EvaluationSet
from trainables.tasks.images.evaluators.evaluator import Representations
from trainables.tasks.images.evaluators.generation import train_decoder
from trainables.tasks.images.latent_density import GRID

FIRST_SEED = 1000
"""Seed of the first sixteen samples; each further sixteen have the next. They are the same for all trials."""


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
        """The latents `[K, T, D]` of the evaluated images, or of the first of them."""
        return to_sphere(self._vectors.test(tested)["z"][:, :most])

    @cached_property
    def decoded_samples(self) -> Tensor:
        """Images `[K, S, C, H, W]` of the samples."""
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
        """The density of each member; none if the trial asks for no samples."""
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
