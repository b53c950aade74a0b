"""`--list`: every sweep and its presets."""

from __future__ import annotations

import sys

from sweeper.cli.arguments import EXIT_OK
from sweeper.errors import SpecError
from sweeper.spec import registry


def list_sweeps() -> int:
    """Print all sweeps and their presets. A sweep that cannot be read gets one line on standard error."""
    for name in registry.names():
        try:
            sweep = registry.find(name)
        except SpecError as error:
            print(f"error: {error}", file=sys.stderr)
            continue
        sizes = ", ".join(f"{preset} ({space.count} trials)" for preset, space in sweep.presets.items())
        print(f"{name}: {sweep.about}\n  presets: {sizes}")
    return EXIT_OK
