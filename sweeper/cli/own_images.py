"""Requests for trials on the user's own images: what the folder of `--data` says of them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sweeper.plan.changes import DIGEST
from sweeper.request import Request
from sweeper.spec import Grid, Search, Space, SpecError
from sweeper.spec.space import Grids, P
from sweeper.spec.sweep import subspaces
from trainables.data.datasets.class_folders import FOLDER, list_folder
from trainables.data.errors import DataError


@dataclass(frozen=True)
class OwnImages:
    """A request and a preset's space that say which images they are about."""

    request: Request
    space: Space
    classes: Sequence[str] = ()
    """Names of the classes of the user's images; empty for a request without them."""
    note: str = ""
    """One line on the images; empty without them."""


def with_own_images(request: Request, space: Space) -> OwnImages:
    """Add the digest of the images in `--data` to what selects them: the request if it sets `dataset=folder`, else the
    parts of the preset that do. Raises SpecError, with one line, if the folder cannot be used."""
    requested = {request.fixed.get("dataset"), *request.axes.get("dataset", ())}
    parts = [part for part in subspaces(space) if FOLDER in part.values("dataset")]
    if FOLDER not in requested and (not parts or requested != {None}):
        return OwnImages(request, space)
    axes = [request.axes.get("dataset", ())] if FOLDER in requested else [part.values("dataset") for part in parts]
    if any(len(values) > 1 for values in axes):
        raise SpecError(f"dataset={FOLDER} must be set for all trials, but is one of several values of an axis")
    try:
        listing = list_folder(Path(request.data).resolve())
    except DataError as error:
        raise SpecError(str(error)) from error
    names = ", ".join(f"{index} {name}" for index, name in enumerate(listing.classes))
    note = (
        f"dataset={FOLDER}: {sum(listing.train)} training and {sum(listing.test)} test images in {request.data}, "
        f"classes {names}"
    )
    if listing.repeated:
        note += (
            f"; warning: {listing.repeated} of the test images are training images, too, so that metrics on "
            "test images are better than on new ones"
        )
    digest = {DIGEST: listing.digest}
    if FOLDER in requested:
        request = replace(request, fixed={**digest, **request.fixed})
    else:
        space = _with(space, digest)
    return OwnImages(request, space, listing.classes, note)


def _with(space: Space, digest: dict[str, str]) -> Space:
    """The space with the digest fixed in the parts on the user's images that have none of their own."""

    def part_with(part: P) -> P:
        of_folder = FOLDER in part.values("dataset") and not part.values(DIGEST)
        return replace(part, fixed={**part.fixed, **digest}) if of_folder else part

    if isinstance(space, Grid):
        return part_with(space)
    if isinstance(space, Search):
        return part_with(space)
    if isinstance(space, Grids):
        return replace(space, grids=tuple(map(part_with, space.grids)))
    return replace(space, searches=tuple(map(part_with, space.searches)))
