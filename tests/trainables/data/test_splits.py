"""Splits that train on one class, or hold out classes; and validation images: always the same, of every class, never
tested.
"""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.cases import for_each
from tests.image_files import CLASSES, write_imagenet
from trainables.data.datasets.catalog import load
from trainables.data.datasets.dataset import UNLABELLED, Attribute, Dataset
from trainables.data.image_files import ImageFiles
from trainables.data.splits import all_classes_split, held_out_split, hold_out_validation, one_class_split


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load("digits", Path())


@pytest.fixture(scope="module")
def half_labelled(digits: Dataset) -> Dataset:
    """The digits; the second half of the training images has no labels."""
    labels = digits.train_labels.clone()
    labels[630:] = UNLABELLED
    return replace(digits, train_labels=labels)


@pytest.fixture(scope="module")
def imagenet(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    root = tmp_path_factory.mktemp("data")
    write_imagenet(root)
    return load("imagenet", root)


def test_one_class_trains_on_all_of_that_class_only(digits: Dataset) -> None:
    split = one_class_split(digits, 3)
    assert split.train_labels.unique().tolist() == [3]
    assert len(split.train_images) == len(split.train_labels) == (digits.train_labels == 3).sum()
    assert torch.equal(split.train_images[:], digits.train_images[:][digits.train_labels == 3])
    assert split.labelled_images is split.train_images and torch.equal(split.labelled_labels, split.train_labels)


def test_one_class_tests_on_everything_and_calls_the_rest_outliers(digits: Dataset) -> None:
    split = one_class_split(digits, 3)
    assert split.test_images is digits.test_images and split.held_out_images is None
    assert split.outlier is not None
    assert split.outlier.tolist() == [label != 3 for label in digits.test_labels.tolist()]


def test_whole_keeps_everything_and_has_no_outliers(digits: Dataset) -> None:
    split = all_classes_split(digits)
    assert split.train_images is split.labelled_images is digits.train_images
    assert split.outlier is None and split.held_out_images is None
    assert (split.levels, split.mean, split.std) == (digits.levels, digits.mean, digits.std)


def test_unlabelled_images_are_trained_on_but_not_used_by_classifiers(half_labelled: Dataset) -> None:
    split = all_classes_split(half_labelled)
    assert split.train_images is half_labelled.train_images and split.train_labels is half_labelled.train_labels
    assert torch.equal(split.labelled_images[:], half_labelled.train_images[:630])
    assert torch.equal(split.labelled_labels, half_labelled.train_labels[:630])


def test_unlabelled_images_belong_to_no_class(half_labelled: Dataset) -> None:
    for split in (one_class_split(half_labelled, 3), held_out_split(half_labelled, (0,))):
        assert (split.train_labels >= 0).all() and len(split.train_images) == len(split.train_labels) < 630
        assert split.labelled_images is split.train_images


@pytest.mark.parametrize("normal_class", [10, -1, True, 1.0])
def test_normal_class_must_be_a_class(digits: Dataset, normal_class: int) -> None:
    with pytest.raises(ValueError, match=rf"normal_class must be one of 0\.\.9 for digits, but got {normal_class!r}"):
        one_class_split(digits, normal_class)


def test_held_out_classes_are_neither_trained_on_nor_tested(digits: Dataset) -> None:
    split = held_out_split(digits, (7, 2))
    rest = [0, 1, 3, 4, 5, 6, 8, 9]
    assert split.train_labels.unique().tolist() == split.test_labels.unique().tolist() == rest
    for images, labels, all_images, all_labels in (
        (split.train_images, split.train_labels, digits.train_images, digits.train_labels),
        (split.test_images, split.test_labels, digits.test_images, digits.test_labels),
    ):
        remaining = [i for i, label in enumerate(all_labels.tolist()) if label in rest]
        assert torch.equal(images[:], all_images[:][remaining]) and torch.equal(labels, all_labels[remaining])
    assert split.outlier is None and split.classes == digits.classes and split.labelled_images is split.train_images


def test_held_out_test_images_are_kept_apart(digits: Dataset) -> None:
    split = held_out_split(digits, (7, 2))
    apart = [i for i, label in enumerate(digits.test_labels.tolist()) if label in (2, 7)]
    assert split.held_out_images is not None
    assert torch.equal(split.held_out_images[:], digits.test_images[:][apart])
    assert len(split.test_images) + len(split.held_out_images) == len(digits.test_images)


@for_each(
    ("classes", "message"),
    [
        ((3, 10), "each held-out class must be one of 0..9 for digits, but got 10"),
        ((-1,), "each held-out class must be one of 0..9 for digits, but got -1"),
        ((True,), "each held-out class must be one of 0..9 for digits, but got True"),
        ((4, 1, 4), "a class must be held out once, but got 4 more than once"),
        (
            tuple(range(9)),
            "of the 10 classes of digits at least one must be held out and two must be left, but got 9 held out",
        ),
        ((), "of the 10 classes of digits at least one must be held out and two must be left, but got 0 held out"),
    ],
)
def test_classes_that_cannot_be_held_out_are_refused(digits: Dataset, classes: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError) as error:
        held_out_split(digits, classes)
    assert str(error.value).removeprefix("at least ") == message


def test_two_classes_may_be_left(digits: Dataset) -> None:
    assert held_out_split(digits, tuple(range(8))).test_labels.unique().tolist() == [8, 9]


def test_folders_are_split_by_their_files(imagenet: Dataset) -> None:
    only_second, others = one_class_split(imagenet, 1), held_out_split(imagenet, (1,))
    for images, classes in (
        (only_second.train_images, CLASSES[1:2]),
        (others.train_images, (CLASSES[0], CLASSES[2])),
        (others.test_images, (CLASSES[0], CLASSES[2])),
        (others.held_out_images, CLASSES[1:2]),
    ):
        assert isinstance(images, ImageFiles)
        assert {Path(path).parent.name for path in images.paths()} == set(classes)
    assert others.train_labels.tolist() == [0] * 4 + [2] * 4
    assert all_classes_split(imagenet).labelled_images is imagenet.train_images


@pytest.fixture(scope="module")
def numbered(digits: Dataset) -> Dataset:
    """The digits with an attribute that counts their images."""
    train_N, test_N = (torch.arange(len(images)) for images in (digits.train_images, digits.test_images))
    return replace(digits, attributes={"number": Attribute(train_N, test_N, 1260)})


@pytest.mark.parametrize("held_out", [None, (2, 7)])
def test_attributes_stay_with_their_images(numbered: Dataset, held_out: tuple[int, ...] | None) -> None:
    split = held_out_split(numbered, held_out) if held_out else one_class_split(numbered, 3)
    number = split.attributes["number"]
    assert number.classes == 1260
    assert torch.equal(split.train_images[:], numbered.train_images[:][number.train_labels])
    assert torch.equal(split.train_labels, numbered.train_labels[number.train_labels])
    assert torch.equal(split.test_images[:], numbered.test_images[:][number.test_labels])
    assert torch.equal(split.test_labels, numbered.test_labels[number.test_labels])


def test_whole_keeps_the_attributes(numbered: Dataset) -> None:
    assert all_classes_split(numbered).attributes is numbered.attributes


@pytest.fixture(scope="module")
def indexed(digits: Dataset) -> Dataset:
    """The labels of the digits with images that encode their own index in two channels."""
    index_N = torch.arange(len(digits.train_labels))
    images = torch.stack([index_N // 256, index_N % 256], 1).byte()[:, :, None, None]
    return replace(digits, train_images=images)


def indices(images: object) -> set[int]:
    assert isinstance(images, torch.Tensor)
    return {256 * int(high) + int(low) for high, low in images[:, :, 0, 0]}


def test_validation_images_are_disjoint_from_training_and_are_all_else(indexed: Dataset) -> None:
    trained, validated = hold_out_validation(indexed, 0.2)
    trained_indices, validation_indices = indices(trained.train_images), indices(validated.test_images)
    assert not trained_indices & validation_indices and trained_indices | validation_indices == set(range(1260))
    assert len(trained.train_labels) == len(trained_indices) and len(validated.test_labels) == len(validation_indices)
    for part, labels in ((trained.train_images, trained.train_labels), (validated.test_images, validated.test_labels)):
        assert isinstance(part, torch.Tensor)
        positions = 256 * part[:, 0, 0, 0].long() + part[:, 1, 0, 0].long()
        assert torch.equal(labels, indexed.train_labels[positions])


def test_no_test_image_is_a_validation_image(digits: Dataset) -> None:
    """No two images of the digits are equal, so they can be compared by their pixels."""
    trained, validated = hold_out_validation(digits, 0.2)
    assert trained.test_images is digits.test_images and trained.test_labels is digits.test_labels
    assert validated.train_images is trained.train_images and validated.train_labels is trained.train_labels
    pixels = [
        {bytes(image.numpy().tobytes()) for image in images[:]}
        for images in (trained.train_images, validated.test_images, digits.test_images)
    ]
    assert [len(images) for images in pixels] == [1008, 252, 537]
    assert len(set.union(*pixels)) == 1797


@pytest.mark.parametrize("share", [0.01, 0.1, 0.2, 0.5])
def test_every_class_gives_the_same_share(digits: Dataset, share: float) -> None:
    _, validated = hold_out_validation(digits, share)
    counts = digits.train_labels.bincount().tolist()
    assert validated.test_labels.bincount().tolist() == [round(share * count) for count in counts]


def test_the_split_is_fixed_and_a_larger_share_holds_out_more_of_the_same(
    indexed: Dataset,
) -> None:
    drawn = torch.get_rng_state()
    held_out = {share: indices(hold_out_validation(indexed, share)[1].test_images) for share in (0.1, 0.2, 0.4)}
    torch.manual_seed(5)
    assert indices(hold_out_validation(indexed, 0.2)[1].test_images) == held_out[0.2]
    assert held_out[0.1] < held_out[0.2] < held_out[0.4]
    assert sorted(held_out[0.2])[:5] != list(range(5))  # shuffled, not the first of the file
    torch.set_rng_state(drawn)


def test_attributes_stay_with_validation_images(digits: Dataset) -> None:
    train_N, test_N = (torch.arange(len(images)) for images in (digits.train_images, digits.test_images))
    trained, validated = hold_out_validation(
        replace(digits, attributes={"number": Attribute(train_N, test_N, 1260)}), 0.2
    )
    trained_indices, validation_indices = (
        trained.attributes["number"].train_labels,
        validated.attributes["number"].test_labels,
    )
    assert torch.equal(trained.attributes["number"].test_labels, test_N)
    assert torch.equal(validated.attributes["number"].train_labels, trained_indices)
    assert torch.equal(trained.train_images[:], digits.train_images[:][trained_indices])
    assert torch.equal(validated.test_images[:], digits.train_images[:][validation_indices])


def test_unlabelled_images_stay_training_images(indexed: Dataset) -> None:
    labels = indexed.train_labels.clone()
    labels[630:] = UNLABELLED
    trained, validated = hold_out_validation(replace(indexed, train_labels=labels), 0.2)
    assert (validated.test_labels >= 0).all() and indices(validated.test_images) < set(range(630))
    assert indices(trained.train_images) >= set(range(630, 1260))


def test_statistics_of_the_channels_stay(digits: Dataset) -> None:
    for part in hold_out_validation(digits, 0.5):
        assert (part.mean, part.std, part.levels, part.classes) == (
            digits.mean, digits.std, digits.levels, digits.classes,
        )  # fmt: skip


def test_folders_are_parted_by_their_files(tmp_path: Path) -> None:
    write_imagenet(tmp_path)
    imagenet = load("imagenet", tmp_path)
    trained, validated = hold_out_validation(imagenet, 0.25)
    full, remaining, held_out = imagenet.train_images, trained.train_images, validated.test_images
    assert isinstance(full, ImageFiles) and isinstance(remaining, ImageFiles) and isinstance(held_out, ImageFiles)
    assert sorted([*remaining.paths(), *held_out.paths()]) == sorted(full.paths())
    assert validated.test_labels.tolist() == [0, 1, 2]


@pytest.mark.parametrize(("share", "count"), [(0.003, 0), (0.999, 125)])
def test_a_class_without_an_image_on_either_side_is_refused(digits: Dataset, share: float, count: int) -> None:
    with pytest.raises(ValueError) as error:
        hold_out_validation(digits, share)
    assert str(error.value) == (
        "validation must leave and hold out at least one image of each class, but of the 125 training images of class "
        f"0 of digits validation={share} holds out {count}"
    )


# --- Few normal images, and anomalies among them ---


def is_normal(indexed: Dataset, chosen: set[int], normal_class: int = 3) -> list[bool]:
    return [bool(indexed.train_labels[index] == normal_class) for index in sorted(chosen)]


@pytest.mark.slow
@given(
    st.tuples(st.integers(1, 125), st.integers(1, 125)).map(sorted),
    st.tuples(st.floats(0.1, 0.49), st.floats(0.1, 0.49)).map(sorted),
    st.integers(0, 99),
)
def test_more_images_are_the_same_and_more_and_the_share_is_exact(
    indexed: Dataset, images: list[int], shares: list[float], seed: int
) -> None:
    few, many = (indices(one_class_split(indexed, 3, count, seed=seed).train_images) for count in images)
    assert few <= many and (len(few), len(many)) == tuple(images) and all(is_normal(indexed, many))
    assume(images[0] >= 5)
    clean, dirty = (one_class_split(indexed, 3, images[0], share, seed) for share in shares)
    assert few < indices(clean.train_images) <= indices(dirty.train_images)
    for split, share in ((clean, shares[0]), (dirty, shares[1])):
        normal = is_normal(indexed, indices(split.train_images))
        assert normal.count(True) == images[0]
        assert abs(normal.count(False) - share * len(normal)) <= 0.5 / (1 - share) + 1e-9  # half an anomaly
        bytes_N2 = split.train_images[:].flatten(1).long()
        positions = 256 * bytes_N2[:, 0] + bytes_N2[:, 1]
        assert torch.equal(split.train_labels, indexed.train_labels[positions])


def test_the_seed_chooses_which(indexed: Dataset) -> None:
    state = torch.get_rng_state()
    chosen = [indices(one_class_split(indexed, 3, 10, 0.2, seed).train_images) for seed in (0, 1, 0)]
    assert chosen[0] == chosen[2] != chosen[1] and torch.equal(torch.get_rng_state(), state)
    assert indices(one_class_split(indexed, 3).train_images) == indices(
        one_class_split(indexed, 3, 128, seed=5).train_images
    )


def test_neither_changes_what_is_held_out_or_tested(indexed: Dataset) -> None:
    trained, validated = hold_out_validation(indexed, 0.2)
    for part in (trained, validated):
        split = one_class_split(part, 3, 20, 0.2)
        assert indices(split.train_images) < indices(trained.train_images)
        assert split.test_images is part.test_images and split.test_labels is part.test_labels
        assert split.outlier is not None and torch.equal(split.outlier, part.test_labels != 3)


def test_unlabelled_images_are_no_anomalies(half_labelled: Dataset) -> None:
    assert (one_class_split(half_labelled, 3, 0, 0.45).train_labels != UNLABELLED).all()


@pytest.mark.parametrize(
    ("images", "share", "message"),
    [
        (
            129,
            0.0,
            "normal_images must not exceed the 128 training images of class 3 of digits, but got normal_images=129",
        ),
        (
            10,
            0.01,
            "contamination must add at least one and at most the 1132 training images of classes other than 3 of "
            "digits, but contamination=0.01 with 10 normal images adds 0",
        ),
    ],
)
def test_too_few_images_are_refused_with_their_class_and_number(
    digits: Dataset, images: int, share: float, message: str
) -> None:
    with pytest.raises(ValueError) as error:
        one_class_split(digits, 3, images, share)
    assert str(error.value) == message


def test_normal_images_alone_cannot_be_contaminated(digits: Dataset) -> None:
    normal = one_class_split(digits, 3)
    with pytest.raises(ValueError, match=r"needs training images of classes other than 3, but digits has none; got"):
        one_class_split(normal, 3, 0, 0.1)


@given(
    groups=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 2)), min_size=8, max_size=40),
    share=st.floats(0.05, 0.5),
)
def test_a_group_is_on_one_side(groups: list[tuple[int, int]], share: float) -> None:
    """Groups of one class each; a class that has a single group cannot be split."""
    group_N = torch.cat([torch.full((size,), index) for index, (size, _) in enumerate(groups)])
    label_N = torch.cat([torch.full((size,), label) for size, label in groups])
    counts = [sum(label == each for _, each in groups) for label in label_N.unique().tolist()]
    images = torch.arange(len(label_N)).view(-1, 1, 1, 1)
    dataset = Dataset(
        "cells", images, label_N, images[:0], label_N[:0], ("a", "b", "c"), 255, (0.0,), (1.0,), groups=group_N
    )
    if min(counts) < 2:
        with pytest.raises(ValueError, match=r"hold out at least one image of each .* groups are held out whole"):
            hold_out_validation(dataset, share)
        return
    trained, validated = hold_out_validation(dataset, share)
    held_N = validated.test_images[:].flatten()
    kept_N = trained.train_images[:].flatten()
    assert sorted([*held_N.tolist(), *kept_N.tolist()]) == [*range(len(label_N))]
    assert not set(group_N[held_N].tolist()) & set(group_N[kept_N].tolist())
    assert trained.groups is not None and torch.equal(trained.groups, group_N[kept_N])
    for label, size in enumerate(label_N.bincount().tolist()):
        largest = max((size for size, each in groups if each == label), default=0)
        assert abs(int((label_N[held_N] == label).sum()) - share * size) <= largest


def test_images_without_labels_are_held_out(digits: Dataset) -> None:
    unlabelled = replace(digits, classes=(), train_labels=torch.full_like(digits.train_labels, UNLABELLED))
    trained, validated = hold_out_validation(unlabelled, 0.1)
    assert (len(trained.train_images), len(validated.test_images)) == (1134, 126)
