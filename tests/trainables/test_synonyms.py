"""Each synonym is of a key, a value, an option or a command that there is."""

from sweeper.commands.console import COMMANDS
from sweeper.definition.space import SAMPLERS
from sweeper.request import PRUNERS, options
from trainables.catalog import METHODS
from trainables.config import keys
from trainables.synonyms import SYNONYMS, letters


def test_synonyms_are_of_what_there_is_and_hide_nothing() -> None:
    of_keys = {key for method in METHODS for key in keys(method)}
    ours = {"--plan", *of_keys, *(option.flag for option in options().values()), *PRUNERS, *SAMPLERS, *COMMANDS}
    for word, meant in SYNONYMS.items():
        assert word == letters(word) and (" " in meant or meant in ours), (word, meant)
        assert word not in map(letters, of_keys), word
