"""Prior of latents in groups, with the centre of each group integrated out (SimVAE, section 3.3).

Shapes: B groups (the views of one image each), J views, L latent dimensions. Every function returns one value per
group, `[B]`.
Given its centre psi, the latents of a group are `N(psi, sigma2 I)`. The centre is `N(0, I / precision)`, with
`precision = 0` for the uniform (improper) centre. `sigma2 > 0` and a finite `precision >= 0` are floats or
0-dimensional tensors, and all functions are smooth in both.
Constants that depend on sigma2, precision, J and L alone are left out: a group of zeros has the value 0. For
`precision > 0` they are `(J-1) L/2 log(2 pi sigma2) + L/2 log J + L/2 log(2 pi (1/precision + sigma2/J))`.
"""

from torch import Tensor


def group_nll(z_BJL: Tensor, sigma2: float | Tensor, precision: float | Tensor) -> Tensor:
    """`S / (2 sigma2) + ||m||^2 / (2 (1/precision + sigma2/J))`, where m is the mean of the group and S the sum of the
    squared distances from it (SimVAE Eqs. 3 and 4)."""
    return _nll(_spread(z_BJL), _squared_centre(z_BJL), z_BJL.shape[-2], sigma2, precision)


def expected_group_nll(mu_BJL: Tensor, logvar_BJL: Tensor, sigma2: float | Tensor, precision: float | Tensor) -> Tensor:
    """The exact expectation of `group_nll` over `z ~ N(mu, diag exp(logvar))`."""
    views = mu_BJL.shape[-2]
    variance_B = logvar_BJL.exp().sum((-2, -1))
    spread_B = _spread(mu_BJL) + (1 - 1 / views) * variance_B
    return _nll(spread_B, _squared_centre(mu_BJL) + variance_B / views**2, views, sigma2, precision)


def standard_centre_nll(z_BJL: Tensor) -> Tensor:
    """`||m||^2 / 2`: a standard normal density of the group's mean m, which the authors' code adds to the prior with a
    uniform centre. It is the centre's term of `group_nll` at `precision = 1 / (1 - sigma2/J)`."""
    return _squared_centre(z_BJL) / 2


def _nll(
    spread_B: Tensor, squared_centre_B: Tensor, views: int, sigma2: float | Tensor, precision: float | Tensor
) -> Tensor:
    """The centre's weight `1 / (1/precision + sigma2/J)` is written so that it is 0 at `precision = 0`."""
    centre_weight = precision / (1 + precision * sigma2 / views)
    return (spread_B / sigma2 + centre_weight * squared_centre_B) / 2


def _spread(z_BJL: Tensor) -> Tensor:
    """Sum of the squared distances of a group's latents from their mean, `[B]`."""
    return (z_BJL - z_BJL.mean(-2, keepdim=True)).square().sum((-2, -1))


def _squared_centre(z_BJL: Tensor) -> Tensor:
    """Squared norm of a group's mean, `[B]`."""
    return z_BJL.mean(-2).square().sum(-1)
