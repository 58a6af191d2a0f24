/* record_harness.c - the parts of the shim and the driver that the tested hooks need. Fakes
 * note how they were called and check little.
 */
#include "record_harness.h"

#include <string.h>

#include "mapped_absent.h"
#include "shim/base/upcalls.h"
#include "shim/driver/resolve.h"
#include "shim/memory/rules.h"
#include "shim/pool/pool.h"

struct told told;
struct driver driver = {.current = (CUcontext)1};
struct pump_event head;
struct pump_extent extents[PUMP_MAX_EXTENTS];
unsigned char payload[PUMP_MAX_PAYLOAD_BYTES + PUMP_EVENT_PAYLOAD_BYTES];

/* ---- the rest of the shim -------------------------------------------------- */

struct pump_real pump_real;
struct pump_present pump_present;
struct pump_shm *pump_shm;
bool pump_off, pump_recording;
uint32_t pump_reporting = 1;
uint64_t pump_calls_seen;
__thread uint32_t pump_reentry_depth __attribute__((tls_model("initial-exec")));

/* The program's threads have contexts. */
bool pump_context_borrow(void) {
  return false;
}

void pump_context_return(bool borrowed) {
  (void)borrowed;
}

void pump_device_add_bytes(uint32_t device, int64_t range_bytes, int64_t plain_bytes) {
  (void)device, (void)range_bytes;
  told.plain_bytes += plain_bytes;
}
int pump_current_device(CUcontext *context) {
  if (context != NULL) *context = (CUcontext)1;
  return 3;
}
struct pump_driver_scope pump_driver_scope_open(void) {
  pump_enter();
  return (struct pump_driver_scope){false, 0};
}
void pump_driver_scope_close(struct pump_driver_scope scope) {
  (void)scope;
  pump_leave();
}
uint64_t pump_now_ns(void) {
  return NOW_NS + told.later_ns;
}
uint32_t pump_stream_index(CUstream stream, bool per_thread_default) {
  CHECK(pump_reentry_depth != 0);
  told.looked_up++;
  uint32_t index =
      stream == NULL ? 1u + per_thread_default : (uint32_t)(uintptr_t)stream & 1023;
  return index + told.moved_by;
}
void pump_priority_note(int priority) {
  (void)priority;
}
void pump_stream_gone(CUstream stream) {
  (void)stream;
  told.streams_gone++;
}
void pump_pool_stream_ends(CUstream stream) {
  (void)stream;
}
uint32_t pump_pool_keeps;
void pump_pool_release_kept(void) {}
void pump_pool_capture_begins(void) {}
bool pump_pool_find(uint64_t address, struct pump_pool_block *block) {
  (void)address, (void)block;
  return false; /* the pool has no memory here */
}
bool pump_rule_sees_managed(void) {
  return false;
}
void pump_progress_issued(uint32_t index, CUstream stream, uint64_t seq, uint64_t now_ns,
                          uint64_t touched) {
  (void)index;
  CHECK(now_ns == NOW_NS + told.later_ns);
  told.touched_bytes = touched;
  told.issued_seq = seq;
  told.issued_stream = stream;
  told.issues++;
}
__thread bool pump_timed_begun __attribute__((tls_model("initial-exec")));
__thread uint32_t pump_timed_countdown __attribute__((tls_model("initial-exec"))) =
    UINT32_MAX;
