"""Claims of the sweeps that ship: their sides select trials, which report their metrics."""

import pytest

from search_spaces import _claims_gmje, _claims_one_class, _claims_simvae, _claims_vje
from sweeper.claims.claim import EPOCH, check_claims, meets
from sweeper.definition import registry
from tests.search_spaces.grids import COUNTS, each_preset, flats_of, metrics_of

EVERY_ROW = ("seconds",)


@pytest.mark.slow
@each_preset
def test_every_side_of_a_claim_has_trials_and_its_metric(name: str, preset: str) -> None:
    """With all keys at the values that the trials have, also those that the preset leaves at a default."""
    for claim in registry.find(name).claims_of(preset):
        for side in claim.sides:
            own = side.sweep or name
            flats = flats_of(own, preset)
            parts, reported = registry.find(own).parts(preset), metrics_of(own, preset)
            where = {key: wanted for key, wanted in side.wanted(parts).items() if key != EPOCH}
            chosen = [flat for flat in flats if all(meets(flat.get(key), wanted) for key, wanted in where.items())]
            assert chosen, (claim.name, side.text)
            for key, wanted in where.items():
                for value in wanted if isinstance(wanted, tuple) else ():
                    assert any(meets(flat.get(key), value) for flat in chosen), (claim.name, key, value)
            assert all(len({flat.get(key) for flat in chosen}) > 1 for key in side.keys), (claim.name, side.text)
            names = [side.metric, *([side.along] if side.of_metric else [])]
            assert set(names) <= {*reported, *EVERY_ROW, *(["fid"] if preset == "paper" else [])}, (claim.name, names)


@each_preset
def test_every_claim_fits_its_presets(name: str, preset: str) -> None:
    """A sweep does not check its claims when it is built."""
    check_claims(registry.find(name), preset)


def test_the_claims_of_the_ledger() -> None:
    """Of its 181 rows; those of unit tests, and those that no metric or key can judge yet, are in the README. Means
    that papers of rivals report are no rows of it."""
    rows = {claim.row for name in registry.names() for claim in registry.find(name).claims if claim.row[:4] != "ONE-"}
    assert len(rows) == 170 and {row[:4] for row in rows} == {"VJE-", "SIM-", "GMJ-"}


@pytest.mark.parametrize("claims", [_claims_vje, _claims_simvae, _claims_gmje, _claims_one_class])
def test_a_claim_is_judged_by_a_preset_that_its_sweep_has(claims: object) -> None:
    presets = {preset for _, preset in COUNTS}
    for value in vars(claims).values():
        for claim in value if isinstance(value, tuple) else ():
            if hasattr(claim, "presets"):
                assert set(claim.presets) <= presets, claim.name
