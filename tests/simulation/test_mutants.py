"""The deliberate faults still fit the product, and worlds find some of them."""

import subprocess
import sys

import pytest

from tests.simulation.mutants import Mutant, mutants

FOUND = ("are brought back while", "forgets earlier", "a trial has", "the list of a request", "metrics of pruned")
"""Parts of the names of mutants that are tried in the suite, each in the one world that is known to find it."""


def test_no_two_mutants_have_one_name() -> None:
    names = [mutant.name for mutant in mutants()]
    assert names and sorted({*names}) == sorted(names)


@pytest.mark.parametrize("mutant", mutants(), ids=lambda mutant: mutant.name)
def test_every_mutant_changes_its_source_at_one_place(mutant: Mutant) -> None:
    compile(mutant.source, mutant.file, "exec")


@pytest.mark.slow
def test_some_mutants_are_found_in_the_worlds_that_are_known() -> None:
    command = [sys.executable, "-m", "tests.simulation.mutants", *FOUND, "--worlds", "0"]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
