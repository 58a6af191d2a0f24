"""Kernel names in a form for people."""

from __future__ import annotations

import ctypes

import pytest

from pump.base.names import KERNEL_LENGTH, readable_kernel

ELEMENTWISE = (
    "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEE"
    "EviT0_T1_"
)
LAMBDA = (
    "_ZN2at6native27unrolled_elementwise_kernelIZZZNS0_23direct_copy_kernel_cudaERNS_18Tensor"
    "IteratorBaseEENKUlvE1_clEvENKUlvE2_clEvEUlfE_St5arrayIPcLm2EEEEviT_T0_"
)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("_Z3addPfS_i", "add"),
        ("_Z7softmaxIfLi128EEvPT_i", "softmax<float, 128>"),
        ("_ZN12_GLOBAL__N_14scanEi", "scan"),
        ("_ZN2at6native3addB2v1Ei", "at::native::add"),
        (
            ELEMENTWISE,
            "at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<float>, array<char…",
        ),
        (
            LAMBDA,
            "at::native::unrolled_elementwise_kernel<direct_copy_kernel_cuda(TensorIteratorB…",
        ),
        ("ampere_sgemm_128x64_tn", "ampere_sgemm_128x64_tn"),
        ("softmax(float*)", "softmax(float*)"),
        ("k" * 90, "k" * 79 + "…"),
        ("_Z", "_Z"),
        ("_Zbad\n", "_Zbad?"),
        ("", ""),
    ],
)
def test_mangled_names_are_shown_as_people_write_them(name: str, shown: str) -> None:
    assert readable_kernel(name) == shown
    assert len(shown) <= KERNEL_LENGTH


def test_without_a_cxx_library_names_stay_mangled(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> ctypes.CDLL:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert readable_kernel("_Z7softmaxIfLi128EEvPT_i") == "_Z7softmaxIfLi128EEvPT_i"


def test_a_name_that_doubles_itself_stays_mangled() -> None:
    """Each level of this name is a pair of the previous level: 2**30 types."""
    levels = [f"S_I{reference}{reference}E" for reference in map("S{}_".format, range(10))]
    name = "_Z1f1AIiiE" + "".join(levels * 3)
    assert readable_kernel(name) == name[: KERNEL_LENGTH - 1] + "…"
