/* hooks.h - the driver functions that the shim hooks or calls, with each twin as a
 * function of its own. Define before the inclusion:
 *
 *   PUMP_HOOK(symbol, signature, parameters, arguments)   The shim exports `symbol`.
 *   PUMP_CALL(symbol, signature, parameters)              The shim calls it if it exists.
 *
 * A macro that is not defined expands to nothing. Both are undefined at the end (no
 * include guard). `signature` is name and version, PFN_<signature> of cudaTypedefs.h.
 */
#ifndef PUMP_HOOK
#define PUMP_HOOK(symbol, signature, parameters, arguments)
#endif
#ifndef PUMP_CALL
#define PUMP_CALL(symbol, signature, parameters)
#endif

#ifndef PUMP_DRIVER_ROWS
#define PUMP_DRIVER_ROWS
#define PUMP_ROW_NO(twin, symbol, name, version, twin_version, p, a)
#define PUMP_ROW_CALL(twin, symbol, name, version, twin_version, p, a)                     \
  PUMP_CALL(symbol, name##_v##version, p)
#define PUMP_ROW_HOOK(twin, symbol, name, version, twin_version, p, a)                     \
  PUMP_HOOK(symbol, name##_v##version, p, a)                                               \
  PUMP_TWIN_##twin(symbol, name, twin_version, p, a)
#define PUMP_TWIN_NONE(symbol, name, version, p, a)
#define PUMP_TWIN_SZ(symbol, name, version, p, a)                                          \
  PUMP_HOOK(symbol##_ptsz, name##_v##version##_ptsz, p, a)
#define PUMP_TWIN_DS(symbol, name, version, p, a)                                          \
  PUMP_HOOK(symbol##_ptds, name##_v##version##_ptds, p, a)
#define PUMP_TWIN_EZ PUMP_TWIN_SZ
#endif

#define PUMP_DRIVER(shim, level, twin, symbol, name, version, twin_version, p, a)          \
  PUMP_ROW_##shim(twin, symbol, name, version, twin_version, p, a)
#include "functions.h"

#undef PUMP_HOOK
#undef PUMP_CALL
