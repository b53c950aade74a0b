"""Values of nu that make a trial fail: it raises, hangs, exhausts the memory or kills its process."""

from pathlib import Path

RAISES, HANGS, EATS, DIES = 0.61, 0.62, 0.63, 0.64
BETA = "POISONED_ABOVE"
"""Environment variable that names a file. While the file exists, members whose beta exceeds the number in it raise."""
_ROOT = Path(__file__).parents[2]
POISON = f"{_ROOT / 'tests/end_to_end/poison'}:{_ROOT}"
"""PYTHONPATH that poisons the processes that have it."""
