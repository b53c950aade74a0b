"""VJE on the output of a projector, and the vectors that classifiers are put on.

Shapes: B images, D features of the representation, W dimensions of the embedding.
"""

import pytest
import torch
from torch import Tensor, nn

from tests.trainables.methods.plain import BATCH, VIEWS, B, D, built, gradient_of_rows, rows_of, through, zeros_for
from trainables.contract import Noise
from trainables.losses.densities import directional_nll, gaussian_kl, radial_nll
from trainables.methods.baselines.simsiam import SimSiam, SimSiamConfig
from trainables.methods.variational import vje
from trainables.methods.variational.vje import VJE
from trainables.methods.variational.vje import VJEConfig as Config

W = 7
NOISE = {"posterior": torch.randn(2, B, W, generator=torch.Generator().manual_seed(1))}


def _projected() -> VJE:
    return built(VJE, Config(beta=0.5, nu=2.0, bottleneck=8, projector_width=W))


def test_projector_is_two_layers_of_its_width_with_layernorm() -> None:
    """So an embedding does not depend on its batch: no statistics of BatchNorm, no other buffers."""
    model = _projected()
    assert isinstance(model.projector, nn.Sequential)
    kinds = [type(layer).__name__ for layer in model.projector]
    assert kinds == ["Linear", "LayerNorm", "ReLU", "Linear", "LayerNorm"]
    assert [(layer.in_features, layer.out_features) for layer in model.projector[::3]] == [(D, W), (W, W)]
    assert [norm.elementwise_affine for norm in model.projector[1::3]] == [True, False]
    assert {name for name, _ in model.named_buffers()} == VJE.fusible
    assert model.noise(B) == {"posterior": Noise((2, B, W), batch_dim=1)}
    assert model.score_noise(B) == {"posterior": Noise((0, B, W), batch_dim=1)}


def test_projector_is_simsiams_with_layernorm_for_batchnorm() -> None:
    """The paper replaces every norm and nothing else; a Linear before a LayerNorm keeps its bias."""
    theirs = built(SimSiam, SimSiamConfig(projector_layers=2, projector_width=W)).projector
    ours = _projected().projector
    assert isinstance(theirs, nn.Sequential) and isinstance(ours, nn.Sequential)
    kinds = [type(layer).__name__.replace("BatchNorm1d", "LayerNorm") for layer in theirs]
    assert kinds == [type(layer).__name__ for layer in ours] and kinds.count("LayerNorm") == 2
    weights = [
        [parameter.shape for name, parameter in part.named_parameters() if name.endswith("weight")]
        for part in (theirs, ours)
    ]
    assert weights[0] == weights[1]


def test_embeddings_have_mean_zero_and_variance_one_over_dimensions() -> None:
    model = _projected()
    embedding = model.projector(torch.from_numpy(rows_of(model)[0]).float())
    torch.testing.assert_close(embedding.mean(-1), torch.zeros(B), rtol=0, atol=1e-5)
    torch.testing.assert_close(embedding.var(-1, correction=0), torch.ones(B), rtol=0, atol=1e-3)


def test_without_a_projector_the_embedding_is_the_representation() -> None:
    model = built(VJE, Config(bottleneck=8))
    assert isinstance(model.projector, nn.Identity)
    assert model.noise(B) == {"posterior": Noise((2, B, D), batch_dim=1)}
    names = {name.split(".")[0] for name, _ in model.named_parameters()}
    assert names == {"encoder", "posterior"}


def test_loss_is_equation_38_of_the_embeddings() -> None:
    model = _projected()
    total, parts = model.losses(BATCH, NOISE)
    embedded = [torch.from_numpy(through(model.projector, view)).float() for view in rows_of(model)]
    expected = dict.fromkeys(parts, 0.0)
    for i in (0, 1):
        mu, var = model.posterior(embedded[i])
        s = mu + var.sqrt() * NOISE["posterior"][i]
        expected["dir"] += directional_nll(embedded[1 - i], s, var, 2.0).mean().item() / 2
        expected["rad"] += radial_nll(embedded[1 - i], s, 2.0).mean().item() / 2
        expected["kl"] += gaussian_kl(mu, var).mean().item() / 2
    assert {name: part.item() for name, part in parts.items()} == pytest.approx(expected, rel=1e-4)
    assert total.item() == pytest.approx(expected["dir"] + expected["rad"] + 0.5 * expected["kl"], rel=1e-4)


def test_no_gradient_reaches_projector_or_encoder_through_the_target() -> None:
    """With a posterior that ignores its input, a gradient could reach them through the target only."""
    model = _projected()
    assert gradient_of_rows(model, model.losses(BATCH, NOISE).total).abs().amax((1, 2)).min() > 1e-4
    for head in (model.posterior.mu, model.posterior.raw_var):
        nn.init.zeros_(head.weight)
        nn.init.ones_(head.bias)
    total, parts = model.losses(BATCH, NOISE)
    assert torch.equal(gradient_of_rows(model, parts["dir"] + parts["rad"]), torch.zeros(2, B, D))
    weights = list(model.projector.parameters())
    gradients = torch.autograd.grad(total, weights, materialize_grads=True)
    assert all(torch.equal(gradient, torch.zeros_like(gradient)) for gradient in gradients)


@pytest.mark.parametrize("width", [0, W])
def test_embed_gives_the_representation_and_its_posterior(width: int) -> None:
    """z comes before the projector; mu and var are what the loss takes of the embedding."""
    model = built(VJE, Config(bottleneck=8, projector_width=width)).eval()
    vectors = model.embed(VIEWS[0])
    assert list(vectors) == ["z", "mu", "var"] and VJE.representations == ("z", "mu") and VJE.variance == "var"
    torch.testing.assert_close(vectors["z"], torch.from_numpy(rows_of(model)[0]).float())
    mu, var = model.posterior(model.projector(vectors["z"]))
    assert torch.equal(vectors["mu"], mu) and torch.equal(vectors["var"], var)
    assert mu.shape == var.shape == (B, width or D)


def test_scores_are_of_the_embedding() -> None:
    """Of the posterior mean: Eq. 39 on the projected representation."""
    model = _projected().eval()
    scores = model.score(VIEWS[0], zeros_for(model.score_noise(B)))
    vectors = model.embed(VIEWS[0])
    embedded = model.projector(vectors["z"])
    torch.testing.assert_close(scores["dir"], directional_nll(embedded, vectors["mu"], vectors["var"], 2.0))
    torch.testing.assert_close(scores["rad"], radial_nll(embedded, vectors["mu"], 2.0))
    torch.testing.assert_close(scores["variance"], vectors["var"].sum(-1))


def test_half_precision_layers_give_a_float32_embedding(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is explained is as exact as the posterior that explains it."""
    seen = []

    def spy(z: Tensor, s: Tensor, var: Tensor, nu: Tensor) -> Tensor:
        seen.append((z.dtype, s.dtype, var.dtype))
        return directional_nll(z, s, var, nu)

    monkeypatch.setattr(vje, "directional_nll", spy)
    model = _projected()
    with torch.autocast("cpu", torch.bfloat16):
        model.losses(BATCH, NOISE)
        model.score(VIEWS[0], zeros_for(model.score_noise(B)))
    assert seen == [(torch.float32,) * 3] * 2
