"""The list of `pump simulate --profiles`."""

from __future__ import annotations

import pytest

from pump_lab import profiles
from pump_lab.cli import device_profiles


def test_every_profile_is_listed_with_its_memory_and_hash(
    capsys: pytest.CaptureFixture[str],
) -> None:
    device_profiles.show()
    *lines, _, hosts = capsys.readouterr().out.splitlines()
    for name, factor in profiles.hosts().items():
        assert f"{name} {factor:g}" in hosts
    assert [line.split()[0] for line in lines] == profiles.names()
    for line in lines:
        profile = profiles.load(line.split()[0])
        assert profile.hash() in line
        assert line.split()[3] == ("desktop" if "GeForce" in line else "server")
        assert f"{int(profile.values['device.memory_bytes']) / 2**30:.1f} GiB" in line
