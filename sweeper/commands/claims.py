"""`sweeper claims [NAME]`: what the rows of a store say of the claims of the papers."""

import argparse
import math
import sys
from collections import Counter
from collections.abc import Sequence

from sweeper.claims import judging
from sweeper.claims.judging import Judged
from sweeper.commands.command_line import EXIT_OK, Parser, add_options, command_line
from sweeper.definition import Sweep, registry
from sweeper.definition.space import unknown
from sweeper.errors import SpecError, StoreError, error_text
from sweeper.printing import json_text, print
from sweeper.report.formatting import DASH, MINUS, format_significant, text_table
from sweeper.report.page import publish
from sweeper.storage.files import Files
from sweeper.storage.requests import request_name

ABOUT = (
    "Judge the claims of the papers by the rows of a store: a claim holds or is refuted where the 95 % interval of the "
    "difference of its sides is on one side of its margin, and is undecided where it is on both. The verdicts are "
    "written to STORE/claims/sweep=NAME/PRESET.parquet, and with all that were judged before to the page "
    "STORE/reports/claims.html."
)


@command_line()
def main(arguments: Sequence[str]) -> int:
    """Run the command line. Returns the exit status: 0, or 2 for a wrong request or claim, said in one line.

    If verdicts cannot be written, as to a read-only store, they are printed all the same, and a line says so.
    """
    parser = Parser("claims", ABOUT)
    add = parser.add_argument
    name_help = "a sweep: a name, a file or a module, as in sweeper run (default: every sweep that ships)"
    add("name", nargs="?", metavar="NAME", help=name_help)
    add("--preset", help="judge by the rows of this preset (default: of every preset that has rows)")
    changes_help = "judge by the rows of a request that changed the preset, e.g. seed=3,4, as a row's `changes` says"
    add("--changes", default="", metavar="TEXT", help=changes_help)
    add_options(parser, "store")
    add("--holm", action="store_true", help="correct the verdicts for the number of claims, by Holm's procedure")
    add("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    _judge(options)
    return EXIT_OK


def _judge(options: argparse.Namespace) -> None:
    files = Files(options.store)
    sweeps = _sweeps(options.name, options.preset)
    judged = judging.with_holm(
        [
            each
            for sweep in sweeps
            for preset in ([options.preset] if options.preset else sweep.presets)
            if preset in sweep.presets
            for each in judging.judge(files, sweep, preset, options.changes)
        ]
    )
    shown = judging.corrected(judged) if options.holm else judged
    texts, unwritten = list[str](), list[str]()
    for sweep in sweeps:
        for preset in sweep.presets:
            own = [each for each in shown if (each.sweep, each.preset) == (sweep.name, preset)]
            if not own:
                continue
            request = request_name(preset, options.changes)
            try:
                judging.write_table(files, sweep.name, request, own)
            except StoreError as error:
                unwritten.append(error_text(error))
            texts.append(f"{sweep.name} ({request})\n{_text(own)}")
    if not options.json:
        print("\n\n".join([*texts, summary(shown, holm=options.holm)]))
    page = None
    try:
        if not unwritten and (path := publish.write_claims(files)):
            page = files.display_uri_of(path)
    except StoreError as error:
        unwritten.append(error_text(error))
    if options.json:
        rows, counts = judging.table(shown).to_dict("records"), Counter(each.verdict for each in shown)
        claims = [{"sweep": each.sweep, **row} for each, row in zip(shown, rows, strict=True)]
        print(json_text({"claims": claims, "counts": counts, "page": page}), mask=False)
    elif page:
        print(f"page: {page}")
    if unwritten:
        print(f"note: the verdicts above are not written: {unwritten[0]}", file=sys.stderr)


def _sweeps(name: str | None, preset: str | None) -> list[Sweep]:
    """The sweeps to judge. Raises SpecError if none has a claim, or the preset."""
    found = [registry.find(name)] if name else [registry.find(each) for each in registry.names()]
    if name and preset:
        found[0].preset(preset)
    presets = dict.fromkeys(each for sweep in found for each in sweep.presets)
    if preset and preset not in presets:
        raise SpecError(unknown("preset", preset, list(presets)))
    with_claims = [sweep for sweep in found if sweep.claims]
    if not with_claims:
        raise SpecError(f"sweep {name} must have claims to be judged, but has none")
    return with_claims


def _text(judged: Sequence[Judged]) -> str:
    """Return a line for each claim; or a single one if none of their rows is there."""
    commands = dict.fromkeys(each.command for each in judged if each.command)
    if all(each.verdict == "not run" for each in judged):
        return f"{len(judged)} claims not run: {'; '.join(commands)}"
    columns = {
        "claim": [each.claim.name for each in judged],
        "verdict": [each.verdict for each in judged],
        "difference": [signed(each.difference) for each in judged],
        "95 % interval": [interval(each) for each in judged],
        "n": [str(each.n) if each.n else DASH for each in judged],
        "paper": [each.claim.published or DASH for each in judged],
        "claimed": [
            f"{each.claim.sentence} ({each.claim.place}){f'; {each.reason}' if each.reason else ''}" for each in judged
        ],
    }
    lines = [text_table(columns, right=["difference", "n"]), *(f"not run: {command}" for command in commands)]
    return "\n".join(lines)


def signed(value: float) -> str:
    """Return text such as `+0.012`; an en dash for NaN."""
    if math.isnan(value):
        return DASH
    return f"{MINUS if value < 0 else '+'}{format_significant(abs(value))}"


def interval(judged: Judged) -> str:
    return DASH if math.isnan(judged.low) else f"{signed(judged.low)} to {signed(judged.high)}"


def summary(judged: Sequence[Judged], *, holm: bool = False) -> str:
    """Return how many claims have each verdict, and how many intervals are expected to miss the truth."""
    rows = Counter(judging.by_row(judged).values()) if len({each.preset for each in judged}) == 1 else Counter()
    lines = [f"{len(judged)} claims: {judging.counts_text(judged)}"]
    if rows:
        lines.append(
            f"{rows.total()} rows of the ledger: {', '.join(f'{count} {kind}' for kind, count in rows.items())}"
        )
    tested = sum(not math.isnan(each.low) for each in judged)
    if holm:
        lines.append(
            f"corrected for {tested} claims (Holm): some verdict is wrong by chance with at most 5 % probability"
        )
    elif tested:
        expected = judging.wrong_by_chance(judged)
        lines.append(f"each of {tested} intervals misses the truth with 5 %: {expected:.1f} misses expected (--holm)")
    return "\n".join(lines)
