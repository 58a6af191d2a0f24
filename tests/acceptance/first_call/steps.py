"""The steps of scripts/first_call. Each step returns a verdict and numbers, and writes files."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from acceptance import host_memory, running
from acceptance.first_call.call import FAIL, INFO, LATE, PASS, UNAVAILABLE, Call, Told
from acceptance.first_card import rows

LATER = ("poller", "pinned_copies", "waits", "attributes", "remote")
"""Questions of docs/first-card.md that may wait for call B."""
DECIDING = tuple(name for name in rows.questions() if name not in LATER)
"""The questions of scripts/gpu_probe whose answers decide on a mechanism of pump, for call A."""
QUICK = ("symbols", "param_info", "capture", "tma")
GVISOR_CHANGES = ("discard", "felt_by_others", "lanes", "duplicates")
"""Questions whose answers under gVisor do not transfer to other machines (probe/transfer.py)."""
OF_GVISOR = "times under gVisor do not transfer to other machines"
SLOW = ("pageable",)
MIB, GIB = 1 << 20, 1 << 30

FACTS = r"""
uname -srvm; nproc; free -m; grep -E 'MemTotal|MemAvailable|HugePages_Total|AnonHuge' /proc/meminfo
cat /proc/buddyinfo /proc/driver/nvidia/version
nvidia-smi --format=csv --query-gpu=name,driver_version,memory.total,memory.used,\
persistence_mode,compute_mode,pcie.link.gen.current,pcie.link.gen.max,pcie.link.width.current,\
ecc.mode.current,display_active
nvidia-smi -q | grep -iE 'persist|virtuali|confiden|addressing|bar1|ecc mode' | head -60
for f in /sys/module/nvidia_uvm/parameters/*; do echo "$f $(cat $f)"; done
cat /sys/kernel/mm/transparent_hugepage/enabled; ls /sys/class/iommu | head
zcat /proc/config.gz | grep -E 'DEVICE_PRIVATE|HMM|VIRTIO_MEM|BALLOON|SWIOTLB|TRANSPARENT'
which -a cc gcc cmake ninja nvcc git; ldconfig -p | grep -E 'libcuda.so|libnvidia-ml'
env | grep -E '^(CUDA|CUBLAS|PYTORCH|XLA|OMP|LD_LIBRARY)' | sort; df -h /tmp /dev/shm; ulimit -a
dmesg | grep -iE 'nvrm|nvidia' | tail -40
"""
"""Collects no names of the machine, its users or other programs, because users publish the file."""


def facts(call: Call) -> Told:
    """Records facts about the machine, and makes it show all of its memory."""
    call.run("facts", ["sh", "-c", FACTS], 15)
    before, now = host_memory.grow()
    sizes = {"available_mib": now.available // MIB, "grown_mib": (now.total - before.total) // MIB}
    return {"verdict": INFO, **sizes, "gvisor": call.gvisor}


def libraries(call: Call) -> Told:
    """Loads the carried libraries or builds them, and lays out the folder for imports."""
    code = (
        "import dataclasses, json, sys\nfrom pathlib import Path\nsys.path.insert(0, 'tests')\n"
        "from acceptance import build\nroot = Path.cwd()\nwheels = root / '.wheels'\n"
        "wheels = wheels if wheels.is_dir() else None\n"
        f"built = build.build(root, wheels, {bool(call.virtual)}, 80)\n"
        "print(json.dumps(dataclasses.asdict(built)))"
    )
    status = call.run("libraries", [call.python, "-c", code], 90)
    told = _json(last_line(call, "libraries"))
    if status != 0 or told.get("lacks"):
        why = told.get("lacks") or last_line(call, "libraries")
        return {"verdict": LATE if status is None else FAIL, "why": why}
    return {"verdict": PASS, "libraries": told["libraries"], "wheels": told["wheels"]}


# ---- programs with and without pump ---------------------------------------------------


COMPUTED = ("--virtual-set", "mode=compute")
TORCH = ("--virtual-set", "mode=timing")
"""PyTorch's kernels compute nothing on the virtual GPU, so this only rehearses the commands."""
MODELLED = ("--virtual-set", "copies=modelled")


def pumped(call: Call, model: Sequence[str], *words: str) -> list[str]:
    """Returns the pump-run command up to the program. model: options of the virtual GPU."""
    command = running.pump_command(call.root, "pump-run")
    if call.virtual:
        command += ["--virtual", call.virtual, *model]
    return [*command, *words, "--"]


def _variables(call: Call) -> dict[str, str]:
    """Returns the environment of the programs under test."""
    more = {
        "PYTHONPATH": str(call.build / "site"),
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "PYTORCH_ALLOC_CONF": "expandable_segments:False",  # each reserves more than the GPU has
    }
    if call.virtual:
        more["PUMP_VIRTUAL_KERNELS"] = str(call.build / "kernels.so")
    return more


def _training(call: Call) -> tuple[list[str], Sequence[str]]:
    """Returns a command that trains and reports a hash of the weights, and options of the virtual
    GPU for it."""
    has_torch = call.run("torch", [call.program, "-c", "import torch"], 60) == 0
    if has_torch:
        sizes = ["--width=2560", "--layers=6", "--batch=256", "--iterations=12"]
        if call.quick:
            sizes = ["--width=1024", "--layers=4", "--batch=64", "--iterations=4"]
        return [call.program, "tests/acceptance/programs/torch_training.py", *sizes], TORCH
    sizes = ["--width=1024", "--layers=4", "--batch=8", "--rate=2e-4", "--iterations=3"]
    return [call.python, "examples/train_mlp.py", *sizes, "--json", "@"], COMPUTED


PREFETCHING = ("window", "planned")
POLICIES = ("demand", *PREFETCHING)


def proof(call: Call) -> Told:
    """Trains twice without pump, once with enough memory, and with half the memory under each
    policy. Passes if all hashes are equal."""
    if not (call.libraries / "libpump.so").is_file():
        return {"verdict": UNAVAILABLE, "why": f"there is no libpump.so in {call.libraries}"}
    program, model = _training(call)
    runs: dict[str, Told] = {}

    def one(name: str, arguments: list[str] | None) -> None:
        runs[name] = _trained(call, name, program, model, arguments)

    one("plain", None)
    one("again", None)
    told: Told = {"program": Path(program[1]).name, "runs": runs}
    peak = runs["plain"].get("peak_bytes")
    if not peak:
        why = last_line(call, "proof.plain")
        return {"verdict": UNAVAILABLE, "why": f"without pump it does not run: {why}", **told}
    threads = [threading.Thread(target=one, args=("fits", ["--policy", "window"]))]
    for policy in POLICIES:
        words = ["--policy", policy, "--budget", str(peak // 2)]
        threads.append(threading.Thread(target=one, args=(policy, words)))
    for thread in threads:
        thread.start()
        if not call.side_by_side:
            thread.join()
    for thread in threads:
        thread.join()
    hashes = {run["sha256"] for run in runs.values()}
    same = len(hashes) == 1 and "" not in hashes
    moved = all(runs[name].get("moved_mib") for name in PREFETCHING)
    verdict = PASS if same and moved else FAIL
    if any(run["status"] is None for run in runs.values()):
        verdict = LATE
    why = {} if moved else {"why": f"nothing was prefetched: {last_line(call, 'proof.window')}"}
    return {"verdict": verdict, "same_bits": same, **why, **told}


def _trained(
    call: Call, name: str, program: list[str], model: Sequence[str], arguments: list[str] | None
) -> Told:
    """Runs one training. arguments: options of pump-run, or None to run without pump."""
    log, result = (call.work / f"proof.{name}.{end}" for end in ("log", "json"))
    summary = call.work / f"proof.{name}.summary.json"
    log.unlink(missing_ok=True)
    words = [str(result) if word == "@" else word for word in program]
    more = _variables(call)
    if arguments is None:
        more["PUMP_DISABLE"] = "1"
        words = [*pumped(call, model), *words] if call.virtual else words
    else:
        more["PUMP_SUMMARY"] = str(summary)
        limit = ["--limit", str(min(GIB, call.managed_bytes))]
        words = [*pumped(call, model, *arguments, *limit), *words]
    began = time.monotonic()
    status = call.run(f"proof.{name}", words, 45, more)
    told: Told = {"status": status, "seconds": round(time.monotonic() - began, 2)}
    text = result.read_text() if result.is_file() else log.read_text(errors="replace")
    lines = [line for line in text.splitlines() if line.startswith("{")]
    found = _json(text) or _json(lines[-1] if lines else "")
    told["sha256"] = str(found.get("sha256") or found.get("weights_sha256") or "")[:12]
    told["peak_bytes"] = found.get("peak_bytes") or found.get("footprint_bytes")
    if summary.is_file():
        shim = _json(summary.read_text()).get("shim", {})
        told["moved_mib"] = shim.get("moved_to_gpu_bytes", 0) // MIB
    return told


def decoder(call: Call) -> Told:
    """Measures a decoder under emulated budgets; one process switches between the policies."""
    if call.gvisor:
        return {"verdict": UNAVAILABLE, "why": OF_GVISOR}
    lines = call.work / "decoder.lines"
    model, seconds = ("mlp", 30) if call.virtual else ("gpt2", 70)
    words = [call.python if call.virtual else call.program]
    words += ["tests/acceptance/speed/program.py", "--model", model, "--out", str(lines)]
    words += ["--ratio", "1.5", "--ratio", "2"]
    for policy in ("demand", "window", "planned"):
        words += ["--policy", policy]
    if call.quick:
        seconds = 10
        words += ["--quick", "--phase-seconds", "0.2", "--warm-seconds", "0"]
    words += ["--seconds", str(seconds)]
    limit = ["--limit", str(min(4 * GIB, call.managed_bytes)), "--policy", "window"]
    status = call.run(
        "decoder", [*pumped(call, COMPUTED, *limit), *words], seconds + 20, _variables(call)
    )
    times: dict[str, list[float]] = {}
    for line in lines.read_text().splitlines() if lines.is_file() else []:
        row = _json(line)
        if row.get("kind") == "phase":
            key = f"{row['phase']['ratio']:g}x.{row['phase']['policy']}"
            times.setdefault(key, []).append(round(1e3 * row["seconds"] / row["iterations"], 1))
    if not times:
        verdict = LATE if status is None else UNAVAILABLE
        return {"verdict": verdict, "why": last_line(call, "decoder")}
    return {"verdict": INFO, "emulated_budget_ms_an_iteration": times}


# ---- the probe and the stages of the acceptance ------------------------------------------


def probe(name: str, only: tuple[str, ...], limit_s: float) -> Callable[[Call], Told]:
    """Returns a step that asks `only`, or all questions except DECIDING if it is empty."""

    def ask(call: Call) -> Told:
        report = call.work / f"{name}.json"
        skipped = {*SLOW, *(GVISOR_CHANGES if call.gvisor else ())}
        if only:
            asked = [one for one in (QUICK if call.quick else only) if one not in skipped]
            chosen = ["--only", *asked]
        elif call.quick:
            chosen = ["--only", "faults", "call_cost"]
        else:
            chosen = ["--skip", *sorted({*DECIDING, *skipped})]
        words = [call.python, "scripts/gpu_probe", "--out", str(report), *chosen]
        words += ["--time-limit", f"{max(1.0, min(limit_s, call.left()) - 2):.0f}"]
        words += ["--max-managed", str(min(4 * GIB, call.managed_bytes))]
        more = {}
        if call.virtual:
            words = [*pumped(call, MODELLED), *words]
            more = {"PYTHONPATH": str(call.build / "site"), "PUMP_DISABLE": "1"}
        status = call.run(name, words, limit_s, more)
        found = _json(report.read_text() if report.is_file() else "").get("questions", {})
        answers = {
            question: answer["status"]
            for question, answer in found.items()
            if answer["status"] != "skipped"
        }
        if not answers:
            verdict = LATE if status is None else FAIL
            return {"verdict": verdict, "why": last_line(call, name)}
        return {"verdict": LATE if status is None else INFO, **answers}

    return ask


def acceptance(stage: str, limit_s: float) -> Callable[[Call], Told]:
    """Returns a step that runs or resumes a stage of scripts/gpu_acceptance."""

    def accept(call: Call) -> Told:
        if call.gvisor and stage == "speed":
            return {"verdict": UNAVAILABLE, "why": OF_GVISOR}
        out = call.work / "acceptance"
        minutes = (min(limit_s, call.left()) - 2) / 60
        words = [call.python, "scripts/gpu_acceptance", "--stage", stage, "--out", str(out)]
        words += ["--resume", "--minutes", f"{max(0.2, minutes):.2f}"]
        words += ["--virtual", call.virtual] if call.virtual else []
        words += ["--quick"] if call.quick else []
        words += ["--keep-free", str(call.kept_bytes // MIB)] if call.kept_bytes else []
        status = call.run(f"acceptance.{stage}", words, limit_s + 4)
        result = out / f"{stage}.json"
        told = _json(result.read_text() if result.is_file() else "")
        if not told.get("items"):
            verdict = LATE if status is None else FAIL
            return {"verdict": verdict, "why": last_line(call, f"acceptance.{stage}")}
        counts: dict[str, int] = {}
        for item in told["items"]:
            counts[item["status"]] = counts.get(item["status"], 0) + 1
        bad = [item["name"] for item in told["items"] if item["status"] == FAIL]
        verdict = FAIL if bad else PASS if told["complete"] else LATE
        return {"verdict": verdict, **counts, **({"failed": bad} if bad else {})}

    return accept


def last_line(call: Call, name: str) -> str:
    """Returns the last line of a step's log that is not empty."""
    with contextlib.suppress(OSError):
        lines = (call.work / f"{name}.log").read_text(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")[-2000:]
    return ""


def _json(text: str) -> Told:
    """Parses a JSON object; returns {} for anything else."""
    with contextlib.suppress(ValueError):
        found = json.loads(text)
        return found if isinstance(found, dict) else {}
    return {}


Steps = tuple[tuple[str, Callable[[Call], Told]], ...]
BASE: Steps = (("facts", facts), ("libraries", libraries))
A: Steps = (*BASE, ("proof", proof), ("decoder", decoder), ("first", probe("first", DECIDING, 95)))
B: Steps = (
    *BASE,
    ("speed", acceptance("speed", 130)),
    ("bits", acceptance("bits", 110)),
    ("shim", acceptance("shim", 70)),
    ("rest", probe("rest", (), 110)),
    ("trace", acceptance("trace", 35)),
    ("failures", acceptance("failures", 40)),
)
