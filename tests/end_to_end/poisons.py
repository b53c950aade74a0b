"""What is wrong with poisoned trials, by their nu."""

from pathlib import Path

RAISES, HANGS, EATS, DIES = 0.61, 0.62, 0.63, 0.64
BETA = "POISONED_ABOVE"
"""Environment: a file. While it exists, members with a larger beta than the number in it raise, too."""
_ROOT = Path(__file__).parents[2]
POISON = f"{_ROOT / 'tests/end_to_end/poison'}:{_ROOT}"
"""PYTHONPATH with which processes are poisoned."""
