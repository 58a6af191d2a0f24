"""Makes man pages from the commands' own parsers, so that both always agree."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator

import man_texts

import pump
from pump.cli import main as verbs
from pump.cli.support import options
from pump.cli.support.lines import OneLineParser
from pump.config.settings import JOB, variable

SEE_ALSO = {
    "pump-run": ("pump", "pumpd"),
    "pump": ("pump-run", "pumpd"),
    "pumpd": ("pump-run", "pump"),
}
FILES = """.SH FILES
.TP
.I pump.toml
settings for jobs that start in its folder
.TP
.I ~/.config/pump/config.toml
the user's settings
.TP
.I /etc/pump/config.toml
the administrator's settings and bounds
"""


def pages() -> dict[str, str]:
    """Returns the text of every page, by its file name."""
    from pumpd import main as daemon

    run = options.parser()
    return {
        "pump-run.1": _page(
            "pump-run",
            "run a CUDA program that needs more memory than its GPU has",
            ".B pump-run\n[\\fIoptions\\fR] [\\-\\-] \\fIcommand\\fR [\\fIargument\\fR ...]\n",
            [".SH OPTIONS", *_grouped(run), ".SH NOTES", *_paragraphs(run.epilog), FILES],
        ),
        "pump.1": _page(
            "pump",
            "run, watch, measure and configure CUDA programs under pump",
            ".B pump\n\\fIverb\\fR [\\fIargument\\fR ...]\n",
            [*_verbs(), FILES],
        ),
        "pumpd.1": _page(
            "pumpd",
            "decide what a job's shim moves, and share GPUs between jobs",
            ".B pumpd\n\\fIverb\\fR [\\fIargument\\fR ...]\n",
            [".SH VERBS", *_subverbs("pumpd", daemon._parser()), FILES],
        ),
    }


def _page(name: str, what: str, synopsis: str, parts: list[str]) -> str:
    others = ",\n".join(f".BR {other} (1)" for other in SEE_ALSO[name])
    lines = [
        ".\\\" made by docs/made/make_docs.py from the command's own options",
        f'.TH {name.upper()} 1 "" "pump {pump.__version__}" "pump"',
        ".SH NAME",
        f"{_plain(name)} \\- {_plain(what)}",
        ".SH SYNOPSIS",
        synopsis.rstrip(),
        ".SH DESCRIPTION",
        *_paragraphs_apart(man_texts.DESCRIPTION[name]),
        *(part.rstrip("\n") for part in parts),
        ".SH ENVIRONMENT",
        *_variables(name),
        ".SH EXIT STATUS",
        *_rows(man_texts.STATUS[name]),
        ".SH EXAMPLES",
        *_examples(name),
        ".SH SEE ALSO",
        others.replace(",\n", " ,\n"),
    ]
    return "\n".join(lines) + "\n"


def _paragraphs_apart(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        yield from (".PP", _plain(text))


def _rows(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    for word, text in rows:
        yield from (".TP", _bold(word), _plain(text))


def _variables(name: str) -> Iterator[str]:
    """Yields the environment variables; each job setting of pump-run has one with its name."""
    if name == "pump-run":
        shown = {action.dest: action for action in options.parser()._actions if _shown(action)}
        for key in JOB:
            option = shown[key].option_strings[-1] if key in shown else ""
            text = f"As {option}." if option else f"The setting {key} of pump.toml."
            yield from (".TP", _bold(variable(key)), _plain(text))
    yield from _rows(man_texts.VARIABLES[name])


def _examples(name: str) -> Iterator[str]:
    for command, text in man_texts.EXAMPLES[name]:
        yield from (".PP", _plain(text), ".PP", ".EX", _plain(command), ".EE")


def _verbs() -> Iterator[str]:
    for group, names in verbs.groups().items():
        yield f".SH {group.upper()}"
        for name in names:
            if name == "run":
                yield from (".SS \\fBpump run\\fR", _plain("The same as pump-run(1)."))
            else:
                yield from _verb(verbs.verb_parser(name))


def _subverbs(prefix: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help for choice in action._choices_actions}
            for name, child in action.choices.items():
                child.prog, child.description = f"{prefix} {name}", helps.get(name)
                yield from _verb(child)


def _verb(parser: argparse.ArgumentParser) -> Iterator[str]:
    words = [_bold(parser.prog)]
    words += [
        _italic(_metavar(action)) for action in parser._get_positional_actions() if not _sub(action)
    ]
    yield f".SS {' '.join(words)}"
    yield _plain(parser.description or "")
    yield from ([".PP", _plain(parser.epilog)] if parser.epilog else [])
    yield from _options(parser._actions)
    yield from _subverbs(parser.prog, parser)
    for example in parser.examples if isinstance(parser, OneLineParser) else ():
        yield from (".PP", ".EX", _plain(example), ".EE")


def _sub(action: argparse.Action) -> bool:
    return isinstance(action, argparse._SubParsersAction)


def _shown(action: argparse.Action) -> bool:
    return action.help != argparse.SUPPRESS and not _sub(action) and action.dest != "help"


def _grouped(parser: argparse.ArgumentParser) -> Iterator[str]:
    for group in parser._action_groups:
        if any(map(_shown, group._group_actions)):
            yield f".SS {_plain(group.title or '')}"
            yield from _options(group._group_actions)


def _options(actions: Iterable[argparse.Action]) -> Iterator[str]:
    for action in filter(_shown, actions):
        if action.option_strings:
            name = ", ".join(_bold(option) for option in action.option_strings)
            if action.nargs != 0:
                name += f" {_italic(_metavar(action))}"
        else:
            name = _italic(_metavar(action))
        yield ".TP"
        yield name
        yield _plain((action.help or "").replace("%%", "%"))


def _metavar(action: argparse.Action) -> str:
    if isinstance(action.metavar, str):
        return action.metavar
    return "{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest.upper()


def _paragraphs(text: str | None) -> list[str]:
    return [_plain(line) for line in (text or "").splitlines()]


def _bold(text: str) -> str:
    return f"\\fB{_plain(text)}\\fR"


def _italic(text: str) -> str:
    return f"\\fI{_plain(text)}\\fR"


def _plain(text: str) -> str:
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped
