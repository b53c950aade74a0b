"""The columns of rows: each key and each metric of a request has a name of its own."""

import re
from pathlib import Path

import pytest

from sweeper.definition import Grid, Heatmap, Metric, Sweep, Value
from sweeper.definition.user_code import search_folder
from sweeper.errors import SpecError
from sweeper.planning.prepare import prepare
from sweeper.request import Request
from sweeper.storage.rows import STUDY_COLUMNS, Columns
from sweeper.storage.store import Store
from tests.cases import for_each
from tests.user_files import DENOISE, user_folder
from trainables.catalog import METHODS
from trainables.config import keys

__all__ = ["user_folder"]


@for_each("method", METHODS)
def test_no_hyperparameter_has_the_name_of_another_column(method: str) -> None:
    """One of the two would overwrite the other."""
    assert not set(keys(method)) & set(STUDY_COLUMNS)
    assert set(Columns({**keys(method), **STUDY_COLUMNS}, ()).schema.names) > {*keys(method), *STUDY_COLUMNS}


def _prepared(folder: Path, module: str, body: str, classes: tuple[str, ...] = ("Own",)) -> Columns:
    """The columns of trials of the classes that a module adds to `DENOISE`."""
    search_folder(folder)
    (folder / f"{module}.py").write_text(f"{DENOISE}\n\n{body}")
    fixed: dict[str, Value] = {"dataset": "digits", "epochs": 1, "knn": 3}
    axes = {"method": tuple(f"{module}:{name}" for name in classes), "seed": (0, 1)}
    figures = (Heatmap(Metric("knn_z", "maximize"), rows="seed", columns="method"),)
    sweep = Sweep(about="names", presets={"digits": Grid(fixed=fixed, axes=axes)}, figures=figures, over="seeds")
    return prepare(Request(name="names", sweep=sweep), Store(folder / "store"))[1]


KEY = """
@dataclass(frozen=True)
class Config:
    {name}: int = 64

class Own(Denoise):
    Config, fusible, sigma = Config, frozenset(), 0.3
"""
MEASURE = """
class Own(Denoise):
    loss_parts = ("{name}",)
    measures = frozenset(loss_parts)

    def losses(self, batch, noise):
        total = super().losses(batch, noise).total
        return Losses(total, {{"{name}": total.detach()}})
"""
TAKEN = ("width", "seed", "method", "sweep", "host", "loss", "knn_z", *STUDY_COLUMNS)


@for_each(("kind", "name"), [*((KEY, name) for name in TAKEN), *((MEASURE, name) for name in (*TAKEN, "sigma"))])
def test_a_name_that_is_taken_is_refused(user_folder: Path, kind: str, name: str) -> None:
    """Joined silently, a key would have one value in the check of a method and another in training."""
    with pytest.raises(SpecError) as refused:
        _prepared(user_folder, f"own_{'key' if kind == KEY else 'measure'}_{name}", kind.format(name=name))
    assert re.search(rf"['\" ]{name}\b", str(refused.value)) and "\n" not in str(refused.value)
    assert refused.match("name|a key of Config must not be one that all methods have")


def test_names_of_their_own_have_columns(user_folder: Path) -> None:
    assert "depth" in _prepared(user_folder, "own_depth", KEY.format(name="depth")).hyperparameters
    assert "gap" in _prepared(user_folder, "own_gap", MEASURE.format(name="gap")).metrics


def test_a_key_of_two_types_is_refused(user_folder: Path) -> None:
    """A row with a fraction could not be written into a column of whole numbers."""
    body = KEY.format(name="sigma") + "\n\nclass Other(Denoise):\n    pass\n"
    with pytest.raises(SpecError, match=r"^a key must have one type .* sigma is int in own:Own and float in own:Other"):
        _prepared(user_folder, "own", body, ("Own", "Other"))
