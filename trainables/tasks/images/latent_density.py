"""The section of a trial on images that asks for samples of a density of its representations."""

from typing import Annotated

from trainables.validation import at_least, between, checked, one_of

FITTED = ("gaussian", "gmm")
"""Densities that are fitted to the representations of the training images."""
OWN = ("own", "own_weighted")
"""Densities that the method has itself."""
REFERENCES = ("latents", "images")
"""What is judged in place of samples, for comparison."""
GRID = 16
"""Samples that are drawn from one seed."""


@checked
class LatentDensity:
    """The evaluation of a density of representations, scaled to unit length, at the end of training (GMJE, 5.3)."""

    density: Annotated[str, one_of("none", *FITTED, *OWN, *REFERENCES)] = "none"
    """`gaussian` (one, with their mean and covariance) or `gmm` (a mixture of full covariances), fitted to the
    representations of the training images; `own`, the method's own mixture with uniform weights, or `own_weighted` with
    its learned ones. For comparison `latents`, which decodes the test images' representations, and `images`, the test
    images themselves. `none` for no such evaluation."""
    density_components: Annotated[int, at_least(1)] = 50
    """Gaussians of `gmm`."""
    density_steps: Annotated[int, at_least(1)] = 20
    """Most steps of EM that fit `gmm`."""
    density_images: Annotated[int, at_least(1)] = 10_000
    """Most training images that a density is fitted to."""
    density_samples: Annotated[int, at_least(GRID)] = 1600
    """Samples that are decoded and judged, a multiple of 16: each sixteen have a seed, 1000 and so on."""
    density_confidence: Annotated[float, between(0.5, 1, above=True, below=True)] = 0.9
    """Probability of a class from which on the classifier of real images is sure of it, in (0.5, 1)."""
    density_pictures: bool = False
    """Keep a sheet of decoded samples, and a map by t-SNE of samples among the test images' representations."""

    def __post_init__(self) -> None:
        if self.density_samples % GRID:
            raise ValueError(
                f"density_samples must be a multiple of {GRID}, but got density_samples={self.density_samples}"
            )

    @property
    def evaluated(self) -> bool:
        """Whether anything is asked for."""
        return self.density != "none"

    @property
    def decoded(self) -> bool:
        """Whether representations are decoded."""
        return self.density not in ("none", "images")

    @property
    def sampled(self) -> bool:
        """Whether there is a density to sample."""
        return self.density in FITTED + OWN
