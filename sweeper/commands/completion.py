"""`sweeper completion SHELL`: a script that completes commands, sweeps, presets, options, keys and values.

All that can be completed is in the script, so that completing starts no Python. Print it again after an update.
"""

import contextlib
import io
import re
from collections.abc import Mapping, Sequence

from sweeper.commands.command_line import EXIT_OK, Parser, command_line
from sweeper.commands.console import COMMANDS, module_of
from sweeper.definition import registry
from sweeper.errors import SpecError
from sweeper.printing import print
from sweeper.request import Option, options
from trainables import config
from trainables.catalog import known_methods
from trainables.validation import Choices, bounds

SHELLS = ("bash", "zsh")
ABOUT = (
    "Print a completion script. bash: write it to ~/.local/share/bash-completion/completions/sweeper; zsh: "
    "source it after compinit."
)


@command_line()
def main(arguments: Sequence[str]) -> int:
    """Run the command line. Returns the exit status."""
    parser = Parser("completion", ABOUT)
    parser.add_argument("shell", metavar="|".join(SHELLS), choices=SHELLS, help="the shell")
    shell = parser.parse_args(arguments).shell
    print(script(shell, tables()), end="")
    return EXIT_OK


def tables() -> dict[str, list[str]]:
    """What can be completed, by what it is: `commands`, `sweeps`, `papers`, `keys`, `presets:SWEEP`, `options:COMMAND`,
    `values:OPTION` and `key:KEY`."""
    found: dict[str, list[str]] = {"commands": list(COMMANDS), "sweeps": [], "keys": []}
    for name in registry.names():
        with contextlib.suppress(SpecError):  # `sweeper list` says what is wrong with it
            found[f"presets:{name}"] = list(registry.find(name).presets)
            found["sweeps"].append(name)
    found |= {f"options:{command}": _options(command) for command in COMMANDS if command != "completion"}
    found["options:submit"] = list(dict.fromkeys([*found["options:submit"], *found["options:run"]]))
    found |= {f"values:{option.flag}": _choices(option) for option in options().values()}
    values = _values_of_keys()
    found["keys"] = sorted(values)
    found |= {f"key:{key}": own for key, own in values.items()}
    found["options:completion"], found["papers"] = list(SHELLS), list(registry.papers())
    return {name: words for name, words in found.items() if words}


def _options(command: str) -> list[str]:
    """The options that the help of a command names."""
    with contextlib.redirect_stdout(io.StringIO()) as text, contextlib.suppress(SystemExit):
        module_of(command).main(["--help"])
    return list(dict.fromkeys(re.findall(r"^ +(?:-\w, )?(--[a-z][a-z-]*)", text.getvalue(), re.MULTILINE)))


def _choices(option: Option) -> list[str]:
    """The values of an option, if its metavar lists them: `best|all|none[,best-epoch]`."""
    metavar = re.sub(r"\[.*?\]", "", option.metavar)
    return metavar.split("|") if "|" in metavar and metavar == metavar.lower() else []


def _values_of_keys() -> dict[str, list[str]]:
    """Key of any method -> its values, if they are a closed list; else none."""
    values: dict[str, dict[str, None]] = {"method": dict.fromkeys(known_methods())}
    for method in known_methods():
        for section in config.sections(method).values():
            for key, kinds in bounds(section).items():
                own = values.setdefault(key, {})
                for kind in kinds:
                    own |= dict.fromkeys(map(str, kind.options)) if isinstance(kind, Choices) else {}
        own_kinds = config.keys(method)
        values |= {key: {"true": None, "false": None} for key, kind in own_kinds.items() if kind is bool}
    return {key: list(own) for key, own in values.items()}


def script(shell: str, words: Mapping[str, Sequence[str]]) -> str:
    """The completion script of a shell."""
    cases = "\n".join(f"        {name}) echo '{' '.join(own)}' ;;" for name, own in words.items())
    start = "autoload -Uz +X bashcompinit && bashcompinit\n" if shell == "zsh" else ""
    return SCRIPT.replace("@CASES@", cases).replace("@START@", start)


SCRIPT = r"""# Completion of `sweeper`, written by `sweeper completion`.
@START@
_sweeper_words() {
    case "$1" in
@CASES@
    esac
}

# Add what is in a table and begins with a text, between a prefix and a suffix.
_sweeper_add() {
    local word
    for word in $(_sweeper_words "$1"); do
        if [[ "$word" == "$2"* ]]; then COMPREPLY+=("$3$word$4"); fi
    done
}

_sweeper() {
    local line="${COMP_LINE:0:$COMP_POINT}" rest command sweep token previous value before
    COMPREPLY=()
    token="${line##* }"
    rest="${line#* }"
    if [[ "$rest" == "$token" ]]; then
        _sweeper_add commands "$token" "" ""
        return
    fi
    command="${rest%% *}"
    rest="${rest#* }"
    sweep="${rest%% *}"
    previous="${line% *}"
    previous="${previous##* }"
    case "$previous" in
        --preset) _sweeper_add "presets:$sweep" "$token" "" "" ;;
        --set|--axis|--replicates)
            if [[ "$token" != *=* ]]; then
                _sweeper_add keys "$token" "" "="
                compopt -o nospace 2> /dev/null
                return
            fi
            value="${token#*=}"
            before="${value%"${value##*,}"}"
            # bash completes what follows the last of its word breaks, among which is the equals sign
            if [[ -z "$BASH_VERSION" || "$COMP_WORDBREAKS" != *=* ]]; then before="${token%%=*}=$before"; fi
            _sweeper_add "key:${token%%=*}" "${value##*,}" "$before" "" ;;
        *)
            if [[ "$token" == -* ]]; then _sweeper_add "options:$command" "$token" "" ""
            elif [[ "$command" == completion ]]; then _sweeper_add "options:completion" "$token" "" ""
            elif [[ "$previous" == --* ]]; then _sweeper_add "values:$previous" "$token" "" ""
            elif [[ "$previous" == report ]]; then _sweeper_add papers "$token" "" ""
            elif [[ "$previous" == "$command" ]]; then _sweeper_add sweeps "$token" "" ""
            fi ;;
    esac
}

complete -o default -F _sweeper sweeper
"""
