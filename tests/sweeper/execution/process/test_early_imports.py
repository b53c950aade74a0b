import sys
from pathlib import Path

import pytest

from sweeper.execution.startup import imported_meanwhile


def test_modules_are_imported_and_one_that_fails_takes_no_other_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(tmp_path, "early_good.py").write_text("")
    Path(tmp_path, "early_bad.py").write_text("raise ValueError")
    monkeypatch.syspath_prepend(tmp_path)
    with imported_meanwhile(("early_bad", "early_missing", "early_good")):
        pass
    assert sys.modules.pop("early_good")
    assert "early_bad" not in sys.modules
