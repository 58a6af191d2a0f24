/* driver_list.h - the driver functions that the virtual driver exports.
 *
 * X(level, twin, symbol, name, version, parameters, arguments): see driver/functions.h.
 * The implementation is vd_<symbol>; for DS and EZ it takes the default stream as an
 * additional first argument. Define X before the include; the end of this file undefines
 * it. No include guard.
 */
#ifndef VD_DRIVER_ROWS
#define VD_DRIVER_ROWS
#define VD_ROW_NO(...)
#define VD_ROW_ANY(...) X(ANY, __VA_ARGS__)
#define VD_ROW_INIT(...) X(INIT, __VA_ARGS__)
#define VD_ROW_CTX(...) X(CTX, __VA_ARGS__)
#endif

#define PUMP_DRIVER(shim, level, twin, symbol, name, version, twin_version, p, a)          \
  VD_ROW_##level(twin, symbol, name, version, p, a)
#include "shim/driver/functions.h"

#undef X
