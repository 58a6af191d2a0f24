"""Builds a libcuda.so.1 with two devices from two copies of the virtual driver (two_cards.c).

Not a test. Each copy has its own file and names, so that the loader loads both as separate
libraries and each writes its own report.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from pump_lab.paths import library

HERE = Path(__file__).resolve().parent

STUB = """.globl {name}
.type {name}, @function
{name}:
  push %rdi
  push %rsi
  push %rdx
  push %rcx
  push %r8
  push %r9
  sub $8, %rsp
  mov ${number}, %edi
  call two_cards_entry@PLT
  add $8, %rsp
  mov %rax, %r11
  pop %r9
  pop %r8
  pop %rcx
  pop %rdx
  pop %rsi
  pop %rdi
  jmp *%r11
.size {name}, .-{name}
"""


def report_variable(card: int) -> str:
    """Returns the variable that names the report file of this device's copy."""
    return f"PUMP_VIRTUAL_REPOR{card}"


def build(folder: Path) -> Path:
    """Returns the folder for LD_LIBRARY_PATH."""
    driver = Path(library("virtual/libcuda.so.1"))
    copies = []
    for card in range(2):
        image = driver.read_bytes()
        for old, new in (
            ("libcuda.so.1", f"libcard.so.{card}"),
            ("PUMP_VIRTUAL_REPORT", report_variable(card)),
        ):
            assert len(old) == len(new)
            image = image.replace(old.encode() + b"\0", new.encode() + b"\0")
        copies.append(folder / f"libcard.so.{card}")
        copies[-1].write_bytes(image)
    told = subprocess.run(
        ["nm", "-D", "--defined-only", driver], capture_output=True, text=True, check=True
    )
    symbols = re.findall(r"^([0-9a-f]+) [TW] (cu\w+)", told.stdout, re.MULTILINE)
    names = [name for _, name in symbols]
    source = (HERE / "two_cards.c").read_text()
    written = set(re.findall(r"^int (cu\w+)\(|^DEVICE_\w+\((cu\w+)\)", source, re.MULTILINE))
    special = {name for pair in written for name in pair if name}
    assert special <= set(names), special - set(names)
    files = {
        "two_cards_table.h": [
            "static const char *const COPIES[] = {"
            + ", ".join(f'"{copy}"' for copy in copies)
            + "};",
            f"#define FUNCTIONS {len(names)}",
            "static const long OFFSETS[] = {" + ", ".join(f"0x{at}" for at, _ in symbols) + "};",
            *(f"#define AT_{name} {number}" for number, name in enumerate(names)),
            *(f'extern char stub_{name}[] __asm__("{name}");' for name in names),
            "static void *const STUBS[] = {" + ", ".join(f"stub_{name}" for name in names) + "};",
        ],
        "stubs.s": [
            ".text",
            *(
                STUB.format(name=name, number=number)
                for number, name in enumerate(names)
                if name not in special
            ),
            '.section .note.GNU-stack,"",@progbits',
        ],
    }
    for file, lines in files.items():
        (folder / file).write_text("\n".join(lines) + "\n")
    command = ["cc", "-O1", "-g", "-shared", "-fPIC", "-w", "-fno-builtin", f"-I{folder}"]
    command += [str(HERE / "two_cards.c"), str(folder / "stubs.s")]
    command += [
        "-Wl,-soname,libcuda.so.1",
        "-Wl,-Bsymbolic",
        "-pthread",
        "-ldl",
        "-o",
        str(folder / "libcuda.so.1"),
    ]
    subprocess.run(command, check=True)
    return folder
