import pytest
import torch
from torch import nn

from trainables.networks.heads import SMALLEST_VARIANCE, GaussianHead

D, WIDTH = 6, 4


@pytest.fixture
def head() -> GaussianHead:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return GaussianHead(D, WIDTH)


def test_posterior_does_not_depend_on_its_batch(head: GaussianHead) -> None:
    z_BD = torch.randn(8, D)
    for training in (True, False):
        head.train(training)
        for whole, alone in zip(head(z_BD), head(z_BD[2:3]), strict=True):
            torch.testing.assert_close(whole[2:3], alone, rtol=1e-5, atol=1e-6)
    assert not [module for module in head.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    assert not list(head.buffers())


def test_posterior_depends_on_each_embedding(head: GaussianHead) -> None:
    mu_BD, var_BD = head(torch.randn(8, D))
    assert (mu_BD.std(0) > 0).all() and (var_BD.std(0) > 0).all()


@pytest.mark.parametrize("leading", [(), (3,), (2, 3)])
def test_shapes(head: GaussianHead, leading: tuple[int, ...]) -> None:
    mu, var = head(torch.randn(*leading, D))
    assert mu.shape == var.shape == (*leading, D)


def test_variance_is_softplus_above_its_floor(head: GaussianHead) -> None:
    z_BD = torch.randn(5, D)
    with torch.no_grad():
        head.raw_var.weight.zero_()
        head.raw_var.bias.copy_(torch.tensor([-1e4, -30.0, 0.0, 1.0, 30.0, 1e4]))
        _, var_BD = head(z_BD)
    raw = torch.tensor([-1e4, -30.0, 0.0, 1.0, 30.0, 1e4])
    softplus = torch.logaddexp(raw, torch.zeros_like(raw))
    torch.testing.assert_close(var_BD, (softplus + 1e-6).expand(5, D), rtol=1e-6, atol=0)
    assert var_BD.min().item() == pytest.approx(SMALLEST_VARIANCE, rel=1e-6) and SMALLEST_VARIANCE == 1e-6


def test_half_precision_layers_give_a_float32_posterior(head: GaussianHead) -> None:
    """bfloat16 has eight bits: a variance of 0.5 would swallow the floor."""
    with torch.autocast("cpu", torch.bfloat16):
        assert head.mu(torch.randn(5, WIDTH)).dtype == torch.bfloat16
        mu_BD, var_BD = head(torch.randn(5, D))
    assert mu_BD.dtype == var_BD.dtype == torch.float32
    assert not torch.equal(var_BD, var_BD.bfloat16().float())


def test_three_normalised_layers_then_two_heads(head: GaussianHead) -> None:
    """D -> h -> h -> h, each with LayerNorm and ReLU; then h -> D twice."""
    trunk = (D * WIDTH + WIDTH) + 2 * (WIDTH * WIDTH + WIDTH) + 3 * 2 * WIDTH
    assert sum(parameter.numel() for parameter in head.parameters()) == trunk + 2 * (WIDTH * D + D)
    kinds = [type(module).__name__ for layer in head.trunk.children() for module in layer.children()]
    assert kinds == ["Linear", "LayerNorm", "ReLU"] * 3
