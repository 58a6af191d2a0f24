/* upcalls.c - fills the table of calls from lower rooms to higher ones (base/upcalls.h). */
#include "shim/base/upcalls.h"
#include "shim/driver/driver.h"
#include "shim/execute/execute.h"
#include "shim/pool/pool.h"
#include "shim/record/allocator_blocks.h"

static void *const wrappers[] = {
#define PUMP_HOOK(name, pfn, parameters, arguments) (void *)name,
#include "shim/driver/hooks.h"
};

const struct pump_upcalls pump_upcalls = {
    .wrappers = wrappers,
    .line_kept = pump_executors_wake_all,
    .device_reports = pump_blocks_settle,
    .executed = pump_event_progress,
    .operations_seen = pump_executors_start,
    .schedule_wake = pump_schedule_wake,
    .operation_issued = pump_schedule_compare,
    .discard_is_due = pump_pool_discard_is_due,
    .discard_dead = pump_pool_discard_dead,
    .finish_discards = pump_pool_finish_discards,
};
