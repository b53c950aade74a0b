"""A function's parameter `trial`, with which it reports, saves, resumes and checks for a stop, from any loop or
callback.

def train(trial, lr: float = 0.1, epochs: int = 10):
    model, optimiser = ...
    start = 0
    if state := trial.resume():
        model.load_state_dict(state["model"])
        start = state["epoch"]
    for epoch in range(start + 1, epochs + 1):
        ...
        trial.save({"model": model.state_dict(), "epoch": epoch})
        trial.report(epoch, accuracy=accuracy)
"""

import io
import os
import shutil
import tempfile
import threading
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

MOST_REPORTS = 100_000
"""Maximum number of reports of a trial."""
MOST_METRICS = 1000
"""Maximum number of metrics of a trial, each of which is a column of its row."""
LONGEST_NAME = 200
"""Maximum number of characters in a metric's name."""
Files = Mapping[str, Tensor]
"""Name of a file or a tensor -> its content."""


class TrialStopped(BaseException):
    """Raised by calls of a trial to end the function, because it was pruned or its process should end. Do not catch
    it."""


class ReportError(ValueError):
    """A report of a trial's function cannot become a row. The message is one line: the law and the offender."""


class RunningTrial:
    """A trial whose function is running."""

    def __init__(
        self,
        device: torch.device,
        rank: int,
        world_size: int,
        *,
        state: bytes | None,
        reserved: frozenset[str],
        reported: Callable[[int, Mapping[str, float | None]], None],
        saved: Callable[[Callable[[], bytes]], None],
        stops: Callable[[], bool],
        saves: Callable[[], bool],
        last_epoch: int = 0,
        folder: str = ".",
    ) -> None:
        """`state`: the state to resume from. `reserved`: names that no metric may have. `reported` is called with each
        report, and `saved` with a function that packs each state; both may raise TrialStopped. `stops` returns whether
        the process should end, and `saves` whether a state is due."""
        self.device = device
        """The device on which the trial trains: a GPU or the CPU. Other devices are invisible to the process."""
        self.rank, self.world_size = rank, world_size
        """Index of this process among the trial's processes, from 0, and their number. Only reports of rank 0 are
        used."""
        self.folder = folder
        """Folder of the sweep's file."""
        self.kept: dict[str, Tensor] = {}
        """The last files passed to `keep`, by name."""
        self.last_epoch = last_epoch
        """Epoch of the last report; 0 before the first."""
        self._state, self._reserved = state, reserved
        self._reported, self._saved, self._stops, self._saves = reported, saved, stops, saves
        self._reports, self._checked, self._ended, self._thread = 0, False, False, threading.get_ident()
        self._metrics = set[str]()
        self._folder: str | None = None
        self._saves_states = state is not None

    def report(self, epoch: int | None = None, /, **metrics: Any) -> None:
        """Report metrics after an epoch (counted from 1, by default the one after the last). Raises ReportError for a
        value that is not a number, and for an epoch that is not above the last one."""
        if self._ended:
            raise ReportError("trial.report must not be called after the function has ended")
        if threading.get_ident() != self._thread:
            raise ReportError(
                "trial.report must be called in the thread that runs the function, but another thread called it"
            )
        if epoch is None and self._saves_states:
            raise ReportError(
                "a function that calls trial.save must pass the epoch to each trial.report, because it may resume"
            )
        epoch = self._epoch(self.last_epoch + 1 if epoch is None else epoch)
        values = {name: _number(name, value) for name, value in metrics.items()}
        if not values:
            raise ReportError(f"a report must contain at least one metric, but the report of epoch {epoch} has none")
        for name in values:
            if name in self._reserved or not 0 < len(name) <= LONGEST_NAME:
                law = "the name of a metric must not be empty, longer than 200 characters, or that of another column"
                raise ReportError(f"{law}, but got {name!r:.80}")
        self._metrics |= values.keys()
        if len(self._metrics) > MOST_METRICS:
            raise ReportError(
                f"a trial must have at most {MOST_METRICS} metrics, but {next(iter(values))!r:.80} is one more"
            )
        self._reports += 1
        if self._reports > MOST_REPORTS:
            raise ReportError(f"a trial must report at most {MOST_REPORTS} times; report less often")
        self.last_epoch = epoch
        self._reported(epoch, values)

    def save(self, state: Any) -> None:
        """Save a state that `resume` returns if the process dies: anything that `torch.load(weights_only=True)` reads
        (tensors, numbers, strings, lists, dicts), bytes, or the path of a folder. It belongs to the last epoch reported
        or to the next. Population members must save every epoch. Raises TypeError for other states."""
        self._saves_states = True
        if self.rank == 0 and not self._ended:
            self._saved(lambda: self._packed(state))

    def should_save(self) -> bool:
        """Whether a state saved now would be stored (every `--save-every` seconds). Other calls of `save` cost nothing,
        so check this only if a state is expensive to build."""
        return self._saves()

    def resume(self) -> Any:
        """The state saved last before the process died (a Path if it was a folder); None at the beginning."""
        return None if self._state is None else self._unpacked(self._state)

    def keep(self, model: nn.Module | Files | bytes | str | os.PathLike[str]) -> None:
        """Keep a trained model or files in the store when the trial has finished; the last call wins. `model`: a
        module, a dict of tensors, bytes, or the path of a file or folder."""
        if isinstance(model, nn.Module):
            model = model.state_dict()
        if isinstance(model, bytes):
            self.kept = {"model": _as_tensor(model)}
        elif isinstance(model, Mapping):
            if wrong := [name for name, each in model.items() if not isinstance(each, Tensor)]:
                raise TypeError(f"trial.keep takes a dict of tensors, but {wrong[0]!r:.80} is not a tensor")
            self.kept = {str(name): tensor.detach().cpu().clone() for name, tensor in model.items()}
        else:
            path = Path(model)
            found = [each for each in sorted(path.rglob("*")) if each.is_file()] if path.is_dir() else [path]
            root = path if path.is_dir() else path.parent
            self.kept = {each.relative_to(root).as_posix(): _as_tensor(each.read_bytes()) for each in found}

    def should_stop(self) -> bool:
        """Whether the process should end; the function should then save, report and return."""
        return self._stops()

    def log(self, text: object) -> None:
        """Print a line to the trial's log."""
        print(text, flush=True)

    def end(self) -> None:
        """Called when the function has ended."""
        self._ended = True
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _epoch(self, epoch: Any) -> int:
        try:
            number = int(epoch)
        except (TypeError, ValueError, OverflowError):
            number = -1
        if number != epoch or isinstance(epoch, bool) or not 0 <= number < 2**62:
            raise ReportError(f"an epoch must be a whole number of at least 0, but got {epoch!r:.80}")
        if number <= self.last_epoch and self._reports:
            raise ReportError(f"epochs must ascend, but got epoch {number} after {self.last_epoch}")
        return number

    def _packed(self, state: Any) -> bytes:
        if isinstance(state, str | os.PathLike) and os.path.isdir(state):
            return b"folder" + zipped(Path(state))
        if isinstance(state, bytes | bytearray):
            return b"bytes " + bytes(state)
        buffer = io.BytesIO()
        torch.save(state, buffer)
        if not self._checked:
            try:
                torch.load(io.BytesIO(buffer.getvalue()), weights_only=True, map_location="cpu")
            except Exception as error:
                law = "trial.save takes tensors, numbers, strings, lists and dicts of them, bytes, or a folder"
                raise TypeError(
                    f"{law}, but got a state with other objects; pickle.dumps turns it into bytes"
                ) from error
            self._checked = True
        return b"torch " + buffer.getvalue()

    def _unpacked(self, data: bytes) -> Any:
        kind, content = data[:6], data[6:]
        if kind == b"folder":
            self._folder = self._folder or tempfile.mkdtemp(prefix="sweeper-")
            unzip(content, Path(self._folder))
            return Path(self._folder)
        if kind == b"bytes ":
            return content
        return torch.load(io.BytesIO(content), weights_only=True, map_location="cpu")


def zipped(folder: Path) -> bytes:
    """The files of a folder as one uncompressed zip file. Links are not followed."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.is_symlink():
                file.write(path, path.relative_to(folder).as_posix())
    return buffer.getvalue()


def unzip(data: bytes, folder: Path) -> None:
    """Write the files of a zip file into a folder. Raises ValueError for a file that would lie outside it."""
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        for name in file.namelist():
            path = (folder / name).resolve()
            if not path.is_relative_to(folder.resolve()):
                raise ValueError(f"a file of a folder must lie in it, but got {name!r:.80}")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file.read(name))


def _number(name: str, value: Any) -> float | None:
    """A metric as a number; None for a metric without a value."""
    if value is None:
        return None
    if not isinstance(value, str | bytes) and not (isinstance(value, Sequence) or len(getattr(value, "shape", ()))):
        try:
            return float(value)
        except (TypeError, ValueError, OverflowError):
            pass
    raise ReportError(f"a metric must be a number, but {name} is {type(value).__name__} {value!r:.60}")


def _as_tensor(content: bytes) -> Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.uint8) if content else torch.empty(0, dtype=torch.uint8)
