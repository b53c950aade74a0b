"""The command line of `sweeper.submission.submit` with a fake job server; `test_submit_job` uses a real one."""

import shlex
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Never

import pytest

from sweeper.commands import arguments as run_arguments
from sweeper.commands import run
from sweeper.definition import SpecError
from sweeper.errors import StoreError
from sweeper.request import Request
from sweeper.storage.files import Files
from sweeper.submission import jobs, submit
from sweeper.submission.jobs import entrypoint
from tests.cases import for_each
from tests.sweeper.submission.conftest import FakeClient, details

ROOT = Path(__file__).parents[3]
AT = "http://127.0.0.1:8265"


class Keys:
    """Replaces `time.sleep` of the submission, not that of subprocesses. The calls with the numbers `at_sleeps`, from
    1, raise KeyboardInterrupt."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at_sleeps: set[int]) -> None:
        self.slept: list[float] = []

        def sleep(seconds: float) -> None:
            self.slept.append(seconds)
            if len(self.slept) in at_sleeps:
                raise KeyboardInterrupt

        for module in (submit, jobs):
            monkeypatch.setattr(module, "time", SimpleNamespace(**{**vars(time), "sleep": sleep}))


def test_a_sweep_is_sent_as_typed_and_followed_to_its_end(
    client: FakeClient, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert submit.main([*arguments, "--address", "http://127.0.0.1:9999", "--fresh"]) == 0
    (submission,) = client.submissions
    assert submission["entrypoint"] == entrypoint([*arguments, "--fresh", "--data", submit.NODE_DATA])
    assert submission["metadata"] == {"sweep": "anomaly_grid", "store": arguments[arguments.index("--store") + 1]}
    out, err = capsys.readouterr()
    assert out == "trained\n"
    assert f"job {submission['submission_id']} is sent to http://127.0.0.1:9999" in err and "has succeeded" in err


def test_the_code_that_is_sent_runs_by_itself(client: FakeClient, arguments: list[str]) -> None:
    assert submit.main(arguments) == 0
    ours = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "*.py"], cwd=ROOT, capture_output=True, text=True
    ).stdout.splitlines()
    assert {name for name in client.files if name.endswith(".py")} == set(ours)
    assert not [name for name in client.files if name.startswith((".", "results/", "data/")) or "__pycache__" in name]


@pytest.mark.parametrize(
    ("end", "status"), [(("FAILED", 1), 1), (("FAILED", 2), 2), (("FAILED", -15), 143), (("STOPPED", None), 130)]
)
def test_the_exit_status_is_that_of_the_sweep(
    client: FakeClient, arguments: list[str], end: tuple[str, int | None], status: int
) -> None:
    client.answers = [details("RUNNING"), details(*end)]
    assert submit.main(arguments) == status


def test_without_waiting_stdout_has_the_id_alone(
    client: FakeClient, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert submit.main([*arguments, "--no-wait"]) == 0
    out, err = capsys.readouterr()
    job = client.submissions[0]["submission_id"]
    assert out == f"{job}\n" and job.startswith("anomaly_grid-")
    assert err.splitlines() == [
        f"  follow    sweeper submit --logs {job}",
        f"  stop      sweeper submit --stop {job}",
        f"  continue  sweeper submit {shlex.join(arguments)}",
    ]


@pytest.mark.parametrize(
    ("changes", "law"),
    [
        (["--set", "nuu=1"], "no key 'nuu' (did you mean 'nu'?)"),
        (["--epoch", "3"], "unrecognized arguments: --epoch 3"),
        (["--store", "results"], "--store must be a URI (s3://, gs://) or an absolute folder"),
        (["--working-dir", "/"], "--working-dir must be the folder of the code, with sweeper/run.py in it, but got /"),
        (
            ["--address", "head:8265"],
            "--address must be the URL of the cluster's dashboard, http://host:port or https://host:port",
        ),
        (["--stop", "x"], "--stop ID and --logs ID can be combined with --address only"),
    ],
)
def test_a_wrong_request_is_refused_before_any_cluster_is_asked(
    client: FakeClient,
    arguments: list[str],
    changes: list[str],
    law: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def connect(address: str) -> Never:
        raise AssertionError("no cluster must be asked for a request that is wrong")

    monkeypatch.setattr(submit, "connect", connect)
    assert submit.main([*arguments, *changes]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(f"error: {law}") and err.count("\n") == 1, err


@pytest.mark.slow
def test_without_a_token_nothing_is_asked(
    client: FakeClient, arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("RAY_AUTH_TOKEN")
    monkeypatch.setenv("HOME", str(Path(arguments[4]) / "home"))
    assert submit.main(arguments) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: a cluster requires a token, but RAY_AUTH_TOKEN is not set") and not client.submissions
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    assert submit.main(arguments) == 0


def test_a_token_that_travels_in_clear_is_warned_of(
    client: FakeClient, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert submit.main([*arguments, "--address", "http://10.0.0.7:8265"]) == 0
    assert "note: the token goes to http://10.0.0.7:8265 unencrypted" in capsys.readouterr().err


@pytest.mark.slow
def test_no_line_shows_a_secret(client: FakeClient, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("mlflow", reason="mlflow-skinny is not installed: pip install -e '.[test]'")
    for option in (["--track", "mlflow=http://me:SECRET@tracker:5000"], ["--store", "s3://me:SECRET@bucket/results"]):
        assert submit.main([*arguments, *option]) == 2 and not client.submissions
        err = capsys.readouterr().err
        assert err.startswith("error: an address must have no key or password, because a cluster prints the commands")
        assert "SECRET" not in err and "set the credentials in the cluster's environment" in err
    for address in ("http://me:SECRET@head:8265", "me:SECRET@head:8265"):
        assert submit.main([*arguments, "--address", address]) == 2
        err = capsys.readouterr().err
        assert err.startswith("error: --address must be the URL of the cluster's dashboard") and "SECRET" not in err
    assert "https://host:port without a user, but got" in err


@pytest.mark.slow
def test_a_sweep_that_a_job_already_runs_is_not_run_by_another(
    client: FakeClient, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    store = arguments[arguments.index("--store") + 1]
    client.other_jobs = [
        details("RUNNING", metadata={"sweep": "anomaly_grid", "store": store}, submission_id="anomaly_grid-1")
    ]
    assert submit.main(arguments) == 2 and not client.submissions
    assert capsys.readouterr().err == (
        "error: only one job at a time can run a sweep into a store, but anomaly_grid-1 runs anomaly_grid into "
        f"{store}; --logs anomaly_grid-1 follows it, --stop anomaly_grid-1 stops it\n"
    )
    assert submit.main([*arguments, "--plan"]) == 0  # which trains nothing


def test_ctrl_c_leaves_the_job_running_and_prints_how_to_continue(
    client: FakeClient, arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    client.logs = [["trained\n", KeyboardInterrupt()]]
    keys = Keys(monkeypatch, at_sleeps=set())
    assert submit.main([*arguments, "--fresh"]) == 130
    assert keys.slept == [submit.STOP_WINDOW_SECONDS] and client.stopped == []
    out, err = capsys.readouterr()
    job = client.submissions[0]["submission_id"]
    assert out == "trained\n"
    assert err.splitlines()[2:] == [
        f"job {job} goes on; Ctrl-C again within 5 s stops it",
        f"  follow    sweeper submit --logs {job}",
        f"  stop      sweeper submit --stop {job}",
        f"  continue  sweeper submit {shlex.join(arguments)}",
    ]


def test_a_second_ctrl_c_stops_the_job_and_prints_the_rest_of_its_log(
    client: FakeClient, arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    client.logs = [["trained\n", KeyboardInterrupt()], ["trained\nstopped: 3 of 70\n"]]
    client.answers = [details("RUNNING"), details("STOPPED")]
    Keys(monkeypatch, at_sleeps={1})
    assert submit.main(arguments) == 130
    job = client.submissions[0]["submission_id"]
    assert client.stopped == [job]
    out, err = capsys.readouterr()
    assert out == "trained\nstopped: 3 of 70\n" and err.endswith(f"job {job} was stopped\n")


def test_a_job_is_stopped_by_name_once(client: FakeClient, capsys: pytest.CaptureFixture[str]) -> None:
    client.answers = [details("RUNNING"), details("RUNNING"), details("STOPPED")]
    assert submit.main(["--stop", "a-1"]) == 0
    assert client.stopped == ["a-1"]
    assert submit.main(["--stop", "a-1"]) == 0
    assert client.stopped == ["a-1"]
    assert capsys.readouterr().err == "job a-1 was stopped\n" * 2


def test_a_job_is_followed_by_name_to_its_exit_status(client: FakeClient, capsys: pytest.CaptureFixture[str]) -> None:
    client.answers = [details("FAILED", 1)]
    assert submit.main(["--logs", "a-1"]) == 1
    assert capsys.readouterr() == ("trained\n", "job a-1 ended with status 1\n")


def test_an_unknown_job_is_reported_at_once(client: FakeClient, capsys: pytest.CaptureFixture[str]) -> None:
    client.answers = [RuntimeError("Request failed with status code 404: Job a-1 does not exist.")]
    for option in ("--logs", "--stop"):
        assert submit.main([option, "a-1"]) == 2
        assert capsys.readouterr().err.endswith("404: Job a-1 does not exist.\n")


def test_asking_imports_neither_ray_nor_torch() -> None:
    """Ray's environment is set when a cluster is asked, which is too late once it has been imported."""
    code = "import sys, sweeper.submission.submit; sys.exit('ray' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_other_arguments_go_to_sweeper_run_in_their_order() -> None:
    arguments = ["anomaly_grid", "--preset", "digits", "--store", "s3://b/r", "--set", "nu=-1", "--axis", "beta=0,1"]
    own_options = ["--working-dir", "/code", "--no-wait"]
    options, sweep_arguments = submit.parse([*arguments[:3], "--address", "http://h:1", *arguments[3:], *own_options])
    assert sweep_arguments == arguments and run_arguments.parse(sweep_arguments).store == "s3://b/r"
    assert (options.address, options.working_dir, options.no_wait) == ("http://h:1", "/code", True)
    assert (options.stop, options.logs) == (None, None)


