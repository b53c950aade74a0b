"""Keeps the tests independent of the machine: each test process gets its own empty home and temporary folder.

All folders of one run lie in one folder below `/tmp`, which is removed at the end. Its name is short because the paths
of Ray's sockets, which lie in it, must stay below about 100 bytes. The environment variables of the user's shell that
change what Ray, the clouds' clients, Git or matplotlib do are removed.
"""

import atexit
import copy
import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import hypothesis.configuration
import pytest

hypothesis.settings.register_profile("suite", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("suite")
# The same cases in every run, whatever the machine's speed, and no folder of examples in the checkout.

RUN_FOLDER = "SWEEPER_TESTS_FOLDER"
"""Environment: the folder of this run, which pytest-xdist's workers inherit."""
FOREIGN_PREFIXES = (
    *("RAY_", "TUNE_", "SWEEPER_", "AWS_", "BOTO_", "GOOGLE_", "CLOUDSDK_", "KUBE", "SLURM_"),
    *("XDG_", "MPL", "GIT_", "TORCH_", "PYTHONPATH"),
)
FOREIGN_NAMES = {
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "FTP_PROXY", "NO_PROXY", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"),
    *("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"),
}
"""Compared in capital letters: proxies are read in both cases."""
OF_USER = (
    *(("trainables.catalog", "_own_methods"), ("sweeper.definition.user_code", "_folders")),
    *(("sweeper.definition.registry", "_references"), ("sweeper.definition.registry", "_folder_of")),
)
"""Module and name of what a process keeps of methods, folders and sweeps of the user."""
LONGEST = (
    *("sweeper/submission/test_slurm.py", "end_to_end/test_ray_backend.py", "sweeper/test_sweeps_without_ray.py"),
    *("trainables/networks/test_pretrained.py", "trainables/methods/test_contract_fused.py"),
    *("sweeper/record/test_kinds_of_trackers.py", "trainables/learners/test_compiled.py", "end_to_end/test_run.py"),
    *("test_readme.py", "sweeper/report/page/test_in_browser.py", "sweeper/commands/test_view.py"),
    *("simulation/test_simulation.py", "end_to_end/test_kills.py"),
    *("sweeper/test_continued_store.py", "sweeper/test_odd_store.py", "trainables/metrics/test_catalog.py"),
    *("benchmarks/test_benchmarks.py", "trainables/networks/test_encoders.py", "end_to_end/test_run_search.py"),
    *("sweeper/search/test_samplers.py", "end_to_end/test_run_tables.py", "simulation/test_mutants.py"),
    *("end_to_end/test_two_drivers.py", "trainables/worker/test_worker.py", "end_to_end/test_tune_trainable.py"),
    *("end_to_end/test_full_disk.py", "end_to_end/test_submit_job.py"),
)
"""Files that take the longest, the longest first: they are started before all others."""


def pytest_configure(config: pytest.Config) -> None:
    """Runs in the controller first and then in each of its workers."""
    if RUN_FOLDER not in os.environ:
        foreign = [name for name in os.environ if name.startswith(FOREIGN_PREFIXES) or name.upper() in FOREIGN_NAMES]
        for name in foreign:
            del os.environ[name]
        os.environ[RUN_FOLDER] = tempfile.mkdtemp(prefix="t", dir="/tmp")
    run = Path(os.environ[RUN_FOLDER])
    mine = run / os.environ.get("PYTEST_XDIST_WORKER", "main").removeprefix("gw")
    for folder in (mine / "home", run / "fonts"):
        folder.mkdir(parents=True, exist_ok=True)
    os.environ |= {"HOME": str(mine / "home"), "TMPDIR": str(mine), "RAY_TMPDIR": str(mine)}
    os.environ["RAY_ENABLE_AUTO_CONNECT"] = "0"  # a test that calls Ray without starting it fails
    os.environ["XDG_CACHE_HOME"] = str(
        run / "cache"
    )  # the chart library of pages is bundled there, which takes seconds
    # Kept for the next run: what hypothesis reads from the source of each module, and which fonts the machine has.
    cache = getattr(config, "cache", None)
    hypothesis.configuration.set_hypothesis_home_dir(cache.mkdir("hypothesis") if cache else run / "hypothesis")
    os.environ["MPLCONFIGDIR"] = str(cache.mkdir("fonts") if cache else run / "fonts")
    tempfile.tempdir = None  # chosen anew


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """The garbage collector does not walk over the modules and tests that are collected, which live until the end: it
    would take a quarter of the collection, and half a second each time that a test calls it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        atexit.register(gc.unfreeze)  # some libraries print what is left when the process ends


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files come first, then others with a slow test, so that all processes end together: what is left at
    the end is short."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    first = {Path(__file__).parent / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: (first.get(item.path, len(first)), item.path not in slow))


def pytest_unconfigure() -> None:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        shutil.rmtree(os.environ.pop(RUN_FOLDER), ignore_errors=True)


@pytest.fixture(autouse=True, scope="module")
def environment(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a module's tests leave behind in this process ends with the module: environment variables, which Ray sets
    when it starts, and methods, folders and sweeps of the user. A connection to Ray fails it: sweeps of later modules
    would use it."""
    variables, known = dict(os.environ), {where: copy.copy(own) for where, own in _of_user().items()}
    yield
    os.environ.clear()
    os.environ.update(variables)
    for where, own in _of_user().items():
        own.clear()
        (own.extend if isinstance(own, list) else own.update)(known.get(where, ()))
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized():
        ray.shutdown()
        pytest.fail(f"{request.node.nodeid} leaves this process connected to Ray", pytrace=False)


@pytest.fixture
def unreported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs end with their rows, models, studies and page alone, as `tests.fake_executor.report_nothing` says."""
    from tests.fake_executor import report_nothing

    report_nothing(monkeypatch)


def _of_user() -> dict[tuple[str, str], Any]:
    """What this process knows of the user's own: the lists and mappings of the modules in `OF_USER` that it has
    imported."""
    return {(module, name): getattr(sys.modules[module], name) for module, name in OF_USER if module in sys.modules}
