"""Compile a step in its own process: `python -m trainables.training.compile_step LIBRARY OUTPUTS`.

The task is read from standard input. When standard input is closed, the process ends with all compilers that it
started. `LIBRARY` is the path of the shared library, and `OUTPUTS` a folder for other files. Operations that PyTorch
looks up by name, such as the Cholesky decomposition, are listed in a JSON file beside the library, whose name PyTorch
expects. A record, another JSON file, is written last:

- `code`: the modules from which the library was made, by name and hash
- `parts`: the names of the parts of the loss
- `digests`: the hashes of the library and of the operations file (if any), by file name
- `error`: the reason why a step cannot be traced or compiled
"""

import contextlib
import copy
import hashlib
import importlib.util
import json
import os
import platform
import resource
import signal
import struct
import sys
import sysconfig
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor
from torch.fx import GraphModule
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from trainables.catalog import task_of
from trainables.config import fusible_keys, resolve_sent
from trainables.contract import Shapes
from trainables.learners.compiled import StepShape
from trainables.learners.stack import CompiledStack, step_function
from trainables.sections import TrialConfig, Value
from trainables.training.stacks import build_models, build_stack

TRAINING = frozenset({"momentum", "precision", "optimiser", "adam_epsilon", "accumulate"})
"""Keys of the training and its optimiser that change the code of a step."""


@dataclass(frozen=True)
class StepTask:
    """A step to compile."""

    config: Mapping[str, Value]
    """The keys and values of a trial on which the code of its step depends."""
    shapes: Shapes
    step: StepShape

    @classmethod
    def of(cls, config: TrialConfig, shapes: Shapes, step: StepShape) -> "StepTask":
        """The task for a trial's step of this shape."""
        sections = ["options", *task_of(config.method).step_sections]
        keys = {key for name in sections for key in vars(getattr(config, name))} | TRAINING | {"method"}
        kept = keys - fusible_keys(config.method)
        return cls({key: value for key, value in config.complete().items() if key in kept}, dict(shapes), step)

    def trial(self) -> TrialConfig:
        """A trial that has this step."""
        accumulate = int(self.config.get("accumulate") or 1)
        least = {"batch_size": 2 * accumulate} if accumulate > 1 else {}  # the real size is in the inputs' layouts
        return resolve_sent({**self.config, **least, **({"clip_grad_norm": 1.0} if self.step.clips else {})})

    @classmethod
    def of_json(cls, text: bytes) -> "StepTask":
        """The task from the JSON that `json` wrote."""
        plain = json.loads(text)
        shapes = {name: tuple(shape) for name, shape in plain["shapes"].items()}
        return cls(plain["config"], shapes, StepShape.of_plain(plain["step"]))

    def json(self) -> bytes:
        """The task as JSON for another process."""
        return json.dumps({"config": self.config, "shapes": self.shapes, "step": self.step.plain()}).encode()

    def digest(self, environment: object) -> str:
        """A hash of the task and of the environment for which it is compiled."""
        content = [sorted(self.config.items()), sorted(self.shapes.items()), repr(self.step), environment]
        return hashlib.blake2b(json.dumps(content).encode(), digest_size=16).hexdigest()


# The dependencies of compiled code: the code that this process has loaded, and its environment.

INSTALLED = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))
"""Folders of the standard library and of installed packages, whose versions are in `environment`."""
OWN = "trainables"
"""The package whose modules always count, wherever it is installed. `__name__` is `__main__` when this module is
run."""


def loaded_code() -> dict[str, str]:
    """Name -> hash of each loaded module of this project and of modules that were not installed, such as the user's. A
    module that was run as a program counts under its own name."""
    run = getattr(sys.modules["__main__"], "__spec__", None)
    names = {*sys.modules, *([run.name] if run else [])}
    paths = {name: _path(name) for name in sorted(names) if not name.endswith("main__")}
    return {name: file_hash(path) for name, path in paths.items() if path and _is_own(name, path)}


def is_unchanged(code: Mapping[str, str]) -> bool:
    """Whether each module that this process has loaded or would import has this hash."""
    return all((path := _path(name)) and file_hash(path) == digest for name, digest in code.items())


def file_hash(path: str) -> str:
    return hashlib.blake2b(Path(path).read_bytes(), digest_size=16).hexdigest()


def environment() -> list[str]:
    """PyTorch, Python, all installed packages with their versions, and this processor's instruction sets."""
    folders = filter(os.path.isdir, sorted(set(INSTALLED[2:])))
    packages = [name for folder in folders for name in os.listdir(folder) if name.endswith("-info")]
    return [str(torch.__version__), sys.version, platform.machine(), *sorted(packages), *_processor()]


def _path(name: str) -> str | None:
    """The file of a module; None if it has none."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    return spec.origin if spec and spec.has_location else None


def _is_own(name: str, path: str) -> bool:
    return name.partition(".")[0] == OWN or not path.startswith(INSTALLED)


def _processor() -> list[str]:
    """Model and instruction sets of the CPU, for which code is compiled."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return [platform.processor()]
    return [
        next((line for line in lines if line.startswith(start)), "") for start in ("model name", "flags", "Features")
    ]


# Tracing and compiling.

