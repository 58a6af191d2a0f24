"""The model against published numbers: kept digits, users' files, bad files, hosts."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from bench_run import main
from harness import Row
from places import ROOT
from published import figures, workloads
from suites import published

from pump_lab import profiles

CONSTANTS = ROOT / "lab" / "bench" / "results" / "constants.jsonl"
KEPT = ROOT / "lab" / "bench" / "results" / "published.jsonl"
ROW = {
    "id": "a-1", "source": "some", "card": "GTX 1080", "driver": "", "link": "PCIe 3.0",
    "kind": "stream", "parameters": "bytes=64MiB", "group": "g", "quantity": "time",
    "value": "10", "unit": "ms", "profiled": "no", "note": "",
}  # fmt: skip


def file_of(folder: Path, *rows: dict[str, str]) -> Path:
    path = folder / "others.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, figures.COLUMNS)
        writer.writeheader()
        writer.writerows({**ROW, **row} for row in rows)
    return path


def value_of(folder: Path, **row: str) -> Any:
    (found,) = published.compared(file_of(folder, row))
    return found.value


def test_the_model_gives_the_kept_digits() -> None:
    kept = [json.loads(line) for line in KEPT.read_text().splitlines()]
    assert [row.as_json() for row in published.compared(figures.FIGURES)] == kept


def test_a_file_of_others_gives_rows_with_name_group_and_ratio(tmp_path: Path) -> None:
    several = [{"value": value} for value in ("10", "30", "20")]
    path = file_of(tmp_path, *several, {"id": "b", "group": "h", "unit": "s", "value": "0.02"})
    for _ in range(2):  # an existing file of rows may be replaced
        command = ["published", "--", "--figures", str(path), "--json", str(tmp_path / "rows")]
        assert main(command) == 0
        first, second = map(json.loads, (tmp_path / "rows").read_text().splitlines())
        assert (first["name"], first["group"]) == ("published.a_1", "g")
        assert (first["baseline"], first["observations"]) == (20, 3)
        assert (second["name"], second["group"]) == ("published.b", "h")
        assert first["ratio"] == second["ratio"] == pytest.approx(first["value"] / 20)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"kind": "sweep"}, "row a-1: kind: 'sweep' is none of stream, "),
        ({"quantity": "call"}, "row a-1: quantity: stream has time, "),
        ({"unit": "GB/s"}, "row a-1: unit: time has s, ms, us, ns, not 'GB/s'"),
        ({"value": "fast"}, "row a-1: value: must be a number above 0, not 'fast'"),
        ({"value": "nan"}, "row a-1: value: must be a number above 0, not 'nan'"),
        ({"profiled": "perhaps"}, "row a-1: profiled: must be yes, no or empty"),
        ({"group": ""}, "row a-1: group: must not be empty"),
        ({"id": "-"}, "line 2: id: needs a letter or digit, not '-'"),
        ({"parameters": "passes=2"}, "row a-1: parameters: add bytes=VALUE"),
        ({"parameters": "bytes=1XB"}, "row a-1: parameters: bytes: '1XB' has an unknown unit"),
        ({"parameters": "bytes"}, "row a-1: parameters: write bytes=VALUE once"),
        ({"parameters": "bytes=1MB;pages=odd"}, "pages: must be all or strided or random, not"),
        ({"parameters": "bytes=1MB;passes=0"}, "passes: must be an integer from 1 to 1000, not"),
        ({"parameters": "bytes=1MB;compute=1h"}, "compute: must be a time such as 115ms, not"),
        ({"parameters": "byte=1MB"}, "no parameter 'byte' (did you mean 'bytes'?)"),
        ({"card": "one", "link": "fast"}, "row a-1: link: neither a generation nor a rate; write"),
        ({"parameters": "bytes=1MB;made=gpu", "quantity": "groups", "unit": "1"},
         "row a-1: quantity: nothing is moved that groups could be of"),
        ({"kind": "batch", "parameters": "bytes=1MB;evictions=2"}, "parameters: blocks: too few"),
    ],
)  # fmt: skip
def test_a_bad_row_gets_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], row: dict[str, str], message: str
) -> None:
    assert main(["published", "--", "--figures", str(file_of(tmp_path, row))]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_a_bad_file_gets_one_line(tmp_path: Path) -> None:
    for text in ("", "id,source\n", "\0\n", ",".join(figures.COLUMNS) + "\na,b\n"):
        (tmp_path / "bad.csv").write_text(text)
        with pytest.raises(figures.FigureError, match=r"^bad\.csv: [^\n]+$"):
            figures.read(tmp_path / "bad.csv", workloads.KINDS)
    with pytest.raises(figures.FigureError, match="No such file"):
        figures.read(tmp_path / "none.csv", workloads.KINDS)
    with pytest.raises(figures.FigureError, match="write 'g' or give the row another id"):
        published.compared(file_of(tmp_path, {}, {"group": "h"}))
    with pytest.raises(figures.FigureError, match="too close to 'a-1'"):
        published.compared(file_of(tmp_path, {}, {"id": "A 1"}))


@pytest.mark.parametrize("kind", workloads.KINDS)
def test_no_row_sets_costs_of_the_model(tmp_path: Path, kind: str) -> None:
    quantity, dimension = next(iter(workloads.KINDS[kind].quantities.items()))
    unit = next(unit for unit, (what, _) in figures.UNITS.items() if what == dimension)
    row = {"kind": kind, "quantity": quantity, "unit": unit}
    for key in (*profiles.KEYS, *(key.partition(".")[2] for key in profiles.KEYS), "host"):
        path = file_of(tmp_path, {**row, "parameters": f"bytes=2MiB;n=100;{key}=1"})
        with pytest.raises(figures.FigureError, match="A row sets no costs of the model"):
            figures.read(path, workloads.KINDS)


@pytest.mark.parametrize(
    ("card", "link", "host"),
    [
        ("Tesla P100-PCIE-16GB", "PCIe 3.0", "server"),
        ("T4", "6.6 GB/s seen (VM)", "vm"),
        ("GeForce RTX 3080", "PCIe 4.0", "desktop"),
        ("RTX 5090 32GB", "PCIe 5.0", "desktop"),
        ("RTX 2080 SUPER in a Xeon", "PCIe 3.0", "server"),
        ("Quadro RTX 5000", "PCIe 3.0", "server"),
        ("A100 on Azure", "PCIe 4.0", "vm"),
    ],
)
def test_the_host_follows_from_card_and_link(
    tmp_path: Path, card: str, link: str, host: str
) -> None:
    (row,) = published.compared(file_of(tmp_path, {"card": card, "link": link}))
    assert row.more["host"] == host


def test_a_machine_has_the_memory_and_the_link_of_its_row(tmp_path: Path) -> None:
    machines = figures.Machines()

    def machine(**row: str) -> figures.Machine:
        (figure,) = figures.read(file_of(tmp_path, row), workloads.KINDS)
        return machines.of(figure)

    named = machine(card="unnamed, 217 GB/s (T4)", link="6.6 GB/s seen", id="x")
    assert named.gbps == 217
    assert named.profile.values["link.copy_h2d_gbps"] == pytest.approx(6.6)
    assert named.memory_bytes == int(16 * 0.97 * 2**30)
    base = profiles.load(figures.PROFILE).values
    changed = {key for key in base if base[key] != named.profile.values[key]}
    assert changed == {key for key in base if key.startswith("link.") and "_gbps" in key}
    assert machine(card="other", parameters="bytes=1MiB;memory=3GiB").memory_bytes == 3 << 30
    assert machine(card="other").memory_bytes is None
    assert machine(card="H100", link="").profile.values["link.copy_d2h_gbps"] == 55


def test_a_machine_has_its_hosts_factor(tmp_path: Path) -> None:
    machines = figures.Machines()
    for card, host in (("GeForce RTX 3080", "desktop"), ("T4 VM", "vm"), ("Tesla P100", "server")):
        (figure,) = figures.read(file_of(tmp_path, {"card": card}), workloads.KINDS)
        values = machines.of(figure).profile.values
        assert values["uvm.host_factor"] == profiles.hosts()[host]
        server = machines.of(figure, "server")
        assert (server.host, server.profile.values["uvm.host_factor"]) == ("server", 1)
    (row,) = published.compared(file_of(tmp_path, {"card": "T4 VM"}))
    assert row.ratio > row.more["ratio_server"]
    (row,) = published.compared(file_of(tmp_path, {"card": "Tesla P100"}))
    assert row.ratio == row.more["ratio_server"]


def test_passes_move_what_they_must(tmp_path: Path) -> None:
    cyclic = "memory=64MiB;bytes=128MiB;kernels=8;passes=3"
    mib = {"unit": "MiB", "value": "1"}
    for order, moved in ((";order=reversed", 64), ("", 128)):
        for quantity in ("bytes_in", "bytes_out"):
            row = {"parameters": cyclic + order, "quantity": quantity, **mib}
            assert value_of(tmp_path, **row) == moved
    row = {"quantity": "all_bytes_in", **mib}
    assert value_of(tmp_path, parameters=cyclic, **row) == 3 * 128
    assert value_of(tmp_path, parameters=cyclic + ";processes=2", **row) == 6 * 128
    assert value_of(tmp_path, parameters="bytes=96MiB;operands=3;made=cpu,cpu,none", **row) == 64
    assert value_of(tmp_path, parameters="bytes=96MiB;resident=yes", **row) == 0
    assert value_of(tmp_path, kind="gemm", parameters="n=4096", **row) == 2 * 64
    scattered = "memory=64MiB;bytes=128MiB;passes=3;pages=random"
    assert 64 < value_of(tmp_path, parameters=scattered, quantity="bytes_in", **mib) < 2 * 128


ASSUMED = {
    "link.remote_us",
    "kernels.launch_us", "kernels.min_us", "link.piece_us", "uvm.advise_block_us",
    "uvm.advise_call_us", "uvm.call_work_share", "uvm.collapse_page_us", "uvm.copy_wait_spin",
    "uvm.discard_block_us", "uvm.discard_call_us", "uvm.host_page_us", "uvm.nonreplayable_us",
    "uvm.prefetch_call_us",
}  # fmt: skip
"""Constants that affect no published number: they are assumptions, as docs/uvm.md states.

