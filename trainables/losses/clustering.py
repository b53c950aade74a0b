"""Balanced soft assignments to prototypes, and their prediction from another view (SwAV).

Shapes: B images, M prototypes. Scores are similarities of embeddings and prototypes, cosines as a rule.
`epsilon > 0` and `tau > 0` are floats or 0-dimensional tensors.
"""

from torch import Tensor


def sinkhorn(scores_BM: Tensor, epsilon: float | Tensor, iterations: int) -> Tensor:
    """Assignments `[B, M]`: `exp(scores / epsilon)` scaled, columns and rows in turn, towards equally used prototypes.
    Rows sum to one, columns to about B/M, the nearer the more iterations and the larger `epsilon` (SwAV Eqs. 3 to 5).
    Gradients flow through: a stop-gradient is the caller's. Raises ValueError unless `iterations >= 1`."""
    if iterations < 1:
        raise ValueError(f"`iterations >= 1` must hold, but got iterations={iterations}")
    log_assignment_BM = scores_BM / epsilon
    for _ in range(iterations):
        log_assignment_BM = log_assignment_BM.log_softmax(0).log_softmax(1)
    return log_assignment_BM.exp()


def swapped_prediction(scores_BM: Tensor, assignment_BM: Tensor, tau: float | Tensor) -> Tensor:
    """Cross-entropy `[B]` from an assignment to `softmax(scores / tau)` of the other view (SwAV Eq. 2)."""
    return -(assignment_BM * (scores_BM / tau).log_softmax(-1)).sum(-1)