void pump_timed_count(void) {
  pump_timed_countdown = UINT32_MAX; /* none, unless a test sets it */
}
void pump_timed_give_back(void) {
  pump_timed_begun = false;
  told.timed_back++;
}
void pump_progress_time(uint32_t index, CUstream stream) {
  CHECK(index != 0 && pump_reentry_depth != 0);
  told.timed_stream = stream;
  told.timed_after = told.issues;
  told.timed++;
  pump_timed_begun = true;
}
uint32_t pump_gates_devices, pump_gates_large;
void pump_progress_gate(uint32_t index, CUstream stream, bool large) {
  CHECK(index != 0 && pump_reentry_depth != 0);
  told.gate_large = large;
  told.gate_stream = stream;
  told.gated_after = told.issues;
  told.gates++;
}
void pump_progress_mark(uint32_t index, CUstream stream) {
  CHECK(index != 0 && stream == (CUstream)0x42 && pump_reentry_depth != 0);
  told.marks++;
}
uint64_t pump_progress_pending(CUcontext context) {
  CHECK(context == (CUcontext)1);
  if (told.stands_still) told.later_ns += 600000000;
  return told.pending == 0 || told.stands_still ? told.pending : told.pending--;
}
void pump_progress_issued_many(uint32_t index, uint32_t operations) {
  CHECK(index != 0);
  told.issued_many += (int)operations;
}
void pump_progress_chained(uint32_t index) {
  CHECK(index != 0);
  told.chained++;
}
void pump_schedule_compare(const struct pump_issued *issued) {
  told.compared++;
  told.issued = *issued;
}
const struct pump_upcalls pump_upcalls = {.operation_issued = pump_schedule_compare};
enum pump_rule pump_rule_for(size_t bytes) {
  CHECK(bytes == SIZE_MAX);
  return driver.library ? PUMP_RULE_LIBRARY : PUMP_RULE_NONE;
}
void pump_progress_stream_synced(uint32_t index, uint64_t seq) {
  (void)index;
  told.synced_seq = seq;
}
void pump_progress_context_synced(uint64_t seq) {
  told.context_seq = seq;
}
void pump_progress_event_recorded(CUevent event, uint32_t index, uint64_t seq) {
  (void)event, (void)index;
  told.event_seq = seq;
}
uint64_t pump_progress_event_asked(CUevent event) {
  (void)event;
  return told.event_seq;
}
void pump_progress_event_synced(CUevent event, uint64_t asked) {
  CHECK(event != NULL && pump_reentry_depth != 0);
  told.event_asked = asked;
}
bool pump_progress_event_distrust(CUevent event) {
  bool fresh = told.event_distrusted != event;
  told.event_distrusted = event;
  return fresh;
}
bool pump_progress_event_trust(CUevent event) {
  bool was = told.event_distrusted == event;
  if (was) told.event_distrusted = NULL;
  return was;
}
bool pump_progress_events_distrusted(void) {
  return told.event_distrusted != NULL;
}
void pump_progress_event_gone(CUevent event) {
  CHECK(pump_reentry_depth != 0);
  told.event_gone = event;
}
void pump_limit_return(uint32_t device, uint64_t bytes) {
  (void)device, (void)bytes;
}
void pump_slot_wait(uint32_t slot) {
  (void)slot;
}
static void *find_nothing(void *handle, const char *name) {
  (void)handle, (void)name;
  return NULL;
}
void *(*pump_real_dlsym)(void *handle, const char *name) = find_nothing;
char *pump_dl_begin(void) {
  return NULL;
}
void pump_dl_end(char *pending) {
  CHECK(pending == NULL);
}
void pump_log(int level, const char *format, ...) {
  (void)level, (void)format;
}
bool pump_log_once(uint32_t *said, int level, const char *format, ...) {
  (void)level, (void)format;
  return __atomic_exchange_n(said, 1, __ATOMIC_RELAXED) == 0;
}

/* ---- the driver ------------------------------------------------------------ */

/* Places each parameter after the previous one, with its natural alignment. */
static CUresult param_info(size_t index, size_t *offset, size_t *bytes) {
  driver.questions++;
  if (index >= driver.parameters) return CUDA_ERROR_INVALID_VALUE;
  *offset = 0;
  for (size_t i = 0; i <= index; i++) {
    size_t alignment = driver.sizes[i] < 8 ? 4 : 8;
    *offset = (*offset + alignment - 1) / alignment * alignment;
    if (i < index) *offset += driver.sizes[i];
  }
  *bytes = driver.sizes[index];
  return CUDA_SUCCESS;
}
static CUresult func_param_info(CUfunction f, size_t index, size_t *offset, size_t *bytes) {
  (void)f;
  CHECK(!driver.kind_known);
  return driver.only_kernel_handles ? CUDA_ERROR_INVALID_HANDLE
                                    : param_info(index, offset, bytes);
}
static CUresult kernel_param_info(CUkernel k, size_t index, size_t *offset, size_t *bytes) {
  (void)k;
  return param_info(index, offset, bytes);
}
static CUresult func_name(const char **name, CUfunction f) {
  (void)f;
  CHECK(pump_reentry_depth != 0 && !driver.kind_known);
  driver.names++;
  *name = driver.name;
  if (driver.only_kernel_handles) return CUDA_ERROR_INVALID_HANDLE;
  return driver.name == NULL ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}
static CUresult kernel_name(const char **name, CUkernel k) {
  (void)k;
  *name = driver.name;
  return driver.name == NULL ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}
static CUresult is_capturing(CUstream stream, CUstreamCaptureStatus *status) {
  *status = driver.capturing && stream == (CUstream)0x42 ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                                         : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}
