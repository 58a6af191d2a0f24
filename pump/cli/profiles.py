"""pump profiles: the GPUs that the virtual driver can play, and new ones from measurements."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from pump import inputs, outputs, profiles
from pump.cli.support.lines import BadInputError, save
from pump.names import quoted

REPORT_BYTES_MOST = 16 << 20
HELP = "list the device profiles for pump-run --virtual, or write one: from-probe"


def options(parser: argparse.ArgumentParser) -> None:
    """Nothing: a list. One verb of its own: from-probe."""
    verbs = parser.add_subparsers(metavar="[from-probe]", dest="verb")
    write = verbs.add_parser(
        "from-probe",
        help="write a profile from a report of scripts/gpu_probe",
        allow_abbrev=False,
    )
    write.add_argument("report", metavar="REPORT.json", help="what gpu_probe --out wrote")
    write.add_argument(
        "--base",
        required=True,
        metavar="PROFILE",
        help="profile of a similar GPU, for values that were not measured",
    )
    write.add_argument("--out", required=True, metavar="FILE.toml", help="the profile to write")
    write.add_argument("--name", help="name of the profile (default: the file's name)")
    write.add_argument(
        "--keep-kernels", action="store_true", help="take over the base's times of single kernels"
    )


def run(asked: argparse.Namespace) -> int:
    """Prints one line a profile: name, memory in GiB, the device's name, the profile's hash."""
    if asked.verb == "from-probe":
        return _from_probe(asked)
    for name in profiles.names():
        print(_line(profiles.load(name)))
    return 0


def _line(profile: profiles.Profile) -> str:
    memory_gib = int(profile.values["device.memory_bytes"]) / 2**30
    device = profile.values["device.name"]
    return f"{profile.name:<16} {memory_gib:7.1f} GiB  {device}  {profile.hash()}"


def _from_probe(asked: argparse.Namespace) -> int:
    """Writes the profile and prints its line. Status 2 for bad input, 1 for a bad report."""
    from pump.profiles import from_probe

    out = Path(asked.out)
    if out.suffix != ".toml":
        raise BadInputError(f"--out {asked.out}: a profile's file ends in .toml")
    report = _read(asked.report)
    try:
        base = profiles.load(asked.base)
        text = from_probe.text_of(
            report, base, asked.name or out.stem, keep_kernels=asked.keep_kernels
        )
    except profiles.ProfileError as error:
        raise BadInputError(str(error)) from None
    except from_probe.ReportError as error:
        raise BadInputError(f"{asked.report}: {error}", status=1) from None
    save(asked.out, text, outputs.PROFILE, sources=[asked.report])
    made = profiles.load(str(out))
    print(_line(made))
    print(_duplicates(made, report["profile"]))
    return 0


def _duplicates(profile: profiles.Profile, found: dict[str, Any]) -> str:
    """Whether read duplication pays on the card, for the user to set. found: the constants of
    the report."""
    from pump.profiles import duplicates

    if any(found.get(name) is None for name in ("delta", "t_advise_us", "t_advise_block_us")):
        return "whether read duplication pays was not measured"
    share = float(profile.values["link.duplex_factor"])
    figures = f"the link keeps {share:.2f} of its speed both ways at once, a call of advice takes "
    figures += f"{duplicates.advice_us(profile.values):.0f} us"
    if duplicates.pay(profile.values):
        return (
            f'memory that is only read need not be copied back: set duplicates = "on" ({figures})'
        )
    return f"copies of memory that is only read cost less than read duplication ({figures})"


def _read(path: str) -> dict[str, Any]:
    try:
        report = json.loads(inputs.read(path, REPORT_BYTES_MOST))
    except OSError as error:
        raise BadInputError(f"cannot read {quoted(path)}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"{quoted(path)}: invalid JSON ({error})", status=1) from None
    if not isinstance(report, dict):
        raise BadInputError(f"{path}: not a report of scripts/gpu_probe", status=1)
    return report
