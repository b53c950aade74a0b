"""Models that could not be written are known until they are in the store, also those of trials that have no other."""

import json
from pathlib import Path

import pytest

from sweeper.option_values import Keep
from sweeper.planning.cohorts import Trial
from sweeper.planning.keep import missing_models
from sweeper.planning.plan import Plan
from sweeper.storage.files import Files
from sweeper.storage.layout import model_path
from sweeper.storage.models import forget_written, record_unwritten, unwritten_models
from tests.sweeper.small_sweeps import TINY

UNWRITTEN = "models/unwritten/tiny"


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_a_list_is_forgotten_when_all_its_models_are_written(files: Files) -> None:
    listed = [("whole", 2), ("whole", None), ("pruned", 2)]
    record_unwritten(files, "tiny", "c0", listed)
    assert unwritten_models(files, "tiny") == set(listed)
    files.write(model_path("tiny", "pruned", 4), b"")
    files.write(model_path("tiny", "whole", 2), b"")
    assert unwritten_models(files, "tiny") == {("whole", None), ("pruned", 2)}
    files.write(model_path("tiny", "pruned", 2), b"")
    assert unwritten_models(files, "tiny") == {("whole", None)}, "one that was pruned has no other"
    forget_written(files, "tiny")
    assert files.list(UNWRITTEN) == ["c0.json"]
    files.write(model_path("tiny", "whole"), b"")
    forget_written(files, "tiny")
    assert files.list(UNWRITTEN) == [] and not unwritten_models(files, "tiny")


def test_a_model_means_that_those_of_earlier_epochs_are_there_or_were_not_wanted(files: Files) -> None:
    record_unwritten(files, "tiny", "c0", [("t", 2), ("t", None)])
    files.write(model_path("tiny", "t"), b"")
    assert not unwritten_models(files, "tiny")


def test_a_list_of_an_earlier_version_names_trials(files: Files) -> None:
    files.write(f"{UNWRITTEN}/c0.json", json.dumps(["t0", "t1"]).encode())
    files.write(model_path("tiny", "t1"), b"")
    assert unwritten_models(files, "tiny") == {("t0", None)}


@pytest.mark.parametrize(
    ("keep", "missing"),
    [
        (Keep("all", every=2), {"whole", "pruned"}),
        (Keep("all", every=3), {"whole"}),
        (Keep("all"), {"whole"}),
        (Keep("none"), set()),
    ],
)
def test_only_what_a_run_keeps_is_missing_in_it(files: Files, keep: Keep, missing: set[str]) -> None:
    record_unwritten(files, "tiny", "c0", [("pruned", 2), ("whole", 2), ("whole", None), ("other", None)])
    plan = Plan("tiny", "digits", TINY, tuple(Trial(trial, {}) for trial in ("pruned", "whole")))
    assert missing_models(files, plan, keep) == missing
