"""Who may import whom: a row a folder. `test_imports` keeps it by reading the source."""

from collections.abc import Mapping

from tests.import_rule import Rule
from tests.sweeper_imports import SWEEPER
from tests.trainables_imports import TRAINABLES

TABLE: Mapping[str, Rule] = {**TRAINABLES, **SWEEPER}
"""A folder, or a module that has a rule of its own -> what it may import. The longest name that fits counts."""
