/* functions.h - the one table of the CUDA driver functions that pump knows. The shim, the
 * virtual driver, the benchmarks' null driver and the tests' fake driver are made from
 * it. Prototypes are as in cuda.h; tests/abi compares them.
 *
 *   PUMP_DRIVER(shim, level, twin, symbol, name, version, twin_version,
 *               parameters, arguments)
 *
 *   `shim`    HOOK: the shim exports it and calls the real one. CALL: the shim only calls
 *             it. NO: neither.
 *   `level`   Precondition in the virtual driver. ANY: none. INIT: a successful cuInit.
 *             CTX: a current context. NO: the virtual driver lacks the function.
 *   `twin`    Twin for per-thread default streams. NONE: no twin. SZ: symbol_ptsz with
 *             the same parameters, one of them `stream`. DS: symbol_ptds, and EZ:
 *             symbol_ptsz, for functions without a stream.
 *   `symbol`  The ELF name.
 *   `name`    The name for cuGetProcAddress.
 *   `version` The oldest CUDA version with this ABI of `name`. cudaTypedefs.h has its
 *             prototype as PFN_<name>_v<version>. `twin_version`: for the twin, or 0.
 *
 * Define PUMP_DRIVER before the inclusion; it is undefined at the end. No include guard.
 */
#include "functions_context.h"
#include "functions_graph.h"
#include "functions_memory.h"
#include "functions_module.h"
#include "functions_stream.h"
#include "functions_vmm.h"

#undef PUMP_DRIVER
