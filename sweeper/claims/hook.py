"""What the rest of the service uses of claims.

It is the only module of the package that others import, and they do so where there are claims: a run without claims
never imports it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from sweeper.claims import judging, page
from sweeper.definition import Sweep
from sweeper.storage.files import Files

if TYPE_CHECKING:
    from sweeper.claims.decide import Decision
    from sweeper.claims.judging import Judged
    from sweeper.planning.plan import Plan
    from sweeper.request import Request
    from sweeper.storage.store import Store


def judge_run(files: Files, sweep: Sweep, preset: str, changes: str) -> str:
    """Judge the claims of a preset by the rows of a request, and write their table. Returns how many have each
    verdict. Raises SpecError for a claim that does not fit the preset, and StoreError."""
    return judging.counts_text(judging.write(files, sweep, preset, changes))


def judged(files: Files, sweep: Sweep, preset: str, changes: str) -> list[Judged]:
    """Judge the claims of a preset by the rows of a request, and write nothing. Raises as `judging.judge`."""
    return judging.judge(files, sweep, preset, changes)


def decision(request: Request, plan: Plan, store: Store, say: Callable[[str], None]) -> Decision:
    """Return the claims that a request with `--decide` asks to decide. Raises SpecError if there are none."""
    from sweeper.claims.decide import Decision  # here because torch takes seconds to import

    return Decision(request, plan, store, say)


def section(files: Files, sweep: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the claims of a sweep for its page, and a sentence about each table that cannot be read."""
    return page.read(files, sweep)


def all_claims(files: Files) -> Mapping[str, Any] | None:
    """Return what the page of all claims shows, as values for JSON; None if none was judged."""
    return page.all_claims(files)
