"""Makes the shells' completions from the commands' own parsers, so that they offer what exists.

In bash, three functions return the verbs, the options, and the values of an option; one parses the
words before the cursor. In zsh, `_arguments` of zsh's own library parses; each verb has a function
with its options.

Not made by shtab 1.13: its completions do not hand over to the completion of the command that
pump-run starts (pump-run python tr<TAB>). In bash they do not complete --option=value.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import NamedTuple

from pump.cli import main as verbs
from pump.cli.support import options
from pump.config.checks import GRANULARITIES, LOG_LEVELS, POLICIES
from pump_lab import profiles

MADE = "made by docs/made/make_docs.py from the command's own options"
FILE, FOLDER, COMMAND = "@file", "@directory", "@command"
FILES = ("FILE", "FILE.toml", "REPORT.json", "PATH", "OUT", "TRACE", "OTHER", "FILE|JOB")
BY_METAVAR = {
    **{name: [FILE] for name in FILES},
    "DIR": [FOLDER],
    "LEVEL": LOG_LEVELS,
    "yes|no": ["yes", "no"],
}
BY_OPTION = {
    "--policy": POLICIES,
    "--granularity": GRANULARITIES,
    "--keep-device": ["below=", "library=", "ipc", "stream-ordered", "vmm", "none"],
}


class Verb(NamedTuple):
    """A command, or one of its verbs. `path`: the verbs that lead to it; empty for the command."""

    path: tuple[str, ...]
    parser: argparse.ArgumentParser
    verbs: dict[str, Verb]
    help: str


def commands() -> dict[str, Verb]:
    """Returns every command, by its name."""
    from pumpd import main as daemon

    return {
        "pump": _pump(""),
        "pump-run": _verb((), _pump_run()),
        "pumpd": _verb((), daemon._parser()),
    }


def pages() -> dict[str, str]:
    """Returns the text of each file, by its name below packaging/completions."""
    made = {}
    for name, verb in commands().items():
        made[f"bash/{name}"] = _bash(name, verb)
        made[f"zsh/_{name}"] = _zsh(name, verb)
    return made


def _pump_run() -> argparse.ArgumentParser:
    parser = options.parser()
    parser.add_argument("command", nargs=argparse.REMAINDER, help="the command to run")
    return parser


def _pump(above: str) -> Verb:
    """Returns the verb `above` with all verbs below it; "": the command pump itself."""
    below = {}
    for name in verbs.verbs_below(above):
        whole = f"{above} {name}".strip()
        if whole in verbs.verbs():
            parser = _pump_run() if whole == "run" else verbs.verb_parser(whole)
            below[name] = _verb(tuple(whole.split()), parser, verbs.verb_help(whole))
        else:
            below[name] = _pump(whole)
    parser = verbs.list_parser(above, listed=False)
    return Verb(tuple(above.split()), parser, below, verbs.verb_help(above))


def _verb(path: tuple[str, ...], parser: argparse.ArgumentParser, text: str = "") -> Verb:
    below = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, child in action.choices.items():
                below[name] = _verb((*path, name), child, helps.get(name, ""))
    return Verb(path, parser, below, text)


def option_actions(verb: Verb) -> list[argparse.Action]:
    """Returns a verb's options; those passed on to pump-run appear as pump-run defines them."""
    of_pump_run = {
        option: action
        for action in options.parser()._actions
        for option in action.option_strings
        if action.help != argparse.SUPPRESS
    }
    shown = []
    for action in verb.parser._actions:
        if action.option_strings and action.help != argparse.SUPPRESS:
            shown.append(action)
        elif action.dest.startswith("passed_") and action.option_strings[0] in of_pump_run:
            shown.append(of_pump_run[action.option_strings[0]])
    return shown


