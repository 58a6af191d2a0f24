"""The pages of pump top: their contents, which always stay within the screen."""

from __future__ import annotations

import io
import os
import random
import re
from dataclasses import fields, replace

import pytest
from places import DOCS
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType

from pump.base.console import STYLES, console
from pump.base.nvml import Card, Identity, gpu_uuid
from pump.cli.jobs import Job
from pump.cli.support import live
from pump.cli.support.listed import user
from pump.cli.top import parts, table
from pump.cli.top.screen import parsed
from pump.cli.top.text import ASCII_SPARKS, cut, line, sparkline
from pump.cli.top.view import HELP, View
from pump.control import ClientState, DeviceState
from pump.service import JobState

MIB = 1 << 20
GPUS = ("a1" * 16, "b2" * 16)
SCREENS = ((80, 24), (200, 50), (40, 10), (20, 4), (1, 1))
HOSTILE = (
    "\x1b[2J\x1b]0;owned\x07", "a\nb\rc\td", "日本語" * 30, "e" + "\u0301" * 200, "x" * 5000,
    "\u202egnp.exe", "👩‍👩‍👧‍👦" * 40, "\udcff", "",
)  # fmt: skip


def device(gpu: str = GPUS[0], **changes: object) -> DeviceState:
    figures = {one.name: 0 for one in fields(DeviceState) if one.name not in ("uuid",)}
    made = DeviceState(uuid=gpu, **figures)  # type: ignore[arg-type]
    made = replace(made, emulated=False, active=True, total_bytes=1000 * MIB)
    made = replace(made, budget_bytes=900 * MIB, allocated_bytes=1500 * MIB)
    return replace(made, resident_bytes=800 * MIB, **changes)  # type: ignore[arg-type]


def seen(pid: int, name: str = "train.py", *, turn: int = 0, **counters: int) -> live.Seen:
    """Returns a job with one client whose counters have grown `turn` times."""
    shim = {"operations": 10, "moved_to_gpu_bytes": 5 * MIB, "moved_to_host_bytes": 2 * MIB}
    worker = {"operations": 10, "blocks_used": 100, "blocks_hit": 95, "miss_late": 5, **counters}
    client = ClientState(
        pid,
        None,
        "planned",
        (device(),),
        {key: turn * count for key, count in shim.items()},
        {"ticks": 1000 + turn, **{key: turn * count for key, count in worker.items()}},
    )
    return live.Seen(Job(pid, f"/run/{pid}", name, f"python {name}", "1.5x"), [client], "")


def poll(*jobs: live.Seen, at_s: float = 0.0, **more: object) -> live.Poll:
    known = {GPUS[0]: Identity(0, 0, "NVIDIA H100 80GB HBM3")}
    return live.Poll(at_s, list(jobs), identities=known)._replace(**more)  # type: ignore[arg-type]


def view_of(*polls: live.Poll) -> View:
    view = View()
    for one in polls:
        view.take(one)
    return view


def lines(page: RenderableType, width: int, height: int) -> list[str]:
    """Returns the lines that a terminal of that size shows."""
    out = Console(width=width, height=height, file=io.StringIO(), theme=STYLES)
    options = out.options.update_dimensions(width, height)
    drawn = out.render_lines(page, options)
    return ["".join(segment.text for segment in one).rstrip() for one in drawn]


def text(view: View, width: int = 80, height: int = 24) -> str:
    return "\n".join(lines(view.page(width, height), width, height))


def check_fits(view: View, width: int, height: int) -> str:
    shown = lines(view.page(width, height), width, height)
    assert len(shown) == height
    for one in shown:
        assert cell_len(one) <= width
        assert one.isprintable(), one
    return "\n".join(shown)


