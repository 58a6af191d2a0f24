/* fake_extra.h - driver functions that pump does not hook, with names that have more than
 * one ABI. Matching by name instead of by address gets these wrong.
 *
 * EXTRA(ELF name, signature as in driver/hooks.h)
 */
EXTRA(cuMemAlloc, cuMemAlloc_v2000)
EXTRA(cuMemFree, cuMemFree_v2000)
EXTRA(cuMemGetInfo, cuMemGetInfo_v2000)
EXTRA(cuMemcpyHtoD, cuMemcpyHtoD_v2000)
EXTRA(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2000)
EXTRA(cuMemsetD8, cuMemsetD8_v2000)
EXTRA(cuCtxCreate, cuCtxCreate_v2000)
EXTRA(cuEventElapsedTime_v2, cuEventElapsedTime_v12080)
EXTRA(cuStreamGetCaptureInfo, cuStreamGetCaptureInfo_v10010)
EXTRA(cuStreamGetCaptureInfo_v2, cuStreamGetCaptureInfo_v11030)
EXTRA(cuStreamGetCaptureInfo_v2_ptsz, cuStreamGetCaptureInfo_v11030_ptsz)
EXTRA(cuGetExportTable, cuGetExportTable_v3000)
EXTRA(cuGetErrorName, cuGetErrorName_v6000)
#undef EXTRA
