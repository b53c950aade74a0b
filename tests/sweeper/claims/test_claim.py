"""Claims: what is refused when a sweep is loaded, and how they read."""

import itertools
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sweeper.claims import Claim, Filter, Side
from sweeper.claims.claim import check_claims, meets
from sweeper.definition import Grid, Metric, Sweep, Table, Value
from sweeper.definition.judging import judging
from sweeper.errors import SpecError
from tests.cases import for_each

SPACE = (
    Grid({"method": "vje", "dataset": "digits", "beta": 1.0}, {"nu": (0.5, 20.0), "seed": (0, 1, 2)}),
    Grid({"method": "simclr", "dataset": "digits"}, {"tau": (0.1, 0.5), "seed": (0, 1, 2)}),
)


def sweep(*claims: Claim) -> Sweep:
    table = Table("accuracy", ("method",), (Metric("knn_z", "maximize"),))
    return Sweep("about", {"digits": SPACE}, figures=(table,), claims=claims, name="mine")


def claim(left: Side, relation: Any = ">", right: Side | float = 0.0, **parts: Any) -> Claim:
    return Claim(parts.pop("name", "X-01"), "it is so", "Table 1", left, relation, right, **parts)


@for_each(
    ("side", "error"),
    [
        (Side("knm_z"), r"claim X-01: no metric 'knm_z' \(did you mean 'knn"),
        (
            Side("knn_z", {"bta": 1.0}),
            r"claim X-01, preset digits: no key 'bta' \(did you mean 'beta'\?\); there are: ",
        ),
        (Side("knn_z", {}, "range", "width"), "preset digits: no key 'width'"),
        (Side("knn_z", {"nu": 3.0}), r"no trial has nu=3; nu is: 0.5, 20.0"),
        (Side("knn_z", {"method": ("vje", "byol")}), r"no trial has method=byol; method is: vje, simclr"),
        (Side("knn_z", {"nu": Filter(">", 20)}), "no trial has nu>20"),
        (
            Side("knn_z", {}, "deviation", "seed"),
            "claim X-01: the deviation along seed is the spread of the replicates, which has no interval",
        ),
    ],
)
def test_what_no_trial_has_is_refused_by_name(side: Side, error: str) -> None:
    """Where they are judged: a sweep with such a claim trains, and can be shown."""
    broken = sweep(claim(side))
    with pytest.raises(SpecError, match=error):
        check_claims(broken, "digits")


def test_names_differ_within_a_preset() -> None:
    with pytest.raises(SpecError, match="must have different names, but digits has X-01 twice"):
        check_claims(sweep(claim(Side("knn_z")), claim(Side("probe_z"))), "digits")
    two = sweep(claim(Side("knn_z")), claim(Side("knn_z"), presets=("paper",)))
    check_claims(two, "digits")
    assert len(two.claims_of("digits")) == 1


def test_a_condition_on_the_only_data_set_is_left_out() -> None:
    """So that one claim is judged by the paper's preset, which has several, and by a smaller one."""
    side = Side("knn_z", {"dataset": "cifar10", "method": "vje"})
    check_claims(sweep(claim(side)), "digits")
    assert side.wanted(SPACE) == {"method": "vje"}


@for_each(
    ("make", "error"),
    [
        (lambda: claim(Side("knn_z"), "="), "the relation of claim X-01 must be"),
        (lambda: claim(Side("knn_z"), "~", 1.0, margin=-1), "`tolerance >= 0` must hold"),
        (lambda: claim(Side("knn_z", {}, "argmax", "nu"), ">", Side("knn_z")), "a argmax is compared with a number"),
        (lambda: Side("knn_z", {}, "range"), "the range of knn_z needs a key"),
        (lambda: Side("knn_z", along="nu"), "the mean of knn_z goes along no key"),
        (lambda: Side("knn_z", {}, "median", "nu"), "no statistic of a side 'median'"),  # type: ignore[arg-type]
        (lambda: Side("loss", {}, "settled", "nu"), "`settled` goes along 'epoch', but that of loss has along='nu'"),
        (lambda: Filter(">", "vje"), "a condition with > needs a number"),
    ],
)
def test_what_makes_no_sense_is_refused(make: Any, error: str) -> None:
    with pytest.raises(SpecError, match=error):
        make()


def test_conditions() -> None:
    assert meets(1, 1.0) and not meets(True, 1) and meets(None, None) and not meets(None, Filter(">", 0))
    assert meets("b", Filter("!=", "a")) and meets(3, (1, 3)) and not meets(2, (1, 3))


def test_a_claim_reads_as_in_the_ledger() -> None:
    left, right = Side("probe_z", {"method": "vje"}), Side("probe_z", {"method": ("a", "b")}, "largest", "method")
    assert claim(left, ">", right, margin=0.1).text == "probe_z{method=vje} > max[method] probe_z{method=a/b} + 0.1"
    assert claim(left, "~", 0.5, margin=0.01).text == "probe_z{method=vje} ~ 0.5 ± 0.01"
    assert claim(left, name="VJE-12b").row == "VJE-12" == claim(left, name="VJE-12").row


CHANGES = {
    "dataset": ("digits", "my_data:Screws"), "method": ("vje", "my_method:Mine"), "encoder": ("mlp", "my_nets:Tiny"),
    "nu": (0.5, 3.0), "lr": (0.1, 0.2), "epochs": (2, 5, 8), "seed": (0, 7),
}  # fmt: skip
"""Key -> values of presets and requests."""


@given(
    presets=st.lists(
        st.fixed_dictionaries({key: st.sampled_from(values) for key, values in CHANGES.items() if key != "lr"}),
        min_size=1,
        max_size=2,
    ),
    request=st.fixed_dictionaries(
        {}, optional={key: st.lists(st.sampled_from(CHANGES[key]), min_size=1, unique=True) for key in CHANGES}
    ),
)
@example([{"method": "vje", "epochs": 0}, {"method": "vje", "epochs": 5}], {"epochs": [2, 8]})
def test_a_trial_of_a_changed_request_judges_as_a_trial_of_the_preset(
    presets: list[dict[str, Any]], request: dict[str, list[Any]]
) -> None:
    """A trial judges if one of the preset's has its values, but for the seed, and no more epochs. None sets `lr`."""
    parts = [Grid({**preset}, {}) for preset in presets]
    judges = judging(parts, [*request])
    for preset, values in itertools.product(presets, itertools.product(*request.values())):
        changed = dict(zip(request, values, strict=True))
        trial = {**preset, **changed}

        def is_of(own: dict[str, Any], trial: dict[str, Any] = trial) -> bool:
            longer = own["epochs"] == trial["epochs"] or trial["epochs"] > own["epochs"] > 0
            same = all(trial.get(key) == own.get(key) for key in {*own, *trial} - {"seed", "epochs"})
            return longer and same

        assert judges(trial) == (not request or any(map(is_of, presets))), trial


def test_keys_that_a_method_lacks_do_not_keep_its_trials_from_judging() -> None:
    """Of `--set tau=0.5`: VJE has no tau, and SimCLR's trials with the preset's values of it are the preset's."""
    judges = judging(SPACE, ["tau"])
    vje: dict[str, Value] = {"method": "vje", "dataset": "digits", "beta": 1.0, "nu": 20.0, "seed": 9}
    simclr: dict[str, Value] = {"method": "simclr", "dataset": "digits", "seed": 0}
    assert judges(vje) and judges({**simclr, "tau": 0.5})
    assert not judges({**simclr, "tau": 0.7})
