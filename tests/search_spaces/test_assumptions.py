"""What of a paper's preset is ours: it is named, set by the preset, and in the list of `search_spaces/README.md`."""

import sys
from pathlib import Path

import pytest

from sweeper.cli.describe import describe, describe_sweep
from sweeper.spec import Assumption, Grid, Metric, Search, SpecError, Sweep, Table, registry
from trainables.config import keys

README = Path(__file__).parents[2] / "search_spaces" / "README.md"
NAMED = ("paper", "authors_code")
"""Presets with the settings of a paper or of its authors' code."""
TABLE = Table("losses", ("seed",), (Metric("loss", "minimize"),))
SPACE = (Grid({"method": "vje", "nu": 3.0}, {"seed": (0, 1)}), Grid({"method": "simclr", "tau": 0.5}, {}))


@pytest.mark.parametrize("name", registry.names())
def test_each_paper_preset_says_what_of_it_is_ours(name: str) -> None:
    sweep = registry.find(name)
    assert "arXiv" in sweep.paper
    assert {preset for preset in sweep.presets if preset in NAMED} == set(sweep.assumptions)
    assert all(assumption.why for each in sweep.assumptions.values() for assumption in each)


@pytest.mark.parametrize("name", registry.names())
def test_every_named_key_exists_and_is_set_in_its_preset(name: str) -> None:
    sweep = registry.find(name)
    for preset, assumptions in sweep.assumptions.items():
        parts = sweep.parts(preset)
        for assumption in assumptions:
            own = [part for part in parts if not assumption.methods or part.fixed["method"] in assumption.methods]
            set_keys = set[str]()
            for part in own:
                searched = part.space if isinstance(part, Search) else {}
                assert {*part.fixed, *part.axes, *searched} <= set(keys(str(part.fixed["method"])))
                set_keys |= {*part.fixed, *part.axes, *searched}
            assert own and set(assumption.keys) <= set_keys


@pytest.mark.parametrize(
    ("assumption", "preset", "message"),
    [
        (Assumption("chosen", ("lr",)), "paper", "an assumption names lr, which preset paper does not set"),
        (
            Assumption("chosen", ("tau",), ("vje",)),
            "paper",
            "an assumption names tau, which preset paper does not set for vje",
        ),
        (
            Assumption("chosen", (), ("byol",)),
            "paper",
            "an assumption about preset paper: no method 'byol'; there are: simclr, vje",
        ),
    ],
)
def test_an_assumption_about_what_a_preset_does_not_set_is_refused(
    assumption: Assumption, preset: str, message: str
) -> None:
    Sweep("about", {"paper": SPACE}, (), (TABLE,), assumptions={"paper": (Assumption("c", ("nu", "seed", "tau")),)})
    with pytest.raises(SpecError) as refused:
        Sweep("about", {"paper": SPACE}, (), (TABLE,), assumptions={preset: (assumption,)})
    assert str(refused.value) == message


def test_a_variant_with_other_presets_has_none_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "digits_search.py").write_text(
        "from dataclasses import replace\nfrom search_spaces import vje_search\n"
        'SWEEP = replace(vje_search.SWEEP, presets={"digits": vje_search.SWEEP.presets["digits"]})\n'
    )
    assert "that are ours" in describe_sweep("vje_search")
    assert " ours" not in describe_sweep(str(tmp_path / "digits_search.py"))


def test_what_is_largely_a_reconstruction_says_so() -> None:
    benchmark, synthetic = registry.find("ssl_benchmark"), registry.find("synthetic_alignment")
    (smc,) = (each for each in benchmark.assumptions["paper"] if each.methods == ("smc_joint_gmje",))
    assert "largely our reconstruction" in smc.why and "from which weights of the particles" in smc.why
    assert "largely our reconstruction" in synthetic.assumptions["paper"][0].why


@pytest.mark.parametrize("name", registry.names())
def test_the_description_of_a_sweep_has_all_of_them(name: str) -> None:
    sweep = registry.find(name)
    text = " ".join(describe(name).split())
    for preset, assumptions in sweep.assumptions.items():
        assert f"settings of {preset} that are ours, and not those of {sweep.paper}:" in text
        for assumption in assumptions:
            assert assumption.why in text and ", ".join(assumption.keys) in text
    others = [preset for preset in sweep.presets if preset not in NAMED]
    assert (f"all settings of {' and '.join(others)} are ours" in text) == bool(others)


def test_readme_has_the_list_of_all_sweeps() -> None:
    """`python -m sweeper.run --describe ours` prints it."""
    listed = describe("ours")
    assert f"\n{listed}\n" in README.read_text()
    text = " ".join(listed.split())
    for name in registry.names():
        for assumptions in registry.find(name).assumptions.values():
            assert all(assumption.why in text for assumption in assumptions)