def values(action: argparse.Action) -> list[str]:
    """Returns the values of an option or of a verb's argument: words, FILE, FOLDER or COMMAND. The
    list is empty if they cannot be guessed."""
    name = next((o for o in action.option_strings if o.startswith("--")), "")
    if action.nargs == argparse.REMAINDER:
        return [COMMAND]
    if name in ("--virtual", "--profile", "--base"):
        return [*profiles.names(), FILE]
    if name in BY_OPTION and action.metavar != "FILE":
        return BY_OPTION[name]
    if action.choices:
        return [str(choice) for choice in action.choices]
    return BY_METAVAR.get(action.metavar, []) if isinstance(action.metavar, str) else []


def _words(verb: Verb) -> list[argparse.Action]:
    return [] if verb.verbs else verb.parser._get_positional_actions()


def _all(verb: Verb) -> Iterator[Verb]:
    yield verb
    for below in verb.verbs.values():
        yield from _all(below)


# ---- bash ----

BASH = """\
# Completion of @NAME@ in bash; @MADE@.

# The verbs below the verb $1.
@F@_verbs() {
    case $1 in
@VERBS@
    esac
}

# The options of the verb $1.
@F@_options() {
    case $1 in
@OPTIONS@
    esac
}

# The values of option $2 of the verb $1, or without $2 of the verb's own argument: words, @file,
# @directory, @command; @any: it cannot be guessed. Prints nothing for an option without a value.
@F@_value() {
    case $1/$2 in
@VALUES@
    esac
}

# Completes the command that begins at word $1 as that command does.
@F@_command() {
    if declare -F _comp_command_offset >/dev/null; then
        _comp_command_offset "$1"
    elif declare -F _command_offset >/dev/null; then
        _command_offset "$1"
    elif (($1 == COMP_CWORD)); then
        mapfile -t COMPREPLY < <(compgen -c -- "${COMP_WORDS[COMP_CWORD]}")
    else
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -f -- "${COMP_WORDS[COMP_CWORD]}")
    fi
}

@F@() {
    local current=${COMP_WORDS[COMP_CWORD]} verb='' at=1 word wanted='' words='' kind
    COMPREPLY=()
    while ((at < COMP_CWORD)); do
        word=${COMP_WORDS[at]}
        if [[ $word == -* && $word != -- ]]; then
            kind=$(@F@_value "$verb" "$word")
            if [[ -n $kind ]]; then # bash splits at "=" and takes it as a word
                [[ ${COMP_WORDS[at + 1]} == = ]] && ((at++))
                ((at++))
                ((at >= COMP_CWORD)) && wanted=$kind
            fi
        elif [[ " $(@F@_verbs "$verb") " == *" $word "* ]]; then
            verb=${verb:+$verb }$word
        elif [[ $(@F@_value "$verb" '') == @command ]]; then
            [[ $word == -- ]] && ((at++))
            @F@_command "$at"
            return
        fi
        ((at++))
    done
    [[ $current == = ]] && current=''
    if [[ -z $wanted && $current == -* ]]; then
        words=$(@F@_options "$verb")
    elif [[ -z $wanted ]]; then
        words=$(@F@_verbs "$verb")
        wanted=$(@F@_value "$verb" '')
    fi
    for kind in $wanted; do
        case $kind in
        @any) ;;
        @command) @F@_command "$COMP_CWORD"; return ;;
        @file | @directory)
            compopt -o filenames 2>/dev/null
            mapfile -t COMPREPLY < <(compgen -"${kind:1:1}" -- "$current")
            ;;
        *) words+=" $kind" ;;
        esac
    done
    mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -W "$words" -- "$current")
    [[ ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2>/dev/null
    return 0
}

complete -F @F@ @NAME@
"""


def _bash(name: str, command: Verb) -> str:
    every = list(_all(command))
    filled = BASH
    for mark, text in (
        ("@VERBS@", _cases((_key(v), list(v.verbs)) for v in every)),
        ("@OPTIONS@", _cases((_key(v), _option_strings(v)) for v in every)),
        ("@VALUES@", _cases(row for v in every for row in _values(v))),
        ("@NAME@", name),
        ("@MADE@", MADE),
        ("@F@", f"_{name.replace('-', '_')}"),
    ):
        filled = filled.replace(mark, text)
    return filled


def _key(verb: Verb) -> str:
    return " ".join(verb.path)


