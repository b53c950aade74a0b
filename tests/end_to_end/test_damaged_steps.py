"""A sweep whose compiled steps were damaged on disk."""

from pathlib import Path

import pytest

from tests.end_to_end.sweeps import Sweeps, rows

pytestmark = pytest.mark.slow

SMALL = [
    *("--axis", "beta=0.5,1", "--axis", "nu=0.5", "--axis", "normal_class=0", "--set", "epochs=1", "--set", "width=16"),
    *("--compile", "always", "--cohort", "2", "--debug"),
]
"""Two trials in a stack."""


def test_half_a_library_is_a_line_and_no_trial_fails(
    sweeps: Sweeps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loaded, it crashes the process that trains. It would be compiled anew, which takes half a minute; here the
    compiler is gone meanwhile, and the steps are not compiled."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert sweeps.run(tmp_path / "whole", *SMALL).status == 0
    libraries = list((tmp_path / "cache/sweeper/steps").glob("*.so"))
    for library in libraries:
        library.write_bytes(library.read_bytes()[: library.stat().st_size // 2])
    monkeypatch.setenv("CXX", "/nowhere/g++")
    outcome = sweeps.run(tmp_path / "damaged", *SMALL)
    whole, frame = rows(tmp_path / "whole"), rows(tmp_path / "damaged")
    assert outcome.status == 0 and libraries, outcome
    (line,) = [line for line in outcome.out.splitlines() if "compiled step" in line and "damaged" in line]
    for library in libraries:
        assert f"the compiled step {library} is damaged, so it is compiled anew" in line, outcome
    assert line.endswith("steps are not compiled: there is no C++ compiler (g++) on this machine"), outcome
    assert set(whole["compiled"]) == {True} and set(frame["compiled"]) == {False}
    assert set(frame["status"]) == {"finished"} and frame.index.equals(whole.index)