The times of small host pages matter only if uvm.host_page_kib sets such pages.
"""
ONE_SOURCE = {
    "uvm.host_alloc_us": "the driver allocates and maps host pages when a block leaves first",
    "uvm.prefetch_second_pass": "a call of several blocks goes over them twice (uvm_migrate.c)",
}
"""Constants that affect numbers of only one source: the driver's code gave their values."""


def test_no_constant_is_there_for_one_figure_alone() -> None:
    kept = {row["case"]: row for row in map(json.loads, CONSTANTS.read_text().splitlines())}
    assert set(kept) == set(profiles.of_hosts())
    assert {case for case, row in kept.items() if not row["moves"]} == ASSUMED
    assert {case for case, row in kept.items() if len(row["sources"]) == 1} == set(ONE_SOURCE)


def test_a_constant_moves_the_figures_that_are_kept_with_it() -> None:
    kept = {row["case"]: row for row in map(json.loads, CONSTANTS.read_text().splitlines())}
    rows = published.compared(figures.FIGURES)
    doubled = published.compared(figures.FIGURES, {"uvm.fault_base_us": 2.0})
    ratios = {a.more["id"]: b.value / a.value for a, b in zip(rows, doubled, strict=True)}
    moves = {name: by for name, by in ratios.items() if not 0.95 < by < 1.05}
    assert moves == pytest.approx(kept["uvm.fault_base_us"]["moves"], abs=0.005)


def test_the_best_factor_is_that_of_the_figures_that_are_asked_for() -> None:
    """The first number fits a factor of two, the second a factor of one half."""

    def rows(*ratios: float) -> list[Row]:
        return [Row("published.made", 1.0, "s", "published", ratio=ratio) for ratio in ratios]

    tried = {1.0: rows(0.5, 2.0), 2.0: rows(1.0, 4.0), 0.5: rows(0.25, 1.0)}
    assert published.best(tried, [0]) == 2.0
    assert published.best(tried, [1]) == 0.5
    assert published.best(tried, [0, 1]) == 1.0


def test_what_is_left_out_is_kept_for_each_source_of_a_constant_with_several() -> None:
    kept = [json.loads(line) for line in CONSTANTS.read_text().splitlines()]
    several = [row for row in kept if len(row["sources"]) > 1]
    assert several
    for row in several:
        assert set(row["left_out"]) == set(row["sources"])
        assert min(row["left_out"].values()) <= row["best"] <= max(row["left_out"].values())
