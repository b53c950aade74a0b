"""The rows of a request that the claims and figures of a paper are about, by `sweeper.definition.judging`."""

from collections.abc import Collection, Sequence

import pandas as pd

from sweeper.definition.judging import judging
from sweeper.definition.space import SEED, Grid, Search, part_keys
from sweeper.storage.rows import plain_value


def judging_rows(rows: pd.DataFrame, parts: Sequence[Grid | Search], changed: Collection[str]) -> pd.DataFrame:
    """Return those of the rows of a request that can judge claims about its preset, by `judging`. `changed` are the
    keys that the request changes in the preset."""
    keys = [key for key in {*(key for part in parts for key in part_keys(part)), *changed} - {SEED} if key in rows]
    if not changed or rows.empty or not keys:
        return rows
    judges, groups = judging(parts, changed), rows.groupby(keys, dropna=False).ngroup()
    first = ~groups.duplicated()
    can = {
        group: judges(dict(zip(keys, map(plain_value, values), strict=True)))
        for group, values in zip(groups[first], rows.loc[first, keys].itertuples(index=False, name=None), strict=True)
    }
    return rows[groups.map(can)]
