"""The sections of a trial on images: data, encoder, views, evaluation."""

from dataclasses import dataclass
from typing import Annotated

from trainables.data.datasets.catalog import DATASETS
from trainables.data.datasets.class_folders import FOLDER, listed
from trainables.data.datasets.dataset import Declaration
from trainables.data.views import PixelViews, Views
from trainables.sections import TrialConfig
from trainables.tasks.images.evaluation_sections import ContentEvaluation, EmbeddingEvaluation, Evaluation, Generation
from trainables.tasks.images.latent_density import LatentDensity
from trainables.tasks.images.networks import Encoder, Layers, Networks
from trainables.validation import at_least, between, checked, one_of


@checked
class Data:
    """The data set, and which of its images are used."""

    dataset: Annotated[str, one_of(*sorted([*DATASETS, FOLDER]), listing="--describe datasets lists all")] = "digits"
    """Name of the data set; `folder` for images of your own."""
    normal_class: Annotated[int | None, at_least(0)] = None
    """Index of the only class that is trained on; the other classes are outliers. None trains on all classes."""
    held_out: str = ""
    """Indices of classes, joined by +, that are neither trained on nor tested, for use as outliers: `0+3`."""
    validation: Annotated[float, between(0, 0.5)] = 0.0
    """Share of each class's labelled training images that is held out, in [0, 0.5]; the same images for every seed.
    Every metric is then also reported on these images, as `val_METRIC`, to choose by. 0 holds out none."""

    def __post_init__(self) -> None:
        if self.held_out:
            names = self.held_out.split("+")
            indices = sorted({int(name) for name in names if name.isdecimal() and len(name) < 19})
            if names != [*map(str, indices)]:
                raise ValueError(
                    f"held_out must be ascending class indices joined by +, but got held_out={self.held_out}"
                )

    @property
    def held_out_classes(self) -> tuple[int, ...]:
        """Indices of the classes in `held_out`."""
        return tuple(int(name) for name in self.held_out.split("+")) if self.held_out else ()


@checked
class Folder:
    """The user's own images, for `dataset=folder` alone."""

    image_size: Annotated[int, at_least(4)] = 32
    """Pixels along each side of an image as models see it. Files of any size and shape are resized to it."""
    image_channels: Annotated[int, one_of(1, 3)] = 3
    """3 for colour, 1 for grey."""
    image_digest: str = ""
    """Hash of all image files, filled in from the folder: trials on other images have other ids."""

    def __post_init__(self) -> None:
        if not all(char in "0123456789abcdef" for char in self.image_digest):
            raise ValueError(f"image_digest must be hexadecimal, but got image_digest={self.image_digest}")


@checked
class Batches:
    """What the size of a batch counts."""

    batch_unit: Annotated[str, one_of("images", "views")] = "images"
    """`images`: `batch_size` counts images, and an epoch is a pass over all of them. `views`: it counts all views that
    a step encodes, so there are `batch_size` over J images, and an epoch encodes as many views as there are images.
    Trials with other numbers J of views then cost the same."""


@dataclass(frozen=True, kw_only=True)
class ImageTrial(TrialConfig):
    """Everything that one training run on images depends on."""

    optional = TrialConfig.optional | {
        "layers",
        "folder",
        "pixel_views",
        "batches",
        "content",
        "generation",
        "embeddings",
        "latent_density",
    }

    data: Data
    folder: Folder
    encoder: Encoder
    layers: Layers
    views: Views
    pixel_views: PixelViews
    batches: Batches
    evaluation: Evaluation
    content: ContentEvaluation
    generation: Generation
    embeddings: EmbeddingEvaluation
    latent_density: LatentDensity

    @property
    def declaration(self) -> Declaration:
        """What is known of its data set without the images. The numbers of images in a folder of the user's are known
        once `list_folder` has listed it, and 0 before."""
        if self.data.dataset != FOLDER:
            return DATASETS[self.data.dataset].declaration
        size, channels, listing = self.folder.image_size, self.folder.image_channels, listed(self.folder.image_digest)
        return listing.declaration(size, channels) if listing else Declaration((channels, size, size), 0, (), ())

    @property
    def networks(self) -> Networks:
        """Builds its networks."""
        return Networks(self.encoder, self.layers)
