"""What the modules of this project import, read from their source: nothing is imported here."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGES = ("cluster", "search_spaces", "sweeper", "trainables")


class Import(NamedTuple):
    line: int
    name: str
    """Dotted and absolute, the imported object included: `from torch import nn` is `torch.nn`."""
    typing_only: bool


def imports(source: str, module: str, package: bool = False) -> Iterator[Import]:
    """Everything that `source`, the text of `module`, imports by name: statements anywhere in it, `import_module("x")`
    and `__import__("x")`, and submodules reached as attributes of an imported package (`torch.distributed`)."""
    tree = ast.parse(source)
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
        for statement in node.body
        for inner in ast.walk(statement)
    }
    parents = module.split(".") if package else module.split(".")[:-1]
    known: dict[str, str] = {}
    for node in ast.walk(tree):
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
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in ("import_module", "__import__"):
            yield from (
                Import(node.lineno, given.value, False)
                for given in node.args[:1]
                if isinstance(given, ast.Constant) and isinstance(given.value, str)
            )
    inner_parts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in inner_parts:
            root, _, rest = ast.unparse(node).partition(".")
            if root in known and rest.replace(".", "").isidentifier():
                yield Import(node.lineno, f"{known[root]}.{rest}", True)  # what it may reach is what it may import


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
