"""One file per figure or table of a paper; each holds one value, SWEEP."""