def test_stop_and_logs_take_the_id_of_a_job() -> None:
    assert submit.parse(["--stop", "a-1"])[0].stop == "a-1"
    assert submit.parse(["--logs", "a-1", "--address", "http://h:1"])[0].logs == "a-1"


@pytest.mark.parametrize(
    ("arguments", "law"),
    [
        (["--stop", "a-1", "grid"], "--stop ID and --logs ID can be combined with --address only"),
        (["--stop", "a-1", "--logs", "a-1"], "--stop ID and --logs ID can be combined with --address only"),
        (["--logs", "a-1", "--no-wait"], "--stop ID and --logs ID can be combined with --address only"),
        (["--stop", ""], "--stop and --logs must name a job, but got ''"),
        (["--stop"], "argument --stop: expected one argument; --help shows all options"),
    ],
)
def test_arguments_that_make_no_request_are_refused(arguments: list[str], law: str) -> None:
    with pytest.raises(SpecError, match=law) as refused:
        submit.parse(arguments)
    assert "\n" not in str(refused.value)


def test_our_options_are_not_abbreviated() -> None:
    arguments = ["grid", "--log", "x", "--addr", "y"]
    assert submit.parse(arguments)[1] == arguments


DIGITS = ["anomaly_grid", "--preset", "digits"]


