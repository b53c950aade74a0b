"""A sweep and a method of the user's own travel with the job, also from a folder without this project's code."""

from pathlib import Path

import pytest

from cluster import submit
from cluster.jobs import entrypoint
from tests.cluster.fake_client import FakeClient
from tests.user_files import DENOISE, user_folder

__all__ = ["user_folder"]

SWEEP = """
from sweeper.spec import Grid, Heatmap, Metric, Sweep

KEYS = {"method": "sent_of_mine.denoise:Denoise", "dataset": "digits", "epochs": 1, "knn": 5}
AXES = {"sigma": (0.1, 0.2), "lr": (0.01, 0.1)}
SWEEP = Sweep("mine", {"tiny": Grid(KEYS, AXES)}, (Heatmap(Metric("knn_z", "maximize"), "sigma", "lr"),), name="chosen")
"""


@pytest.fixture
def sweep(client: FakeClient, user_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a sweep, in the working directory, and its method in a package beside it."""
    monkeypatch.chdir(user_folder)
    (user_folder / "sent_of_mine").mkdir()
    (user_folder / "sent_of_mine/denoise.py").write_text(DENOISE)
    (user_folder / "sent_of_mine/__init__.py").write_text("")
    (user_folder / "sent_of_mine/prod.env").write_text("")
    (user_folder / "not_sent.py").write_text("")
    file = user_folder / "sweep_of_mine.py"
    file.write_text(SWEEP)
    return file


@pytest.mark.parametrize("code", [[], ["--working-dir", str(Path(__file__).parents[2])]])
def test_the_job_has_the_code_and_the_users_modules(
    client: FakeClient, sweep: Path, tmp_path: Path, code: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert submit.main([str(sweep), "--store", str(tmp_path / "store"), *code]) == 0
    (submission,) = client.submissions
    assert submission["entrypoint"] == entrypoint(["sweep_of_mine.py", "--store", str(tmp_path / "store")])
    assert submission["metadata"]["sweep"] == "chosen" and submission["submission_id"].startswith("chosen-")
    expected = {"sweep_of_mine.py", "sent_of_mine/__init__.py", "sent_of_mine/denoise.py", "sweeper/run.py"}
    assert expected | {"trainables/catalog.py", "search_spaces/anomaly_grid.py"} <= {*client.files}
    assert "sent_of_mine/prod.env" not in client.files
    assert (
        "note: not sent, by names or contents that are those of secrets: sent_of_mine/prod.env\n"
        in capsys.readouterr().err
    )
    assert "not_sent.py" not in client.files and len(client.files) == len(set(client.files))


def test_a_module_that_would_replace_the_codes_is_refused(
    client: FakeClient, sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (sweep.parent / "README.md").touch()
    (sweep.parent / "conftest_of_mine.py").write_text("")
    sweep.write_text(f"import conftest_of_mine\n{SWEEP}")
    code = tmp_path / "code"
    (code / "sweeper").mkdir(parents=True)
    (code / "sweeper/run.py").touch()
    (code / "conftest_of_mine.py").touch()
    assert submit.main([str(sweep), "--store", str(tmp_path / "store"), "--working-dir", str(code)]) == 2
    law = "error: modules of your own must not be named as the code's, but got conftest_of_mine.py; rename them\n"
    assert capsys.readouterr().err == law and not client.submissions


def test_the_users_files_count_towards_the_size(
    client: FakeClient, sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (sweep.parent / "sent_of_mine/weights.bin").open("wb") as file:
        file.truncate(101 << 20)  # sparse
    assert submit.main([str(sweep), "--store", str(tmp_path / "store")]) == 2
    err = capsys.readouterr().err
    assert "must not exceed 100.0 MiB" in err and "most of it in sent_of_mine/ (101.0 MiB)" in err
    assert not client.submissions
