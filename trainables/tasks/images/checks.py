"""Checks that the sections of a trial on images fit each other, the method and the data set.

Every check raises ValueError with a one-line message.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import torch

from trainables.contract import Capability, ImageMethod, Shapes
from trainables.data.datasets.catalog import DATASETS
from trainables.data.datasets.class_folders import FOLDER
from trainables.data.datasets.dataset import UNLABELLED, Declaration, listed
from trainables.data.datasets.own_data import is_own_data
from trainables.data.datasets.parts import MOST_CHANNELS
from trainables.image_trial import OWN, Folder, ImageTrial
from trainables.metrics.catalog import EVALUATORS
from trainables.networks.decoders import check_decoder
from trainables.networks.encoders import ENCODERS, check_encoder
from trainables.networks.own_encoder import takes_features
from trainables.networks.pretrained import TORCHVISION, check_side
from trainables.networks.trial_networks import PUBLISHED_SIZES, Networks, Pretrained
from trainables.tasks.task import Methods
from trainables.validation import choices, is_own

CAPABILITY_NOUNS: Mapping[Capability, str] = {
    "score": "anomaly scores",
    "decode": "decoded images",
    "density": "density",
}
"""Capability -> what a method with it provides."""
INSTEAD: Mapping[Capability, str] = {"decode": "; for others set adhoc_epochs to at least 1, which trains a decoder"}
"""Advice if a method lacks a capability."""


def check_sections(config: ImageTrial, method: type[ImageMethod], methods: Methods) -> None:
    """Check a trial of `method`; see `Task.check`."""
    declared = config.declaration
    _check_folder(config)
    if method.needs_labels():
        _check_every_label(config, declared)
    _check_networks(config, method, declared)
    if config.data.normal_class is not None:
        _check_one_class(config)
    elif scores := config.evaluation.one_class_scores:
        raise ValueError(f"one_class_scores needs a normal_class, but got one_class_scores={scores} without one")
    _check_views(config, declared)
    _check_capabilities(config, method, methods)
    _check_outliers(config)
    _check_batches(config, method)
    _check_comparison(config)
    _check_content(config, declared)
    _check_labels(config, declared)
    _check_channels(config, declared.shape[0])
    _check_generation(config, method, declared)
    _check_density(config, method, declared)


def shapes_of(method: type[ImageMethod], image_shape: tuple[int, ...], classes: int) -> Shapes:
    """The shapes for which an image method is built (see `Shapes`)."""
    return {"views": image_shape, **({"logits": (classes,)} if method.needs_labels() else {})}


def _check_every_label(config: ImageTrial, declared: Declaration) -> None:
    """Raise ValueError for a method that needs labels if a training image has no label, or if all images are of one
    class."""
    law, data = f"{config.method} needs the label of every training image", config.data
    if data.normal_class is not None:
        raise ValueError(f"{law} and several classes, so normal_class must be none, but got {data.normal_class}")
    listing = listed(config.folder.image_digest)
    if listing and not declared.classes:
        raise ValueError(f"{law}, but the images of {data.dataset} have none")
    own = int((listing.outline.train_labels == UNLABELLED).sum()) if listing and listing.outline else 0
    unlabelled = declared.unlabelled or own
    if unlabelled and not data.held_out:  # held-out classes leave out images without a label
        raise ValueError(f"{law}, but {unlabelled} images of {data.dataset} have none")


def _check_folder(config: ImageTrial) -> None:
    """Raise ValueError for keys of the user's own images in a trial on a published data set, and for illegal image
    shapes."""
    name, folder = config.data.dataset, config.folder
    if name == FOLDER:
        choices("image_channels", str(folder.image_channels), (1, 3))
        if folder.image_width:
            raise ValueError(f"images of dataset={FOLDER} are squares, but got image_width={folder.image_width}")
    elif is_own_data(name) and folder.image_channels > MOST_CHANNELS:
        raise ValueError(
            f"`image_channels <= {MOST_CHANNELS}` must hold, but got image_channels={folder.image_channels}"
        )
    if name not in DATASETS or folder == Folder():
        return
    changed = {key: value for key, value in vars(config.folder).items() if value != getattr(Folder(), key)}
    key, value = next(iter(changed.items()))
    raise ValueError(f"{key} needs dataset={FOLDER}, but got {key}={value} with dataset={name}")


def _check_networks(config: ImageTrial, method: type[ImageMethod], declared: Declaration) -> None:
    """Raise ValueError if the encoder does not suit the method or the decoder does not suit the images."""
    encoder = config.encoder.encoder
    own = is_own(encoder)
    sized_alone = not takes_features(encoder) if own else encoder in PUBLISHED_SIZES
    if method.outputs > 1 and sized_alone:
        sized = ", ".join(name for name in ENCODERS if name not in PUBLISHED_SIZES)
        raise ValueError(
            f"{config.method} needs an encoder of configurable size, but {encoder} "
            f"{'does not take `features`' if own else 'has its published size'}; there are: {sized}"
        )
    _check_pretrained(config)
    _check_frozen(config, method, declared.shape)
    check_encoder(encoder, declared.shape)
    if method.has_decoder(config.options):
        check_decoder(config.layers.decoder, declared.shape)
    method.check_images(config.options, declared.shape)


def _check_pretrained(config: ImageTrial) -> None:
    """Raise ValueError unless torchvision encoders have weights and pixels in [0, 1], and other encoders have no
    weights."""
    encoder, pretrained, pixels = config.encoder.encoder, config.pretrained, config.pixel_views
    if encoder not in TORCHVISION:
        if pretrained != Pretrained():
            key, value = next(
                (key, value) for key, value in vars(pretrained).items() if value != getattr(Pretrained(), key)
            )
            raise ValueError(f"{key} needs an encoder torchvision:NAME, but got {key}={value} with encoder={encoder}")
        return
    if not pretrained.weights:
        raise ValueError(f"encoder={encoder} needs weights=FILE, a state dict of your own; nothing is downloaded")
    check_side(encoder, pretrained.pretrained_size)
    if pixels.normalise or pixels.contrast_normalise:
        raise ValueError(f"encoder={encoder} normalises pixels in [0, 1] itself, so normalise must be false")


def _check_frozen(config: ImageTrial, method: type[ImageMethod], shape: tuple[int, int, int]) -> None:
    """Raise ValueError if the method has nothing to train because its encoder is frozen."""
    if not config.pretrained.frozen or not method.trains() or method.fitted():
        return
    hashable: Any = method  # a class is one, but mypy does not see it
    if not _has_weights(hashable, config.options, config.networks, shape):
        raise ValueError(
            f"a method must have weights to train, but {config.method} has none besides its encoder, so frozen must be "
            "false; method=random epochs=0 evaluates the pretrained features"
        )


@lru_cache(maxsize=64)
def _has_weights(method: type[ImageMethod], options: Any, networks: Networks, shape: tuple[int, int, int]) -> bool:
    """Whether a method has weights to train. Builds it on the meta device, without memory."""
    with torch.device("meta"):
        built = method(options, networks, shapes_of(method, shape, classes=1))
    return any(True for _ in built.parameters())


def _check_one_class(config: ImageTrial) -> None:
    """Raise ValueError if a one-class trial requests other evaluations than anomaly scores."""
    evaluation, content, generation = config.evaluation, config.content, config.generation
    embeddings = config.embeddings
    for name, value in (
        ("knn", evaluation.knn),
        ("probe_epochs", evaluation.probe_epochs),
        ("outliers", evaluation.outliers),
        ("content_probe_epochs", content.content_probe_epochs),
        ("content_knn", content.content_knn),
        ("gmm_n_init", content.gmm_n_init),
        ("reconstructions", generation.reconstructions),
        ("samples_per_class", generation.samples_per_class),
        ("few_labels", embeddings.few_labels),
        ("compare_projection", embeddings.compare_projection),
        ("prediction", embeddings.prediction),
        ("geometry", embeddings.geometry if embeddings.geometry != "none" else ""),
        ("density", config.latent_density.density if config.latent_density.evaluated else ""),
        ("held_out", config.data.held_out),
    ):
        if value:
            raise ValueError(f"{name} needs trials on all classes, but got {name}={value} with a normal_class")


def _check_views(config: ImageTrial, declared: Declaration) -> None:
    """Raise ValueError for views that cannot be made from image files."""
    if config.pixel_views.jitter_first and declared.files:
        raise ValueError(
            "image files are cropped while they are decoded, so jitter_first must be false for "
            f"{config.data.dataset}, but got jitter_first=True"
        )


def _check_capabilities(config: ImageTrial, method: type[ImageMethod], methods: Methods) -> None:
    """Raise ValueError if the trial requests an evaluator that needs a capability that the method lacks."""
    for evaluator in EVALUATORS:
        for capability, key in evaluator.needs(config).items():
            if capability not in method.capabilities:
                capable = [name for name, other in methods.items() if capability in other.capabilities]
                raise ValueError(
                    f"{config.method} has no {CAPABILITY_NOUNS[capability]} for {key}; methods with them are: "
                    f"{', '.join(capable)}{INSTEAD.get(capability, '')}"
                )


def _check_outliers(config: ImageTrial) -> None:
    """Raise ValueError for outliers that do not exist."""
    if "held_out" in config.evaluation.outlier_sets and not config.data.held_out:
        raise ValueError("outliers=held_out needs held-out classes, but got held_out=''")


def _check_batches(config: ImageTrial, method: type[ImageMethod]) -> None:
    """Raise ValueError if a batch of this many views has fewer than 2 images, or cannot be split."""
    if config.batches.batch_unit == "images" or method.fitted():
        return
    size, views = config.gradient.batch_size, method.encoded_count(config.options)
    if size < 2 * views:
        raise ValueError(
            f"a batch must contain the views of at least 2 images, so batch_size must be at least {2 * views} for "
            f"{config.method} with batch_unit=views, but got batch_size={size}"
        )
    if config.gradient.workers > 1:
        raise ValueError(f"batch_unit=views needs one worker, but got workers={config.gradient.workers}")


def _check_comparison(config: ImageTrial) -> None:
    """Raise ValueError if `compare_projection` has nothing to evaluate."""
    embeddings = config.embeddings
    evaluated = embeddings.geometry != "none" or embeddings.few_labels or config.evaluation.probe_epochs
    if embeddings.compare_projection and not evaluated:
        raise ValueError("compare_projection needs geometry, few_labels or probe_epochs, but none of them is set")


def _check_content(config: ImageTrial, declared: Declaration) -> None:
    """Raise ValueError for an attribute that the data set lacks."""
    if is_own_data(config.data.dataset) and not listed(config.folder.image_digest):
        return  # the attributes are not known here
    for name in config.content.style_names:
        if not declared.attributes:
            raise ValueError(f"{config.data.dataset} has no attributes for styles, but got styles={name}")
        choices("styles", name, declared.attributes)


def _check_labels(config: ImageTrial, declared: Declaration) -> None:
    """Raise ValueError if the trial requests something that needs labels, but its images have none."""
    if declared.classes or not listed(config.folder.image_digest):
        return
    evaluation, content, embeddings = config.evaluation, config.content, config.embeddings
    for key, value in (
        ("normal_class", config.data.normal_class),
        ("held_out", config.data.held_out or None),
        ("knn", evaluation.knn or None),
        ("probe_epochs", evaluation.probe_epochs or None),
        ("content_probe_epochs", content.content_probe_epochs or None),
        ("content_knn", content.content_knn or None),
        ("gmm_n_init", content.gmm_n_init or None),
        ("samples_per_class", config.generation.samples_per_class or None),
        ("few_labels", embeddings.few_labels or None),
        ("density", config.latent_density.density if config.latent_density.evaluated else None),
    ):
        if value is not None:
            raise ValueError(
                f"{key} needs labels, but the images of {config.data.dataset} have none; got {key}={value}"
            )


def _check_channels(config: ImageTrial, channels: int) -> None:
    """Raise ValueError if images are changed or shown as colours but have neither 1 nor 3 channels."""
    if channels in (1, 3):
        return
    views, generation = config.views, config.generation
    jittered = views.jitter and any((views.brightness, views.contrast, views.saturation, views.hue))
    for key, value in (
        ("jitter", views.jitter if jittered else 0),
        ("greyscale", views.greyscale),
        ("sheets", generation.sheets),
        ("fid_weights", generation.fid_weights),
        ("density_pictures", config.latent_density.density_pictures),
        ("encoder", config.encoder.encoder if config.encoder.encoder in TORCHVISION else ""),
    ):
        if value:
            raise ValueError(
                f"{key} needs images of 1 or 3 channels, but those of {config.data.dataset} have {channels}; got "
                f"{key}={value}"
            )


def _check_generation(config: ImageTrial, method: type[ImageMethod], declared: Declaration) -> None:
    """Raise ValueError if the trial decodes images that cannot be decoded."""
    generation = config.generation
    if generation.sheets and config.data.normal_class is None and not generation.decodes:
        raise ValueError("sheets needs reconstructions, samples_per_class of at least 1, or a normal_class")
    if generation.decodes and "decode" not in method.capabilities:
        check_decoder(config.layers.decoder, declared.shape)
    if generation.samples_per_class and config.data.held_out:
        raise ValueError("samples_per_class needs training images of each class, but some classes are held out")


def _check_density(config: ImageTrial, method: type[ImageMethod], declared: Declaration) -> None:
    """Raise ValueError if samples of a density cannot be drawn or decoded, or conflict with other samples."""
    asked, generation = config.latent_density, config.generation
    if not asked.evaluated:
        return
    if asked.decoded:
        check_decoder(config.layers.decoder, declared.shape)
        if not generation.adhoc_epochs:
            raise ValueError(
                f"density={asked.density} needs adhoc_epochs of at least 1 to train a decoder of unit vectors"
            )
    if generation.samples_per_class:
        raise ValueError(
            "samples come either from density or from each class, so samples_per_class must be 0, but got "
            f"samples_per_class={generation.samples_per_class} with density={asked.density}"
        )
    if asked.density in OWN and method.projects(config.options):
        raise ValueError(
            f"the density of {config.method} must be over representations, so projector_width must be 0, but got "
            f"projector_width={config.options.projector_width} with density={asked.density}"
        )
