"""What pages show of claims: the tables of verdicts in the store, and the other claims of the sweeps that ship."""

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pandas as pd

from sweeper.claims import verdicts
from sweeper.claims.judging import NOT_RUN, VERDICTS, Judged, table
from sweeper.claims.samples import run_command
from sweeper.definition import registry
from sweeper.errors import DamagedError, StoreError
from sweeper.names import is_name
from sweeper.results.estimates import LEVEL
from sweeper.storage.files import LARGEST_FILE, Files
from sweeper.storage.layout import CLAIMS, SUFFIX, claims_folder, report_path, sweeps_in
from sweeper.storage.parquet_files import parquet_to_table

MOST_TRIALS = 40
"""Most rows that a page has of one claim."""
TEXTS = (
    *("claim", "row", "preset", "verdict", "sentence", "judge", "paper", "place", "published"),
    *("relation", "reason", "command", "data"),
)
NUMBERS = ("left", "right", "difference", "low", "high", "margin", "n", "p", "holm")
Record = dict[str, Any]


def read(files: Files, sweep: str) -> tuple[list[Record], list[str]]:
    """Return the claims of a sweep as its tables in the store have them, as values for JSON, and a sentence about each
    table that cannot be read. They are those of the last judgement, by a run or by `sweeper claims`."""
    folder, found, notes = claims_folder(sweep), list[Record](), list[str]()
    for file in files.list_files(folder, SUFFIX):
        try:
            _, rows = parquet_to_table(files.read(f"{folder}/{file}", LARGEST_FILE) or b"")
            found += _records(rows.to_pandas(), sweep, file.removesuffix(SUFFIX))
        except Exception as error:  # a file of a store can hold anything, such as text where numbers belong
            if isinstance(error, StoreError) and not isinstance(error, DamagedError):
                raise
            reason = " ".join(str(error).split())[:200]
            notes.append(f"{folder}/{file} cannot be shown: {type(error).__name__}{reason and f': {reason}'}.")
    return found, notes


def all_claims(files: Files) -> Mapping[str, Any] | None:
    """Return what the page of all claims shows: those that were judged in the store, and those of the sweeps that ship
    for which it has no rows. None if none was judged."""
    judged, notes = list[Record](), list[str]()
    for sweep in filter(is_name, sweeps_in(files.list(CLAIMS))):
        found, problems = read(files, sweep)
        judged, notes = [*judged, *found], [*notes, *problems]
    if not judged:
        return None
    pages = files.list(report_path("any").rpartition("/")[0])
    records = _merged([*judged, *_not_judged(files.display_uri, {(each["sweep"], each["preset"]) for each in judged})])
    tested = [each for each in records if each["low"] is not None or each["high"] is not None]
    for each, holm in zip(tested, verdicts.holm([each["p"] or 0.0 for each in tested]), strict=True):
        each["holm"] = holm
    for each in records:
        each["page"] = f"{each['sweep']}.html" if f"{each['sweep']}.html" in pages else ""
    return {"store": files.display_uri, "claims": records, "notes": notes, "level": LEVEL}


def _records(frame: pd.DataFrame, sweep: str, request: str) -> list[Record]:
    """Return the rows of a table; what a table of an earlier version lacks is empty."""
    records = []
    for row in frame.to_dict("records"):
        trials = row.get("trials")
        listed = [] if trials is None or isinstance(trials, float) else list(trials)
        record: Record = {name: str(row.get(name) or "") for name in TEXTS}
        record |= {name: _number(row.get(name)) for name in NUMBERS}
        record |= {"sweep": sweep, "request": request, "paired": bool(row.get("paired")), "count": len(listed)}
        record["trials"] = [
            {
                "side": str(each["side"]),
                "trial": str(each["trial"]),
                "at": str(each["at"]),
                "value": _number(each["value"]),
            }
            for each in listed[:MOST_TRIALS]
        ]
        if record["verdict"] not in VERDICTS:
            raise ValueError(f"a verdict is {', '.join(VERDICTS)}, but got {record['verdict']!r}")
        records.append(record)
    return records


def _not_judged(store: str, known: Collection[tuple[str, str]]) -> Iterable[Record]:
    """Yield the claims of the sweeps that ship, for each preset of which no table is known."""
    for sweep in map(registry.find, registry.names()):
        for preset in sweep.presets:
            claims = sweep.claims_of(preset)
            if claims and (sweep.name, preset) not in known:
                command = run_command(sweep.name, preset, store)
                judged = (
                    Judged(sweep.name, claim.paper or sweep.paper, preset, claim, NOT_RUN, command=command)
                    for claim in claims
                )
                yield from _records(table(list(judged)), sweep.name, preset)


def _merged(records: Iterable[Record]) -> list[Record]:
    """Return the claims that were judged, each with the commands for presets by whose rows it was not; and one record
    of each claim that no rows have judged."""
    by_claim: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        by_claim.setdefault((record["sweep"], record["claim"]), []).append(record)
    found = []
    for same in by_claim.values():
        missing = [record for record in same if record["verdict"] == NOT_RUN]
        commands = dict.fromkeys(record["command"] for record in missing if record["command"])
        shown = [record for record in same if record["verdict"] != NOT_RUN] or missing[:1]
        found += [record | {"command": "\n".join(commands)} for record in shown]
    return sorted(found, key=lambda record: (record["paper"], _order(record["claim"]), record["request"]))


def _order(claim: str) -> tuple[str, int, str]:
    """Sort `VJE-9` before `VJE-12a`."""
    head, _, tail = claim.rpartition("-")
    digits = "".join(character for character in tail if character.isdigit())
    return head, int(digits) if digits.isascii() and digits else 0, tail


def _number(value: Any) -> float | None:
    number = float(value) if isinstance(value, int | float) else math.nan
    return number if math.isfinite(number) else None
