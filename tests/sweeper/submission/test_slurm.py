"""Jobs of SLURM: their scripts, what is refused, and what a job makes of its runtime; `fake_slurm` runs one."""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import hypothesis.strategies as st
import psutil
import pytest
from hypothesis import example, given, settings

from sweeper.errors import ClusterError, SpecError
from sweeper.printing import printable
from sweeper.storage.load import load
from sweeper.submission import slurm, slurm_job, submit
from sweeper.submission.jobs import TOKEN
from sweeper.submission.slurm_job import ON_LOOPBACK, cpus, free_ports, gpus, node_names, requeue_job
from sweeper.submission.slurm_job import settings as settings_of
from tests.cases import for_each
from tests.sweeper.submission import fake_slurm

SWEEP = ["anomaly_grid", "--preset", "digits", "--set", "epochs=3", "--axis", "nu=1", "--store", "my results"]


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with a fake SLURM, in a folder to work in. Returns the folder of its jobs."""
    state, work = tmp_path / "state", tmp_path / "work"
    state.mkdir()
    work.mkdir()
    monkeypatch.setenv(fake_slurm.STATE, str(state))
    monkeypatch.setenv("PATH", f"{fake_slurm.install(tmp_path)}:{os.environ['PATH']}")
    monkeypatch.chdir(work)
    return state


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert submit.main([*SWEEP, "--slurm", "--dry-run", *arguments]) == 0
    return capsys.readouterr().out


def sbatch_options(script: str) -> dict[str, str]:
    lines = (line.removeprefix("#SBATCH --") for line in script.splitlines() if line.startswith("#SBATCH"))
    return {name: "".join(shlex.split(value)) for name, _, value in (line.partition("=") for line in lines)}


def test_a_script_has_what_is_asked_for_and_runs_the_sweep_as_typed(
    jobs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = printed(
        capsys,
        *("--nodes", "3", "--gpus-per-node", "4", "--cpus-per-node", "16", "--partition", "a b", "--account", "me"),
        *("--time", "1-12:00:00", "--sbatch", "mem=64G", "--sbatch=--constraint=a100", "--before", "module load cuda"),
    )
    folder = Path.cwd()
    assert sbatch_options(script) == {
        "job-name": "anomaly_grid", "chdir": str(folder), "output": f"{folder}/anomaly_grid-%j.log",
        "open-mode": "append", "nodes": "3", "ntasks-per-node": "1", "cpus-per-task": "16", "gpus-per-node": "4",
        "partition": "a b", "account": "me", "time": "1-12:00:00", "requeue": "", "signal": "B:USR1@120",
        "mem": "64G", "constraint": "a100",
    }  # fmt: skip
    *_, before, path, code, _, last = script.splitlines()
    assert before == "module load cuda" and path.startswith(f"export PATH={Path(sys.executable).parent}:")
    assert code.startswith(f"export PYTHONPATH={Path(submit.__file__).parents[2]}$")
    module = ["-m", "sweeper.submission.slurm_job"]
    assert shlex.split(last) == ["exec", sys.executable, *module, "--requeue", "--", *SWEEP]
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    assert not [*jobs.iterdir()]


def test_without_cpus_whole_nodes_are_taken_and_a_job_need_not_requeue(
    jobs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    python = tmp_path / "venv/bin/python"
    python.parent.mkdir(parents=True)
    python.touch()
    script = printed(capsys, "--no-requeue", "--venv", str(tmp_path / "venv"))
    options = sbatch_options(script)
    assert options["exclusive"] == "" and options["mem"] == "0" and options["nodes"] == "1"
    assert "no-requeue" in options and "requeue" not in options
    assert f"exec {python} -m sweeper.submission.slurm_job -- anomaly_grid" in script and "PYTHONPATH" not in script


@settings(max_examples=50, deadline=None)
@given(
    name=st.text(st.sampled_from("aé %'\"\\$`;&|\n\r\t\v\x1b\x85\u2028#"), min_size=1),
    word=st.text(st.sampled_from("a '\"$`;\n#")),
)
@example(name="x\ntouch pwned", word="")
@example(name="a", word="\n#SBATCH --wrap=id\n")
def test_a_folder_and_words_are_values_and_no_lines_of_a_script(name: str, word: str) -> None:
    options, _ = submit.parse(["--slurm", "anomaly_grid"])
    folder = Path("/shared", name)
    try:
        text = slurm.script(options, ["anomaly_grid", word], "anomaly_grid", folder)
    except SpecError as error:
        assert printable(name) != name and "printable name" in str(error) and "\n" not in str(error)
        return
    assert printable(name) == name
    head, _, last = text.rstrip("\n").partition("\nexec ")
    assert all(line.startswith(("#", "export P")) for line in head.split("\n"))
    assert head.count("#SBATCH") == 10 + name.count("#SBATCH")
    assert sbatch_options(head)["chdir"] == str(folder) and shlex.split(last)[-1] == word


def test_a_script_is_printed_without_the_password_of_its_store(
    jobs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submit, "check_request", lambda request: [])
    store = "s3://key:hush-hush@bucket/results?scheme=http&secret_key=hush-hush"
    assert submit.main([*SWEEP[:-1], store, "--slurm", "--dry-run"]) == 0
    out, err = capsys.readouterr()
    assert "hush" not in out + err and "s3://bucket/results" in out
    assert "note: the script is printed without its secrets" in err


@for_each(
    ("arguments", "line"),
    [
        (["--nodes", "2"], "--nodes is an option of a job of SLURM; add --slurm"),
        (["--dry-run"], "--dry-run is an option of a job of SLURM; add --slurm"),
        (["--slurm", "--nodes", "0"], "--nodes must be a whole number of at least 1, but got 0"),
        (["--slurm", "--time", "soon"], "--time must be minutes, H:MM:SS or D-H:MM:SS, but got soon"),
        (["--slurm", "--partition", " "], "--partition must be one printable line that is not empty, but got ' '"),
        (
            ["--slurm", "--sbatch", "mem=1\n#"],
            "--sbatch must be one printable line that is not empty, but got 'mem=1\\n#'",
        ),
        (["--slurm", "--venv", "nowhere"], "--venv must be a virtual environment, with bin/python in it"),
        (["--slurm", "--no-wait"], "--slurm cannot be combined with --no-wait; squeue and scancel"),
        (["--slurm", "--address", "http://head:8265"], "--slurm cannot be combined with --address"),
        (["--slurm", "--debug"], "a job of SLURM has a Ray cluster of its own; leave out --debug and --address"),
        (["--slurm", "--working-dir", "nowhere"], "--working-dir must be a folder that all nodes share"),
        (["--slurm", "--set", "nu=-1"], "`nu > 0` must hold"),
        (["--slurm", "--partition", "REFUSED"], "SLURM refuses the job: sbatch: error: invalid partition"),
    ],
)
def test_a_wrong_job_is_one_line_before_it_is_submitted(
    jobs: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], line: str
) -> None:
    sweep = [word for word in SWEEP if word not in ("--axis", "nu=1")]
    assert submit.main([*sweep, *arguments]) == 2
    (error,) = (each for each in capsys.readouterr().err.splitlines() if not each.startswith("note: "))
    assert error.startswith("error: ") and line in error
    assert not [*jobs.iterdir()]


def test_without_slurm_one_line_says_so(
    jobs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(jobs))
    assert submit.main([*SWEEP, "--slurm"]) == 2
    assert "error: --slurm needs the command sbatch" in capsys.readouterr().err
    with pytest.raises(
        ClusterError, match="must have SLURM_JOB_NODELIST; submit the sweep with sweeper submit --slurm"
    ):
        node_names()


def test_a_job_of_one_node_is_on_the_loopback_and_each_has_a_token_of_its_own() -> None:
    one, several = settings_of(1), settings_of(2)
    assert one[ON_LOOPBACK] == "0" and ON_LOOPBACK not in several
    assert len(one[TOKEN]) == 64 and one[TOKEN] != several[TOKEN]
    assert len({*free_ports("127.0.0.1", 20)}) == 20


def test_a_node_has_what_slurm_gives_to_the_job_there() -> None:
    assert cpus({"SLURM_CPUS_ON_NODE": "12"}) == 12 and cpus({}) == len(os.sched_getaffinity(0))
    assert gpus({"SLURM_GPUS_ON_NODE": "2"}) == 2 and gpus({"CUDA_VISIBLE_DEVICES": "0,3,"}) == 2 and gpus({}) == 0


def test_a_job_that_was_cancelled_is_not_requeued(jobs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (jobs / "7").mkdir()
    state = jobs / "7/state"
    state.write_text("CANCELLED")
    requeue_job("7")
    assert (
        state.read_text() == "CANCELLED"
        and "itself ends or requeues the job: JobState=CANCELLED" in capsys.readouterr().err
    )
    state.write_text("RUNNING")
    requeue_job("7")
    assert state.read_text() == "REQUEUED"


@for_each(
    ("status", "times"),
    [(130, 1), (0, 0), (1, 0)],
)
def test_a_job_whose_sweep_has_ended_is_not_requeued(status: int, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """SLURM's signal may come when the sweep has nothing left to do."""
    requeued, stop = list[str](), slurm_job.Stop()

    def sweep(*_: object) -> int:
        stop.asked = True
        return status

    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setattr(slurm_job, "node_names", lambda: ["node1"])
    monkeypatch.setattr(slurm_job, "settings", lambda nodes: {})
    monkeypatch.setattr(slurm_job, "start_head", lambda *_, trains: (None, 6379))
    monkeypatch.setattr(slurm_job, "_sweep", sweep)
    monkeypatch.setattr(slurm_job, "requeue_job", requeued.append)
    monkeypatch.setenv("RAY_ADDRESS", "")
    assert slurm_job.lead(["anomaly_grid"], True, stop) == status
    assert requeued == ["7"] * times


