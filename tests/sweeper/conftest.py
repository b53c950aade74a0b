"""Fixtures for all tests of this folder: what a run draws and lists at its end takes longer than small trainings."""

import pytest

from sweeper.cli import conclusion
from sweeper.report import charts, publish
from sweeper.report.page import claims


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Charts are described and not drawn, and the page of claims has those alone that rows have judged."""
    monkeypatch.setattr(charts, "png", lambda chart, **values: b"png")
    monkeypatch.setattr(claims, "_not_judged", lambda known: ())


@pytest.fixture
def unreported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs end without figures, tables and claims: with their rows, models, studies and page alone."""
    monkeypatch.setattr(publish, "write", lambda *_, **__: "")
    monkeypatch.setattr(conclusion, "write_claims", lambda *_: None)
