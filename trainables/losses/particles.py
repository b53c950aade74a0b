"""Banks of weighted particles: new weights, and resampling (SMC-GMJE).

Shapes: B images, M particles of a bank, P = M + B particles of a pool: the bank, then the batch's targets. Weights are
`softmax(log_weights)`, so log weights are defined up to a constant, and zeros are uniform weights. Random numbers are
arguments, uniform in [0, 1).

A particle's identity is the integer `age * P + place`: the steps since its batch, and its position in the pool at that
time. Copies share an identity; all other identities differ. The identities of a bank that was never resampled are
`arange(M)`.
"""

import torch
from torch import Tensor

RESAMPLERS = ("multinomial", "systematic", "alias")


def reweighted(log_weights_P: Tensor, exponents_BP: Tensor) -> Tensor:
    """Log weights `[P]` after normalising `w_p sum_b exp(exponent_bp)` (GMJE Eqs. 32 and 33). The exponents are
    similarities divided by tau, or the exponents of a mixture whose means are the particles."""
    return (log_weights_P + exponents_BP.logsumexp(-2)).log_softmax(-1)


def effective_sample_size(log_weights_P: Tensor) -> Tensor:
    """`1 / sum w^2`, `[]`: from 1 for one particle with all the weight to P for equal weights."""
    return (-(2 * log_weights_P.log_softmax(-1)).logsumexp(-1)).exp()


def pool_identities(identities_M: Tensor, batch: int) -> Tensor:
    """Identities `[P]` of a pool: of the bank, which ages by one step, and of the new batch."""
    size = len(identities_M)
    places_B = torch.arange(size, size + batch, device=identities_M.device)
    return torch.cat([identities_M + (size + batch), places_B])


def distinct_share(identities_M: Tensor) -> Tensor:
    """Number of distinct particles in a bank divided by its size, `[]`: from 1 / M (all copies of one particle) to
    1."""
    sorted_M = identities_M.sort().values
    return (1 + (sorted_M[1:] != sorted_M[:-1]).sum()) / len(sorted_M)


def mean_age(identities_M: Tensor, batch: int) -> Tensor:
    """Steps since the batches of a bank's particles, averaged over particles, `[]`. Initial particles are as old as the
    bank."""
    return (identities_M // (len(identities_M) + batch)).float().mean()


def multinomial_indices(log_weights_P: Tensor, uniforms_M: Tensor) -> Tensor:
    """M independent draws with replacement: indices `[M]` of particles, in the order of the uniforms."""
    return _inverse_distribution(log_weights_P, uniforms_M)


def systematic_indices(log_weights_P: Tensor, uniform: Tensor, draws: int) -> Tensor:
    """Draws at equal steps from one random offset: particle p occurs `draws * w_p` times, rounded up or down, and
    exactly that often on average. Ascending indices `[draws]`; `uniform` is one number, `[]` or `[1]`."""
    steps = torch.arange(draws, dtype=log_weights_P.dtype, device=log_weights_P.device)
    return _inverse_distribution(log_weights_P, (steps + uniform) / draws)


def alias_indices(log_weights_P: Tensor, uniforms_M: Tensor) -> Tensor:
    """M independent draws with replacement, as in `multinomial_indices`, from a table (Walker's alias method): a draw
    costs one comparison, whatever the number of particles. Indices `[M]`, in the order of the uniforms."""
    shares_P, aliases_P = _alias_table(log_weights_P)
    particles = len(shares_P)
    scaled_M = uniforms_M.to(shares_P.dtype) * particles
    places_M = scaled_M.long().clamp(max=particles - 1)
    return torch.where(scaled_M - places_M < shares_P[places_M], places_M, aliases_P[places_M])


def uniforms_of(resampling: str, draws: int) -> int:
    """Number of uniforms that a scheme in RESAMPLERS takes."""
    return 1 if resampling == "systematic" else draws


def drawn_indices(resampling: str, log_weights_P: Tensor, uniforms: Tensor, draws: int) -> Tensor:
    """Indices `[draws]` of particles, drawn by a scheme in RESAMPLERS."""
    if resampling == "systematic":
        return systematic_indices(log_weights_P, uniforms, draws)
    return (alias_indices if resampling == "alias" else multinomial_indices)(log_weights_P, uniforms)


def _alias_table(log_weights_P: Tensor) -> tuple[Tensor, Tensor]:
    """P equally likely places: a draw at place p is particle p with the probability `share_p`, else particle `alias_p`.

    Particles with more than the mean weight fill the places of those with less, both in their order, so two cumulative
    sums say who fills which place, without a loop over particles: a place that lacks weight after `before` of all that
    is lacking is filled by the first particle up to which more than `before` is in excess. A particle's own place is
    the last that it fills, and what it then lacks comes from the next. Particles of weight 0 have share 0 and are no
    alias.
    """
    weights_P = log_weights_P.softmax(-1)
    scaled_P = weights_P * (len(weights_P) / weights_P.sum())
    lacking_P, excess_P = (1 - scaled_P).clamp(min=0), (scaled_P - 1).clamp(min=0)
    lacked_P, exceeded_P = lacking_P.cumsum(-1), excess_P.cumsum(-1)
    last = (exceeded_P < exceeded_P[-1]).sum(-1)
    spent_P = torch.where(excess_P > 0, exceeded_P, lacked_P - lacking_P)
    aliases_P = torch.searchsorted(exceeded_P, spent_P, right=True).minimum(last)
    filled_P = lacked_P[torch.searchsorted(lacked_P, exceeded_P).clamp(max=len(weights_P) - 1)]
    return torch.where(excess_P > 0, 1 + exceeded_P - filled_P, scaled_P), aliases_P


def _inverse_distribution(log_weights_P: Tensor, uniforms_M: Tensor) -> Tensor:
    """Indices of the particles at which the cumulative weights first exceed the uniforms' share of their total
    (rounding may keep the total from being 1). Particles of weight 0 are never drawn."""
    cumulative_P = log_weights_P.softmax(-1).cumsum(-1)
    total = cumulative_P[-1]
    indices_M = torch.searchsorted(cumulative_P, uniforms_M.to(cumulative_P.dtype) * total, right=True)
    return indices_M.minimum((cumulative_P < total).sum(-1))
