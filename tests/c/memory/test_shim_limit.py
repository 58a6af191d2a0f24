"""Tests limit and host headroom on fake file trees, the log, and the summary line."""

import errno
import subprocess
import time
from pathlib import Path

import pytest
from c_build import SANITIZERS
from executor_build import build, run

MIB = 1 << 20
GIB = 1 << 30
STAYS_PLAIN = str(-errno.ENOSPC)
OUT_OF_MEMORY = "-12"
SAN = "address,undefined"


class Host:
    """A fake /proc and /sys/fs/cgroup."""

    def __init__(self, root: Path, total_bytes: int, available_bytes: int, cgroup: str) -> None:
        self.proc, self.cgroups = root / "proc", root / "cgroup"
        (self.proc / "self").mkdir(parents=True)
        self.cgroups.mkdir()
        (self.proc / "self" / "cgroup").write_text(cgroup)
        self.meminfo = self.proc / "meminfo"
        self.total_bytes = total_bytes
        self.meminfo.write_text(self.meminfo_text(available_bytes))

    def meminfo_text(self, available_bytes: int) -> str:
        return (
            f"MemTotal:       {self.total_bytes // 1024} kB\n"
            f"MemFree:          1024 kB\nMemAvailable:   {available_bytes // 1024} kB\n"
        )

    def group(self, path: str, files: dict[str, str]) -> Path:
        folder = self.cgroups / path
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text + "\n")
        return folder

    def script(self, lines: list[str], limit: str = "", most: str = "") -> tuple[list[str], str]:
        """Runs the lines; returns the answers and the process's stderr."""
        done = subprocess.run(
            [str(build(SAN)), "limit_script"],
            input="\n".join(lines),
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
            env={
                "PUMP_PROC_ROOT": str(self.proc),
                "PUMP_CGROUP_ROOT": str(self.cgroups),
                "PUMP_LIMIT": limit,
                "PUMP_LIMIT_MOST": most,
            },
        )
        return done.stdout.split("\n")[:-1], done.stderr


def big_host(root: Path, cgroup: str = "0::/\n") -> Host:
    return Host(root, 64 * GIB, 60 * GIB, cgroup)


def test_a_limit_in_bytes_is_held_and_named(tmp_path: Path) -> None:
    answers, said = big_host(tmp_path).script(
        [f"admit {6 * GIB}", f"admit {3 * GIB}", f"return {4 * GIB}", f"admit {3 * GIB}"],
        limit=str(8 * GIB),
    )
    assert answers == ["0", OUT_OF_MEMORY, "0", f"peak {6 * GIB}"]
    (line,) = said.splitlines()
    assert "PUMP_LIMIT" in line and "8192 MiB" in line and "--limit" in line


def test_a_limit_in_percent_is_a_share_of_the_hosts_headroom(tmp_path: Path) -> None:
    # 60 GiB available less 5 % of 64 GiB (3.2 GiB) = 56.8 GiB; 50 % are 28.4 GiB.
    answers, _ = big_host(tmp_path).script([f"admit {28 * GIB}", f"admit {1 * GIB}"], limit="50%")
    assert answers[:2] == ["0", OUT_OF_MEMORY]


@pytest.mark.parametrize(
    "limit", ["much", "101%", "0%", "-1", "12GB", "5 %", "1.5", "1.x", "0x", "0.0x", "1.2345x"]
)
def test_a_limit_that_is_no_limit_is_said_and_the_host_still_bounds(
    tmp_path: Path, limit: str
) -> None:
    answers, said = big_host(tmp_path).script(
        [f"admit {50 * GIB}", f"admit {50 * GIB}"], limit=limit
    )
    assert answers[:2] == ["0", OUT_OF_MEMORY]
    assert "must be a size such as 4GiB" in said and limit in said


