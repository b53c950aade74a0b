"""The deliberate faults still fit the product, and the simulation finds some of them at once."""

import subprocess
import sys

import pytest

from tests.simulation.mutants import Mutant, mutants

FOUND_AT_ONCE = ("a wave begins before", "is to be tried again")
"""Parts of the names of mutants that the first worlds find."""


def test_there_are_forty_of_different_names() -> None:
    assert len({mutant.name for mutant in mutants()}) == len(mutants()) == 40


@pytest.mark.parametrize("mutant", mutants(), ids=lambda mutant: mutant.name)
def test_every_mutant_changes_its_source_at_one_place(mutant: Mutant) -> None:
    compile(mutant.source, mutant.file, "exec")


@pytest.mark.slow
def test_a_few_mutants_are_found_at_once() -> None:
    command = [sys.executable, "-m", "tests.simulation.mutants", *FOUND_AT_ONCE, "--worlds", "60"]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
