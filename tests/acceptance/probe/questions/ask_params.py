"""Questions: which call returns the parameters of each kind of kernel handle."""

from __future__ import annotations

import ctypes

from probe.driver import (
    SIZE,
    UnsupportedError,
    bindings,
    call,
    error_name,
    handle_of,
    must,
    native,
    outcome,
)
from probe.figures import Json
from probe.gpu import Gpu
from probe.registry import Notes, question


@question(20, "the parameter scan: which call answers for which kernel handle", managed=False)
def ask_param_info(gpu: Gpu, out: Notes) -> None:
    out["expected"] = [[0, 4], [8, 16], [24, 2], [32, 8]]
    function = gpu.kernel("probe_struct")
    out["function_by_cuFuncGetParamInfo"] = layout("cuFuncGetParamInfo", function)
    kernel, empty = library_kernel(gpu, "probe_struct"), library_kernel(gpu, "probe_empty")
    out["kernel_by_cuKernelGetParamInfo"] = layout("cuKernelGetParamInfo", kernel)
    out["kernel_passed_to_cuFuncGetParamInfo"] = layout("cuFuncGetParamInfo", kernel)
    own = handle_of("cuKernelGetFunction", kernel)
    out["function_of_kernel_by_cuFuncGetParamInfo"] = layout("cuFuncGetParamInfo", own)
    out["function_handle_equals_kernel_handle"] = own == kernel
    args = (1, 1, 1, 32, 1, 1, 0, gpu.stream, None, None)
    out["kernel_launched_as_function"] = outcome(lambda: call("cuLaunchKernel", empty, *args))
    gpu.sync()


@question(20, "whether a wrong guess of the handle kind in the scan would crash", managed=False)
def ask_param_info_wrong_kind(gpu: Gpu, out: Notes) -> None:
    # Undocumented and may crash, so it runs in a process of its own.
    function = gpu.kernel("probe_struct")
    out["function_passed_to_cuKernelGetParamInfo"] = layout("cuKernelGetParamInfo", function)


def layout(name: str, handle: int) -> Json:
    """Returns [offset, size] of each parameter of a kernel handle, according to the named call."""
    try:
        function = native(name)
    except UnsupportedError as error:
        return {"unsupported": str(error)}
    found: list[list[int]] = []
    offset, size = SIZE(0), SIZE(0)
    for index in range(16):
        code = function(handle, index, ctypes.byref(offset), ctypes.byref(size))
        if code != 0:
            return {"parameters": found, "ends_with": error_name(code)}
        found.append([offset.value, size.value])
    return {"parameters": found, "ends_with": "no end within 16"}


def library_kernel(gpu: Gpu, name: str) -> int:
    """Returns the CUkernel of that name from a context-independent library."""
    driver, codes = bindings(), []
    for image in gpu.image:
        code, library = driver.cuLibraryLoadData(image, [], [], 0, [], [], 0)
        if int(code) == 0:
            return int(must(driver.cuLibraryGetKernel(library, name.encode()), name))
        codes.append(error_name(int(code)))
    raise UnsupportedError(f"cuLibraryLoadData refuses cubin and PTX: {codes}")
