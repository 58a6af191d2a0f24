"""Question: which address cuGetProcAddress returns for every name that pump hooks."""

from __future__ import annotations

import collections
import ctypes

from probe.driver import INT, PTR, call, error_name, load_libcuda, native
from probe.figures import Json
from probe.gpu import Gpu
from probe.registry import Notes, question

HOOKED_FAMILIES = """
cuInit cuLaunchKernel cuLaunchKernelEx cuLaunchCooperativeKernel
cuLaunchCooperativeKernelMultiDevice cuGraphLaunch cuGraphUpload cuGraphInstantiate
cuGraphInstantiateWithFlags cuGraphInstantiateWithParams cuGraphExecDestroy cuGraphExecUpdate
cuGraphExecKernelNodeSetParams cuGraphExecMemcpyNodeSetParams cuGraphExecMemsetNodeSetParams
cuGraphExecChildGraphNodeSetParams cuGraphExecNodeSetParams cuGraphNodeSetEnabled cuGraphAddNode
cuStreamBeginCapture cuStreamBeginCaptureToGraph cuStreamEndCapture cuStreamGetCaptureInfo
cuStreamIsCapturing cuThreadExchangeStreamCaptureMode cuMemAlloc cuMemAllocPitch cuMemAllocManaged
cuMemAllocAsync cuMemAllocFromPoolAsync cuMemFree cuMemFreeAsync cuMemPoolCreate cuMemPoolDestroy
cuMemPoolTrimTo cuMemPoolSetAttribute cuStreamWaitValue32 cuStreamWaitValue64 cuStreamWriteValue32
cuStreamWriteValue64 cuStreamBatchMemOp cuModuleGetGlobal cuLibraryGetManaged cuLibraryGetGlobal
cuMemAddressReserve cuMemAddressFree cuMemCreate cuMemRelease cuMemMap cuMemUnmap cuMemSetAccess
cuMemcpy cuMemcpyAsync cuMemcpyPeer cuMemcpyPeerAsync cuMemcpyHtoD cuMemcpyHtoDAsync cuMemcpyDtoH
cuMemcpyDtoHAsync cuMemcpyDtoD cuMemcpyDtoDAsync cuMemcpy2D cuMemcpy2DUnaligned cuMemcpy2DAsync
cuMemcpy3D cuMemcpy3DAsync cuMemcpy3DPeer cuMemcpy3DPeerAsync cuMemcpyBatchAsync
cuMemcpy3DBatchAsync cuMemsetD8 cuMemsetD16 cuMemsetD32 cuMemsetD2D8 cuMemsetD2D16 cuMemsetD2D32
cuMemsetD8Async cuMemsetD16Async cuMemsetD32Async cuMemsetD2D8Async cuMemsetD2D16Async
cuMemsetD2D32Async cuMemPrefetchAsync cuMemPrefetchBatchAsync cuMemDiscardBatchAsync
cuMemDiscardAndPrefetchBatchAsync cuMemAdvise cuMemGetInfo cuDeviceTotalMem cuPointerGetAttribute
cuPointerGetAttributes cuIpcGetMemHandle cuIpcOpenMemHandle cuMemGetHandleForAddressRange
cuModuleLoad cuModuleLoadData cuModuleLoadDataEx cuModuleLoadFatBinary cuModuleUnload
cuModuleGetFunction cuLibraryLoadData cuLibraryLoadFromFile cuLibraryUnload cuLibraryGetKernel
cuKernelGetFunction cuCtxCreate cuCtxDestroy cuCtxSynchronize cuDevicePrimaryCtxRetain
cuDevicePrimaryCtxRelease cuDevicePrimaryCtxReset cuStreamSynchronize cuStreamQuery
cuStreamWaitEvent cuStreamCreate cuStreamCreateWithPriority cuStreamDestroy cuEventCreate
cuEventDestroy cuEventRecord cuEventRecordWithFlags cuEventQuery cuEventSynchronize
cuEventElapsedTime cuFuncGetParamInfo cuKernelGetParamInfo cuGetProcAddress
"""
HOOKED = tuple(HOOKED_FAMILIES.split())
CUDA_VERSIONS = (3020, 6050, 7000, 8000, 10010, 11030, 11070, 12000, 12020, 12030, 12080, 13000)


def elf_addresses(base: str) -> dict[str, int]:
    """Returns all ELF variants of a driver name that dlsym finds, with their addresses."""
    found = {}
    for version in ("", "_v2", "_v3", "_v4"):
        for twin in ("", "_ptsz", "_ptds"):
            symbol = getattr(load_libcuda(), base + version + twin, None)
            if symbol is not None:
                found[base + version + twin] = ctypes.cast(symbol, PTR).value or 0
    return found


@question(20, "whether cuGetProcAddress answers can be mapped to hooks by address", managed=False)
def ask_symbols(gpu: Gpu, out: Notes) -> None:
    query, driver_version = native("cuGetProcAddress_v2"), INT(0)
    call("cuDriverGetVersion", ctypes.byref(driver_version))
    versions = sorted(
        {v for v in CUDA_VERSIONS if v <= driver_version.value} | {driver_version.value}
    )
    table: Json = {}
    unmatched, absent, asked = [], [], 0
    # Uses one map for all names, because a query may lead to another family (since 12.0,
    # cuGraphInstantiate is cuGraphInstantiateWithFlags).
    elf = {base: elf_addresses(base) for base in HOOKED}
    by_address = collections.defaultdict(list)
    for known in elf.values():
        for name, address in known.items():
            by_address[address].append(name)
    shared = [" = ".join(names) for names in by_address.values() if len(names) > 1]
    for base, known in elf.items():
        rows: Json = {}
        for flags in (0, 1, 2):
            for version in versions:
                found, status = PTR(0), INT(0)
                code = query(
                    base.encode(), ctypes.byref(found), version, flags, ctypes.byref(status)
                )
                if code != 0 or not found.value:
                    continue
                asked += 1
                names = by_address.get(found.value)
                own = [name for name in names or ["unmatched"] if name in known]
                rows.setdefault(str(flags), {})[str(version)] = (own or names or ["unmatched"])[0]
                if not names:
                    unmatched.append(f"{base} version {version} flags {flags}")
        if not known:
            absent.append(base)
        table[base] = {"elf": sorted(known), "by_flags_and_version": compress(rows)}
    found, status = PTR(0), INT(0)
    empty = query(b"", ctypes.byref(found), 0, 0, ctypes.byref(status))
    out["equal"] = not unmatched
    out["asked"] = asked
    out["unmatched"] = unmatched
    out["not_in_libcuda"] = absent
    out["several_names_one_address"] = sorted(shared)
    out["empty_name_version_0"] = {"code": empty, "name": error_name(empty), "status": status.value}
    out["table"] = table


def compress(rows: Json) -> Json:
    """Keeps the first of consecutive versions that have the same answer."""
    slim: Json = {}
    for flags, answers in rows.items():
        last = None
        for version, name in sorted(answers.items(), key=lambda item: int(item[0])):
            if name != last:
                slim.setdefault(flags, {})[version] = name
            last = name
    return slim
