"""Where sweeps run beyond one machine: cluster files, the image of their nodes, submission."""
