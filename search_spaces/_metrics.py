"""Metrics that several sweeps show."""

from sweeper.spec import Metric

KNN, PROBE, KNN_MU, PROBE_MU, PROBE_5 = (
    Metric(name, "maximize", percent=True) for name in ("knn_z", "probe_z", "knn_mu", "probe_mu", "probe_5")
)
RANK, COSINE, VOLUME = (Metric(name, "maximize") for name in ("effective_rank", "cosine", "volume"))
"""Of embeddings that have not become one point, whose cosine is 1."""
TRACE, NORM = Metric("trace"), Metric("norm")
GEOMETRY = (RANK, COSINE, VOLUME, TRACE, NORM)
