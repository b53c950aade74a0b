"""What would let bytes or words from elsewhere run as code, read from the source: nothing is imported here."""

from __future__ import annotations

import ast
from collections.abc import Iterator

UNPICKLERS = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "ray.cloudpickle"}
"""Modules that make any object of bytes."""
RUNNERS = {
    *("eval", "exec", "compile", "os.system", "os.popen", "pandas.read_pickle", "yaml.load", "yaml.unsafe_load"),
    *("yaml.full_load", "torch.hub.load", "torch.jit.load", "shutil.unpack_archive", "ssl._create_unverified_context"),
}
"""Calls that may run what they are given, or write where it says."""
FETCHERS = {"urllib.request", "requests", "httpx", "aiohttp", "ftplib", "http.client.HTTPConnection"}
"""What fetches from elsewhere."""


def dangers(source: str) -> list[str]:
    """One line for each, in the order of the file."""
    tree = ast.parse(source)
    return [f"{line}: {what}" for line, what in sorted({*_imported(tree), *_called(tree)})]


def fetched(source: str) -> bool:
    """Whether it fetches anything itself."""
    return any(_within(name, FETCHERS) for _, name in _names(ast.parse(source)).values())


def unguarded_downloads(source: str) -> list[int]:
    """Lines of what is asked to download (`download=True`) outside of the arguments of `ensure`, which verifies."""
    tree = ast.parse(source)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    guarded = {id(one) for call in calls if ast.unparse(call.func).split(".")[-1] == "ensure" for one in ast.walk(call)}
    return [
        call.lineno
        for call in calls
        for keyword in call.keywords
        if keyword.arg == "download" and not _is(keyword.value, False) and id(call) not in guarded
    ]


def _names(tree: ast.AST) -> dict[str, tuple[int, str]]:
    """Name in the file -> the line that imports it, and what it is."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                found[alias.asname or alias.name] = (node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                found[alias.asname or alias.name] = (node.lineno, f"{node.module}.{alias.name}")
    return found


def _imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for line, name in _names(tree).values():
        if _within(name, UNPICKLERS):
            yield line, f"{name} makes any object of bytes"


def _called(tree: ast.AST) -> Iterator[tuple[int, str]]:
    names = {name: what for name, (_, what) in _names(tree).items()}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        root, dot, rest = ast.unparse(node.func).partition(".")
        called, options = names.get(root, root) + dot + rest, {one.arg: one.value for one in node.keywords}
        if called in RUNNERS or rest.split(".")[-1] == "extractall":
            yield node.lineno, f"{called} may run what it is given"
        if called == "torch.load" and not _is(options.get("weights_only"), True):
            yield node.lineno, "torch.load must have weights_only=True"
        if "allow_pickle" in options and not _is(options["allow_pickle"], False):
            yield node.lineno, "allow_pickle must be False"
        if "shell" in options and not _is(options["shell"], False):
            yield node.lineno, "a shell must not be started"
        if "verify" in options and _is(options["verify"], False):
            yield node.lineno, "a certificate must be verified"


def _is(node: ast.expr | None, value: bool) -> bool:
    """Whether it is that word itself: what is worked out elsewhere could be anything."""
    return isinstance(node, ast.Constant) and node.value is value


def _within(name: str, roots: set[str]) -> bool:
    return any(f"{name}.".startswith(f"{root}.") for root in roots)