def _option_strings(verb: Verb) -> list[str]:
    return [option for action in option_actions(verb) for option in action.option_strings]


def _values(verb: Verb) -> Iterator[tuple[str, list[str]]]:
    for action in option_actions(verb):
        for option in action.option_strings if action.nargs != 0 else ():
            yield f"{_key(verb)}/{option}", values(action) or ["@any"]
    for action in _words(verb)[:1]:
        yield f"{_key(verb)}/", values(action) or ["@any"]


def _cases(rows: Iterator[tuple[str, list[str]]]) -> str:
    return "\n".join(f"    '{key}') echo '{' '.join(words)}' ;;" for key, words in rows if words)


# ---- zsh ----

ZSH = """\
#compdef @NAME@
# Completion of @NAME@ in zsh; @MADE@.

# Words to choose from, or a file.
@F@_words_or_file() {
  _alternative "words:word:($*)" 'files:file:_files'
}
"""


REST = ["'1: :->verb'", "'*:: :->rest'"]


def _zsh(name: str, command: Verb) -> str:
    function = f"_{name.replace('-', '_')}"
    parts = [ZSH.replace("@NAME@", name).replace("@MADE@", MADE).replace("@F@", function)]
    parts += [_function(function, verb) for verb in reversed(list(_all(command)))]
    return "\n".join([*parts, f'{function} "$@"\n'])


def _function(command: str, verb: Verb) -> str:
    name = "_".join([command, *verb.path])
    specs = [_option(command, action) for action in option_actions(verb)]
    lines = [f"{name}() {{"]
    if not verb.verbs:
        for action in _words(verb):
            label = _message(action.metavar if isinstance(action.metavar, str) else action.dest)
            if values(action) == [COMMAND]:
                specs += ["'(-)1:command: _command_names -e'", "'*::argument: _normal'"]
            else:
                colons = "::" if action.nargs == "?" else ":"
                specs.append(_quoted(f"{colons}{label}:{_does(command, action)}"))
        return "\n".join([*lines, f"  _arguments -S {_listed(specs)}", "}", ""])
    lines += [
        '  local curcontext="$curcontext" state line',
        "  typeset -A opt_args",
        f"  _arguments -C {_listed([*specs, *REST])} && return",
        "  case $state in",
        "    verb)",
        "      local -a verbs=(",
        *(f"        {_quoted(f'{below}:{v.help}')}" for below, v in verb.verbs.items()),
        "      )",
        "      _describe -t verbs verb verbs",
        "      ;;",
        "    rest)",
        "      case $words[1] in",
        *(f"        {below}) {name}_{below} ;;" for below in verb.verbs),
        "      esac",
        "      ;;",
        "  esac",
        "}",
        "",
    ]
    return "\n".join(lines)


def _listed(specs: list[str]) -> str:
    return " \\\n    ".join(["", *specs]).lstrip(" ")


def _option(command: str, action: argparse.Action) -> str:
    rest = f"[{_message((action.help or '').replace('%%', '%'))}]"
    if action.nargs != 0:
        label = action.metavar if isinstance(action.metavar, str) else action.dest
        rest += f":{_message(label)}:{_does(command, action)}"
    names = action.option_strings
    if isinstance(action, argparse._AppendAction | argparse._CountAction):
        return " ".join(_quoted(f"*{name}{rest}") for name in names)
    if len(names) == 1:
        return _quoted(f"{names[0]}{rest}")
    return f"'({' '.join(names)})'{{{','.join(names)}}}{_quoted(rest)}"


def _does(command: str, action: argparse.Action) -> str:
    found = values(action)
    words = [word for word in found if not word.startswith("@")]
    if FILE in found and words:
        return f" {command}_words_or_file {' '.join(words)}"
    if FILE in found:
        return "_files"
    if FOLDER in found:
        return "_files -/"
    return f"({' '.join(words)})" if words else " "


def _message(text: str) -> str:
    """Escapes a text for a specification of _arguments."""
    for character in "\\:[]":
        text = text.replace(character, f"\\{character}")
    return text


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