@pytest.mark.usefixtures("jobs")
def test_a_node_is_reached_at_the_address_that_slurm_has() -> None:
    assert slurm_job.node_address("node3") == "127.0.0.1"


@pytest.mark.slow
def test_a_ray_node_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    """Also where that is killed, and where SLURM tracks process groups, of which the node has its own."""
    program = (
        "import pathlib, sys, time\n"
        "from sweeper.submission import slurm_job\n"
        "slurm_job.RAY = (sys.executable, '-c', 'import time; time.sleep(600)')\n"
        f"folder = pathlib.Path({str(tmp_path)!r})\n"
        "with slurm_job.ray_node([], '127.0.0.1', folder, folder / 'log') as node:\n"
        "    print(node.pid, flush=True)\n"
        "    time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout
    node = psutil.Process(int(parent.stdout.readline()))
    assert os.getpgid(node.pid) != os.getpgid(parent.pid)
    parent.kill()
    parent.wait()
    until(lambda: not node.is_running() or node.status() == psutil.STATUS_ZOMBIE, 30)


TRIALS = 3


def until(holds: Callable[[], object], seconds: float = 300.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, [path.read_text() for path in Path().glob("*.log")]
        time.sleep(0.2)


def users(job: str) -> list[psutil.Process]:
    """Processes with the environment of a job, and Ray's of this user that it could have left."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("SLURM_JOB_ID") == job and fake_slurm.STATE in process.environ():
                found.append(process)
        except psutil.Error:
            pass
    return [process for process in found if process.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.slow
@pytest.mark.parametrize("nodes", ["1", pytest.param("2", marks=pytest.mark.soak)])
def test_a_job_whose_time_is_over_requeues_itself_and_ends_the_sweep(
    jobs: Path, capsys: pytest.CaptureFixture[str], nodes: str
) -> None:
    """Nodes of one core; nothing of the job is left at its end. Jobs of two nodes differ by what `settings` and
    `node_command` return, and tests of these are quicker."""
    sweep = ["anomaly_grid", "--preset", "digits", "--set", "epochs=20", "--axis", "nu=1", "--axis", "beta=1"]
    sweep += ["--axis", f"normal_class={','.join(map(str, range(TRIALS)))}"]
    words = [*sweep, "--cohort", "1", "--save-every", "1", "--fresh"]
    assert submit.main([*words, "--slurm", "--nodes", nodes, "--cpus-per-node", "1"]) == 0
    job = capsys.readouterr().out.strip()
    log, state = Path(f"anomaly_grid-{job}.log"), jobs / job / "state"
    until(lambda: [*Path("results/trials").glob("*/*.parquet")])
    os.kill(int((jobs / job / "pid").read_text()), signal.SIGUSR1)
    until(lambda: state.read_text().startswith("ENDED"))
    text = log.read_text()
    assert state.read_text() == "ENDED 0" and (jobs / job / "restarts").read_text() == "1", text
    assert "the job requeues itself" in text and f"{nodes} at a time" in text, text
    rows = load("anomaly_grid", "results")
    assert len(rows) == TRIALS and set(rows["status"]) == {"finished"}
    assert text.count(f"{TRIALS} of {TRIALS} trials to run") == 1
    until(lambda: not users(job), 30)


@pytest.mark.slow
def test_a_job_without_a_node_fails_and_leaves_nothing(
    jobs: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Where `srun` fails, no node joins: the job does not wait for one for ever."""
    (tmp_path / "bin/srun").write_text("#!/bin/sh\necho srun: error: no nodes >&2\nexit 1\n")
    assert submit.main([*SWEEP, "--slurm", "--cpus-per-node", "1", "--nodes", "2"]) == 0
    job = capsys.readouterr().out.strip()
    until(lambda: (jobs / job / "state").exists() and (jobs / job / "state").read_text() != "RUNNING")
    assert (jobs / job / "state").read_text() == "ENDED 1"
    log = Path(f"anomaly_grid-{job}.log").read_text()
    assert "srun: error: no nodes" in log and "error: Ray must run as long as the sweep, but its nodes ended" in log
    until(lambda: not users(job), 30)


def test_nodes_are_started_by_one_step_that_outlives_the_loss_of_one() -> None:
    command = slurm_job.node_command(3, "10.0.0.1:6000")
    assert command[0] == "srun" and "--ntasks=3" in command and "--wait=0" in command
    assert command[-2:] == ["--join", "10.0.0.1:6000"]
