"""Who may write the folders of what is executed."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cases import for_each
from tests.other_user import NOBODY, as_nobody, needs_root
from trainables.cache import OpenFolderError, _user_outside, check_closed, make_closed


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that every user may enter, in the sticky temporary folder of the machine."""
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def test_a_folder_is_made_closed_with_all_that_are_missing_above_it(shared: Path) -> None:
    previous = os.umask(0)
    try:
        make_closed(shared / "cache" / "sweeper" / "steps")
    finally:
        os.umask(previous)
    made = [shared / "cache", shared / "cache" / "sweeper", shared / "cache" / "sweeper" / "steps"]
    assert [path.stat().st_mode & 0o7777 for path in made] == [0o700] * 3
    make_closed(made[-1])


@for_each(
    ("above", "mode", "allowed"),
    [
        *((above, mode, False) for above in (0, 1, 2) for mode in (0o777, 0o775, 0o722)),
        *((above, 0o755, True) for above in (0, 1, 2)),
        *((above, 0o1777, above > 0) for above in (0, 1, 2)),
    ],
)
def test_no_one_else_may_write_a_folder_or_those_above_it_but_sticky_ones(
    tmp_path: Path, above: int, mode: int, allowed: bool
) -> None:
    folder = tmp_path / "cache" / "steps"
    make_closed(folder)
    changed = (folder, *folder.parents)[above]
    changed.chmod(mode)
    if allowed:
        check_closed(folder)
        return
    with pytest.raises(OpenFolderError) as raised:
        check_closed(folder)
    line = str(raised.value)
    assert line.startswith(f"{folder} and all folders above it must belong to you or to root")
    remedy = "+t" if above and mode & 0o002 else "go-w"
    assert f"but {changed} has mode {mode:04o}; use `chmod {remedy} {changed}`, or set XDG_CACHE_HOME" in line


@needs_root
def test_a_folder_inside_one_of_another_user_is_refused_because_he_can_replace_it(shared: Path) -> None:
    folder = shared / "theirs" / "steps"
    make_closed(folder)
    (folder / "step.so").write_bytes(b"ours")
    os.chown(shared / "theirs", NOBODY, NOBODY)
    os.chmod(shared / "theirs", 0o755)
    with as_nobody():  # the folder has mode 0700 and is ours
        folder.rename(shared / "theirs" / "aside")
        folder.mkdir()
        (folder / "step.so").write_bytes(b"planted")
    assert (folder / "step.so").read_bytes() == b"planted"
    for act in (check_closed, make_closed):
        with pytest.raises(OpenFolderError, match=r"but .*/theirs belongs to nobody; set XDG_CACHE_HOME"):
            act(folder)


@needs_root
def test_another_user_cannot_prepare_a_folder_in_a_sticky_one(shared: Path) -> None:
    os.chmod(shared, 0o1777)
    with as_nobody():
        (shared / "cache").mkdir(mode=0o755)
    with pytest.raises(OpenFolderError, match="/cache belongs to nobody"):
        make_closed(shared / "cache" / "steps")
    assert not list((shared / "cache").iterdir())


def test_a_link_in_place_of_a_folder_is_refused(tmp_path: Path) -> None:
    """Callers follow links first, so this one has come since."""
    make_closed(tmp_path / "real")
    (tmp_path / "cache").symlink_to(tmp_path / "real")
    for act in (check_closed, make_closed):
        with pytest.raises(NotADirectoryError):
            act(tmp_path / "cache" / "steps")
    assert not list((tmp_path / "real").iterdir())


@pytest.mark.parametrize(
    ("uid_map", "outside"),
    [
        ("0 0 4294967295", None),
        ("0 1000 1\n1 100000 65536", None),
        ("1000 1000 1", 65534),
        ("0 1000 1", 65534),
    ],
)
def test_the_machines_root_counts_as_root_in_a_container_without_it(
    uid_map: str, outside: int | None, tmp_path: Path
) -> None:
    (tmp_path / "uid_map").write_text(f"{uid_map}\n")
    (tmp_path / "overflowuid").write_text("65534\n")
    assert _user_outside(tmp_path, tmp_path) == outside
    assert _user_outside(tmp_path / "absent", tmp_path) is None
