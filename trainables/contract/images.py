"""What a method promises that learns a representation of images.

Shapes: B images of a batch, M components, D dimensions of a representation, P of a projection, C channels, H rows,
W columns.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, cast

from torch import Tensor, nn

from trainables.contract.method import Method, Noises, Shapes


class NetworkBuilder(Protocol):
    """Builds the networks that a trial asks for."""

    def build(self, image_shape: tuple[int, ...], outputs: int = 1) -> nn.Module:
        """A new encoder of images `(C, H, W)`, whose attribute `features` is the size of its output: `outputs` times
        the size D that the trial asks for."""
        ...

    def build_decoder(self, features: int, image_shape: tuple[int, ...]) -> Any:
        """A new decoder of latents of size `features` to images `(C, H, W)` (see `networks.decoders`)."""
        ...


class ImageMethod(Method):
    """A method that learns a representation of images by an encoder.

    The entries of a batch are tuples of images `[B, C, H, W]`:

    - `views`: augmented views, as many as `view_count` says, prepared for the encoder
    - `view_pixels`: the same views in [0, 1]
    - `plain`: the image without augmentation, prepared for the encoder
    - `plain_pixels`: the same image in [0, 1]
    """

    capabilities = frozenset({"embed"})

    reads: ClassVar[frozenset[str]] = frozenset({"views"})
    """Entries of a batch that `losses` reads."""

    outputs: ClassVar[int] = 1
    """Outputs of the encoder for each of the D features: 2 for a mean and a log-variance."""

    representations: ClassVar[tuple[str, ...]] = ("z",)
    """Names of the vectors of `embed` that classifiers are trained on."""

    variance: ClassVar[str | None] = None
    """Name of the vector of `embed` that is the variance of a posterior; None if there is none."""

    scores: ClassVar[tuple[str, ...]] = ()
    """Names of the anomaly scores that `score` returns; empty if the method has none."""

    score_means: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Name of a metric -> the anomaly score whose mean over the test images it is."""

    def __init__(self, config: Any, networks: NetworkBuilder, shapes: Shapes) -> None:
        super().__init__(config, networks, shapes)
        self.image_shape = shapes["views"]
        self.encoder = networks.build(self.image_shape, self.outputs)
        self.projector: nn.Module = nn.Identity()
        """Between the representation and what the loss compares. A method that has one replaces it."""

    @classmethod
    def view_count(cls, config: Any) -> int:
        """Number of augmented views of an image that `losses` takes."""
        return 2

    @classmethod
    def encoded_count(cls, config: Any) -> int:
        """Number of images that a step encodes for each image of a batch."""
        return cls.view_count(config) + ("plain" in cls.reads)

    @property
    def features(self) -> int:
        """Size D of the representation."""
        return cast(int, self.encoder.features) // self.outputs

    def forward(self, images_BCHW: Tensor) -> Tensor:
        """The representation `[B, D]`, in float32 whatever the precision of the encoder."""
        return self.encoder(images_BCHW).float()

    def embed(self, images_BCHW: Tensor) -> dict[str, Tensor]:
        """Vectors `[B, D]` of the images by name, including those of `representations` and `variance`."""
        return {"z": self(images_BCHW)}

    def project(self, images_BCHW: Tensor) -> Tensor:
        """What the loss compares, `[B, P]`, in float32: the projection of the representation, by `projector`."""
        return self.projector(self(images_BCHW)).float()

    @classmethod
    def projects(cls, config: Any) -> bool:
        """Whether there is a projector, so that the loss is not of the representations themselves. Its width is always
        the hyperparameter `projector_width`, where 0 is none."""
        return bool(getattr(config, "projector_width", 0))

    def score_noise(self, batch: int) -> Noises:
        """The noise that `score` takes for `batch` images."""
        return {}

    def score(self, images_BCHW: Tensor, noise: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Anomaly scores `[B]` by name; higher means more anomalous."""
        raise NotImplementedError

    def decode(self, z_BD: Tensor) -> Tensor:
        """Images `[B, C, H, W]` in [0, 1] of representations."""
        raise NotImplementedError

    def density(self) -> Mapping[str, Tensor]:
        """The method's own mixture of M Gaussians over what the loss compares (`project`), scaled to unit length:
        `logits` `[M]` of its weights, `means` `[M, P]` and `covariances` `[M, P, P]`. Unless the method `projects`, it
        is of the representations."""
        raise NotImplementedError
