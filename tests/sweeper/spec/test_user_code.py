"""A cluster is sent those of the user's modules that have been imported, packages as a whole."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

from sweeper.spec import user_code
from tests.user_files import user_folder

__all__ = ["user_folder"]


def test_only_imported_modules_of_the_users_folders_are_sent(user_folder: Path) -> None:
    for name in ("package_of_mine/inner.py", "package_of_mine/other.py", "module_of_mine.py", "unused_of_mine.py"):
        (user_folder / name).parent.mkdir(exist_ok=True)
        (user_folder / name).write_text("")
    assert user_code.modules() == ()
    user_code.search_folder(user_folder)
    assert user_code.modules() == () and user_code.folders() == (str(user_folder),)
    importlib.import_module("package_of_mine.inner")
    importlib.import_module("module_of_mine")
    assert user_code.modules() == (str(user_folder / "module_of_mine.py"), str(user_folder / "package_of_mine"))


def test_this_projects_packages_are_not_the_users(user_folder: Path) -> None:
    user_code.search_folder(Path(user_code.__file__).parents[2])
    importlib.import_module("search_spaces")
    assert user_code.modules() == ()


def test_a_folder_is_searched_once_and_first(user_folder: Path) -> None:
    user_code.search_folder(user_folder)
    user_code.search_folder(user_folder)
    assert sys.path[0] == str(user_folder) and sys.path.count(str(user_folder)) == 1


def test_modules_may_be_imported_meanwhile(user_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a thread does while Ray starts."""
    look, late = user_code._origin, ModuleType("late_module")

    def look_while_another_imports(module: ModuleType) -> Path | None:
        monkeypatch.setitem(sys.modules, late.__name__, late)
        return look(module)

    monkeypatch.setattr(user_code, "_origin", look_while_another_imports)
    assert user_code.modules() == ()
