"""What a study leaves for a reader: figures and tables in the store, and a copy of it in Optuna's journal file for
`optuna-dashboard`. The rows in the store remain the truth.
"""

import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import optuna
from optuna.storages.journal import JournalFileBackend, JournalStorage
from optuna.trial import FrozenTrial

from sweeper.definition import Metric
from sweeper.errors import SpecError
from sweeper.planning.plan import Plan
from sweeper.printing import print
from sweeper.report import studies
from sweeper.report.charts import Drawing
from sweeper.report.optuna_log import quiet
from sweeper.search.study_run import StudyRun
from sweeper.storage.files import Files
from sweeper.storage.layout import figure_path, file_name, journal_path


def begin_journal(files: Files, request_folder: str) -> Callable[[StudyRun], None]:
    """Begin a new journal if the store is a local folder. Returns a function that copies a study's results to it."""
    path = files.local_path(journal_path(request_folder))
    if path is None:
        return lambda study_run: None
    journal = DashboardJournal(path)
    journal.begin()

    def copy(study_run: StudyRun) -> None:
        journal.add(study_run.study.name, study_run.engine.optuna_study)

    return copy


class DashboardJournal:
    """Journal file of any number of studies, which `optuna-dashboard PATH` can open while a search writes it.

    Changes made in the dashboard affect this copy only. A write error never fails the search: `begin` and `add` return
    one line with the reason, or None on success, and the first such line is printed to stderr.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._storage: JournalStorage | None = None
        self._warned = False

    def begin(self) -> str | None:
        """Remove the file of an earlier run and its lock."""
        return self._try(self._remove)

    def add(self, name: str, study: optuna.Study) -> str | None:
        """Copy the trials that have finished since the last call, with their values, attributes and reports.

        Trials keep their numbers. An unfinished trial that precedes a finished one is copied as running.
        """
        return self._try(lambda: self._copy(name, study))

    def _try(self, write: Callable[[], None]) -> str | None:
        try:
            with quiet():
                write()
        except Exception as error:  # the search goes on without the journal
            self._storage = None
            with contextlib.suppress(OSError):  # an incomplete last line would make the whole file unreadable
                os.truncate(self.path, self.path.read_bytes().rfind(b"\n") + 1)
            reason = " ".join(str(error).split()) or "no reason given"
            line = f"the journal for optuna-dashboard cannot be written: {type(error).__name__}: {reason}"
            if not self._warned:
                print(line, file=sys.stderr, flush=True)
            self._warned = True
            return line
        return None

    def _remove(self) -> None:
        self._storage = None
        for path in (self.path, Path(f"{self.path}.lock")):
            path.unlink(missing_ok=True)

    def _copy(self, name: str, study: optuna.Study) -> None:
        if self._storage is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._storage = JournalStorage(JournalFileBackend(str(self.path)))
        storage = self._storage
        if name not in optuna.get_all_study_names(storage):
            storage.create_new_study(study.directions, name)
        copy = optuna.load_study(study_name=name, storage=storage)
        if study.metric_names and copy.metric_names != study.metric_names:
            copy.set_metric_names(study.metric_names)
        for key, value in study.user_attrs.items():
            if copy.user_attrs.get(key) != value:
                copy.set_user_attr(key, value)
        copied_states = [trial.state for trial in copy.get_trials(deepcopy=False)]
        study_id = storage.get_study_id_from_name(name)
        trials = study.get_trials(deepcopy=False)
        last_finished = max((trial.number for trial in trials if trial.state.is_finished()), default=-1)
        for trial in trials[: last_finished + 1]:
            if trial.number >= len(copied_states):
                storage.create_new_trial(study_id, template_trial=trial)
            elif trial.state.is_finished() and not copied_states[trial.number].is_finished():
                _finish(storage, storage.get_trial_id_from_study_id_trial_number(study_id, trial.number), trial)


def _finish(storage: JournalStorage, trial_id: int, trial: FrozenTrial) -> None:
    for key, distribution in trial.distributions.items():
        storage.set_trial_param(trial_id, key, distribution.to_internal_repr(trial.params[key]), distribution)
    for step, value in trial.intermediate_values.items():
        storage.set_trial_intermediate_value(trial_id, step, value)
    for key, attribute in trial.system_attrs.items():  # among them its constraints
        storage.set_trial_system_attr(trial_id, key, attribute)
    for key, attribute in trial.user_attrs.items():
        storage.set_trial_user_attr(trial_id, key, attribute)
    storage.set_trial_state_values(trial_id, trial.state, trial.values)


def drawings(
    files: Files, request_folder: str, title: str, objectives: Sequence[Metric], contours: Sequence[tuple[str, str]]
) -> dict[str, Callable[[], Drawing]]:
    """Return name -> what draws it, of the figures of a request's studies, by its journal: none without one, as in a
    store that is no local folder. Raises SpecError for a journal that cannot be read."""
    found = _read(files.local_path(journal_path(request_folder)))
    makers = dict[str, Callable[[], Drawing]]()
    for name, study in found.items():
        prefix, heading = (f"{name}-", f"{title}, study {name}") if len(found) > 1 else ("", title)
        drawn = studies.drawings(heading, study, objectives, contours)
        makers |= {file_name(f"{prefix}{figure}"): draw for figure, draw in drawn}
    return makers


def _read(path: Path | None) -> dict[str, optuna.Study]:
    """Return name -> study of a journal."""
    if path is None or not path.is_file():
        return {}
    try:
        with quiet():
            storage = JournalStorage(JournalFileBackend(str(path)))
            names = optuna.get_all_study_names(storage)
            return {name: optuna.load_study(study_name=name, storage=storage) for name in names}
    except Exception as error:  # a file of a store can hold anything
        raise SpecError(f"the journal {path} cannot be read: {type(error).__name__}") from error


def write(plan: Plan, files: Files) -> str:
    """Write the figures of every study, and the journal if there is none. Returns the text to print."""
    texts = []
    begun = files.read(journal_path(plan.request_folder)) is not None
    copy = (lambda study_run: None) if begun else begin_journal(files, plan.request_folder)
    for study_run in plan.study_runs:
        copy(study_run)
        name, study = study_run.study.name, study_run.engine.optuna_study
        title = f"{plan.name} ({plan.request})" + (f", study {name}" if len(plan.study_runs) > 1 else "")
        folder, objectives = figure_path("studies", plan.request_folder, name), study_run.study.search.objectives
        texts.append(studies.write(files, folder, title, study, objectives, plan.sweep.contours))
    return "\n\n".join(texts)
