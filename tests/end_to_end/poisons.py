"""Values of nu that make a trial fail: it hangs, exhausts the memory or kills its process."""

from pathlib import Path

HANGS, EATS, DIES = 0.62, 0.63, 0.64
_ROOT = Path(__file__).parents[2]
POISON = f"{_ROOT / 'tests/end_to_end/poison'}:{_ROOT}"
"""PYTHONPATH that poisons the processes that have it."""
