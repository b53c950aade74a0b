"""A fixture for all tests of this folder: what a run draws and lists at its end takes longer than small trainings."""

import pytest

from sweeper.claims import page
from sweeper.report import charts


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Charts are described and not drawn, and the page of claims has those alone that rows have judged."""
    monkeypatch.setattr(charts, "png", lambda chart, **values: b"png")
    monkeypatch.setattr(page, "_not_judged", lambda *_: ())
