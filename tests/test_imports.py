"""Who imports whom: the contracts of import-linter in `pyproject.toml`, and the two laws that it cannot state."""

import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from importlinter.cli import lint_imports

from tests.cases import for_each

ROOT = Path(__file__).parents[1]
PACKAGES = ("search_spaces", "sweeper", "trainables")
COMMANDS: Mapping[str, str] = {
    "torch": "again completion descriptions one_trial preview trial",
    "pandas": "again best claims compare conclusion evaluate export figure inspect plan report run score sweep_run "
    "table track trial view",
}
"""Library -> the modules of `sweeper.commands` that may load it."""


def commands(library: str) -> list[str]:
    return [f"sweeper.commands.{name}" for name in COMMANDS[library].split()]


AT_START: Mapping[str, tuple[str, ...]] = {
    "torch": (
        *("trainables", "sweeper.claims.decide", "sweeper.execution", *commands("torch")),
        *("sweeper.packing", "sweeper.planning.prepare", "sweeper.record.rows", "sweeper.search.studies"),
    ),
    "ray": (
        *("sweeper.execution.ray_backend", "sweeper.execution.ray_internals", "sweeper.execution.ray_nodes"),
        *("trainables.worker.ray_group", "trainables.worker.ray_train", "trainables.worker.tune_trainable"),
    ),
    "optuna": (
        *("search_spaces", "sweeper.execution", "sweeper.report.optuna_log", "sweeper.report.studies"),
        *("sweeper.report.study_tables", "sweeper.search"),
    ),
    "pandas": (
        *(*commands("pandas"), "sweeper.api", "sweeper.claims", "sweeper.execution"),
        *("sweeper.record", "sweeper.report", "sweeper.results", "sweeper.search.journal", "sweeper.storage.load"),
    ),
    "pyarrow": (
        *("sweeper.api", "sweeper.claims", "sweeper.commands", "sweeper.execution", "sweeper.models"),
        *("sweeper.packing", "sweeper.planning", "sweeper.record", "sweeper.report", "sweeper.results"),
        *("sweeper.search", "sweeper.storage", "sweeper.submission"),
    ),
    "sweeper.claims": ("search_spaces", "sweeper.claims", "sweeper.commands.claims"),
}
"""Library, or package of ours -> the modules that may load it when they are imported. All others import it when it is
used, if at all, so that commands start quickly and workers load only what they need."""


def top_level(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what runs when a module is imported: no bodies of functions, and nothing for type checkers."""
    for child in ast.iter_child_nodes(node):
        function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        if not function and not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield child
            yield from top_level(child)


def direct_imports(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """Map each module to the names that it imports at its start, and the packages that these are in."""
    direct: dict[str, set[str]] = {}
    for module, source in sources.items():
        names = set[str]()
        for node in top_level(ast.parse(source)):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names |= {f"{node.module}.{alias.name}" for alias in node.names}
        parts = [name.split(".") for name in names]
        direct[module] = {".".join(name[:length]) for name in parts for length in range(1, len(name) + 1)}
    return direct


def loaded(module: str, direct: Mapping[str, set[str]]) -> set[str]:
    """Return everything that is imported with `module`, and the packages that it is in."""
    parts = module.split(".")
    todo = [".".join(parts[:length]) for length in range(1, len(parts) + 1)]
    seen = set(todo)
    while todo:
        new = direct.get(todo.pop(), set()) - seen
        seen |= new
        todo += new
    return seen


def offenders(library: str, sources: Mapping[str, str]) -> list[str]:
    """Return the modules that load `library` when they are imported, although AT_START does not name them."""
    direct = direct_imports(sources)
    return [
        module
        for module in sources
        if not any(f"{module}.".startswith(f"{name}.") for name in AT_START[library])
        if library in loaded(module, direct)
    ]


def modules() -> dict[str, str]:
    """The text of each module."""
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path.read_text()
        for path in paths
    }


def test_the_contracts_hold(capsys: pytest.CaptureFixture[str]) -> None:
    status = lint_imports(str(ROOT / "pyproject.toml"), no_cache=True, no_logo=True)
    assert status == 0, capsys.readouterr().out


@for_each("library", list(AT_START))
def test_only_named_modules_load_a_library_when_they_are_imported(library: str) -> None:
    assert not offenders(library, modules())


def test_every_named_module_exists() -> None:
    names = modules().keys()
    assert not {name for allowed in AT_START.values() for name in allowed} - names


def test_a_library_that_is_loaded_through_another_module_is_found() -> None:
    sources = {
        "sweeper": "",
        "sweeper.definition.sweep": "def f():\n    import torch",
        "sweeper.definition.space": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch",
        "sweeper.planning.cohorts": "from sweeper.definition import space, sweep",
    }
    assert offenders("torch", sources) == []
    sources["sweeper.definition.sweep"] = "try:\n    from torch import nn\nexcept ImportError:\n    pass"
    assert offenders("torch", sources) == ["sweeper.definition.sweep", "sweeper.planning.cohorts"]
    assert offenders("torch", {**sources, "sweeper": "import torch.nn"}) == list(sources)


def test_losses_do_not_communicate() -> None:
    """They are pure functions; learners exchange what several processes need."""
    sources = [path.read_text() for path in (ROOT / "trainables" / "losses").glob("*.py")]
    assert len(sources) > 5 and not any("distributed" in source for source in sources)


def test_each_class_has_a_name_of_its_own() -> None:
    """With or without an underscore: a reader who finds a name knows what it is."""
    names = Counter(
        node.name.lstrip("_")
        for source in modules().values()
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ClassDef)
    )
    assert not [name for name, count in names.items() if count > 1]
