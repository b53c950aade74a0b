"""GMJE-GNG: its graph is kept between epochs, and follows three branches. Shapes: B examples."""

import torch

from tests.trainables.methods.pairs.known import SHAPES, Known
from tests.trainables.small import HERE
from trainables.config import resolve
from trainables.methods.pairs.gmje_gng import GNG, GNGConfig
from trainables.training.cohort import Cohort


def test_a_graph_goes_on_where_it_was() -> None:
    """Buffers hold it between epochs: two of 150 steps are one of 300, on the same pairs."""
    source = torch.Generator().manual_seed(0)
    x_BX, y_B = torch.randn(200, 1, generator=source), torch.randn(200, generator=source)
    uniform = torch.rand(302, generator=source)

    def fitted(*parts: torch.Tensor) -> GNG:
        model = GNG(GNGConfig(nodes=6, steps=len(parts[0]) - 2, insert_every=20), Known(200), SHAPES)
        for part in parts:
            model.fit({"x": x_BX, "y": y_B}, {"examples": part})
        return model

    start, first, second = uniform.split((2, 150, 150))
    at_once, in_two = fitted(uniform), fitted(torch.cat([start, first]), torch.cat([start, second]))
    assert at_once.step == in_two.step == 300
    for name in ("positions_ME", "errors_M", "ages_MM", "means_ME"):
        torch.testing.assert_close(in_two.get_buffer(name), at_once.get_buffer(name), rtol=1e-4, atol=1e-5)


def test_nodes_follow_three_branches() -> None:
    """A quarter of the steps of the sweep."""
    config = resolve({"method": "gmje_gng", "steps": 5000, "examples": 1500, "epochs": 1})
    cohort = Cohort([config], HERE, torch.device("cpu"), None)
    cohort.epoch(0)
    metrics = cohort.evaluate(last=True)
    assert metrics["branches"] > 0.98 and metrics["nll_excess"] < 0.2 and 0.04 < metrics["sigma_mean"] < 0.06
