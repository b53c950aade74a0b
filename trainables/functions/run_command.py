"""Run a command as a function: its process, its reports and the folder of its checkpoint."""

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainables.functions.command import PREFIXES, CommandError, keys_of
from trainables.functions.method import FunctionMethod, command_method
from trainables.functions.trial import ReportError, RunningTrial, unzip, zipped
from trainables.json_input import JsonError, parse_json
from trainables.sections import Value

REPORT, CHECKPOINT, DEVICE_NAME = "SWEEPER_REPORT", "SWEEPER_CHECKPOINT", "SWEEPER_DEVICE"
"""Environment variables of a command: the file for metrics, the folder of its checkpoint, and its device."""
TURN = 0.05
"""Seconds between two checks of a command's output."""
GRACE = 10.0
"""Seconds that a command has to end after SIGTERM."""


def method_of_command(name: str, values: Mapping[str, Sequence[Value]]) -> type[FunctionMethod]:
    """The method that runs the command with this name. The types of its keys are inferred from their `values` in a
    sweep; keys without values are not checked."""
    source = next(source for source, prefix in PREFIXES.items() if name.startswith(prefix))
    line = name.removeprefix(PREFIXES[source])
    types = {key: _type_of(values.get(key, ())) for key in keys_of(line)}

    def call(trial: RunningTrial, **own: Value) -> None:
        run_command(trial, [word.format_map(own) for word in shlex.split(line)], source == "stdout")

    return command_method(name, call, types, f"The command `{line}`.")


def _type_of(values: Sequence[Value]) -> type:
    known = [value if type(value) in (bool, int, float) else plain(str(value)) for value in values if value is not None]
    kinds = {type(value) for value in known}
    if not kinds:
        return object
    return float if kinds == {int, float} else kinds.pop() if len(kinds) == 1 else str


def plain(text: str) -> Value:
    """Parse a value as a boolean, a number or text."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


def run_command(trial: RunningTrial, words: Sequence[str], from_stdout: bool) -> None:
    """Run a command to its end and report its metrics. Raises CommandError if its exit status is not 0."""
    with tempfile.TemporaryDirectory(prefix="sweeper-") as scratch:
        report, checkpoint = Path(scratch, "report.jsonl"), Path(scratch, "checkpoint")
        checkpoint.mkdir()
        if (resumed := trial.resume()) is not None:
            unzip(resumed, checkpoint)
        report.touch()
        environment = {
            **os.environ,
            REPORT: os.devnull if from_stdout else str(report),
            CHECKPOINT: str(checkpoint),
            DEVICE_NAME: str(trial.device),
            "RANK": str(trial.rank),
            "WORLD_SIZE": str(trial.world_size),
        }
        output = subprocess.PIPE if from_stdout else None
        sys.stdout.flush()
        try:
            process = subprocess.Popen(
                words, env=environment, stdout=output, stderr=subprocess.PIPE, start_new_session=True
            )
        except (OSError, ValueError) as error:  # ValueError: a value contains a null byte
            raise CommandError(f"{words[0]} cannot be started: {getattr(error, 'strerror', None) or error}") from error
        errors = list[str]()
        copies = [threading.Thread(target=_copy_errors, args=(process.stderr, errors), daemon=True)]
        if from_stdout:
            copies.append(threading.Thread(target=_copy_reports, args=(process.stdout, report), daemon=True))
        for thread in copies:
            thread.start()
        try:
            _follow(trial, process, report, checkpoint, copies)
        finally:
            _end(process)
        if process.returncode:
            last = errors[-1].strip() if errors else "it printed no error"
            raise CommandError(f"{words[0]} ended with status {process.returncode}: {last:.200}")


def _follow(
    trial: RunningTrial,
    process: "subprocess.Popen[bytes]",
    report: Path,
    checkpoint: Path,
    copies: Sequence[threading.Thread],
) -> None:
    """Until the process ends, report each new line of a file and save the folder `checkpoint`.

    The process is paused while the folder is read, and its reports up to then are taken first. So the folder belongs to
    the last report or, if it is written before the report, to the next one, with which it is saved.
    """
    rest, wait = b"", TURN / 25
    with report.open("rb") as lines:

        def take(over: bool = False) -> bool:
            nonlocal rest
            new = lines.read()
            *whole, rest = (rest + new).split(b"\n")
            for line in filter(bytes.strip, [*whole, rest] if over else whole):
                metrics = _metrics(line)
                try:
                    trial.report(metrics.pop("epoch", None), **metrics)
                except ReportError as error:
                    raise CommandError(str(error)) from error
            return bool(new)

        while process.poll() is None:
            if trial.should_save() and any(checkpoint.iterdir()):
                with _standing_still(process):
                    time.sleep(TURN)
                    take()
                    trial.save(zipped(checkpoint))
            if not take():
                time.sleep(wait)
                wait = min(TURN, 1.5 * wait)
        for thread in copies:
            thread.join(GRACE)
        take(over=True)


@contextlib.contextmanager
def _standing_still(process: "subprocess.Popen[bytes]") -> Iterator[None]:
    """Context in which a process and its children are paused."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGCONT)


def _metrics(line: bytes) -> dict[str, Any]:
    with contextlib.suppress(JsonError):
        if isinstance(metrics := parse_json(line), dict):
            return metrics
    text = line.decode(errors="replace")
    raise CommandError(f"a line of ${REPORT} must be a JSON object of numbers, but got {text!r:.80}")


def _copy_errors(stream: Any, last: list[str]) -> None:
    """Forward standard error, and store its last non-empty line."""
    for line in stream:
        text = line.decode(errors="replace")
        sys.stderr.write(text)
        if text.strip():
            last[:] = [text]


def _copy_reports(stream: Any, report: Path) -> None:
    """Treat lines of standard output that are JSON objects as reports, and forward the others."""
    with report.open("ab", buffering=0) as file:
        for line in stream:
            if _is_object(line):
                file.write(line.rstrip(b"\n") + b"\n")
            else:
                sys.stdout.write(line.decode(errors="replace"))


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a running command and its child processes."""
    with contextlib.suppress(ProcessLookupError):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(GRACE)
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
