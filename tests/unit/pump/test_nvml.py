"""Requests to NVML, and how pump top shows the answers, with a fake module pynvml."""

from __future__ import annotations

import io
import re
import sys
import time
from pathlib import Path

import pytest
from fake_nvml import NVML

from pump.base import console, nvml
from pump.cli import top
from pump.cli.jobs import Job
from pump.cli.support import live
from pump.control import ClientState, DeviceState

MIB = 1 << 20
UUID = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def one_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Simulates a machine with one GPU; returns the file that contains its used bytes."""
    used = tmp_path / "used"
    used.write_text(str(300 * MIB))
    (tmp_path / "pynvml.py").write_text(NVML)
    monkeypatch.setenv("USED", str(used))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    return used


def test_a_cards_figures_are_nvmls_and_what_it_does_not_tell_is_none(one_card: Path) -> None:
    (handle,) = nvml.handles().items()
    card = nvml.card(*handle)
    assert nvml.identity(handle[1]) == nvml.Identity(3, None, "NVIDIA H100")
    assert nvml.gpu_uuid(UUID) == "GPU-01234567-89ab-cdef-0123-456789abcdef"
    assert nvml.plain_uuid(nvml.gpu_uuid(UUID)) == UUID
    assert card == nvml.Card(UUID, 1000 * MIB, 300 * MIB, 2, 0.87, 3 << 30, None)


def test_what_a_gpu_is_called_is_asked_once_and_without_figures(one_card: Path) -> None:
    one_card.write_text("hangs")  # requests for numbers hang
    cards = live.Cards(polls_metrics=False)
    cards.wait()
    assert cards.identities == {UUID: nvml.Identity(3, None, "NVIDIA H100")}
    assert not cards.trouble and not cards.last


def drawn(poll: live.Poll) -> str:
    out = io.StringIO()
    for part in top.parts(poll, None, 300):
        console.console(out).print(part)
    return out.getvalue()


def test_top_shows_what_nvml_says_beside_a_gpu_that_jobs_use(one_card: Path) -> None:
    cards = live.Cards()
    until = time.monotonic() + 20
    while not (found := cards.last) and time.monotonic() < until:
        time.sleep(0.01)
    cards.close()  # from here on nothing is known
    device = DeviceState(0, UUID, 1 << 30, 0, 1 << 29, False, True, *[0] * 15)
    seen = live.Seen(
        Job(1, "/s", "mine", "x"), [ClientState(1, None, "window", (device,), {}, {})], ""
    )
    named = live.Poll(0.0, [seen], cards=found, identities=cards.identities)
    text = drawn(named)
    assert f"GPU 3  NVIDIA H100  {nvml.gpu_uuid(UUID)}" in text
    assert "NVML: 87% busy, link 3.0 GiB/s in, ? out, 300.0 MiB used by 2 processes" in text
    assert "CPU cores" in text
    other = live.Poll(0.0, [seen], cards=[found[0]._replace(uuid="f" * 32)])
    text = drawn(other)
    assert "busy, link" not in text
    assert re.search(r"GPU \?  .*: 300.0 MiB of 1000.0 MiB used, 87% busy \(NVML\); not used", text)


def test_without_nvml_nothing_is_shown_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pynvml.py").write_text("raise OSError('no library')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    cards = live.Cards()
    time.sleep(0.05)
    cards.close()
    assert cards.last == ()
