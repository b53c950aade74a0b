"""Finds the compiled steps of one cohort, and lets it train with eager ones where there are none."""

from collections.abc import Callable

from trainables.contract import Shapes
from trainables.learners.compiled import FindLibrary, Library, StepShape
from trainables.sections import TrialConfig
from trainables.training.compilation.build import error_line
from trainables.training.compilation.folder import CompilationError, LibraryFolder, default_folder
from trainables.training.compilation.task import StepTask

_libraries: dict[tuple[object, ...], Library] = {}
"""The libraries that this process has found, by folder and step: it trains many cohorts of the same shapes."""


class StepCompiler:
    """Compiles the steps of one cohort after another."""

    def __init__(
        self,
        notify: Callable[[str], None] = lambda line: None,
        folder: LibraryFolder | None = None,
        *,
        build: bool = True,
    ) -> None:
        """`notify` is called with a line for the user: once if steps cannot be compiled, and for each compiled step
        that is damaged. With `build=False` only steps that were compiled before are found."""
        self._notify, self._folder, self._build = notify, folder or LibraryFolder(default_folder()), build
        self._found, self._failed = False, False

    @property
    def compiled(self) -> bool:
        """Whether all steps so far are compiled ones, and there was one."""
        return self._found and not self._failed

    def finder(self, config: TrialConfig, shapes: Shapes, wait: Callable[[], None]) -> FindLibrary:
        """Return what finds the libraries of a cohort whose members are like `config`. `wait` is called while a library
        is compiled, and may raise to end that."""

        def find(step: StepShape) -> Library | None:
            task = StepTask.of(config, shapes, step)
            key = (self._folder.path, config.method, task.digest([]))
            try:
                if key not in _libraries:
                    _libraries[key] = self._library(task, wait)
            except CompilationError as error:
                if not self._failed:
                    self._notify(f"steps are not compiled: {error}")
                self._failed = True
                return None
            self._found = True
            return _libraries[key]

        return find

    def _library(self, task: StepTask, wait: Callable[[], None]) -> Library:
        found = self._folder.find_or_compile(task, wait, self._notify) if self._build else self._folder.find(task)
        if not found:
            raise CompilationError("they have not been compiled before")
        try:
            found.load(task.step.device)
        except RuntimeError as error:
            raise CompilationError(f"a compiled step cannot be loaded: {error_line(error)}") from error
        return found
