"""Running sweeps on clusters: cluster files, the nodes' image, and submission of sweeps as Ray jobs."""
