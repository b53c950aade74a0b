"""Find calls and imports in source code that could execute untrusted data. The source is parsed, not imported."""

import ast
from collections.abc import Iterator

UNPICKLERS = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "ray.cloudpickle"}
"""Modules that can create arbitrary objects from bytes."""
RUNNERS = {
    *("eval", "exec", "compile", "os.system", "os.popen", "pandas.read_pickle", "yaml.load", "yaml.unsafe_load"),
    *("yaml.full_load", "torch.hub.load", "torch.jit.load", "shutil.unpack_archive", "ssl._create_unverified_context"),
}
"""Calls that may execute their argument, or write to paths that it names."""
FETCHERS = {"urllib.request", "requests", "httpx", "aiohttp", "ftplib", "http.client.HTTPConnection"}
"""Modules and classes that fetch data from the network."""


def dangers(source: str) -> list[str]:
    """Dangerous imports and calls in the source, one text per line of code, in the order of the file."""
    tree = ast.parse(source)
    return [f"{line}: {reason}" for line, reason in sorted({*_imported(tree), *_called(tree)})]


def fetched(source: str) -> bool:
    """Whether the source imports anything that fetches from the network."""
    return any(_within(name, FETCHERS) for _, name in _names(ast.parse(source)).values())


def unguarded_downloads(source: str) -> list[int]:
    """Lines of calls with `download=True` outside the arguments of `ensure_downloaded`, which verifies checksums."""
    tree = ast.parse(source)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    ensured = [call for call in calls if ast.unparse(call.func).split(".")[-1] == "ensure_downloaded"]
    guarded = {id(node) for call in ensured for node in ast.walk(call)}
    return [
        call.lineno
        for call in calls
        for keyword in call.keywords
        if keyword.arg == "download" and not _is(keyword.value, False) and id(call) not in guarded
    ]


def _names(tree: ast.AST) -> dict[str, tuple[int, str]]:
    """Imported name -> the line that imports it, and the full name of the imported object."""
    imported = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                imported[alias.asname or alias.name] = (node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                imported[alias.asname or alias.name] = (node.lineno, f"{node.module}.{alias.name}")
    return imported


def _imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for line, name in _names(tree).values():
        if _within(name, UNPICKLERS):
            yield line, f"{name} can create arbitrary objects from bytes"


def _called(tree: ast.AST) -> Iterator[tuple[int, str]]:
    names = {name: full_name for name, (_, full_name) in _names(tree).items()}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        root, dot, attributes = ast.unparse(node.func).partition(".")
        called = names.get(root, root) + dot + attributes
        options = {keyword.arg: keyword.value for keyword in node.keywords}
        if called in RUNNERS or attributes.split(".")[-1] == "extractall":
            yield node.lineno, f"{called} may execute its argument"
        if called == "torch.load" and not _is(options.get("weights_only"), True):
            yield node.lineno, "torch.load must have weights_only=True"
        if "allow_pickle" in options and not _is(options["allow_pickle"], False):
            yield node.lineno, "allow_pickle must be False"
        if "shell" in options and not _is(options["shell"], False):
            yield node.lineno, "a shell must not be started"
        if "verify" in options and _is(options["verify"], False):
            yield node.lineno, "a certificate must be verified"


def _is(node: ast.expr | None, value: bool) -> bool:
    """Whether the expression is the literal `value`; a computed expression could be anything."""
    return isinstance(node, ast.Constant) and node.value is value


def _within(name: str, roots: set[str]) -> bool:
    return any(f"{name}.".startswith(f"{root}.") for root in roots)
