"""The wheel has everything that the commands need, and runs in a folder without the sources."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sweeper.spec.user_code import PACKAGES

pytest.importorskip("setuptools")
ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the installed wheel, without its dependencies."""
    source, built, target = (tmp_path_factory.mktemp(name) for name in ("source", "built", "target"))
    names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    for name in names.stdout.splitlines():
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, source / name)
    build = f"from setuptools import build_meta; build_meta.build_wheel({str(built)!r})"
    subprocess.run([sys.executable, "-c", build], cwd=source, check=True, capture_output=True)
    (wheel,) = built.iterdir()
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(target)]
    subprocess.run([*pip, str(wheel)], check=True, capture_output=True)
    return target


def _sweeper(installed: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the console script in `folder`, where the sources of the project cannot be imported."""
    environment = {**os.environ, "PYTHONPATH": str(installed), "PYTHONSAFEPATH": "1"}
    script = [sys.executable, str(installed / "bin/sweeper"), *arguments]
    return subprocess.run(script, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_the_wheel_has_every_file_of_its_packages_and_no_other_package(installed: Path) -> None:
    command = ["git", "ls-files", *PACKAGES]
    files = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.splitlines()
    assert [name for name in files if (ROOT / name).exists() and not (installed / name).exists()] == []
    assert {entry.name for entry in installed.iterdir() if entry.suffix != ".dist-info"} == {*PACKAGES, "bin"}


@pytest.mark.slow
def test_the_console_script_runs_in_any_folder(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "my_sweep.py").write_text(
        "from sweeper import Grid, Heatmap, Metric, Sweep\n"
        "import sweeper.spec\n"
        "from pathlib import Path\n"
        f"assert Path(sweeper.spec.__file__).is_relative_to({str(installed)!r})\n"
        "KEYS = {'method': 'vje', 'normal_class': 3}\n"
        "AXES = {'beta': (0.5, 1.0), 'nu': (1.0, 2.0)}\n"
        "MAP = Heatmap(Metric('auroc_joint', 'maximize'), 'beta', 'nu')\n"
        "SWEEP = Sweep('mine', {'tiny': Grid(KEYS, AXES)}, (MAP,))\n"
    )
    planned = _sweeper(installed, tmp_path, "run", "my_sweep.py", "--plan")
    assert planned.returncode == 0 and planned.stdout.startswith("my_sweep (tiny): mine\n  trials     4: "), planned
    wrong = _sweeper(installed, tmp_path, "run", "no_sweep.py")
    assert wrong.returncode == 2 and wrong.stderr.startswith("error: sweep 'no_sweep.py' cannot be read")
    assert [entry.name for entry in tmp_path.iterdir() if entry.name != "__pycache__"] == ["my_sweep.py"]