@pytest.fixture
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
        submit.check_request(run_arguments.parse(arguments))
    return str(refused.value)


@for_each(
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
    assert submit.check_request(run_arguments.parse(arguments)) == [
        "the data in /mnt/not/here are not visible from here; the job checks what depends on them"
    ]
    assert fetched == []


def test_data_that_need_no_files_need_no_folder(tmp_path: Path, fetched: list[object]) -> None:
    assert submit.check_request(run_arguments.parse([*DIGITS, "--store", str(tmp_path)])) == []
    assert fetched == [] and list(tmp_path.iterdir()) == []


def test_a_relative_folder_of_data_is_refused_if_files_are_read(tmp_path: Path, fetched: list[object]) -> None:
    assert refusal("anomaly_grid", "--store", str(tmp_path)) == (
        "--data must be an absolute folder, the same on every machine of the cluster, because these trials read "
        "files and a job runs in a temporary copy of the working directory, but got 'data'"
    )
    assert fetched == []


def test_without_a_folder_of_data_each_machine_fetches_those_that_are_published(
    client: FakeClient, tmp_path: Path, capsys: pytest.CaptureFixture[str], fetched: list[object]
) -> None:
    assert submit.main(["anomaly_grid", "--store", str(tmp_path)]) == 0
    (submission,) = client.submissions
    assert submission["entrypoint"] == entrypoint(
        ["anomaly_grid", "--store", str(tmp_path), "--data", submit.NODE_DATA]
    )
    note = (
        f"note: each machine fetches the data sets into its folder {submit.NODE_DATA}; --data DIR names another one\n"
    )
    assert note in capsys.readouterr().err and fetched == []
    assert submit.main(["imagenet_linear", "--store", str(tmp_path)]) == 2  # nobody may fetch these
    assert "--data must be an absolute folder" in capsys.readouterr().err and len(client.submissions) == 1


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
        assert submit.check_request(run_arguments.parse([*arguments, store])) == [note]
    assert "anomaly_grid" in refusal(*arguments, str(Path(__file__).parent))


def test_credentials_in_a_store_are_refused_and_not_repeated() -> None:
    request = run_arguments.parse([*DIGITS, "--store", "s3://KEY:SECRET@bucket1/r?region=us-east-1"])
    with pytest.raises(SpecError, match=r"no key or password.* got --store s3://bucket1/r\?region=us-east-1") as caught:
        submit.check_request(request)
    assert "SECRET" not in str(caught.value) and "KEY" not in str(caught.value)


@pytest.mark.parametrize(("option", "command"), [("--list", "list"), ("--describe=vje", "describe vje")])
def test_what_runs_no_sweep_needs_no_cluster(option: str, command: str) -> None:
    with pytest.raises(SpecError, match=f"{option[:6]}.* needs no cluster; run sweeper {command}"):
        submit.run_request([option])


def test_rows_can_be_restored_where_the_store_is() -> None:
    words = ["anomaly_grid", "--restore", "20260101T120000", "--store", "s3://b/r"]
    assert submit.run_request(words) == Request("anomaly_grid", store="s3://b/r")
