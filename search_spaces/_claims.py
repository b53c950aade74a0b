"""Helpers for the claims of several sweeps."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sweeper.claims import Claim, Side, Where

PAPER, DIGITS, CONTROLS = ("paper",), ("digits",), ("controls",)
"""Names of presets."""


def best(metric: str, where: Where, along: str = "method") -> Side:
    """The largest mean along a key."""
    return Side(metric, where, "largest", along)


def least(metric: str, where: Where, along: str = "method") -> Side:
    """The smallest mean along a key."""
    return Side(metric, where, "smallest", along)


def judged_by(presets: tuple[str, ...], *claims: Claim) -> tuple[Claim, ...]:
    """Return the claims; claims without presets get these presets."""
    return tuple(claim if claim.presets else replace(claim, presets=presets) for claim in claims)


def also_by(
    claims: Sequence[Claim], metrics: Mapping[str, str], preset: str = "digits", of: str = "paper"
) -> tuple[Claim, ...]:
    """Return the claims for the preset `of`, and again under the same names for `preset`, with metrics replaced by
    `metrics`."""

    def side(side: Side) -> Side:
        return replace(side, metric=metrics.get(side.metric, side.metric))

    others = (
        replace(
            claim,
            left=side(claim.left),
            right=side(claim.right) if isinstance(claim.right, Side) else claim.right,
            presets=(preset,),
            published="",
        )
        for claim in claims
    )
    return (*(replace(claim, presets=(of,)) for claim in claims), *others)
