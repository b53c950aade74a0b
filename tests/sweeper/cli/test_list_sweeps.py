import pytest

from sweeper.cli.list_sweeps import list_sweeps
from sweeper.errors import SpecError
from sweeper.spec import registry


def test_a_sweep_that_cannot_be_read_is_one_line_and_the_others_are_listed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find = registry.find

    def find_unless_broken(name: str) -> object:
        if name == "broken":
            raise SpecError("sweep 'broken' has no SWEEP")
        return find(name)

    monkeypatch.setattr(registry, "names", lambda: ["broken", "anomaly_grid"])
    monkeypatch.setattr(registry, "find", find_unless_broken)
    assert list_sweeps() == 0
    printed = capsys.readouterr()
    assert printed.err == "error: sweep 'broken' has no SWEEP\n"
    assert printed.out.startswith("anomaly_grid: ") and "digits (560 trials)" in printed.out
