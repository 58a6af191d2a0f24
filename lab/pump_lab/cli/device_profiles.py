"""Device profiles for pump simulate: lists them, and writes new ones from measurements."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from pump.base import inputs, outputs
from pump.base.names import quoted
from pump.cli.support.lines import BadInputError, save
from pump_lab import profiles

REPORT_BYTES_MOST = 16 << 20


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options about device profiles to the parser of pump simulate."""
    group = parser.add_argument_group("device profiles, without a TRACE")
    group.add_argument(
        "--profiles", action="store_true", help="list the profiles of pump-run --virtual"
    )
    group.add_argument(
        "--profile-from",
        metavar="REPORT.json",
        help="write a profile from a report of scripts/gpu_probe; needs --base and --out",
    )
    group.add_argument(
        "--base", metavar="PROFILE", help="the profile of a similar GPU, for unmeasured values"
    )
    group.add_argument("--out", metavar="FILE.toml", help="the profile to write")
    group.add_argument("--name", help="its name (default: the name of the file)")
    group.add_argument(
        "--keep-kernels", action="store_true", help="keep the base's times of single kernels"
    )


def show() -> None:
    """Prints one line per profile (name, GiB of memory, device name, hash), then the hosts."""
    for name in profiles.names():
        print(_line(profiles.load(name)))
    hosts = ", ".join(f"{name} {factor:g}" for name, factor in profiles.hosts().items())
    print(f"\nPROFILE@HOST: another host around the GPU (factor of its times): {hosts}")


def _line(profile: profiles.Profile) -> str:
    memory_gib = int(profile.values["device.memory_bytes"]) / 2**30
    device = profile.values["device.name"]
    factor = profile.values[profiles.FACTOR]
    host = next((name for name, of in profiles.hosts().items() if of == factor), f"x {factor}")
    return f"{profile.name:<16} {memory_gib:7.1f} GiB  {host:<8}{device}  {profile.hash()}"


def write(asked: argparse.Namespace) -> None:
    """Writes the profile of --profile-from, and prints its line. Raises BadInputError."""
    from pump_lab.profiles import from_probe

    for option in ("base", "out"):
        if getattr(asked, option) is None:
            raise BadInputError(f"--profile-from needs --{option}; see pump simulate --help")
    out = Path(asked.out)
    if out.suffix != ".toml":
        raise BadInputError(f"--out {asked.out}: a profile's file ends in .toml")
    report = _read(asked.profile_from)
    try:
        base = profiles.load(asked.base)
        text = from_probe.text_of(
            report, base, asked.name or out.stem, keep_kernels=asked.keep_kernels
        )
    except profiles.ProfileError as error:
        raise BadInputError(str(error)) from None
    except from_probe.ReportError as error:
        raise BadInputError(f"{asked.profile_from}: {error}") from None
    save(asked.out, text, outputs.PROFILE, sources=[asked.profile_from])
    made = profiles.load(str(out))
    print(_line(made))
    print(_duplicates(made, report["profile"]))


def _duplicates(profile: profiles.Profile, found: dict[str, Any]) -> str:
    """Returns a line on whether read duplication pays on the GPU, for the user to set. `found`: The
    constants of the report."""
    from pump_lab.profiles import duplicates

    if any(found.get(name) is None for name in ("delta_in", "t_advise_us", "t_advise_block_us")):
        return "whether read duplication pays was not measured"
    share = float(profile.values["link.duplex_in"])
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
        raise BadInputError(f"{quoted(path)}: invalid JSON ({error})") from None
    if not isinstance(report, dict):
        raise BadInputError(f"{path}: not a report of scripts/gpu_probe")
    return report
