"""Sweeps, one file per experiment. Each file defines one value, `SWEEP`."""
