"""Submits sweeps as jobs of Ray or SLURM: the code that is sent, what a job runs, and notices of spot machines."""
