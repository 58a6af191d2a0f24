"""Reports of made-up numbers: advice, hostile names, odd plots."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from typing import Any

import pytest

from pump.report import svg
from pump.report.advice import advise
from pump.report.hops import Hops
from pump.report.page import page
from pump.report.text import text

SERIES = ("sure", "resident", "maybe_evicted", "arriving", "leaving", "host", "allocated")


def made(device: dict[str, int] | None = None, **changes: Any) -> dict[str, Any]:
    """Returns a report in the form of pump.report.gather, with one device and two samples."""
    figures = {"blocks_used": 1000, "blocks_hit": 1000}
    figures |= {"blocks_late": 0, "blocks_unseen": 0, "blocks_no_room": 0}
    figures |= {"allocated_bytes_peak": 3 << 30, "resident_bytes_peak": 2 << 30}
    figures |= device or {}
    series = {f"{name}_bytes": [0.0, 1e9] for name in SERIES}
    series |= {"seconds": [0.0, 1.0], "window_depth": [1.0, 2.0]}
    series |= {f"moved_to_{side}_bytes": [0.0, 1e9] for side in ("gpu", "host")}
    series |= {f"blocks_{cause}": [0.0, 5.0] for cause in ("late", "unseen", "no_room")}
    facts = {"device": 0, "total_bytes": 4 << 30, "emulated": False}
    facts |= {f"{which}budget_bytes": 2 << 30 for which in ("", "least_", "most_")}
    return {
        **{"file": "f", "state": "complete", "command": ["train"], "recorded": "now", "pump": "0"},
        **{
            "policy": "window",
            "seconds": 20.0,
            "active_seconds": 10.0,
            "operations": 5,
            "kernels": 5,
            "copies": 0,
        },
        **{"memsets": 0, "waited_seconds": 1.0, "synchronisations": 2, "host_gap_seconds": 0.1},
        **{"lost": {}, "job": {}, "sampled": True, "kernel_list": [], "top_extents": []},
        **{"time_lost": None, "turns_waited_seconds": 0.0, "in_place_bytes_peak": 0},
        **{"moved_to_gpu_bytes": 1, "moved_to_host_bytes": 1, "hops": Hops().result()},
        "operations_series": {"seconds": [0.0, 1.0], "executed": [0.0, 5.0]},
        "devices": [{**facts, **figures, "series": series}],
        **changes,
    }


LOST = {"seconds": 1.0, "least_seconds": 0.9, "most_seconds": 1.1, "of_seconds": 2.0}


@pytest.mark.parametrize(
    ("device", "changes", "keys"),
    [
        ({}, {}, ["well"]),
        ({"blocks_hit": 995, "blocks_late": 5}, {}, ["well"]),
        ({"blocks_hit": 800, "blocks_no_room": 200}, {}, ["no-room"]),
        ({"blocks_hit": 800, "blocks_late": 200}, {}, ["late"]),
        ({"blocks_hit": 800, "blocks_unseen": 200}, {}, ["unseen"]),
        ({"blocks_hit": 800, "blocks_late": 100, "blocks_unseen": 100}, {}, ["late", "unseen"]),
        ({"blocks_hit": 800, "blocks_unseen": 200}, {"policy": "demand"}, ["demand"]),
        ({"blocks_hit": 800}, {}, ["demand"]),
        ({"blocks_hit": 800, "blocks_late": 90}, {}, ["demand", "late"]),
        ({"blocks_used": 0, "blocks_hit": 0}, {}, ["well"]),
        ({}, {"lost": {"ring full": 7}}, ["lost"]),
        ({}, {"host_gap_seconds": 4.0}, ["host"]),
        ({}, {"turns_waited_seconds": 0.05}, ["well"]),
        ({}, {"turns_waited_seconds": 4.0}, ["turns"]),
        ({}, {"turns_waited_seconds": None}, ["well"]),
        ({}, {"sampled": False}, ["no-samples"]),
        ({}, {"time_lost": LOST}, ["time-lost"]),
        ({}, {"time_lost": LOST | {"core_seconds": 0.4}}, ["time-lost"]),
        ({}, {"time_lost": LOST | {"core_seconds": 0.6}}, ["time-lost", "cores"]),
    ],
)
def test_advice_follows_from_the_figures(
    device: dict[str, int], changes: dict[str, Any], keys: list[str]
) -> None:
    assert [item.key for item in advise(made(device, **changes))] == keys


def test_advice_never_denies_what_the_simulator_may_say() -> None:
    """The belief that all went well does not prove that no time was lost."""
    for device in ({}, {"blocks_used": 0, "blocks_hit": 0}):
        (item,) = advise(made(device))
        assert "model can be wrong" in item.advice and "pump simulate" in item.command
    assert "nearly all" not in item.found, "nothing was used again"


def test_names_from_a_recording_cannot_become_markup_or_control_a_terminal() -> None:
    evil = '<script>alert("x")</script>\x1b[2J\n'
    kernel = {"name": evil, "count": 1, "estimated_seconds": 1.0, "estimated_missed_blocks": 9.0}
    report = made(kernel_list=[kernel], command=[evil], recorded=evil, policy=evil, file=evil)
    report["job"] = {"virtual": {evil: evil}}
    shown = page(report)
    assert shown.count("<script") == 1, "the page's own"
    assert "\x1b" not in shown and "&lt;script&gt;" in shown
    assert "\x1b" not in text({**report, "file": "f"})


def test_a_report_without_devices_or_samples_is_still_a_page() -> None:
    empty: dict[str, list[float]] = {"seconds": [], "executed": []}
    report = made(devices=[], sampled=False, operations_series=empty)
    assert "no memory samples" in page(report) and "no memory samples" in text(report)


@pytest.mark.parametrize("most", [0.0, 1e-9, 1.0, 9.99, 10.0, 1e12, float("inf"), float("nan")])
def test_an_axis_reaches_its_largest_value_with_few_round_steps(most: float) -> None:
    for found in (svg.steps(most), svg.byte_steps(min(most, 1e15))):
        assert found[0] == 0.0 and 2 <= len(found) <= 12
        if 0.0 < most < float("inf"):
            assert found[-1] >= min(most, 1e15) * 0.999


@pytest.mark.parametrize("most", [0.0003, 0.39, 7.0, 299.0, 3000.0, 86400.0])
def test_a_time_axis_has_a_few_round_ticks_in_one_unit(most: float) -> None:
    axis = svg.time_axis(most)
    words = [axis.words(tick) for tick in axis.ticks]
    assert 3 <= len(words) <= 6 and words[0] == "0" and axis.high == most
    first, *_ = (float(word.split()[0]) for word in words[1:])
    assert f"{first:e}"[0] in "125" and float(f"{first:e}".split("e")[0]) in (1, 2, 5)
    assert len({word.split()[1] for word in words[1:]}) == 1


def test_rates_are_growth_by_time_and_never_negative() -> None:
    """Rates start from nothing at 0, so that growth before the first value counts."""
    assert svg.rates([0.5, 1.0, 3.0, 3.0], [5.0, 7.0, 6.0, 9.0]) == [10.0, 4.0, 0.0, 0.0]


def test_of_several_gpus_each_has_its_stalls_and_transfers_are_told_once() -> None:
    report = made({"blocks_hit": 900, "blocks_late": 100})
    alone = page(report)
    assert "<h2>Block misses by cause</h2>" in alone and "<h2>Transfers</h2>" in alone
    report["devices"].append({**report["devices"][0], "device": 1})
    both = page(report)
    for number in (0, 1):
        assert f"<h2>Block misses by cause, GPU {number}</h2>" in both
    assert both.count("<h2>Transfers, all GPUs</h2>") == 1


def test_a_job_that_waited_for_no_block_gets_no_empty_plot_of_stalls() -> None:
    shown = page(made())
    assert "No operation missed a block" in shown and 'aria-label="misses"' not in shown
    assert 'aria-label="misses"' in page(made({"blocks_hit": 900, "blocks_late": 100}))


def test_one_spike_does_not_flatten_a_plot_and_is_named() -> None:
    values = [*[10.0] * 60, 5000.0, *[12.0] * 60]
    top = svg.crest(values)
    assert 12 < top < 30
    xs = [float(n) for n in range(len(values))]
    series = [svg.Series("rate", "red", values)]
    steps = svg.count_steps(top)
    x = svg.time_axis(xs[-1])
    shown = svg.lines("l", xs, series, words=str, x=x, y_steps=steps)
    assert "the peak is 5000.0" in shown
    (points,) = shown.split('points="')[1:]
    heights = [float(pair.split(",")[1]) for pair in points.split('"')[0].split()]
    assert min(heights) >= -0.1, "nothing is drawn above the axis"


@pytest.mark.parametrize("values", [[], [0.0], [0.0] * 9 + [5.0], [1.0, 2.0, 4.0, 8.0]])
def test_an_axis_without_spikes_reaches_the_greatest_value(values: list[float]) -> None:
    assert svg.crest(values) == max(values, default=1.0)


def test_a_page_follows_the_readers_scheme_and_its_plots_fit_any_width() -> None:
    extent = {"slot": 0, "generation": 1, "offset_bytes": 0, "length_bytes": 1, "range_bytes": 1}
    shown = page(made(top_extents=[{**extent, "uses": 1}]))
    assert "prefers-color-scheme:dark" in shown and "max-width:600px" in shown
    plots = re.findall("<svg class=[^>]*>", shown)
    assert len(plots) == 3 and all("viewBox" not in plot for plot in plots)
    assert shown.count('<div class="wide"><table') == shown.count("<table") > 0


def test_each_point_of_a_plot_shows_its_values_under_the_pointer() -> None:
    xs = [0.0, 1.0, 2.0]
    series = [svg.Series("in & out", "red", [5.0, 0.0, 7.0]), svg.Series("b", "blue", [1.0] * 3)]
    shown = svg.stacked("l", xs, series, words="{:g} B".format, x=svg.time_axis(2.0))
    points = shown.split('<g class="at">')[1:]
    assert len(points) == 3
    assert "in &amp; out 5 B" in points[0] and "b 1 B" in points[0] and "2 s" in points[2]
    assert "in &amp; out" not in points[1], "a value of 0 is left out"
    edges = [re.findall(r'<rect x="([\d.]+)%".*? width="([\d.]+)%"', point)[0] for point in points]
    ends = [(float(x), float(x) + float(width)) for x, width in edges]
    assert ends == [(0.0, 25.0), (25.0, 75.0), (75.0, 100.0)]


def test_commands_can_be_copied_whole_and_only_the_pages_own_script_may_run() -> None:
    command = ["python", "train.py", "--name", "a b"]
    virtual = {"virtual": {"profile": "a100-pcie4", "mode": "timing"}}
    report = made({"blocks_hit": 500, "blocks_unseen": 500}, policy="demand", command=command)
    shown = page({**report, "job": virtual, "file": "my run.pump"})
    run = "pump-run --policy window --virtual a100-pcie4 --virtual-set memory=4096MiB -- "
    assert html.escape(run + "python train.py --name 'a b'") in shown
    (script,) = re.findall("<script>(.*?)</script>", shown, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in shown
    (item,) = advise({**made(), "file": "my run.pump"})
    assert item.command == "pump simulate 'my run.pump' --sweep"


def test_kernels_have_readable_names() -> None:
    kernel = {"count": 1, "estimated_seconds": 1.0, "estimated_missed_blocks": 9.0}
    report = made(kernel_list=[{**kernel, "name": "_Z7softmaxIfLi128EEvPT_i"}])
    assert "softmax&lt;float, 128&gt;" in page(report) and "softmax<float, 128>" in text(report)


def test_internals_are_folded_and_the_time_lost_comes_first() -> None:
    shown = page(made(time_lost=LOST))
    first = shown.index('aria-label="time lost to memory"')
    assert shown.index("<h1>Time lost to memory") < first < shown.index("<h2>")
    assert shown.index("<details>") < shown.index("<h3>Extents used most")
    assert shown.index("Block misses") < shown.index("<details>")


def test_waits_for_turns_are_shown_only_if_there_were_any() -> None:
    waited = made(turns_waited_seconds=4.0)
    assert "waited 4.00 s for turns" in text(waited) and "waits for turns" in page(waited)
    for found in (made(), made(turns_waited_seconds=None)):
        assert "waited" not in text(found) and "waits for turns" not in page(found)


def test_memory_that_kernels_read_in_place_is_shown_only_if_there_was_any() -> None:
    there = made(in_place_bytes_peak=3 << 30)
    assert "kernels read up to 3.0 GiB of allocations on the host" in text(there)
    assert "3.0 GiB of allocations on the host" in page(there)
    for found in (made(), made(in_place_bytes_peak=None)):
        assert "in place" not in text(found) and "in place" not in page(found)