@pytest.mark.parametrize(("width", "height"), SCREENS)
@pytest.mark.parametrize("count", [0, 1, 7, 100])
def test_hostile_names_stay_within_the_screen(width: int, height: int, count: int) -> None:
    source = random.Random(count)
    names = [source.choice(HOSTILE) for _ in range(count)]
    polls = []
    for turn in range(3):
        jobs = [seen(100 + n, name, turn=turn) for n, name in enumerate(names)]
        silent = [one._replace(clients=[], error=one.job.name) for one in jobs[: count // 3]]
        shown = [*jobs[count // 3 :], *silent]
        polls.append(poll(*shown, at_s=turn, warning=source.choice(HOSTILE)))
        model = Identity(turn, None, source.choice(HOSTILE))
        polls[-1] = polls[-1]._replace(identities={GPUS[0]: model})
    view = view_of(*polls)
    check_fits(view, width, height)
    view.press("enter")
    check_fits(view, width, height)


def test_a_gpus_number_name_and_uuid_are_those_of_nvidia_smi() -> None:
    for width in (80, 200):
        shown = text(view_of(poll(seen(7))), width, 24)
        assert f"GPU 0  NVIDIA H100 80GB HBM3  {gpu_uuid(GPUS[0])}" in shown
    assert "800.0 MiB of 1000.0 MiB resident, budgets 900.0 MiB, allocated 1.5 GiB" in shown
    unknown = parts(poll(seen(7), identities={}), None, 160)
    assert f"GPU 0  {gpu_uuid(GPUS[0])}" in "\n".join(lines(Group(*unknown), 160, 24))


@pytest.mark.parametrize(("width", "height"), SCREENS)
def test_many_gpus_leave_room_for_the_jobs(width: int, height: int) -> None:
    cards = [Card(f"{n:032x}", 1000 * MIB, n * MIB, 1, None, None, None) for n in range(16)]
    one = seen(7)
    devices = tuple(device(card.uuid) for card in cards[:10])
    one.clients[0] = replace(one.clients[0], devices=devices)
    view = view_of(poll(one, cards=cards))
    shown = check_fits(view, width, height)
    if height >= 24:
        assert re.search(r"^> +7 .*train.py", shown, re.M)
        assert ("more GPUs" in shown) == (height == 24)
    view.press("enter")
    check_fits(view, width, height)


@pytest.mark.parametrize("height", [24, 12])
def test_there_is_room_for_the_chosen_job_among_many(height: int) -> None:
    jobs = [seen(100 + n, f"job-{n}") for n in range(60)]
    view = view_of(poll(*jobs))
    for _ in range(45):
        view.press("down")
    shown = text(view, 80, height)
    assert re.search(r"^> +145 job-45 ", shown, re.M)
    assert re.search(r"rows \d+ to \d+ of 60", shown)
    assert shown.splitlines()[-1].startswith(" q  quit")


def test_rows_are_sorted_by_the_column_that_the_key_chooses() -> None:
    jobs = [seen(1, "b", turn=1), seen(2, "c", turn=3), seen(3, "a", turn=2)]
    view = view_of(poll(*[one._replace(clients=one.clients) for one in jobs]), poll(*jobs, at_s=1))

    def order() -> list[str]:
        found = re.findall(r"^[> ] +(\d) \w+ [abc] ", text(view, 200, 50), re.M)
        return [str(one) for one in found]

    assert order() == ["1", "2", "3"]
    view.press("s")
    assert "by JOB" in text(view) and order() == ["3", "1", "2"]
    view.press("r")
    assert "reversed" in text(view) and order() == ["2", "1", "3"]
    for _ in table.SORTS:
        view.press("s")
        text(view)
    assert "by JOB" in text(view), "all the way round"
    view.press("S")
    assert "by PID" in text(view)


def test_a_chosen_job_stays_chosen_while_others_come_and_go() -> None:
    view = view_of(poll(seen(5), seen(7)))
    view.press("down")
    view.take(poll(seen(3), seen(5), seen(7), at_s=1))
    assert re.search(r"^> +7 train.py", text(view), re.M)
    view.take(poll(seen(3), seen(5), at_s=2))
    assert re.search(r"^> +5 train.py", text(view), re.M)
    view.take(poll(at_s=3))
    assert "You have no jobs running under pump" in text(view)


def test_the_details_of_a_job_are_all_there() -> None:
    polls = [poll(seen(7, turn=turn, predicted=8), at_s=turn) for turn in range(1, 6)]
    view = view_of(*polls)
    view.press("enter")
    for width, height in ((80, 24), (200, 50)):
        shown = text(view, width, height)
        for wanted in (
            *("job          train.py", "command      python train.py", "process      7"),
            *("policy       planned  active", "limit        1.5x its GPUs' memory"),
            *("budgets 900.0 MiB", "allocated 1.5 GiB", "800.0 MiB of 1000.0 MiB resident"),
            *("5.0 MiB/s", "2.0 MiB/s", "25.0 MiB in total", "5/s", "25 in total"),
            "late 5, unseen 0, no room 0, policy 0 per second",
            *("95.0% now, 95.0% in total", "0 blocks in total"),
            "predicted    80.0% of operations",
        ):
            assert wanted in shown, wanted
        assert "lost" not in shown and "in place" not in shown
    view.press("back")
    assert "JOB" in text(view)


def test_the_details_name_memory_that_is_read_in_place() -> None:
    view = view_of(poll(seen(7, turn=1, in_place_bytes_peak=12 << 30)))
    view.press("enter")
    assert "in place     read up to 12.0 GiB of allocations on the host" in text(view)


def test_a_job_that_waits_for_its_turn_says_so() -> None:
    job = seen(7)
    (client,) = job.clients
    held = replace(client, devices=(device(held_threads=2), device(GPUS[1])))
    shown = text(view_of(poll(job._replace(clients=[held]), seen(8))))
    assert re.search(r"^> +7 train.py.* waiting ", shown, re.M)
    assert re.search(r"^ +8 train.py.* active ", shown, re.M)


def test_the_details_of_a_job_that_ends_stay_until_one_goes_back() -> None:
    view = view_of(poll(seen(7, "first"), seen(8, "second")))
    view.press("enter")
    view.take(poll(seen(8, "second"), at_s=1))
    shown = text(view)
    assert "This process has ended" in shown and "first" in shown
    view.press("back")
    assert re.search(r"^> +8 second", text(view), re.M)


def test_time_lost_is_shown_once_there_is_an_estimate() -> None:
    told = seen(7, turn=1, lost_ns=30_000_000_000, lost_of_ns=120_000_000_000)
    view = view_of(poll(told, seen(8)))
    shown = text(view)
    assert "LOST" in shown and "30.00 s 25.0%" in shown
    view.press("enter")
    assert "lost         30.00 s 25.0% of its time" in text(view)
    assert "LOST" not in text(view_of(poll(seen(8))), 200, 24)


def busy_view(monkeypatch: pytest.MonkeyPatch) -> View:
    """Returns a view of two GPUs and three jobs with changing numbers, the same at each call."""
    host = "host   96.0 GiB of 128.0 GiB available, 16 CPU cores 12% busy"
    monkeypatch.setattr("pump.cli.top.view.host", lambda: line(host))
    monkeypatch.setattr("time.strftime", lambda _: "12:00:00")
    monkeypatch.setattr("pump.cli.top.table.age_s", lambda pid: pid * 3)
    monkeypatch.setattr("pump.cli.top.table.user", lambda _: "ada")
    view = View()
    known = {GPUS[n]: Identity(n, n, "NVIDIA H100 80GB HBM3") for n in range(2)}
    done = [0, 1, 3, 7, 9, 10, 14, 21, 30, 33, 40, 48]
    for at, turn in enumerate(done):
        lost = {"lost_ns": 300_000_000, "lost_of_ns": 1_200_000_000}
        jobs = [
            seen(4711, turn=turn, **(lost if turn else {})),
            seen(4802, "finetune.py", turn=done[-at]),
            seen(5003, "notebook", turn=turn // 7),
        ]
        half = replace(device(), resident_bytes=440 * MIB, budget_bytes=485 * MIB)
        for one, devices in zip(jobs, (half, half, device(GPUS[1])), strict=True):
            one.clients[0] = replace(one.clients[0], devices=(devices,))
        view.take(poll(*jobs, at_s=at, identities=known))
    return view


def kept(width: int, height: int) -> str:
    """Returns the screen on the administrators' page; one that is too wide has its own file."""
    if width == 80:
        page = (DOCS / "guides" / "administrators.md").read_text(encoding="utf-8")
        return page.partition("```text\npump top")[2].partition("\n```")[0]
    picture = (DOCS / "pictures" / f"top-{width}x{height}.txt").read_text(encoding="utf-8")
    return picture.removeprefix("pump top").rstrip("\n")


@pytest.mark.parametrize(("width", "height"), [(80, 24), (200, 50)])
def test_the_documented_screens_are_what_it_draws(
    width: int, height: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = check_fits(busy_view(monkeypatch), width, height)
    assert shown == "pump top" + kept(width, height)


def test_a_key_explains_keys_and_columns_and_goes_back() -> None:
    view = view_of(poll(seen(7)))
    for closes in ("?", "back"):
        view.press("?")
        shown = check_fits(view, 80, 24)
        assert all(name in shown and meaning in shown for name, meaning in HELP)
        view.press(closes)
        assert "train.py" in text(view)


def test_a_jobs_user_priority_and_time_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pump.cli.top.table.age_s", lambda pid: 3723.0)
    job = JobState(1, 0, 7, 7, "train.py", 4, "/run/7", 1, 0, 0, 0, ())
    shown = text(view_of(poll(seen(7), registered=[job])), 200, 50)
    assert re.search(rf"^> +7 {user(os.geteuid())} train.py +4 1:02:03 ", shown, re.M)


def test_where_there_is_nothing_to_see_it_says_what_to_do() -> None:
    none = poll(no_card="no library", no_service="/run/x: cannot reach the service: No such file")
    shown = text(view_of(none))
    assert "You have no jobs running under pump." in shown
    assert "NVML finds no GPU: no library" in shown
    assert "pump-run --virtual a100-pcie4 python train.py" in shown and "pump doctor" in shown
    assert "Only your own jobs are shown: no system service is running." in shown
    shown = text(view_of(poll()))
    assert "pump-run python train.py" in shown and "service" not in shown
    off = poll(no_service="the service is off (PUMP_SERVICE=none)")
    assert "Only your own jobs are shown: PUMP_SERVICE=none." in text(view_of(off))


def test_jobs_of_others_and_jobs_without_figures_have_lines_of_their_own() -> None:
    other = JobState(1, 0, 9, 77, "theirs", 0, "/x", 1, 0, 0, 0, ())
    silent = seen(8, "hangs")._replace(clients=[], error="pumpd did not answer within 6 s")
    begins = seen(9, "begins")._replace(clients=[])
    shown = text(view_of(poll(seen(7), silent, begins, registered=[other])), 80, 40)
    assert re.search(r"^ +8 hangs +pumpd did not answer within 6 s$", shown, re.M)
    assert re.search(r"^ +9 begins +has not used a GPU yet$", shown, re.M)
    assert "Jobs of other users:" in shown
    assert re.search(r"^ +77 root +theirs ", shown, re.M)


def test_a_job_that_hangs_is_asked_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    now_s = [100.0]

    def answer(job: Job, control: object) -> tuple[list[ClientState], str]:
        asked.append(job.pid)
        now_s[0] += 6.0
        return [], "pumpd did not answer within 6 s"

    monkeypatch.setattr("pump.cli.jobs.answer_of", answer)
    monkeypatch.setattr(live.time, "monotonic", lambda: now_s[0])
    watch = live.Watch()
    job = Job(7, "/s", "x", "x")
    first = watch._ask(job)
    assert watch._ask(job) is first and asked == [7]
    now_s[0] += 31.0
    watch._ask(job)
    assert asked == [7, 7]
    watch.close()


# ---- text ----


def test_text_is_cut_and_filled_by_columns_and_not_by_characters() -> None:
    assert (cut("日本語", 5), cut("日本語", 4), cut("日本語", 6)) == ("日本…", "日 …", "日本語")
    assert (cut("日本", 5, pad=True), cut("", 0), cut("a\x1b", 2)) == ("日本 ", "", "a?")


def test_colours_are_left_out_where_they_are_not_wanted_and_emphasis_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A pipe gets neither."""
    shown = line(("good", "good"), " ", ("bold", "bold"))

    def printed(terminal: bool) -> str:
        out = io.StringIO()
        out.isatty = lambda: terminal  # type: ignore[method-assign]
        console(out).print(shown)
        return out.getvalue()

    for name in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert printed(True) == "\x1b[32mgood\x1b[0m \x1b[1mbold\x1b[0m\n"
    assert printed(False) == "good bold\n"
    monkeypatch.setenv("NO_COLOR", "1")
    assert printed(True) == "good \x1b[1mbold\x1b[0m\n"


def test_a_sparkline_ends_with_the_newest_and_its_largest_is_the_highest() -> None:
    assert sparkline([0, 1, 4, 8], 6) == "▁▂▅█  "
    assert sparkline([0, 1e-9, 8], 2) == "▂█"
    assert sparkline([0, 0], 3) == "▁▁ " and sparkline([], 2) == "  "
    assert sparkline([0, 1, 8], 3, ASCII_SPARKS) == "_.#"


@pytest.mark.parametrize(
    ("sent", "keys"),
    [
        (b"q", ["q"]),
        (b"\x1b[A\x1b[Bs", ["up", "down", "s"]),
        (b"\x1bOA\x1b[6~\x1b[5~", ["up", "page down", "page up"]),
        (b"\x1b", ["back"]),
        (b"\x1b[200~q", []),
        (b"\r\n\x7f", ["enter", "enter", "back"]),
        (b"\xff\x00\x01\xc3\xa9j", ["j"]),
    ],
)
def test_keys_are_those_that_terminals_send(sent: bytes, keys: list[str]) -> None:
    assert parsed(sent) == keys