def test_a_limit_as_a_multiple_is_of_the_devices_memory(tmp_path: Path) -> None:
    lines = [f"device {8 * GIB}", f"admit {10 * GIB}", f"admit {3 * GIB}", f"admit {2 * GIB}"]
    answers, _ = big_host(tmp_path).script(lines, limit="1.5x")
    assert answers[:3] == ["0", OUT_OF_MEMORY, "0"]


def test_the_administrators_bound_brings_a_limit_down_and_says_so_once(tmp_path: Path) -> None:
    lines = [f"device {8 * GIB}", f"admit {6 * GIB}", f"admit {3 * GIB}"]
    answers, said = big_host(tmp_path).script(lines, limit="1.5x", most=str(8 * GIB))
    assert answers[:2] == ["0", OUT_OF_MEMORY]
    first, second = said.splitlines()
    assert "12.0 GiB is lowered to 8192 MiB" in first or "12.0 GiB" in first
    assert "administrator" in first and "administrator" in second and "8192 MiB" in second


@pytest.mark.parametrize(("limit", "said_lines"), [("", 0), ("2GiB", 1), (str(2 * GIB), 0)])
def test_a_bound_that_takes_nothing_away_is_not_spoken_of(
    tmp_path: Path, limit: str, said_lines: int
) -> None:
    _, said = big_host(tmp_path).script([f"admit {GIB}"], limit=limit, most=str(8 * GIB))
    assert "administrator" not in said and len(said.splitlines()) == said_lines


def test_what_may_still_be_converted_is_the_least_of_limit_and_host(tmp_path: Path) -> None:
    lines = ["report", f"admit {3 * GIB}", "report"]
    answers, _ = big_host(tmp_path).script(lines, limit=str(8 * GIB))
    assert answers[0] == f"{8 * GIB} of {8 * GIB}"
    assert answers[2] == f"{5 * GIB} of {8 * GIB}"
    (tmp_path / "other").mkdir()
    answers, _ = big_host(tmp_path / "other").script(lines)
    edge = 60 * GIB - 64 * GIB // 20
    assert answers[0].split()[2] == answers[0].split()[0]
    assert abs(int(answers[0].split()[0]) - edge) < MIB
    assert int(answers[0].split()[0]) - int(answers[2].split()[0]) == 3 * GIB


def test_the_hosts_memory_bounds_with_a_reserve_of_five_percent(tmp_path: Path) -> None:
    edge = 60 * GIB - 64 * GIB // 20
    answers, said = big_host(tmp_path).script([f"admit {edge + MIB}", f"admit {edge - MIB}"])
    assert answers[:2] == [OUT_OF_MEMORY, "0"]
    assert "host's memory" in said and "(reserve: " in said


def test_what_the_host_cannot_take_stays_plain_while_the_device_has_room(tmp_path: Path) -> None:
    answers, said = big_host(tmp_path).script(
        [f"room {80 * GIB}", f"admit {70 * GIB}", f"admit {90 * GIB}", f"admit {1 * GIB}"]
    )
    assert answers[:3] == [STAYS_PLAIN, OUT_OF_MEMORY, "0"]
    assert len(said.splitlines()) == 1, "only what was refused is said aloud"


def test_a_limit_of_the_job_refuses_what_would_fit_as_plain_memory(tmp_path: Path) -> None:
    answers, _ = big_host(tmp_path).script(
        [f"room {80 * GIB}", f"admit {9 * GIB}"], limit=str(8 * GIB)
    )
    assert answers[0] == OUT_OF_MEMORY


@pytest.mark.parametrize(
    ("total", "reserve"), [(2 * GIB, 512 * MIB), (40 * GIB, 2 * GIB), (1024 * GIB, 4 * GIB)]
)
def test_the_reserve_has_a_floor_and_a_ceiling(tmp_path: Path, total: int, reserve: int) -> None:
    host = Host(tmp_path, total, total, "0::/\n")
    answers, _ = host.script([f"admit {total - reserve + MIB}", f"admit {total - reserve - MIB}"])
    assert answers[:2] == [OUT_OF_MEMORY, "0"]


