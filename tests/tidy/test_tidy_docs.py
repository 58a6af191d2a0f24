"""Files that documents name exist: a moved file must be renamed on each page too."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tidy_sources import ROOT, files, name, text

PAGES = [
    path
    for path in files()
    if path.suffix == ".md" and not name(path).startswith(("docs/decisions/", "CHANGELOG"))
]
"""Decisions and the change log mention files of the past."""
FILE = re.compile(r"`((?:\.\./)?[\w./-]+\.(?:c|h|py|md|toml|map|sh))(?::\d+)?`")
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
ELSEWHERE = {
    *("./pump.toml", "pump.toml", "/etc/pump/config.toml", "summary.md"),  # files of users
    *("train.py", "finetune.py", "layers.py"),
    "pump-cuda-VERSION.md",  # a file of a release
    *("uvm_va_block.c", "uvm_migrate.c", "uvm_pmm_gpu.c", "uvm_pmm_gpu.h", "uvm_pmm_sysmem.h"),
    *("uvm_gpu_replayable_faults.c", "uvm_gpu_non_replayable_faults.c", "uvm_gpu_isr.c"),
    *(
        "uvm_perf_prefetch.c",
        "uvm_policy.c",
        "uvm_va_range.c",
        "uvm_hmm.c",
        "uvm.h",
        "uvm_ioctl.h",
        "cuda.h",
    ),
    *("kern_mem_sys_ctrl.c", "phys_mem_allocator.c", "src/ucm/cuda/cudamem.c"),
}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_each_file_that_a_page_names_exists(page: Path) -> None:
    names = {path.name for path in files()}
    missing = [
        found
        for found in FILE.findall(text(page))
        if found not in ELSEWHERE
        and not (ROOT / found).exists()
        and not (page.parent / found).exists()
        and ("/" in found or found not in names)
    ]
    assert not missing, f"{name(page)} names {missing}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_each_link_of_a_page_leads_to_a_file(page: Path) -> None:
    dead = [link for link in LINK.findall(text(page)) if not (page.parent / link).exists()]
    assert not dead, f"{name(page)} has dead links: {dead}"
