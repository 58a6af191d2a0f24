"""pump explain: prints the part of the guide for a message or a word, or describes a setting."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator, Sequence

from pump.cli.support import guide
from pump.cli.support import options as pump_run
from pump.cli.support.lines import BadInputError, take_options_as_words
from pump.config.settings import variable
from pump.config.values import nearest, shown

HELP = "explain a line or a word that pump printed, a setting or an option"
EXAMPLES = (
    'pump explain "no free memory to prefetch into"',
    "pump explain late",
    "pump explain --budget",
)

WIDTH_MOST = 88
ENTRIES_MOST = 4
"""The most entries that are printed in full. If there are more, their keys are listed."""


def options(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's argument. Also accepts words that look like options."""
    parser.add_argument(
        "words",
        nargs="*",
        metavar="WORD",
        help="a printed line or a fragment (in quotes), a word, a setting or an option "
        "(default: list everything that can be explained)",
    )
    take_options_as_words(parser)


def run(asked: argparse.Namespace) -> int:
    """Prints the explanation. Raises BadInputError for an unknown word."""
    width = min(shutil.get_terminal_size().columns, WIDTH_MOST)
    entries = guide.load()
    words = " ".join(asked.words)
    lines = _explained(words, entries, width) if words else _known(entries, width)
    print("\n".join(lines))
    return 0


def _explained(words: str, entries: Sequence[guide.Entry], width: int) -> list[str]:
    keys = [entry.key for entry in entries]
    settings = list(_settings(width))
    blocks = [lines for names, lines in settings if _name(words) in names]
    found = guide.named(words, entries) if blocks else guide.find(words, entries)
    if len(found) > ENTRIES_MOST:
        listed = _listed([entry.key for entry in found], width)
        return [f"'{words}' appears in these; explain one of them:", *listed]
    for entry in found:
        blocks.append([entry.key, *_indented(guide.plain(entry.text, keys, width - 2))])
    if not blocks:
        known = [*keys, *(name for names, _ in settings for name in names)]
        hint = nearest(words, known)
        raise BadInputError(f"cannot explain '{shown(words)}'{hint}; pump explain lists the words")
    return "\n\n".join("\n".join(block) for block in blocks).split("\n")


def _known(entries: Sequence[guide.Entry], width: int) -> list[str]:
    """Lists everything that can be explained; messages only by kind."""
    lines = ["Pass a line that pump printed, in quotes, or one of these:"]
    for section in dict.fromkeys(entry.section for entry in entries):
        of_it = [entry for entry in entries if entry.section == section != entry.key]
        keys = [entry.key for entry in of_it if not entry.is_message]
        lines += ["", section, *_listed(keys, width)]
    names = dict.fromkeys(text[0].partition(" (")[0] for _, text in _settings(width))
    return [*lines, "", "Settings and options", *_listed(list(names), width)]


def _name(words: str) -> str:
    """Returns the key of a setting or option: "log_file" for --log-file and PUMP_LOG_FILE."""
    return words.removeprefix("PUMP_").strip("-").replace("-", "_").lower()


def _settings(width: int) -> Iterator[tuple[set[str], list[str]]]:
    """Yields the names (see _name) and the explanation of each setting, then of other options."""
    from pump.config import reference

    actions = pump_run.parser()._actions
    for setting in reference.entries():
        key = setting.key or setting.table
        of_job = setting.table == "job"
        own = [action for action in actions if of_job and action.dest == key]
        actions = [action for action in actions if action not in own]
        facts = {
            "option": ", ".join(map(_usage, own)),
            "variable": variable(key) if of_job else "",
            "file": f"{key} = {setting.example}"
            + (f" in [{setting.table}]" if setting.key else ""),
            "default": setting.default.replace("`", ""),
        }
        details = [f"  {name:<9} {text}" for name, text in facts.items() if text]
        about = _indented(guide.plain(setting.description, (), width - 2))
        names = {key, *(_name(name) for action in own for name in action.option_strings)}
        yield names, [f"{key} (setting of [{setting.table}])", *about, *details]
    for action in filter(_usage, actions):
        about = _indented(guide.plain((action.help or "").replace("%%", "%"), (), width - 2))
        yield set(map(_name, action.option_strings)), [f"{_usage(action)} (pump-run)", *about]


def _usage(action: argparse.Action) -> str:
    """Returns the option and its metavar; "" for an option that --help hides."""
    if action.help == argparse.SUPPRESS:
        return ""
    return f"{', '.join(action.option_strings)} {action.metavar or ''}".strip()


def _listed(keys: Sequence[str], width: int) -> list[str]:
    """Formats keys in columns if all are short, else one key a line."""
    if max(map(len, keys)) > width // 3:
        return [f"  {key}" for key in keys]
    column = max(map(len, keys)) + 2
    across = max(1, (width - 2) // column)
    rows = [keys[at : at + across] for at in range(0, len(keys), across)]
    return ["  " + "".join(f"{key:<{column}}" for key in row).rstrip() for row in rows]


def _indented(lines: Iterator[str]) -> list[str]:
    return [f"  {line}".rstrip() for line in lines]
