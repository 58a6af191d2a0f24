"""pump config: shows the settings that apply here; checks, trusts or prints a settings file."""

from __future__ import annotations

import argparse
import os

from pump.base.names import quoted
from pump.cli.support.lines import BadInputError, OneLineParser
from pump.config import layers
from pump.config.settings import JOB, NEVER, TRUSTED, JobConfig

HELP = "show the settings that apply here, check a file, print an example"
EXAMPLES = (
    "pump config show --origin",
    "pump config check ~/.config/pump/config.toml",
    "pump config example > pump.toml",
    "pump config trust",
)


def options(parser: argparse.ArgumentParser) -> None:
    """Adds the verbs show, check, example and trust."""
    verbs = parser.add_subparsers(metavar="VERB", required=True, parser_class=OneLineParser)
    show = verbs.add_parser(
        "show", help="print the settings that pump-run uses here", allow_abbrev=False
    )
    show.add_argument("--origin", action="store_true", help="add the source of each setting")
    show.add_argument("--config", metavar="FILE", help="read FILE, too, as pump-run --config does")
    show.set_defaults(show=_show)
    check = verbs.add_parser("check", help="list all faults of a file", allow_abbrev=False)
    check.add_argument("file", metavar="FILE")
    check.add_argument(
        "--system", action="store_true", help="allow what only /etc/pump/config.toml may hold"
    )
    check.set_defaults(show=_check)
    example = verbs.add_parser(
        "example", help="print a file with every setting, commented out", allow_abbrev=False
    )
    example.add_argument("--system", action="store_true", help="one for /etc/pump/config.toml")
    example.set_defaults(show=_example)
    trust = verbs.add_parser(
        "trust",
        help="let this folder's pump.toml, in its present form, set what needs trust (record)",
        allow_abbrev=False,
    )
    trust.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        default=layers.FOLDER_FILE,
        help="default: ./pump.toml",
    )
    trust.add_argument("--revoke", action="store_true", help="withdraw the trust")
    trust.set_defaults(show=_trust)


def run(asked: argparse.Namespace) -> int:
    """Runs the verb; returns its exit status. Raises BadInputError."""
    status: int = asked.show(asked)
    return status


def _show(asked: argparse.Namespace) -> int:
    from pump.config.files import to_toml
    from pump.config.reference import entries

    environ = dict(os.environ)
    try:
        resolved = layers.resolve({}, environ, layers.places(asked.config, environ))
    except layers.ConfigInputError as error:
        raise BadInputError(str(error)) from None
    job = resolved.apply(JobConfig(command=["job"]))
    without = {entry.key: entry.default for entry in entries() if entry.table == "job"}
    rows = [("[job]", "")]
    for key in JOB:
        value = getattr(job, key)
        origin = resolved.origins.get(key, layers.DEFAULT)
        unset = value in ("", []) and key not in resolved.values
        rows.append((f"# {key}: {without[key]}" if unset else f"{key} = {to_toml(value)}", origin))
    if resolved.most:
        rows += [("", ""), ("[limits]", "")]
        for key, value in resolved.most.items():
            rows.append((f"{key} = {to_toml(value)}", resolved.most_origins[key]))
    width = min(60, max(len(row[0]) for row in rows))
    for text, origin in rows:
        shown = f"{text:<{width}}  # {origin}" if asked.origin and origin else text
        print(shown)
    for note in resolved.notes:
        print(f"# {note}")
    return 0


def _check(asked: argparse.Namespace) -> int:
    """Prints each fault of the file on its own line. Returns status 1 if there are any."""
    from pump.config import files

    administrators = asked.system or os.path.abspath(asked.file) == layers.ADMINISTRATORS_FILE
    try:
        found = files.load(asked.file, administrators=administrators)
    except files.ConfigError as error:
        print("".join(f"{fault}\n" for fault in error.faults), end="")
        return 1
    if found is None:
        raise BadInputError(f"there is no file {asked.file}")
    count = sum(len(table) for table in found.tables.values())
    print(f"{asked.file}: valid, {count} settings")
    return 0


def _trust(asked: argparse.Namespace) -> int:
    """Trusts the file, and prints the settings that this allows. Raises BadInputError if the file
    cannot be trusted."""
    from pump.config import files, folder, trust

    path = folder.absolute(asked.file)
    try:
        if asked.revoke:
            changed = trust.change(path, None, os.environ)
            print(f"{quoted(path)}: {'' if changed else 'was '}not trusted")
            return 0
        if os.path.basename(path) != layers.FOLDER_FILE:
            raise BadInputError(
                f"{quoted(asked.file)} needs no trust, because only {layers.FOLDER_FILE} "
                "does; name it with --config"
            )
        found = files.load(path, own=True, shown=asked.file)
        if found is None:
            raise BadInputError(f"there is no file {quoted(asked.file)}")
        trust.change(path, found.content, os.environ)
    except files.ConfigError as error:
        raise BadInputError(str(error)) from None
    except trust.TrustError as error:
        raise BadInputError(str(error)) from None
    job = found.tables.get("job", {})
    listed = [f"{key} = {files.to_toml(job[key])}" for key in folder.asks(found, TRUSTED)]
    never = folder.asks(found, NEVER)
    listed += [f"{key} never applies" for key in never]
    what = ", ".join(listed) or "it has no setting that needs trust"
    print(f"{quoted(path)}: trusted with its current content: {what}")
    return 0


def _example(asked: argparse.Namespace) -> int:
    from pump.config import reference

    print(reference.example(administrators=asked.system), end="")
    return 0
