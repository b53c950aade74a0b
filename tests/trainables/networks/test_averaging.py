"""The copy of a network that follows it, alone and in a stack. Shapes: K members, B images, D dimensions."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from trainables.networks.heads import MovingAverage

B, D = 6, 3
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
