"""Models that could not be written are known until they are in the store."""

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
    record_unwritten(files, "tiny", "c0", ["a", "b"])
    assert unwritten_models(files, "tiny") == {"a", "b"}
    files.write(model_path("tiny", "a"), b"")
    assert unwritten_models(files, "tiny") == {"b"}
    forget_written(files, "tiny")
    assert files.list(UNWRITTEN) == ["c0.json"]
    files.write(model_path("tiny", "b"), b"")
    forget_written(files, "tiny")
    assert files.list(UNWRITTEN) == [] and not unwritten_models(files, "tiny")


@pytest.mark.parametrize(("keep", "missing"), [(Keep("all"), {"own"}), (Keep("none"), set())])
def test_only_what_a_run_keeps_is_missing_in_it(files: Files, keep: Keep, missing: set[str]) -> None:
    record_unwritten(files, "tiny", "c0", ["own", "other"])
    plan = Plan("tiny", "digits", TINY, (Trial("own", {}),))
    assert missing_models(files, plan, keep) == missing