def test_a_cgroup_of_version_two_bounds_and_its_idle_cache_counts_as_free(tmp_path: Path) -> None:
    host = big_host(tmp_path, "0::/user/job\n")
    host.group("user", {"memory.max": "max", "memory.current": str(50 * GIB)})
    folder = host.group(
        "user/job",
        {
            "memory.max": str(8 * GIB),
            "memory.current": str(5 * GIB),
            "memory.stat": f"anon 1\nfile 2\ninactive_file {3 * GIB}\nactive_file 7",
        },
    )
    # 8 - (5 - 3) - 0.5 reserve = 5.5 GiB
    answers, said = host.script([f"admit {5632 * MIB + MIB}", f"admit {5632 * MIB}"])
    assert answers[:2] == [OUT_OF_MEMORY, "0"]
    assert str(folder) in said and "raise the cgroup's memory limit" in said


def test_the_tightest_ancestor_counts(tmp_path: Path) -> None:
    host = big_host(tmp_path, "0::/a/b/c\n")
    host.group("a", {"memory.max": str(4 * GIB), "memory.current": str(1 * GIB)})
    host.group("a/b", {"memory.max": str(6 * GIB), "memory.current": "0"})
    host.group("a/b/c", {"memory.max": "max", "memory.current": "0"})
    answers, said = host.script([f"admit {2561 * MIB}", f"admit {2560 * MIB}"])
    assert answers[:2] == [OUT_OF_MEMORY, "0"]
    assert f" in cgroup {host.cgroups}/a (" in said


def test_a_cgroup_of_version_one_bounds(tmp_path: Path) -> None:
    host = big_host(tmp_path, "11:cpu,cpuacct:/x\n5:hugetlb,memory:/docker/abc\n1:name=systemd:/\n")
    host.group("memory", {"memory.limit_in_bytes": "9223372036854771712"})
    host.group(
        "memory/docker/abc",
        {
            "memory.limit_in_bytes": str(4 * GIB),
            "memory.usage_in_bytes": str(2 * GIB),
            "memory.stat": f"inactive_file 0\ntotal_inactive_file {1 * GIB}",
        },
    )
    answers, said = host.script([f"admit {2561 * MIB}", f"admit {2560 * MIB}"])
    assert answers[:2] == [OUT_OF_MEMORY, "0"]
    assert "memory/docker/abc" in said


def test_a_hybrid_host_counts_the_hierarchy_that_has_the_controller(tmp_path: Path) -> None:
    host = big_host(tmp_path, "4:memory:/job\n0::/unified-job\n")
    (host.cgroups / "unified" / "unified-job").mkdir(parents=True)  # no memory files there
    host.group(
        "memory/job",
        {"memory.limit_in_bytes": str(3 * GIB), "memory.usage_in_bytes": str(1 * GIB)},
    )
    answers, said = host.script([f"admit {1537 * MIB}", f"admit {1536 * MIB}"])
    assert answers[:2] == [OUT_OF_MEMORY, "0"]
    assert "memory/job" in said


def test_in_a_container_the_mounts_own_root_counts(tmp_path: Path) -> None:
    host = big_host(tmp_path, "4:memory:/docker/not-visible-here\n")
    host.group(
        "memory",
        {"memory.limit_in_bytes": str(2 * GIB), "memory.usage_in_bytes": str(512 * MIB)},
    )
    answers, _ = host.script([f"admit {1025 * MIB}", f"admit {1024 * MIB}"])
    assert answers[:2] == [OUT_OF_MEMORY, "0"]