static CUresult get_current(CUcontext *context) {
  *context = driver.current;
  return CUDA_SUCCESS;
}
static CUresult set_current(CUcontext context) {
  driver.current = context;
  return CUDA_SUCCESS;
}
static CUresult stream_context(CUstream stream, CUcontext *context) {
  *context = (CUcontext)(uintptr_t)((uintptr_t)stream >> 8);
  return CUDA_SUCCESS;
}
static CUresult any(void) {
  if (pump_shm != NULL) driver.newest_at_call = PUMP_LOAD(&pump_shm->header.next_seq) - 1;
  return driver.answer;
}

/* Makes every real function return `driver.answer` for any arguments. */
void set_up(void) {
  void *function = (void *)any;
  for (size_t i = 0; i < sizeof pump_real / sizeof function; i++)
    memcpy((char *)&pump_real + i * sizeof function, &function, sizeof function);
  memset(&pump_present, 1, sizeof pump_present);
  pump_real.cuFuncGetParamInfo = func_param_info;
  pump_real.cuKernelGetParamInfo = kernel_param_info;
  pump_real.cuFuncGetName = func_name;
  pump_real.cuKernelGetName = kernel_name;
  pump_real.cuStreamIsCapturing = is_capturing;
  pump_real.cuCtxGetCurrent = get_current;
  pump_real.cuCtxSetCurrent = set_current;
  pump_real.cuStreamGetCtx = stream_context;
  pump_shm = calloc(1, sizeof *pump_shm);
  CHECK(pump_shm != NULL);
  pump_shm->header.next_seq = 1;
}

static struct pump_range_info range_of(uint32_t kind, uint64_t base, uint64_t blocks) {
  struct pump_range_info info = {.base = base,
                                 .length_bytes = blocks * BLOCK,
                                 .requested_bytes = blocks * BLOCK,
                                 .kind = kind};
  CHECK(pump_range_add(&info) >= 0);
  return info;
}
struct pump_range_info range(uint64_t base, uint64_t blocks) {
  return range_of(PUMP_RANGE_CONVERTED, base, blocks);
}
struct pump_range_info managed_range(uint64_t base, uint64_t blocks) {
  return range_of(PUMP_RANGE_MANAGED, base, blocks);
}

CUresult launch(void **params, void **extra) {
  return cuLaunchKernel(KERNEL, 1, 1, 1, 1, 1, 1, 0, (CUstream)0x42, params, extra);
}

/* ---- the ring's reader ------------------------------------------------------ */

static uint64_t taken;

bool next_of_any_kind(void) {
  const struct pump_event *record = pump_event_peek(pump_shm, taken);
  if (record == NULL) return false;
  head = *record;
  bool told_once = head.kind == PUMP_EVENT_PARAMS || head.kind == PUMP_EVENT_NAME;
  size_t bytes = told_once ? head.payload_bytes : head.extent_count * sizeof extents[0];
  CHECK(told_once ? head.extent_count == 0 : head.payload_bytes == 0);
  CHECK(bytes <= (told_once ? PUMP_MAX_PAYLOAD_BYTES : sizeof extents));
  uint64_t first = taken;
  do {
    record = pump_event_peek(pump_shm, taken);
    CHECK(record != NULL && record->seq == head.seq);
    CHECK(record->function == head.function && record->signature == head.signature);
    CHECK(record->payload_bytes == head.payload_bytes);
    CHECK(record->kind == (taken == first ? head.kind : PUMP_EVENT_MORE));
    memcpy(payload + (taken - first) * PUMP_EVENT_PAYLOAD_BYTES, record->extents,
           PUMP_EVENT_PAYLOAD_BYTES);
    taken++;
  } while ((taken - first) * PUMP_EVENT_PAYLOAD_BYTES < bytes);
  if (!told_once) memcpy(extents, payload, bytes);
  pump_event_release(pump_shm, taken);
  return true;
}

bool next_event(void) {
  while (next_of_any_kind())
    if (head.kind != PUMP_EVENT_PARAMS && head.kind != PUMP_EVENT_NAME) return true;
  return false;
}

const uint64_t *uses(const struct pump_range_info *r) {
  return pump_shm->ranges[r->slot].last_use_seq;
}

bool extent_is(uint32_t i, const struct pump_range_info *r, uint64_t offset, uint64_t bytes,
               uint64_t access) {
  return extents[i].slot == r->slot && extents[i].generation == r->generation &&
         extents[i].offset_bytes == offset &&
         extents[i].length_access == (bytes << 2 | access);
}

int run_scenario(const struct scenario *scenarios, size_t count, int argc, char **argv) {
  set_up();
  for (size_t i = 0; i < count; i++) {
    if (argc != 2 || strcmp(argv[1], scenarios[i].name) != 0) continue;
    scenarios[i].run();
    return 0;
  }
  return 2;
}
