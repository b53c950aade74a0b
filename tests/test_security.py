"""Nothing fetched is executed, and nothing is fetched unverified: checked in the source, and by an attack."""

import ast
import functools
import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cases import for_each
from tests.cluster.files import ROOT
from tests.published_files import write_cifar10, write_cifar100
from trainables.data.datasets.catalog import load
from trainables.data.errors import DataError

UNPICKLERS = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "ray.cloudpickle"}
"""Modules that can create arbitrary objects from bytes."""
RUNNERS = {
    *("eval", "exec", "compile", "os.system", "os.popen", "pandas.read_pickle", "yaml.load", "yaml.unsafe_load"),
    *("yaml.full_load", "torch.hub.load", "torch.jit.load", "shutil.unpack_archive", "ssl._create_unverified_context"),
}
"""Calls that may execute their argument, or write to paths that it names."""
FETCHERS = {"urllib.request", "requests", "httpx", "aiohttp", "ftplib", "http.client.HTTPConnection"}
"""Modules and classes that fetch data from the network."""


@functools.lru_cache(1)
def nodes_of(source: str) -> list[ast.AST]:
    """All nodes of the tree of the source. Those of the last one are kept: all of them would take much memory."""
    return list(ast.walk(ast.parse(source)))


def dangers(source: str) -> list[str]:
    """Dangerous imports and calls in the source, one text per line of code, in the order of the file."""
    return [f"{line}: {reason}" for line, reason in sorted({*_imported(source), *_called(source)})]


def fetched(source: str) -> bool:
    """Whether the source imports anything that fetches from the network."""
    return any(_within(name, FETCHERS) for _, name in _names(source).values())


def unguarded_downloads(source: str) -> list[int]:
    """Lines of calls with `download=True` outside the arguments of `ensure_downloaded`, which verifies checksums."""
    calls = [node for node in nodes_of(source) if isinstance(node, ast.Call)]
    ensured = [call for call in calls if ast.unparse(call.func).split(".")[-1] == "ensure_downloaded"]
    guarded = {id(node) for call in ensured for node in ast.walk(call)}
    return [
        call.lineno
        for call in calls
        for keyword in call.keywords
        if keyword.arg == "download" and not _is(keyword.value, False) and id(call) not in guarded
    ]


def _names(source: str) -> dict[str, tuple[int, str]]:
    """Imported name -> the line that imports it, and the full name of the imported object."""
    imported = {}
    for node in nodes_of(source):
        if isinstance(node, ast.Import):
            for alias in node.names:
                imported[alias.asname or alias.name] = (node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                imported[alias.asname or alias.name] = (node.lineno, f"{node.module}.{alias.name}")
    return imported


def _imported(source: str) -> Iterator[tuple[int, str]]:
    for line, name in _names(source).values():
        if _within(name, UNPICKLERS):
            yield line, f"{name} can create arbitrary objects from bytes"


def _called(source: str) -> Iterator[tuple[int, str]]:
    names = {name: full_name for name, (_, full_name) in _names(source).items()}
    for node in nodes_of(source):
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


SOURCES = sorted(
    path for package in ("search_spaces", "sweeper", "trainables") for path in (ROOT / package).rglob("*.py")
)
LOCAL = {"sweeper/submission/spot_notice.py"}
"""Modules that fetch from their own machine only."""
UNREAD = {"sweeper/submission/jobs.py", "sweeper/servers.py"}
"""Modules that look whether a server answers, or bound what others read, and do not read what it answers."""


def relative_name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_no_module_creates_objects_or_runs_code_from_data() -> None:
    assert len(SOURCES) > 80
    assert {relative_name(path): reasons for path in SOURCES if (reasons := dangers(path.read_text()))} == {}


def test_no_module_fetches_without_verification() -> None:
    assert {relative_name(path) for path in SOURCES if fetched(path.read_text())} == LOCAL | UNREAD
    assert {relative_name(path): lines for path in SOURCES if (lines := unguarded_downloads(path.read_text()))} == {}


def test_the_downloads_that_are_checked_exist() -> None:
    assert "download=True" in (ROOT / "trainables/data/datasets/torchvision_datasets.py").read_text()


@for_each(
    "source",
    [
        "import pickle",
        "from pickle import loads",
        "from ray import cloudpickle",
        "import joblib as j",
        "import torch\ntorch.load(f)",
        "import torch as t\nt.load(f, weights_only=False)",
        "from torch import load\nload(f, weights_only=chosen)",
        "import numpy as np\nnp.load(f, allow_pickle=True)",
        "import pandas as pd\npd.read_pickle(f)",
        "import yaml\nyaml.load(f)",
        "eval(text)",
        "import os\nos.system(text)",
        "import subprocess\nsubprocess.run(text, shell=True)",
        "import tarfile\ntarfile.open(f).extractall()",
        "session.get(url, verify=False)",
        "def f():\n    import marshal",
    ],
)
def test_a_danger_is_detected(source: str) -> None:
    [danger] = dangers(source)
    assert danger.startswith(f"{len(source.splitlines())}: ")


@pytest.mark.parametrize(
    "source",
    [
        "import torch\ntorch.load(f, weights_only=True)",
        "import numpy as np\nnp.load(f, allow_pickle=False)",
        "import subprocess\nsubprocess.run(['git'], check=False)",
        "model.eval()\njson.load(f)",
        "import yaml\nyaml.safe_load(f)",
    ],
)
def test_safe_code_passes(source: str) -> None:
    assert dangers(source) == []


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("ensure_downloaded(name, fetch=lambda root: CIFAR10(root, download=True))", []),
        ("ensure_downloaded(name, fetch=partial(SVHN, download=True))", []),
        ("CIFAR10(root, download=False)", []),
        ("ensure_downloaded(name)\nCIFAR10(root, download=True)", [2]),
        ("CIFAR10(root, download=wanted)", [1]),
    ],
)
def test_a_download_without_verification_is_detected(source: str, lines: list[int]) -> None:
    assert unguarded_downloads(source) == lines


@pytest.mark.parametrize("source", ["import urllib.request", "from urllib import request", "import requests as r"])
def test_a_fetch_is_detected(source: str) -> None:
    assert fetched(source) and not fetched("from urllib.parse import urlsplit\nfrom http.client import HTTPException")


class Bomb:
    """Creates a folder when it is unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (str(self.target),)


@pytest.mark.parametrize(
    ("name", "write", "file"), [("cifar10", write_cifar10, "data_batch_3"), ("cifar100", write_cifar100, "test")]
)
def test_a_forged_data_set_is_refused_before_it_is_unpickled(
    name: str, write: Callable[..., Path], file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (write(tmp_path, 2, monkeypatch) / file).write_bytes(pickle.dumps(Bomb(tmp_path / "executed")))
    with pytest.raises(DataError, match=f"{name} is corrupt: .*{file} does not have its published checksum"):
        load(name, tmp_path)
    assert not (tmp_path / "executed").exists()
    pickle.loads(pickle.dumps(Bomb(tmp_path / "executed")))
    assert (tmp_path / "executed").exists()  # proves that the bomb works
