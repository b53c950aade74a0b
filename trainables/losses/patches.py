"""Memory banks of patch features (PatchCore): a coreset of them, and distances from it.

Shapes: N patches of D features, M entries of the bank, K neighbours, B images.
"""

import torch
from torch import Tensor

CHUNK = 2**24
"""Maximum number of distances in memory at a time."""


def greedy_coreset(x_ND: Tensor, count: int, first: Tensor) -> Tensor:
    """Indices `[count]` of a greedy k-center coreset (Gonzalez 1985): that of the `first` vector, then always that of
    the one that is farthest from all chosen ones. The largest distance of a vector from the coreset is at most twice
    the smallest possible one. Once every vector has distance 0, one is repeated."""
    chosen = first.repeat(count)
    norm_N, squared_N = x_ND.square().sum(1), x_ND.new_full((len(x_ND),), torch.inf)
    for place in range(1, count):
        last = chosen[place - 1]
        to_last_N = torch.addmv(norm_N, x_ND, x_ND[last], alpha=-2).add_(norm_N[last])
        torch.minimum(squared_N, to_last_N, out=squared_N)
        squared_N[last] = 0  # not above 0 by rounding: chosen once
        chosen[place] = squared_N.argmax()
    return chosen


def nearest_distances(x_ND: Tensor, bank_MD: Tensor) -> tuple[Tensor, Tensor]:
    """The distance of each vector from its nearest entry of the bank, and the index of that entry, `[N]` each. The
    distances are computed from differences: of a small one, a matrix product would lose the digits."""
    distances, indices = list[Tensor](), list[Tensor]()
    for part_ND in x_ND.split(max(1, CHUNK // len(bank_MD))):
        indices.append(torch.cdist(part_ND, bank_MD).argmin(1))
        distances.append(torch.linalg.vector_norm(part_ND - bank_MD[indices[-1]], dim=1))
    return torch.cat(distances), torch.cat(indices)


def neighbourhood_weight(x_BD: Tensor, nearest_B: Tensor, bank_MD: Tensor, neighbours: int) -> Tensor:
    """PatchCore's weight `[B]` of a distance (Eq. 7): `1 - softmax(d)[0]` of the distances `d` of a vector from the
    `neighbours` entries (or all, of fewer) around its nearest entry, of which that entry itself is the first."""
    around_BK = torch.cdist(bank_MD[nearest_B], bank_MD).topk(min(neighbours, len(bank_MD)), largest=False).indices
    distance_BK = torch.linalg.vector_norm(x_BD[:, None] - bank_MD[around_BK], dim=-1)
    own_B = torch.linalg.vector_norm(x_BD - bank_MD[nearest_B], dim=-1)
    return 1 - (own_B - distance_BK.logsumexp(1)).exp()