def test_host_memory_that_others_took_meanwhile_is_not_promised_again(tmp_path: Path) -> None:
    host = big_host(tmp_path)
    low = tmp_path / "low"
    low.write_text(host.meminfo_text(20 * GIB))
    host.meminfo.unlink()
    host.meminfo.symlink_to(tmp_path / "now")
    (tmp_path / "now").write_text(host.meminfo_text(60 * GIB))
    process = subprocess.Popen(
        [str(build(SAN)), "limit_script"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
        env={"PUMP_PROC_ROOT": str(host.proc), "PUMP_CGROUP_ROOT": str(host.cgroups)},
    )
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(f"admit {10 * GIB}\n")
    process.stdin.write("sleep 200\n")
    process.stdin.flush()
    time.sleep(0.1)
    low.rename(tmp_path / "now")
    time.sleep(0.2)
    # Headroom is now 16.8 GiB and nothing was evicted yet: 10 + 6 fit, 10 + 7 do not.
    process.stdin.write(f"admit {7 * GIB}\nadmit {6 * GIB}\n")
    # Once the job is active, memory missing from the host counts as its own pages.
    process.stdin.write(f"return {6 * GIB}\nactive 1\nadmit {7 * GIB}\n")
    process.stdin.close()
    answers = process.stdout.read().split()
    assert process.wait(timeout=20) == 0
    assert answers[:4] == ["0", OUT_OF_MEMORY, "0", "0"]


def test_a_refusal_rests_on_figures_of_this_moment(tmp_path: Path) -> None:
    host = big_host(tmp_path, "0::/job\n")
    folder = host.group("job", {"memory.max": str(8 * GIB), "memory.current": "0"})
    usage = folder / "memory.current"
    lines = [f"admit {GIB}", "sleep 150", f"write {usage} {7 * GIB}", f"admit {MIB}"]
    lines += [f"write {usage} 0", f"admit {MIB}"]  # well within the age of a sample
    answers, _ = host.script(lines)
    assert answers[:3] == ["0", OUT_OF_MEMORY, "0"]


def test_a_host_that_tells_nothing_bounds_nothing_but_says_so(tmp_path: Path) -> None:
    host = big_host(tmp_path, "garbage\n\n::\n0:\n")
    host.meminfo.write_text("no figures here\n")
    answers, said = host.script([f"admit {500 * GIB}"])
    assert answers[0] == "0"
    assert said.count("pump cannot protect host memory") == 1


def test_refusals_in_a_row_are_said_once_a_second(tmp_path: Path) -> None:
    _, said = big_host(tmp_path).script([f"admit {GIB}"] * 50, limit="1")
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_threads_never_exceed_the_limit_together(sanitizer: str) -> None:
    run(sanitizer, "threads_never_exceed_the_limit_together")


def test_log_levels_are_respected_and_lines_are_single() -> None:
    quiet = run(SAN, "the_log_levels_are_respected").stderr.splitlines()
    assert quiet[:2] == ["pump: this is an error", "pump: this is a warning"]
    assert quiet[2] == "pump: once" and len(quiet) == 4 and len(quiet[3]) < 1024
    loud = run(SAN, "the_log_levels_are_respected", {"PUMP_LOG_LEVEL": "debug"}).stderr
    assert "pump: this is information of two lines\n" in loud and "detail" in loud
    assert (
        "warning"
        not in run(SAN, "the_log_levels_are_respected", {"PUMP_LOG_LEVEL": "error"}).stderr
    )


def test_a_log_file_takes_the_place_of_stderr_and_is_appended_to(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("before\n")
    done = run(SAN, "the_log_levels_are_respected", {"PUMP_LOG_FILE": str(log)})
    assert done.stderr == ""
    assert log.read_text().startswith("before\npump: this is an error\n")
    done = run(SAN, "the_log_levels_are_respected", {"PUMP_LOG_FILE": str(tmp_path / "no" / "x")})
    assert "pump: this is an error" in done.stderr  # the file cannot be opened, so stderr is used


def test_a_descriptor_two_that_is_no_longer_stderr_is_not_written() -> None:
    done = run(SAN, "a_descriptor_two_that_is_no_longer_stderr_is_not_written")
    assert done.stderr == "pump: stderr is back\n"


def test_a_reader_that_left_raises_no_signal_in_the_program() -> None:
    process = subprocess.Popen(
        [str(build(SAN)), "a_reader_that_left_raises_no_signal"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None and process.stdout is not None
    process.stderr.close()
    assert process.stdout.read() == b"alive\n"
    assert process.wait(timeout=20) == 0


def test_a_file_that_may_not_grow_raises_no_signal_in_the_program(tmp_path: Path) -> None:
    log = tmp_path / "log"
    done = run(SAN, "a_file_that_may_not_grow_raises_no_signal", {"PUMP_LOG_FILE": str(log)})
    assert done.stdout == "alive\n"
    assert log.read_bytes() == b""


def test_a_reader_that_does_not_read_blocks_no_process() -> None:
    process = subprocess.Popen(
        [str(build(SAN)), "a_reader_that_does_not_read_blocks_no_thread"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.wait(timeout=20) == 0
    process.communicate()


RESULT = "pump: lost about 52 % of 2.20 s to memory at 1.50x the budget"


def test_the_summary_is_one_line_that_names_the_cause() -> None:
    (line,) = run(SAN, "the_summary_of_an_active_job").stderr.splitlines()
    assert line == f"{RESULT}: no free memory to prefetch into"


def test_all_else_that_pump_knows_is_said_at_level_info() -> None:
    found = run(SAN, "the_summary_of_an_active_job", {"PUMP_LOG_LEVEL": "info"}).stderr
    assert found.splitlines() == [
        "pump: time lost to memory: about 1.15 s of 2.20 s (1.06 s to 1.24 s); with enough "
        "memory the run would take 960 ms to 1.14 s (to measure: pump compare -- COMMAND)",
        "pump: memory: peak 1536 MiB, budget 1024 MiB; 30.0 GiB prefetched, 20.0 GiB evicted",
        "pump: hit rate about 93.4 % of 1000 block uses; misses: 10 prefetched too late, 0 used "
        "before pump could prefetch, 56 without free memory, 0 by policy",
        f"{RESULT}: no free memory to prefetch into",
    ]


def test_the_budgets_of_a_changing_lease_are_said_at_level_info() -> None:
    told = {"PUMP_LOG_LEVEL": "info"}
    found = run(SAN, "the_summary_of_a_job_whose_lease_changed", told).stderr.splitlines()
    steady = run(SAN, "the_summary_of_an_active_job", told).stderr.splitlines()
    assert [line for line in found if line not in steady] == [
        "pump: device 0: pumpd set budgets from 512 MiB to 3072 MiB during the run"
    ]


def test_a_job_that_lacked_processors_is_told_so() -> None:
    scenario = "the_summary_of_a_job_that_lacked_processors"
    told = run(SAN, scenario, {"PUMP_LOG_LEVEL": "info"}).stderr.splitlines()
    assert told[1:2] == [
        "pump: 600 ms of that time, the program waited for a CPU core: pump's threads and the "
        "driver use CPU cores, too. Give the job more CPU cores"
    ]
    assert told[-1] == f"{RESULT}: waited 600 ms for a CPU core"


def test_a_time_lost_that_is_not_known_well_is_a_range() -> None:
    lines = run(SAN, "the_summaries_of_times_lost").stderr.splitlines()
    assert [line.rpartition(" at 1.50x the budget")[0] for line in lines] == [
        "pump: ran",
        "pump: lost under 1 % of 2.20 s to memory",
        "pump: lost 14 to 73 % of 2.20 s to memory",
    ]


def test_the_summary_names_no_cause_where_next_to_nothing_was_missed() -> None:
    (line,) = run(SAN, "the_summary_of_a_job_that_nothing_held_up").stderr.splitlines()
    assert line == RESULT


def test_a_forked_child_prints_no_summary() -> None:
    assert run(SAN, "the_summary_of_an_active_job_that_forks").stderr.count("pump:") == 1


def test_a_job_that_stayed_dormant_is_told_so_by_its_first_process() -> None:
    """Any other process leaves a note, if there is a folder for it."""
    done = run(SAN, "the_summary_of_a_dormant_job")
    assert done.stderr == "" and done.stdout == ""
