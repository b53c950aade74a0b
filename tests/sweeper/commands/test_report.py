"""`sweeper report PAPER`: a file with what a paper reports beside what a store says."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sweeper.commands import report
from tests.cases import for_each


@for_each(
    ("arguments", "expected"),
    [
        (["vae"], "no paper 'vae' (did you mean 'vje'?); there are: vje, simvae, gmje"),
        (["vje", "--output", "a.pdf"], "--output must end with .html or .md, but got 'a.pdf'"),
        (["vje", "--preset", "fast"], "no preset 'fast'; there are: paper, digits"),
        (["vje", "--output", "none/a.md"], "--output none/a.md cannot be written: No such file or directory"),
        ([], "the following arguments are required: PAPER"),
    ],
)
def test_wrong_use_is_one_line(
    arguments: list[str],
    expected: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert report.main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {expected}") and not [*tmp_path.iterdir()]


@pytest.mark.slow
def test_a_report_needs_no_rows_and_neither_torch_nor_ray(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom sweeper.commands import report\n"
        "assert report.main(['gmje']) == 0 == report.main(['gmje', '--output', 'own.md'])\n"
        "print(sorted({'torch', 'ray', 'vl_convert'} & {*sys.modules}))"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert run.stdout.splitlines() == ["written to gmje.html", "written to own.md", "[]"], run.stderr
    assert (tmp_path / "own.md").read_text().startswith("# Gaussian Joint Embeddings")
    assert {path.name for path in tmp_path.iterdir()} == {"gmje.html", "own.md"}
