"""The wheel has everything that the commands need and no other package: installed, it trains in an empty folder."""

import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from zipfile import ZipFile

import pandas as pd
import pytest

from sweeper.definition.user_code import PACKAGES

pytest.importorskip("setuptools")
pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the sources."""
    source, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("built")
    names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    for name in names.stdout.splitlines():
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, source / name)
    build = f"from setuptools import build_meta; build_meta.build_wheel({str(built)!r})"
    subprocess.run([sys.executable, "-c", build], cwd=source, check=True, capture_output=True)
    (wheel,) = built.iterdir()
    return wheel


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel, which imports its dependencies from that of the tests."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin/python"), "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-index", str(wheel)], check=True, capture_output=True)
    (installed,) = folder.glob("lib/python*/site-packages")
    dependencies = {sysconfig.get_path(kind) for kind in ("purelib", "platlib")}
    (installed / "dependencies.pth").write_text("\n".join(dependencies))  # an editable install in there is not followed
    return folder


def _run(environment: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the environment in a folder."""
    script, *arguments = words
    command = [str(environment / "bin" / script), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)


def test_the_wheel_has_every_file_of_its_packages_and_no_other_package(wheel: Path) -> None:
    files = subprocess.run(["git", "ls-files", *PACKAGES], cwd=ROOT, capture_output=True, text=True).stdout.splitlines()
    packed = ZipFile(wheel).namelist()
    assert {name for name in files if (ROOT / name).exists()} <= {*packed}
    folders = {name.partition("/")[0] for name in packed}
    assert {name for name in folders if not name.endswith(".dist-info")} == {*PACKAGES}


def test_commands_find_everything_in_any_folder(environment: Path, tmp_path: Path) -> None:
    where = "import search_spaces, sweeper, trainables; print(search_spaces, sweeper, trainables)"
    imported = _run(environment, tmp_path, "python", "-c", where).stdout
    assert imported.count(f"{environment}/lib/") == 3 and str(ROOT) not in imported
    wrong = _run(environment, tmp_path, "sweeper", "run", "no_sweep.py")
    assert wrong.returncode == 2 and wrong.stderr.startswith("error: sweep 'no_sweep.py' cannot be read")
    job = _run(environment, tmp_path, "sweeper", "submit", "anomaly_grid", "--preset", "digits", "--slurm", "--dry-run")
    assert f"exec {environment}/bin/python -m sweeper.submission.slurm_job --requeue -- anomaly_grid" in job.stdout, job
    notice = _run(environment, tmp_path, "python", "-m", "sweeper.submission.spot_notice", "--help")
    assert notice.returncode == 0 and "Wait for a spot notice" in notice.stdout, notice
    assert not [*tmp_path.iterdir()]


SEARCH = """
from optuna.distributions import FloatDistribution

from sweeper import Metric, Search, Sweep

FIXED = {"method": "vje", "dataset": "digits", "normal_class": 1, "validation": 0.2, "epochs": 1}
SPACE = {"beta": FloatDistribution(0.1, 2.0)}
SEARCH = Search(SPACE, FIXED, trials=2, metric=Metric("val_auroc_joint", "maximize"), wave=2)
SWEEP = Sweep(about="a search of one's own", presets={"all": SEARCH})
"""
FUNCTION = """
def train(rate: float, seed: int = 0):
    return {"accuracy": 1 / (1 + rate)}
"""


def test_a_sweep_a_search_and_a_function_train_in_an_empty_folder(environment: Path, tmp_path: Path) -> None:
    """The sweep's worker is a process of Ray, which finds the packages by itself; the others train in the driver."""
    (tmp_path / "my_search.py").write_text(SEARCH)
    (tmp_path / "my_function.py").write_text(FUNCTION)
    axes = ("beta=1", "nu=1", "normal_class=0,1")
    sweep = ["anomaly_grid", "--preset=digits", "--set=epochs=1", "--cohort=2", *(f"--axis={axis}" for axis in axes)]
    function = ["my_function:train", "--axis=rate=0.5,1", "--metric=accuracy", "--mode=max", "--debug"]
    for words in (sweep, ["my_search.py", "--cohort=2", "--debug"], function):
        ended = _run(environment, tmp_path, "sweeper", "run", *words)
        assert ended.returncode == 0, ended
    for name in ("anomaly_grid", "my_search", "my_function.train"):
        rows = pd.read_parquet(tmp_path / f"results/trials/sweep={name}")
        assert list(rows["status"]) == ["finished"] * 2, name
