"""Studies in Optuna's own journal file, a copy made for `optuna-dashboard`: the rows in the store are the truth."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable
from pathlib import Path

import optuna
from optuna.storages.journal import JournalFileBackend, JournalStorage
from optuna.trial import FrozenTrial

from sweeper.search.ask_tell import quiet

LOGGER = logging.getLogger(__name__)


class DashboardJournal:
    """A file that `optuna-dashboard PATH` opens while a search writes it; it holds any number of studies.

    What is changed there, in the dashboard, is changed in the copy alone. A search never fails for it: `begin` and
    `add` return one line that says why the file could not be written, or None, and log it the first time.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._storage: JournalStorage | None = None
        self._warned = False

    def begin(self) -> str | None:
        """Remove the file of an earlier run, and its lock."""
        return self._try(self._remove)

    def add(self, name: str, study: optuna.Study) -> str | None:
        """Copy what has finished in this study since the last time: numbers, values, attributes and reports.

        Trials keep their numbers: one that is unfinished before a finished one is there as running.
        """
        return self._try(lambda: self._copy(name, study))

    def _try(self, write: Callable[[], None]) -> str | None:
        try:
            with quiet():
                write()
        except Exception as error:  # whatever it is, the search goes on
            self._storage = None
            with contextlib.suppress(OSError):  # half a line would make all of the file unreadable
                os.truncate(self.path, self.path.read_bytes().rfind(b"\n") + 1)
            reason = " ".join(str(error).split()) or "no reason given"
            line = f"the journal for optuna-dashboard cannot be written: {type(error).__name__}: {reason}"
            if not self._warned:
                LOGGER.warning("%s", line)
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
        there = [trial.state for trial in copy.get_trials(deepcopy=False)]
        place = storage.get_study_id_from_name(name)
        trials = study.get_trials(deepcopy=False)
        finished = max((trial.number for trial in trials if trial.state.is_finished()), default=-1)
        for trial in trials[: finished + 1]:
            if trial.number >= len(there):
                storage.create_new_trial(place, template_trial=trial)
            elif trial.state.is_finished() and not there[trial.number].is_finished():
                _finish(storage, storage.get_trial_id_from_study_id_trial_number(place, trial.number), trial)


def _finish(storage: JournalStorage, place: int, trial: FrozenTrial) -> None:
    """Say of a trial that is there as running what has become of it."""
    for key, distribution in trial.distributions.items():
        storage.set_trial_param(place, key, distribution.to_internal_repr(trial.params[key]), distribution)
    for step, value in trial.intermediate_values.items():
        storage.set_trial_intermediate_value(place, step, value)
    for key, attribute in trial.user_attrs.items():
        storage.set_trial_user_attr(place, key, attribute)
    storage.set_trial_state_values(place, trial.state, trial.values)
