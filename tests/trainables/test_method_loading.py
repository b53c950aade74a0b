"""A method of the user is imported by its path or its entry point; what is none is refused with the reason."""

import sys
from pathlib import Path

import pytest

from sweeper.definition.user_code import search_folder
from tests.cases import for_each
from tests.user_files import DENOISE, user_folder
from trainables.catalog import (
    METHODS,
    NotImportedError,
    import_method,
    installed_methods,
    known_methods,
    method_of,
    ships,
    task_of,
)
from trainables.config import fusible_keys, keys, parse, resolve
from trainables.training.metric_names import methods_by_metric

__all__ = ["user_folder"]

MINE = "method_of_mine:Denoise"


@pytest.fixture
def mine(user_folder: Path) -> Path:
    """The file of a method."""
    search_folder(user_folder)
    file = user_folder / "method_of_mine.py"
    file.write_text(DENOISE)
    return file


@pytest.mark.usefixtures("mine")
def test_a_method_has_its_path_as_name_and_its_keys() -> None:
    import_method(MINE)
    config = resolve({"method": MINE, "sigma": 1})
    assert config.flat()["method"] == MINE and config.flat()["sigma"] == 1.0
    assert method_of(MINE) is method_of(MINE) and not ships(MINE) and task_of(MINE) is task_of("vje")
    assert keys(MINE)["sigma"] is float and fusible_keys(MINE) == {
        "lr",
        "lr_gamma",
        "clip_grad_norm",
        "weight_decay",
        "seed",
        "patience",
        "normal_class",
        "normal_images",
        "contamination",
        "sigma",
    }
    assert parse("sigma", "0.5") == 0.5


@pytest.mark.usefixtures("mine")
def test_a_method_is_known_once_it_is_imported() -> None:
    assert MINE not in known_methods() and MINE not in methods_by_metric()["knn_z"]
    import_method(MINE)
    assert [*known_methods()] == [*METHODS, MINE] and methods_by_metric()["knn_z"][-1] == MINE


@pytest.mark.usefixtures("mine")
@for_each("name", [MINE, "method_of_mine:Denoise.__init__", "this:d", "os.path:join", ":", "a:\n"])
def test_a_name_alone_imports_nothing(name: str) -> None:
    """It may come from data."""
    before = set(sys.modules)
    for use in (method_of, task_of, keys, fusible_keys, lambda name: resolve({"method": name})):
        with pytest.raises(NotImportedError, match="neither ships nor is installed") as refused:
            use(name)
        assert "\n" not in str(refused.value)
    assert set(sys.modules) == before


def test_a_key_that_may_be_none_can_be_none_on_the_command_line(mine: Path) -> None:
    own = "@dataclass(frozen=True)\nclass C:\n    depth: int | None = 3\n"
    mine.write_text(f"{DENOISE}\n\n{own}\nclass x(Denoise):\n    Config, fusible = C, frozenset()\n")
    import_method("method_of_mine:x")
    assert parse("depth", "none") is None and parse("depth", "2") == 2


def test_an_installed_method_has_the_name_of_its_entry_point(mine: Path) -> None:
    metadata = mine.parent / "mine-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[sweeper.methods]\ndenoise_of_mine = {MINE}\nvje = {MINE}\n")
    installed_methods.cache_clear()
    assert method_of("denoise_of_mine").__name__ == "Denoise" and method_of("vje") is METHODS["vje"]
    with pytest.raises(
        ValueError, match=r"no method 'denoise_of' \(did you mean 'denoise_of_mine'\?\); --describe methods lists all"
    ):
        method_of("denoise_of")


BROKEN = {
    "x = 3": "must be a function, or a subclass of sweeper.ImageMethod or sweeper.PairsMethod, but got a value of",
    "class x: pass": "or sweeper.PairsMethod, but got the class x",
    "from trainables.contract import Method\nclass x(Method): pass": "must be a subclass of ImageMethod",
    "class x(Denoise):\n    Config = None": "Config must be a frozen dataclass of its hyperparameters, but got Config=",
    "@dataclass\nclass C:\n    sigma: float = 1.0\nclass x(Denoise):\n    Config = C": "Config must be frozen",
    "@dataclass(frozen=True)\nclass C:\n    sigma: float\nclass x(Denoise):\n    Config = C": "have a default, but got",
    "@dataclass(frozen=True)\nclass C:\n    sigma: tuple[int, ...] = ()\nclass x(Denoise):\n    Config = C": (
        "a hyperparameter must be a bool, int, float or str, but got sigma of type tuple[int, ...]"
    ),
    "class x(Denoise):\n    fusible = frozenset({'tau'})": (
        "every name in fusible must be a field of Config, but got 'tau'; there are: sigma"
    ),
    "class x(Denoise):\n    capabilities = frozenset({'score'})": "capability 'score' must define it, but got none",
    "class x(Denoise):\n    capabilities = frozenset({'fly'})": "but got 'fly'; there are: embed, score, ",
    "from sweeper import PairsMethod\nclass x(PairsMethod):\n    Config = Denoise.Config": (
        "capability 'predict' must define it, but got none"
    ),
    "class x(Denoise):\n    capabilities = frozenset({'classify'})": "capability 'classify' must define it",
    "class x(Denoise):\n    reads = frozenset({'label'})": (
        "reads must name entries of a batch, but got 'label'; there are: labels, plain, plain_pixels, view_pixels"
    ),
    "class x(Denoise):\n    scores = ('joint',)": "scores must list the names that score() returns",
    "class x(Denoise):\n    task = 'sound'": "no task 'sound'; there are: images",
    "1 / 0": "cannot be imported: method_of_mine.py, line 34: ZeroDivisionError: division by zero",
    "y = 3": "cannot be imported: AttributeError: module 'method_of_mine' has no attribute 'x'",
}


@pytest.mark.parametrize("text", BROKEN)
def test_what_is_no_method_is_refused_with_the_reason_in_one_line(mine: Path, text: str) -> None:
    mine.write_text(f"{DENOISE}\n\n{text}\n")
    with pytest.raises(ValueError) as refused:
        import_method("method_of_mine:x")
    assert BROKEN[text] in str(refused.value) and "\n" not in str(refused.value)


def test_a_path_with_a_dot_in_place_of_the_colon_is_explained() -> None:
    with pytest.raises(ValueError, match=r"^no method 'a\.b'; a method of your own is written package\.module:Class"):
        method_of("a.b")
