"""A sweep whose compiled steps were damaged on disk."""

from pathlib import Path

import pytest

from tests.end_to_end.sweeps import Sweeps, assert_same_results, rows

pytestmark = pytest.mark.slow

SMALL = [
    *("--axis", "beta=0.5,1", "--axis", "nu=0.5", "--axis", "normal_class=0", "--set", "epochs=1", "--set", "width=16"),
    *("--compile", "always", "--cohort", "2", "--debug"),
]
"""Two trials in a stack."""


def test_half_a_library_is_a_line_and_compiled_anew(
    sweeps: Sweeps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loaded, it crashes the process that trains."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert sweeps.run(tmp_path / "whole", *SMALL).status == 0
    libraries = list((tmp_path / "cache/sweeper/steps").glob("*.so"))
    sizes = [library.stat().st_size for library in libraries]
    for library, size in zip(libraries, sizes, strict=True):
        library.write_bytes(library.read_bytes()[: size // 2])
    outcome = sweeps.run(tmp_path / "damaged", *SMALL)
    whole, frame = rows(tmp_path / "whole"), rows(tmp_path / "damaged")
    lines = [f"the compiled step {library} is damaged, so it is compiled anew" for library in libraries]
    assert outcome.status == 0 and libraries, outcome
    assert [outcome.out.count(line) + outcome.err.count(line) for line in lines] == [1] * len(lines), outcome
    assert set(frame["status"]) == {"finished"} and set(whole["compiled"]) == set(frame["compiled"]) == {True}
    assert_same_results(frame, whole)
    assert [library.stat().st_size for library in libraries] == sizes, "compiled anew"
