"""What trials printed, in `logs/sweep=NAME/TRIAL.txt`: written by workers, shown by `sweeper trial` and the page."""

from collections.abc import Collection

from sweeper.storage.files import Files
from sweeper.storage.layout import LOG_SUFFIX, log_path, logs_folder
from sweeper.storage.rows import is_id

LARGEST_LOG = 4 << 20
"""Bytes of the largest log that is read. Workers write the first and the last MiB."""


def logged_trials(files: Files, sweep: str) -> frozenset[str]:
    """The ids of the sweep's trials that have a log."""
    names = files.list_files(logs_folder(sweep), LOG_SUFFIX)
    return frozenset(filter(is_id, (name.removesuffix(LOG_SUFFIX) for name in names)))


def read_log(files: Files, sweep: str, trial: str) -> str | None:
    """What a trial printed; None if there is no log. Raises DamagedError if it is too large, or no file."""
    data = files.read(log_path(sweep, trial), LARGEST_LOG)
    return None if data is None else _text(data)


def read_log_end(files: Files, sweep: str, trial: str, size: int) -> tuple[str, bool]:
    """The last lines of what a trial printed, of at most `size` bytes, and whether there is more before them. Raises
    DamagedError if it is no file."""
    data = files.read_end(log_path(sweep, trial), size + 1) or b""
    if len(data) <= size:
        return _text(data), False
    return _text(data[data.find(b"\n") + 1 :] or data[1:]), True


def delete_logs(files: Files, sweep: str, trials: Collection[str]) -> None:
    """Delete the logs of these trials, where there are some."""
    logged = sorted(logged_trials(files, sweep).intersection(trials))
    files.each("delete", logs_folder(sweep), Files.delete, [log_path(sweep, trial) for trial in logged])


def _text(data: bytes) -> str:
    """A log as text. A line that a progress bar has overwritten is a line of its own."""
    return data.decode(errors="replace").replace("\r\n", "\n").replace("\r", "\n")
