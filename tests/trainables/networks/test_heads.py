"""Heads, and the copy of a network that follows it. Shapes: K members, B images, D dimensions."""

import copy
from typing import Literal

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from tests.cases import for_each
from trainables.networks.heads import SMALLEST_VARIANCE, GaussianHead, MovingAverage, hidden_widths, mlp

B, D, WIDTH = 6, 6, 4


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


@for_each("hidden", ["500+", "+", "0", "5+0", "-5", "05", "1.5", "5 + 6", "x", "9" * 30, (5, 0), (5, -1)])
def test_other_hidden_widths_are_refused(hidden: str | tuple[int, ...]) -> None:
    with pytest.raises(ValueError) as error:
        hidden_widths(hidden)
    assert str(error.value) == (
        f"hidden must be positive widths joined by +, such as 500+2000, but got hidden={hidden}"
    )


X = torch.randn(B, D, generator=torch.Generator().manual_seed(9))


def _network(seed: int = 0) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(D, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2, bias=False))


def _pair(seed: int = 0) -> tuple[nn.Sequential, MovingAverage]:
    """An averaged network, and the original after some steps."""
    network = _network(seed)
    average = MovingAverage(network)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed + 100)))
    return network, average


def test_the_average_has_no_parameters() -> None:
    """Output and names equal the network's; weights are buffers."""
    network = _network()
    average = MovingAverage(network)
    assert not list(average.parameters())
    state = network.state_dict()
    own = dict(average.network.named_buffers())
    assert own.keys() == state.keys() and all(torch.equal(own[name], state[name]) for name in state)
    assert torch.equal(average.eval()(X), network.eval()(X))
    assert len(list(network.parameters())) == 5  # the network keeps its own


def test_outputs_have_no_gradient() -> None:
    _, average = _pair()
    assert not average(X.clone().requires_grad_()).requires_grad


@pytest.mark.parametrize("keep", [0.0, 0.25, 1.0])
def test_follow_is_the_weighted_mean_of_weights_alone(keep: float) -> None:
    network, average = _pair()
    network(X), average(X + 1)  # both have statistics of their own
    theirs = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    before = {name: tensor.clone() for name, tensor in average.network.named_buffers()}
    buffers = dict(average.network.named_buffers())
    average.update(network, torch.tensor(keep))
    weights = {name for name, _ in network.named_parameters()}
    for name, after in average.network.named_buffers():
        expected = keep * before[name] + (1 - keep) * theirs[name] if name in weights else before[name]
        assert torch.equal(after, expected), name
        assert after is buffers[name]  # in place: a stack's buffers are views
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in network.state_dict().items())
    assert all(parameter.grad is None and parameter.requires_grad for parameter in network.parameters())


def test_follow_goes_by_a_geometric_series() -> None:
    """While the network does not change, the distance shrinks by the factor `keep` per step."""
    network, average = _pair()
    own, theirs = average.network.get_buffer("0.weight"), network.get_parameter("0.weight").detach()
    distance = own - theirs
    for _ in range(5):
        average.update(network, torch.tensor(0.8))
    torch.testing.assert_close(own - theirs, 0.8**5 * distance)


def test_statistics_of_batchnorm_come_from_what_the_average_sees() -> None:
    network, average = _pair()
    before = network.get_buffer("1.running_mean").clone()
    average.train()(X)
    expected = 0.1 * average.network.get_submodule("0")(X).mean(0)
    torch.testing.assert_close(average.network.get_buffer("1.running_mean"), expected)
    assert torch.equal(network.get_buffer("1.running_mean"), before)
    average.eval()(X + 5)
    torch.testing.assert_close(average.network.get_buffer("1.running_mean"), expected)


def test_a_deep_copy_is_on_its_own() -> None:
    network, average = _pair()
    other = copy.deepcopy(average)
    average.update(network, torch.tensor(0.0))
    assert not list(other.parameters())
    assert torch.equal(other.network.get_buffer("0.weight"), _network().get_parameter("0.weight"))
    assert torch.equal(average.network.get_buffer("0.weight"), network.get_parameter("0.weight"))


def test_parameters_anywhere_in_a_module_are_copied() -> None:
    """Also parameters beside layers, and those of a module that is a single layer."""

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(2.0))
            self.layer = nn.Linear(D, D)

        def forward(self, x_BD: Tensor) -> Tensor:
            return self.scale * self.layer(x_BD)

    for network in (Scaled(), nn.Linear(D, 2)):
        average = MovingAverage(network)
        assert not list(average.parameters()) and torch.equal(average(X), network(X))


class Pair(nn.Module):
    """A network and its average. A call lets the average follow once and returns its output."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.network, self.average = _pair(seed)

    def forward(self, keep: Tensor, x_BD: Tensor) -> Tensor:
        self.average.update(self.network, keep)
        out: Tensor = self.average(x_BD)
        return out


def test_members_of_a_stack_follow_each_their_own_network() -> None:
    """Under vmap over stacked parameters and buffers, each with its own `keep`, it equals single networks."""
    alone = [Pair(seed) for seed in range(3)]
    pairs, keep_K = [Pair(seed) for seed in range(3)], torch.tensor([0.0, 0.5, 0.9])
    parameters, buffers = (
        {name: torch.stack([dict(getattr(pair, kind)())[name].detach() for pair in pairs]) for name in names}
        for kind, names in (
            ("named_parameters", dict(pairs[0].named_parameters())),
            ("named_buffers", dict(pairs[0].named_buffers())),
        )
    )

    def follow(parameters: dict[str, Tensor], buffers: dict[str, Tensor], keep: Tensor) -> Tensor:
        out: Tensor = functional_call(pairs[0], (parameters, buffers), (keep, X))
        return out

    for _ in range(3):
        actual = torch.vmap(follow)(parameters, buffers, keep_K)
        expected = [pair(keep, X) for pair, keep in zip(alone, keep_K, strict=True)]
        torch.testing.assert_close(actual, torch.stack(expected))
    for index, pair in enumerate(alone):
        for name, buffer in pair.named_buffers():
            torch.testing.assert_close(buffers[name][index], buffer)