FEWER_FUSIONS = {"max_fusion_size": 3}
"""Options for recompiling a step that PyTorch failed to compile: fuse at most three operations.

For a single SwAV member PyTorch 2.15 fuses the outer loops of the prototypes' gradient and update, and fails on a
buffer that the update must wait for without reading it (`KeyError`). The step takes 3.5 ms with these options and 3.4
ms without any fusion of outer loops (one core)."""
RECORD, OPERATIONS = ".record", ".json"
"""Suffixes of the record and of the operations file."""
LENGTH = struct.Struct(">Q")
"""Format of the task's length in bytes, which is sent before the task."""


class UntraceableError(Exception):
    """A step's operations depend on the values of its tensors. The message is one line."""


def trace(task: StepTask) -> tuple[GraphModule, list[Tensor], list[str]]:
    """Return the graph of a step, its arguments of the right shapes, and the names of the parts of the loss. Raises
    UntraceableError if the step reads the value of a tensor or raises an error."""
    from torch.fx.experimental.proxy_tensor import make_fx  # imports the compiler: 1 s and 150 MB

    config, step = task.trial(), task.step
    models = build_models([config], task.shapes) * step.size
    streams = [0] * step.size if step.shared else list(range(step.size))
    stack = build_stack(models, [config] * step.size, streams, torch.device(step.device), find_library=lambda _: None)
    assert isinstance(stack, CompiledStack)
    inputs = tree_map(lambda layout: layout.zeros(step.device), step.inputs)
    leaves, nesting = tree_flatten((stack.step_tensors(), *inputs))
    names: list[str] = []
    function = step_function(stack, step.part, names)
    arguments = [leaf.detach() for leaf in leaves]
    try:
        graph = make_fx(lambda *leaves: function(*tree_unflatten(leaves, nesting)), tracing_mode="fake")(*arguments)
    except Exception as error:  # the user's own method may raise anything
        raise UntraceableError(f"a step cannot be traced: {error_line(error)}") from error
    return graph, arguments, names


def build(task: StepTask, library: Path, outputs: Path) -> None:
    """Trace and compile a step, and leave its library and record. Everything else is written to the folder
    `outputs`."""
    from torch._inductor.exc import InductorError

    torch.set_num_threads(task.step.threads)
    record: dict[str, Any] = {"digests": {}}
    try:
        graph, arguments, record["parts"] = trace(task)
        record["code"] = loaded_code()  # before the compiler makes its own modules
        record["digests"] = _compile(graph, arguments, library, outputs)
    except UntraceableError as error:
        record |= {"error": str(error), "code": loaded_code()}
    except InductorError as error:
        if _of_this_machine(error):
            raise
        record["error"] = f"PyTorch cannot compile a step: {error_line(error)}"
    unfinished = outputs / f"{library.stem}{RECORD}"
    unfinished.write_text(json.dumps(record))
    _move(unfinished, library.with_suffix(RECORD))


def _move(made: Path, path: Path) -> None:
    """Rename a file on the same disk such that it exists completely or not at all after a crash of the machine."""
    _to_disk(made)
    os.replace(made, path)
    _to_disk(path.parent)


def _to_disk(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _compile(graph: GraphModule, arguments: list[Tensor], library: Path, outputs: Path) -> dict[str, str]:
    """Compile a graph, with fewer fusions if PyTorch fails. Return the hashes of the library and of the operations file
    (if any), by file name. Raises InductorError."""
    from torch._inductor import aot_compile
    from torch._inductor.exc import InductorError

    options = {"aot_inductor.output_path": str(outputs / library.name)}
    with torch.no_grad():
        try:
            made = aot_compile(copy.deepcopy(graph), tuple(arguments), options=options)
        except InductorError as error:
            if _of_this_machine(error):
                raise
            made = aot_compile(graph, tuple(arguments), options=options | FEWER_FUSIONS)
    assert isinstance(made, str)
    operations = [path for path in outputs.glob("*.json") if "nodes" in json.loads(path.read_text())]
    files = {library.with_suffix(OPERATIONS): path for path in operations} | {library: Path(made)}
    digests = {path.name: file_hash(str(file)) for path, file in files.items()}
    for path, file in files.items():
        _move(file, path)
    return digests


def _of_this_machine(error: Any) -> bool:
    """Whether this machine caused PyTorch's error, so that the step may compile on another machine or later."""
    from torch._inductor.exc import CppCompileError

    return isinstance(error.inner_exception, CppCompileError | OSError | MemoryError)


def error_line(error: Exception) -> str:
    """The first line of an error's message, or its type if it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def send(task: StepTask, pipe: IO[bytes]) -> None:
    """Send a task to a process of this module; the pipe stays open."""
    content = task.json()
    with contextlib.suppress(BrokenPipeError):
        pipe.write(LENGTH.pack(len(content)) + content)
        pipe.flush()


def main() -> None:
    _lift_memory_limit()
    pipe = sys.stdin.buffer
    (length,) = LENGTH.unpack(pipe.read(LENGTH.size))
    task = StepTask.of_json(pipe.read(length))

    def end_with_parent() -> None:
        os.read(pipe.fileno(), 1)
        os.killpg(0, signal.SIGKILL)  # together with the compilers that it started

    threading.Thread(target=end_with_parent, daemon=True).start()
    build(task, Path(sys.argv[1]), Path(sys.argv[2]))


def _lift_memory_limit() -> None:
    """Lift the limit that the worker set for its own training."""
    with contextlib.suppress(OSError, ValueError):
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


if __name__ == "__main__":
    main()
