/* upcalls.h - calls from a lower room to a higher one, for work that only the higher room
 * can do. life/upcalls.c fills the table, which never changes.
 */
#ifndef PUMP_UPCALLS_H
#define PUMP_UPCALLS_H

#include "base.h"

struct pump_issued;

extern const struct pump_upcalls {
  /* driver -> hooks: the wrappers, in the order of driver/hooks.h. */
  void *const *wrappers;
  /* base -> execute: wakes threads that write the link thread's kept line to stderr. */
  void (*line_kept)(void);
  /* memory -> record: launches on a device are reported from now on, with allocators'
   * blocks. */
  void (*device_reports)(void);
  /* progress -> record: everything on the stream up to `seq` has executed; for
   * recordings. A poll at `before_ns` had not seen it; 0: there was no poll. */
  void (*executed)(uint32_t stream_index, uint64_t seq, uint64_t time_ns,
                   uint64_t before_ns);
  /* progress -> execute: operations use the device, so start its executors, the threads
   * that move memory; `full`: their usual number and the marker thread. */
  void (*operations_seen)(uint32_t device, bool full);
  /* progress -> execute: scheduled transfers may be ready. */
  void (*schedule_wake)(void);
  /* record -> execute: an operation has received its number while a schedule is armed. */
  void (*operation_issued)(const struct pump_issued *issued);
  /* execute -> pool: is there dead memory to discard; discard it in `context`, which is
   * current; the thread leaves the context. */
  bool (*discard_is_due)(CUcontext context, uint64_t now_ns);
  void (*discard_dead)(CUcontext context, uint64_t now_ns);
  void (*finish_discards)(CUcontext context);
} pump_upcalls;

#endif
