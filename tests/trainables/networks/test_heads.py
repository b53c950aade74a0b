from typing import Literal

import pytest
import torch
from torch import nn

from trainables.networks.heads import SMALLEST_VARIANCE, GaussianHead, hidden_widths, mlp

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


def _kinds(network: nn.Sequential) -> list[str]:
    return [type(layer).__name__ for layer in network]


@pytest.mark.parametrize(("norm", "name"), [("batch", ["BatchNorm1d"]), ("layer", ["LayerNorm"]), (None, [])])
def test_mlp_norms_every_layer_but_the_last(norm: Literal["batch", "layer"] | None, name: list[str]) -> None:
    hidden = ["Linear", *name, "ReLU"]
    assert _kinds(mlp(3, 2, norm=norm)) == ["Linear"]
    assert _kinds(mlp(3, 4, 5, 2, norm=norm)) == [*hidden, *hidden, "Linear"]
    assert _kinds(mlp(3, 4, 2, norm=norm, last=True)) == [*hidden, "Linear", *name]
    network = mlp(3, 4, 5, 2, norm=norm)
    assert network(torch.randn(6, 3)).shape == (6, 2)
    widths = [(layer.in_features, layer.out_features) for layer in network if isinstance(layer, nn.Linear)]
    assert widths == [(3, 4), (4, 5), (5, 2)]


@pytest.mark.parametrize("norm", ["batch", "layer"])
def test_a_last_norm_has_no_weights(norm: Literal["batch", "layer"]) -> None:
    torch.manual_seed(0)
    network = mlp(3, 4, 2, norm=norm, last=True)
    assert not list(network[-1].parameters()) and list(network[1].parameters())
    out_BD, axis = network(torch.randn(50, 3)), 0 if norm == "batch" else 1
    torch.testing.assert_close(out_BD.mean(axis), torch.zeros(out_BD.shape[1 - axis]), rtol=0, atol=1e-5)
    assert (out_BD.var(axis, correction=0) - 1).abs().median() < 1e-2


def _biases(network: nn.Sequential) -> list[bool]:
    return [layer.bias is not None for layer in network if isinstance(layer, nn.Linear)]


def test_only_a_batchnorm_undoes_a_bias() -> None:
    """A BatchNorm removes each dimension's mean over the batch; a LayerNorm removes the mean over dimensions."""
    assert _biases(mlp(3, 4, 5, 2, norm="batch")) == [False, False, True]
    assert _biases(mlp(3, 4, 2, norm="batch", last=True)) == [False, False]
    assert _biases(mlp(3, 4, 2, norm="layer", last=True)) == _biases(mlp(3, 4, 2, norm=None)) == [True, True]
    assert _biases(mlp(3, 4, 2, norm="batch", bias=False)) == [False, False]
    assert _biases(mlp(3, 4, 2, norm="layer", bias=False)) == [True, False]
    x_BD, bias_D = torch.randn(8, 4), torch.randn(4)
    torch.testing.assert_close(nn.BatchNorm1d(4)(x_BD + bias_D), nn.BatchNorm1d(4)(x_BD), rtol=1e-4, atol=1e-5)
    assert (nn.LayerNorm(4)(x_BD + bias_D) - nn.LayerNorm(4)(x_BD)).abs().max() > 0.1


@pytest.mark.parametrize(
    ("hidden", "widths"), [("500+500+2000", (500, 500, 2000)), ("7", (7,)), ("", ()), ((3, 4), (3, 4)), ((), ())]
)
def test_hidden_widths_are_a_tuple_or_text(hidden: str | tuple[int, ...], widths: tuple[int, ...]) -> None:
    assert hidden_widths(hidden) == widths


@pytest.mark.parametrize(
    "hidden", ["500+", "+", "0", "5+0", "-5", "05", "1.5", "5 + 6", "x", "9" * 30, (5, 0), (5, -1)]
)
def test_other_hidden_widths_are_refused(hidden: str | tuple[int, ...]) -> None:
    with pytest.raises(ValueError) as error:
        hidden_widths(hidden)
    assert str(error.value) == (
        f"hidden must be positive widths joined by +, such as 500+2000, but got hidden={hidden}"
    )
