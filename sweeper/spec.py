"""The earlier name of what `from sweeper import Grid, Sweep, ...` imports now."""

raise ImportError("sweeper.spec is gone; import from sweeper: from sweeper import Grid, Sweep")
