/* driver_list.h - every function that the virtual driver exports, once.
 *
 * X(level, twin, symbol, name, version, parameters, arguments)
 *   level    what the call needs: ANY nothing, INIT a successful cuInit, CTX a
 *            current context
 *   twin     which per-thread-default-stream twin exists: NONE; SZ symbol_ptsz,
 *            the parameter `stream` is replaced; DS symbol_ptds and EZ
 *            symbol_ptsz, whose implementation takes the default stream as an
 *            extra first argument
 *   symbol   the ELF name; the implementation is vd_<symbol>
 *   name     what programs ask cuGetProcAddress for
 *   version  the oldest CUDA version whose ABI of `name` this is
 *
 * Included several times with different X: no include guard.
 */
#include "list_context.h"
#include "list_graph.h"
#include "list_memory.h"
#include "list_module.h"
#include "list_stream.h"
#include "list_vmm.h"
