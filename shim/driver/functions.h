/* functions.h - every function of the CUDA driver that pump knows, once: the shim, the
 * virtual driver, the null driver of the benchmarks and the fake one of the tests are made
 * from this table. It has the prototype that cuda.h declares; tests/abi compares them.
 *
 *   PUMP_DRIVER(shim, level, twin, symbol, name, version, twin_version,
 *               parameters, arguments)
 *
 *   shim     HOOK: the shim exports it and calls the real one; CALL: it calls it; NO:
 *            neither
 *   level    what the virtual driver wants before the call. ANY: nothing; INIT: a
 *            successful cuInit; CTX: a current context; NO: it lacks the function
 *   twin     which per-thread-default-stream twin there is. NONE; SZ: symbol_ptsz, of the
 *            same parameters, one of them `stream`; DS: symbol_ptds, and EZ: symbol_ptsz,
 *            of functions without a stream
 *   symbol   the ELF name
 *   name     what programs ask cuGetProcAddress for
 *   version  the oldest CUDA version whose ABI of `name` this is: cudaTypedefs.h has the
 *            prototype as PFN_<name>_v<version>; twin_version: the same of the twin, or 0
 *
 * Include it with PUMP_DRIVER defined, which is undefined at the end. No include guard.
 */
#include "functions_context.h"
#include "functions_graph.h"
#include "functions_memory.h"
#include "functions_module.h"
#include "functions_stream.h"
#include "functions_vmm.h"

#undef PUMP_DRIVER
