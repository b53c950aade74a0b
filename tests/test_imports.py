"""Keeps the table of `import_rules`, who may import whom, by reading every module: nothing is imported here.

A name that is imported, wherever it stands in the file, is judged by the longest prefix that a row mentions: it is
forbidden if `never` mentions it, or if `may` does not and it is not of the standard library. What is imported for type
checkers alone (`if TYPE_CHECKING:`) costs nothing when run, so for that only `never` holds.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.cases import for_each
from tests.import_rules import TABLE, Rule

ROOT = Path(__file__).parents[1]
PACKAGES = ("search_spaces", "sweeper", "trainables")


class Import(NamedTuple):
    line: int
    name: str
    """Dotted and absolute, the imported object included: `from torch import nn` is `torch.nn`."""
    typing_only: bool


def imports(source: str, module: str, package: bool = False) -> Iterator[Import]:
    """Everything that `source`, the text of `module`, imports by name: statements anywhere in it, `import_module("x")`
    and `__import__("x")`, and submodules reached as attributes of an imported package (`torch.distributed`)."""
    nodes = list(ast.walk(ast.parse(source)))
    typing_only = {
        id(inner)
        for node in nodes
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
        for statement in node.body
        for inner in ast.walk(statement)
    }
    parents = module.split(".") if package else module.split(".")[:-1]
    known: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(node.lineno, alias.name, id(node) in typing_only)
                bound = alias.name if alias.asname else alias.name.split(".")[0]
                known[alias.asname or bound] = bound
        elif isinstance(node, ast.ImportFrom):
            above = parents[: len(parents) - node.level + 1] if node.level else []
            origin = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                name = origin if alias.name == "*" else f"{origin}.{alias.name}"
                yield Import(node.lineno, name, id(node) in typing_only)
        elif isinstance(node, ast.Call) and _names(node.func)[-1] in ("import_module", "__import__"):
            yield from (
                Import(node.lineno, given.value, False)
                for given in node.args[:1]
                if isinstance(given, ast.Constant) and isinstance(given.value, str)
            )
    attributes = [node for node in nodes if isinstance(node, ast.Attribute)]
    inner_parts = {id(node.value) for node in attributes}
    for node in attributes:
        root, *rest = _names(node)
        if root in known and id(node) not in inner_parts:
            yield Import(node.lineno, ".".join([known[root], *rest]), True)  # what it may reach is what it may import


def _names(node: ast.expr) -> list[str]:
    """The names of `a.b.c`; of another expression its attributes after an empty name."""
    if isinstance(node, ast.Attribute):
        return [*_names(node.value), node.attr]
    return [node.id if isinstance(node, ast.Name) else ""]


def direct_imports(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """Map each module to what it imports itself: our modules by name, libraries by their top-level name.

    `sources` maps our modules to their texts. Imports inside functions are left out.
    """
    direct: dict[str, set[str]] = {}
    for module, source in sources.items():
        statements = [node for node in ast.parse(source).body if isinstance(node, ast.Import | ast.ImportFrom)]
        package = any(other.startswith(f"{module}.") for other in sources)
        direct[module] = set()
        for name in {imported.name for imported in imports("\n".join(map(ast.unparse, statements)), module, package)}:
            parts = name.split(".")
            prefixes = {".".join(parts[:length]) for length in range(1, len(parts) + 1)}
            direct[module] |= prefixes.intersection(sources) or {parts[0]}
    return direct


def reached(module: str, direct: Mapping[str, set[str]]) -> set[str]:
    """Return everything that importing `module` imports, directly or through other modules."""
    seen, todo = set[str](), [module]
    while todo:
        new = direct.get(todo.pop(), set()) - seen
        seen |= new
        todo += new
    return seen


def modules() -> Iterator[tuple[str, Path]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def rule_of(module: str) -> tuple[str, Rule]:
    """Return the row of the longest name that contains the module."""
    row = max((name for name in TABLE if f"{module}.".startswith(f"{name}.")), key=len)
    return row, TABLE[row]


def _longest(name: str, prefixes: tuple[str, ...]) -> int:
    """Length of the longest of `prefixes` that `name` lies in; -1 if in none."""
    return max((len(prefix) for prefix in prefixes if f"{name}.".startswith(f"{prefix}.")), default=-1)


def offences(source: str, module: str, path: str, package: bool = False) -> list[str]:
    """One line for each forbidden import: file, line and rule."""
    row, rule = rule_of(module)
    allowed = rule.may if rule.alone else (*rule.may, row)
    violations = []
    for line, name, typing_only in imports(source, module, package):
        may, never = _longest(name, allowed), _longest(name, rule.never)
        if never >= 0 and never >= may:
            law = f"never {', '.join(rule.never)}"
        elif may < 0 and not typing_only and name.split(".")[0] not in sys.stdlib_module_names:
            law = f"may import {', '.join(('the standard library', *rule.may))}"
        else:
            continue
        violations.append(f"{path}:{line}: {module} imports {name}, but {row}: {law}")
    return list(dict.fromkeys(violations))


def back_doors(sources: Mapping[str, str]) -> list[str]:
    """One line for each library that a module must never import and yet imports with another module."""
    direct = direct_imports(sources)
    return [
        f"{module} must never import {name}, but imports it with one of: {', '.join(sorted(all_of_it))}"
        for module in sources
        for all_of_it in [reached(module, direct)]
        for name in sorted(all_of_it.intersection(rule_of(module)[1].never) - set(sources))
    ]


def test_every_module_keeps_to_the_table() -> None:
    sources = list(modules())
    assert {"sweeper.storage.store", "trainables.learners.stack", "trainables.losses.densities"} <= {
        module for module, _ in sources
    }
    lines = [
        line
        for module, path in sources
        for line in offences(path.read_text(), module, str(path.relative_to(ROOT)), path.name == "__init__.py")
    ]
    assert not lines, "\n" + "\n".join(lines)


def test_rows_name_only_rows_above() -> None:
    """So there is no circle of folders. `search_spaces` is an exception: the registry imports its modules by name."""
    above = set[str]()
    for row, rule in TABLE.items():
        ours = [name for name in rule.may if name.split(".")[0] in PACKAGES]
        later = [name for name in ours if name != "search_spaces" and rule_of(name)[0] not in {*above, row}]
        assert not later, f"{row} may import {', '.join(later)}, which stands below it"
        above.add(row)


USERS_OF_CLAIMS = (
    "sweeper.commands.sweep_run", "sweeper.record.page", "sweeper.report.page.contents", "sweeper.report.page.publish",
)  # fmt: skip
"""Modules that use claims where a sweep or a store has some."""


def test_claims_are_used_through_one_hook_and_imported_only_where_there_are_some() -> None:
    sources = {module: (path.read_text(), path.name == "__init__.py") for module, path in modules()}
    ours = ("sweeper.claims.", "sweeper.commands.claims.")
    outside = {name: text for name, text in sources.items() if not f"{name}.".startswith(ours)}
    used = {
        (module, imported.name)
        for module, (source, package) in outside.items()
        for imported in imports(source, module, package)
        if f"{imported.name}.".startswith("sweeper.claims.") and not imported.typing_only
        if not module.startswith("search_spaces.")
    }
    assert used == {(module, "sweeper.claims.hook") for module in USERS_OF_CLAIMS}
    direct = direct_imports({module: source for module, (source, _) in sources.items()})
    early = [module for module in USERS_OF_CLAIMS if "sweeper.claims" in reached(module, direct)]
    assert not early, "they import claims when they are imported"


FORBIDDEN = [
    ("search_spaces.anomaly_grid", "import torch"),
    ("search_spaces.anomaly_grid", "from sweeper.planning.cohorts import Trial"),
    ("search_spaces.anomaly_grid", "from optuna import create_study"),
    ("sweeper.version", "import sweeper.spec.sweep"),
    ("sweeper.spec.sweep", "import pandas as pd"),
    ("sweeper.spec.sweep", "from sweeper.claims import Claim"),
    ("sweeper.commands.conclusion", "from sweeper.claims import hook"),
    ("sweeper.record.page", "from sweeper.claims import judging"),
    ("sweeper.spec.sweep", "from sweeper.planning.cohorts import Trial"),
    ("sweeper.spec.sweep", "from ..plan import trials"),
    ("sweeper.spec.sweep", "import yaml"),
    ("sweeper.planning.cohorts", "from sweeper.packing.packer import fraction"),
    ("sweeper.search.ask_tell", "import torch"),
    ("sweeper.storage.store", "import ray"),
    ("sweeper.report.heatmaps", "def draw():\n    if True:\n        import torch"),
    ("sweeper.record.progress", "from ray import tune"),
    ("sweeper.execution.loop", "import optuna"),
    ("sweeper.execution.loop", "from trainables.methods.variational.vje import VJE"),
    ("sweeper.commands.run", "from trainables.methods.variational.vje import VJE"),
    ("sweeper.commands.run", "from sweeper.api import run"),
    ("sweeper", "import pandas"),
    ("sweeper", "from sweeper.commands.run import main"),
    ("sweeper.api", "import torch"),
    ("sweeper.models", "import ray"),
    ("trainables.worker.ray_train", "from sweeper.storage.store import Store"),
    ("trainables.worker.ray_train", "from trainables.methods.variational import vje"),
    ("trainables.training.train", "async def f():\n    from ray import train"),
    ("trainables.training.train", "import importlib\nimportlib.import_module('ray.train')"),
    ("trainables.training.train", "__import__('pandas')"),
    ("trainables.learners.stack", "try:\n    import torch\nexcept ImportError:\n    import pyarrow"),
    ("trainables.data.views", "import ray"),
    ("trainables.validation", "import torch"),
    ("trainables.methods.variational.vje", "from trainables.methods.baselines.simsiam import SimSiam"),
    ("trainables.methods.variational.vje", "from ..baselines.simsiam import SimSiam"),
    ("trainables.methods.variational.vje", "from ...data import views"),
    ("trainables.methods.variational.vje", "from trainables.training import train"),
    ("trainables.reports", "import torch"),
    ("trainables.sections", "from trainables.catalog import METHODS"),
    ("trainables.learners.stack", "from trainables.sections import TrialConfig"),
    ("trainables.learners.stack", "from trainables.catalog import METHODS"),
    ("trainables.tasks.images.task", "from trainables.training import train"),
    ("trainables.tasks.images.task", "from trainables.catalog import METHODS"),
    ("trainables.tasks.images.task", "from trainables.config import resolve"),
    ("trainables.methods.variational.vje", "from trainables.tasks.task import Stream"),
    ("trainables.losses.kernels", "from torch import distributed"),
    ("trainables.losses.kernels", "import torch.distributed as dist"),
    ("trainables.losses.kernels", "import torch\ndef f(x): return torch.distributed.all_reduce(x)"),
    ("trainables.losses.kernels", "from trainables.losses import densities"),
    ("trainables.losses.kernels", "import numpy as np"),
    ("trainables.training.train", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import ray"),
    (
        "trainables.training.train",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    pass\nelse:\n    import ray",
    ),
    ("sweeper.new_module", "import numpy"),
    ("sweeper.report.heatmaps", "from sweeper.report.studies import tables"),
]


@for_each(("module", "source"), FORBIDDEN)
def test_a_forbidden_import_is_found(module: str, source: str) -> None:
    """On the last line of the source, and there alone."""
    (line,) = offences(source, module, "file.py")
    assert line.startswith(f"file.py:{1 + source.count(chr(10))}: {module} ")


def test_the_message_names_file_line_and_rule() -> None:
    (line,) = offences("import math\nimport ray\n", "sweeper.packing.packer", "sweeper/packing/packer.py")
    assert line == (
        "sweeper/packing/packer.py:2: sweeper.packing.packer imports ray, but sweeper.packing: never ray, optuna"
    )
    (line,) = offences("from torch import nn\nimport yaml", "trainables.contract", "c.py")
    expected = "trainables.contract imports yaml, but trainables.contract: may import the standard library, torch"
    assert line == f"c.py:2: {expected}"


@for_each(
    ("module", "source"),
    [
        ("search_spaces.anomaly_grid", "from sweeper.spec import Sweep\nfrom optuna.distributions import X"),
        ("search_spaces.anomaly_grid", "from optuna import distributions\nfrom sweeper import spec"),
        ("sweeper.planning.cohorts", "from __future__ import annotations\nimport math\nfrom .trials import Trial"),
        (
            "sweeper.spec.sweep",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from optuna.distributions import X",
        ),
        ("sweeper.execution.ray_backend", "import ray\nfrom ray import util\nfrom trainables.worker import ray_train"),
        ("trainables.worker.ray_train", "from ray.train.torch import TorchTrainer"),
        (
            "trainables.methods.variational.vje",
            "import torch.nn.functional as F\nfrom trainables.losses.densities import unit",
        ),
        ("trainables.losses.densities", "import torch\nfrom torch import Tensor\ntorch.linalg.vector_norm"),
        ("trainables.data.splits", "from trainables.data.datasets.dataset import Dataset"),
        ("trainables.tasks.images.task", "from trainables.sections import TrialConfig"),
        ("trainables.config", "from trainables.sections import TrialConfig"),
    ],
)
def test_an_allowed_import_passes(module: str, source: str) -> None:
    assert offences(source, module, "file.py") == []


def test_prefixes_end_at_dots() -> None:
    """`raytracer` is not `ray`, and a row for `sweeper.storage.store` does not open `sweeper.storehouse`."""
    assert "never" not in offences("import raytracer", "trainables.learners.stack", "file.py")[0]
    assert offences("import sweeper.storehouse", "sweeper.report.heatmaps", "file.py")


def test_no_module_imports_indirectly_what_it_must_never_import() -> None:
    lines = back_doors({module: path.read_text() for module, path in modules()})
    assert not lines, "\n" + "\n".join(lines)


def test_an_indirect_import_is_found() -> None:
    sources = {
        "sweeper": "",
        "sweeper.spec.sweep": "def f():\n    import torch",
        "sweeper.planning.changes": "from sweeper.spec import Sweep",
        "sweeper.planning.cohorts": "from .changes import Changes",
    }
    assert back_doors(sources) == []
    (line,) = back_doors({**sources, "sweeper": "import torch.nn"})[-1:]
    assert line.startswith("sweeper.planning.cohorts must never import torch, but imports it with one of: sweeper, ")
