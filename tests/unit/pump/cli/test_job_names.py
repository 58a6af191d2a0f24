"""The names of jobs without --name."""

from __future__ import annotations

import pytest

from pump.base.names import of_command, of_job


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python train.py --epochs 3", "train.py"),
        ("/usr/bin/python3.11 -u -X dev -W ignore /data/runs/train.py -c x.py", "train.py"),
        ("python -O -- train.py", "train.py"),
        ("python -m pytest tests/x.py", "pytest"),
        ("python -c pass train.py", "python"),
        ("python -Ic pass", "python"),
        ("python - x.py", "python"),
        ("python", "python"),
        ("bash -o pipefail run.sh", "run.sh"),
        ("bash -lc ./run.sh", "bash"),
        ("torchrun --nproc-per-node 2 train.py a.py", "train.py"),
        ("python -m torch.distributed.run --standalone train.py", "train.py"),
        ("/venv/bin/python /venv/bin/accelerate launch --num_processes 2 tune.py", "tune.py"),
        ("accelerate test", "accelerate"),
        ("timeout 60 python train.py", "train.py"),
        ("/opt/llama/server -m model.gguf", "server"),
        ("./a.out conf.py", "a.out"),
    ],
)
def test_a_job_is_called_by_its_script(command: str, name: str) -> None:
    assert of_command(command.split()) == name


def test_any_words_have_a_name() -> None:
    assert of_command([""]) == ""
    assert of_command(["/"]) == "/"
    assert of_command(["python", ""]) == ""
    assert of_command(["python", "/data/\x1b[2Jx.py"]) == "\x1b[2Jx.py", "callers make it printable"


def test_the_name_of_a_job_can_be_printed_and_is_never_empty() -> None:
    assert of_job(["python", "/data/\x1b[2Jx.py"]) == "?[2Jx.py"
    assert of_job([""]) == "job"
    assert of_job(["n" * 100]) == "n" * 64
