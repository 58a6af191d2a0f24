/* calls.h - exported functions, the device, start and exit. */
#ifndef PUMP_VIRTUAL_CALLS_H
#define PUMP_VIRTUAL_CALLS_H

#include "lab/driver/graph/graph.h"

#define VD_DRIVER_VERSION 13050

/* exports.c */
#define X(level, twin, symbol, ...) VD_CALL_##symbol,
enum vd_call {
#include "lab/driver/base/driver_list.h"
  VD_CALLS
};
struct vd_export {
  const char *name, *symbol, *twin_symbol;
  int version;
  void *function, *twin;
};
extern const struct vd_export vd_exports[VD_CALLS];
extern const struct vd_export vd_lacking[]; /* driver_lacks.h */
extern const size_t vd_lacking_count;
extern uint64_t vd_call_counts[VD_CALLS];
int vd_inject_setup(void); /* 0, or -1 after an error message */
int vd_version(void);      /* the CUDA version that the driver reports */

/* device.c */
#define VD_PCI_BUS 1 /* domain, device and function are 0 */
void vd_uuid_text(char *text, size_t bytes);
bool vd_device_visible(void);

/* init.c: reads PUMP_VIRTUAL_PROFILE if cuInit has not; -1 after an error message */
int vd_profile_read(void);

/* report.c */
bool vd_lock_at_exit(void); /* false: another thread keeps the lock */
void vd_report_write(void);

#endif
