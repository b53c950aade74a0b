"""The columns of a search's rows."""

from sweeper.search.studies import FACTS
from sweeper.storage.rows import Columns
from tests.cases import for_each
from trainables.catalog import METHODS
from trainables.config import keys


@for_each("method", METHODS)
def test_no_hyperparameter_has_the_name_of_another_column(method: str) -> None:
    """One of the two would overwrite the other."""
    assert not set(keys(method)) & set(FACTS)
    assert set(Columns({**keys(method), **FACTS}, ()).schema.names) > {*keys(method), *FACTS}
