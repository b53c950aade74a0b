import urllib.request
from pathlib import Path
from typing import Never

import pytest

import sweeper.run as run
from cluster.checks import check
from sweeper.cli.arguments import parse
from sweeper.errors import StoreError
from sweeper.spec import SpecError
from sweeper.storage.files import Files

DIGITS = ["anomaly_grid", "--preset", "digits"]


@pytest.fixture(autouse=True)
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Arguments of every attempted download."""
    attempts: list[object] = []

    def refuse(*arguments: object, **_: object) -> Never:
        attempts.append(arguments)
        raise OSError("no network in tests")

    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    return attempts


def refusal(*arguments: str) -> str:
    with pytest.raises((SpecError, StoreError)) as refused:
        check(parse(arguments))
    return str(refused.value)


@pytest.mark.parametrize(
    "arguments",
    [
        "anomaly_gird",
        "anomaly_grid --preset digit",
        "anomaly_grid --preset digits --set nuu=1",
        "anomaly_grid --preset digits --set nu=-1",
        "anomaly_grid --preset digits --set dataset=digit",
        "anomaly_grid --preset digits --set batch_size=200",
        "anomaly_grid --preset digits --axis normal_class=0,10",
        "anomaly_grid --preset digits --set normal_class=none",
        "anomaly_grid --preset digits --wave 3",
        "vje_search --preset digits --set nu=-1",
        "vje_search --preset digits --warm-start anomaly_gird",
        "ssl_cifar10 --set method=simclr --set outliers=fog",
    ],
)
def test_what_a_plan_refuses_is_refused_with_the_same_message(
    arguments: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = ["--store", str(tmp_path)]
    assert run.main([*arguments.split(), *store, "--plan"]) == 2
    assert capsys.readouterr().err == f"error: {refusal(*arguments.split(), *store)}\n"


def test_what_a_plan_refuses_is_refused_even_if_the_store_is_not_visible(tmp_path: Path) -> None:
    assert refusal(*DIGITS, "--store", str(tmp_path / "absent"), "--set", "nu=-1") == (
        "`nu > 0` must hold, but got nu=-1.0"
    )


def test_keys_and_ranges_are_checked_without_the_data(tmp_path: Path, fetched: list[object]) -> None:
    """The paper's preset trains on CIFAR-10, which is not here."""
    arguments = ["anomaly_grid", "--store", str(tmp_path), "--data", "/mnt/not/here"]
    assert refusal(*arguments, "--set", "nu=-1") == "`nu > 0` must hold, but got nu=-1.0"
    assert refusal(*arguments, "--axis", "bata=1,2").startswith(
        "no key 'bata' (did you mean 'beta'?); --describe keys lists all"
    )
    assert check(parse(arguments)) == [
        "the data in /mnt/not/here are not visible from here; the job checks what depends on them"
    ]
    assert fetched == []


def test_data_that_need_no_files_need_no_folder(tmp_path: Path, fetched: list[object]) -> None:
    assert check(parse([*DIGITS, "--store", str(tmp_path)])) == []
    assert fetched == [] and list(tmp_path.iterdir()) == []


def test_a_relative_folder_of_data_is_refused_if_files_are_read(tmp_path: Path, fetched: list[object]) -> None:
    assert refusal("anomaly_grid", "--store", str(tmp_path)) == (
        "--data must be an absolute folder, the same on every machine of the cluster, because these trials read or "
        "fetch files and a job runs in a temporary copy of the working directory, but got 'data'"
    )
    assert fetched == []


@pytest.mark.parametrize("store", [[], ["--store", "results"], ["--store", "../r"], ["--store", "s3:bucket/r"]])
def test_a_store_in_the_copy_of_the_working_directory_is_refused(store: list[str]) -> None:
    assert refusal(*DIGITS, *store) == (
        "--store must be a URI (s3://, gs://) or an absolute folder that the cluster's machines share, because a job "
        f"runs in a temporary copy of the working directory, but got '{store[-1] if store else 'results'}'"
    )


@pytest.mark.parametrize("store", ["s3://", "nfs://host/x", "s3://bucket/x?nonsense=1"])
def test_a_store_that_cannot_be_opened_is_refused(store: str) -> None:
    assert "cannot be opened" in refusal(*DIGITS, "--store", store)


def test_a_store_that_only_the_cluster_sees_is_left_to_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """A warm start is not refused either, though no rows of the other sweep are visible."""
    opened = Files._open

    def refuse(files: Files) -> object:
        if "://" in files.uri:
            raise StoreError("cannot be opened") from OSError("no network")
        return opened(files)

    monkeypatch.setattr(Files, "_open", refuse)
    arguments = ["vje_search", "--preset", "digits", "--warm-start", "anomaly_grid", "--store"]
    for store in ("s3://bucket1/r", "/mnt/not/here"):
        note = f"store {store} does not exist yet or is not visible from here; the job checks its rows"
        assert check(parse([*arguments, store])) == [note]
    assert "anomaly_grid" in refusal(*arguments, str(Path(__file__).parent))


def test_credentials_in_a_store_cause_a_warning_and_are_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    for method in ("list", "list_files"):
        monkeypatch.setattr(Files, method, lambda *_: [])
    monkeypatch.setattr(Files, "read", lambda *_: None)
    (note,) = check(parse([*DIGITS, "--store", "s3://KEY:SECRET@bucket1/r?region=us-east-1"]))
    assert "s3://bucket1/r?region=us-east-1 can be read by all who see the cluster's jobs" in note
    assert "SECRET" not in note and "KEY" not in note


def test_a_list_needs_no_cluster() -> None:
    assert refusal("--list").startswith("--list needs no cluster")
