/* devices.c - what each device has, may use and does use.
 *
 * Pump prepares a device when it first sees a context on it, and notes the memory that is
 * free at that moment: this process can count on it. From then on the numbers in this
 * file's `devices` are authoritative; pump_shm->devices is the worker's copy.
 *
 * PUMP_BUDGET sets the budget, in bytes or as a share of the GPU. The default is the
 * memory that the first context found free, less 3 % (PUMP_RESERVE_PERCENT). If other
 * processes under pump use the GPU, the default is a share of the memory that the first
 * process found free; it follows the needs of all (share.c). A requested budget may
 * exceed the free memory: other jobs on the GPU have budgets too, and their memory is
 * evicted. PUMP_BUDGET_MOST, the administrator's, bounds every budget. A request for the
 * whole GPU less 3 %, or more, counts as no request. `emulated`: the budget was
 * requested, or bounded. The device becomes ACTIVE, permanently, when live memory
 * outgrows the budget, or with PUMP_ACTIVE=always. A recorded program reports its
 * operations even before.
 *
 * A worker may request another budget (asked_budget_bytes), which the link thread adopts.
 * The budget outlives the worker: the next worker reads it as the device's.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "host.h"
#include "shim/base/amount.h"
#include "shim/base/settings.h"
#include "shim/base/upcalls.h"

#define CONCURRENT_MANAGED_ACCESS ((CUdevice_attribute)89)

enum { UNSEEN, READY };

/* Written under pump_range_lock, and `state` and `converts` also under prepare_lock. */
static struct device {
  uint32_t state;
  bool converts;
  uint8_t uuid[16];
  uint64_t total_bytes;
  uint64_t found_bytes; /* free before any process under pump used it, as far as known */
  uint32_t neighbours;  /* other processes under pump on the same GPU */
  uint64_t asked_bytes; /* requested budget; UINT64_MAX: none */
  uint64_t most_bytes;  /* budget without a request: all free memory, or a share */
  uint64_t gpu_bytes;   /* requests of this size or more count as none */
  uint64_t bound_bytes; /* largest budget that the administrator allows */
  uint64_t budget_bytes, allocated_bytes, plain_bytes;
  uint64_t least_adopted_bytes, most_adopted_bytes; /* see pump_device_adopted_budgets */
  uint64_t left_bytes;                              /* see pump_device_add_left_bytes */
  bool active;
  bool reports; /* active, or recorded: its operations are reported */
} devices[PUMP_MAX_DEVICES];
/* Totals of all devices; under pump_range_lock. */
static uint64_t live_bytes;                         /* in ranges */
static uint64_t live_plain_bytes, plain_peak_bytes; /* in memory that is not converted */

static pthread_mutex_t prepare_lock = PTHREAD_MUTEX_INITIALIZER;

static uint64_t without_reserve(uint64_t bytes) {
  return bytes - bytes / 100 * PUMP_RESERVE_PERCENT;
}

static uint64_t whole_blocks(uint64_t bytes) {
  return bytes / PUMP_BLOCK_BYTES * PUMP_BLOCK_BYTES;
}

/* Returns the bytes that a variable sets for a GPU of `total_bytes`, or UINT64_MAX. */
static uint64_t amount_of(const char *variable, uint64_t total_bytes) {
  const char *text = pump_setting(variable);
  struct pump_amount amount;
  static uint32_t said;
  if (!pump_amount_parse(text, &amount))
    pump_log_once(&said, PUMP_LOG_ERROR,
                  "ignoring %s=%s: must be a size such as 4GiB, a percentage such as 80%% "
                  "or a factor such as 0.8x",
                  variable, PUMP_QUOTED(text));
  return pump_amount_bytes(amount, total_bytes, total_bytes);
}

static const uint64_t least_bytes = (uint64_t)PUMP_BUDGET_BLOCKS_LEAST * PUMP_BLOCK_BYTES;

/* Returns the budget that the job starts with; UINT64_MAX if it requests none. */
static uint64_t first_budget(CUdevice device, uint64_t total_bytes) {
  uint64_t asked = amount_of("PUMP_BUDGET", total_bytes);
  if (asked != UINT64_MAX && asked > total_bytes)
    pump_log(PUMP_LOG_WARNING,
             "device %d: ignoring the budget of %" PRIu64 " MiB, which exceeds the %" PRIu64
             " MiB of the GPU: pump uses the free memory. Set a smaller --budget, or none",
             device, asked >> 20, total_bytes >> 20);
  if (asked >= least_bytes) return asked;
  pump_log(PUMP_LOG_WARNING,
           "device %d: the budget of %.3g MiB is raised to %" PRIu64 " MiB, the minimum",
           device, (double)asked / (1 << 20), least_bytes >> 20);
  return least_bytes;
}

/* Returns the administrator's maximum for a device. Warns if it lowers the request. */
static uint64_t bound_budget(CUdevice device, uint64_t total_bytes, uint64_t asked) {
  uint64_t bound = whole_blocks(amount_of("PUMP_BUDGET_MOST", total_bytes));
  if (bound < least_bytes) bound = least_bytes;
  if (asked != UINT64_MAX && asked > bound)
    pump_log(PUMP_LOG_WARNING,
             "device %d: the budget of %" PRIu64 " MiB is lowered to %" PRIu64
             " MiB, the administrator's maximum (/etc/pump/config.toml)",
             device, asked >> 20, bound >> 20);
  return bound;
}

/* Requires pump_range_lock. */
static void begin_reports(uint32_t index) {
  if (devices[index].reports) return;
  devices[index].reports = true;
  if (!__atomic_load_n(&pump_off, __ATOMIC_RELAXED))
    __atomic_fetch_add(&pump_reporting, 1, __ATOMIC_RELEASE);
  pump_upcalls.device_reports();
}

/* Requires pump_range_lock. */
static void become_active(uint32_t index) {
  PUMP_ASSERT(pump_is_locked(&pump_range_lock), "pump_range_lock guards the devices");
  if (devices[index].active) return;
  devices[index].active = true;
  PUMP_STORE(&pump_shm->devices[index].device_state, PUMP_DEVICE_ACTIVE);
  begin_reports(index);
  pump_wake(&pump_shm->header.worker_asleep, &pump_shm->header.worker_wakes);
}

static void activate_if_full(uint32_t index) {
  const struct device *d = &devices[index];
  if (d->state == READY && d->converts &&
      d->allocated_bytes + d->plain_bytes > d->budget_bytes)
    become_active(index);
}

/* Returns the budget for a request (UINT64_MAX: no request). Requires pump_range_lock. */
static uint64_t budget_for(const struct device *d, uint64_t asked) {
  if (asked >= d->gpu_bytes) asked = d->most_bytes;
  return asked < d->bound_bytes ? asked : d->bound_bytes;
}

/* Returns whether the budget has to wait until launch queues have drained, and begins the
 * drain. Requires pump_range_lock. */
static bool drains(uint32_t index, uint64_t asked) {
  const struct device *d = &devices[index];
  if (!d->active && d->converts &&
      d->allocated_bytes + d->plain_bytes > whole_blocks(budget_for(d, asked))) {
    become_active(index);
    pump_drain_launch_queues();
  }
  return pump_drain_lasts();
}

/* Requires pump_range_lock. */
static void set_budget(struct device *d, struct pump_device *shared, uint64_t asked) {
  PUMP_ASSERT(pump_is_locked(&pump_range_lock), "pump_range_lock guards the budgets");
  d->asked_bytes = asked;
  uint64_t budget = budget_for(d, asked);
  d->budget_bytes = whole_blocks(budget);
  PUMP_STORE(&shared->budget_bytes, d->budget_bytes);
  PUMP_STORE(&shared->emulated, budget != d->most_bytes);
}

/* Adopts the budget that a worker requests, within bounds; false if nothing is new, the
 * device is not prepared, or a drain lasts. Requires pump_range_lock. */
static bool adopt_budget(uint32_t index) {
  struct device *d = &devices[index];
  struct pump_device *shared = &pump_shm->devices[index];
  uint64_t asked = PUMP_LOAD(&shared->asked_budget_bytes);
  if (d->state != READY || asked == PUMP_LOAD(&shared->adopted_budget_bytes)) return false;
  uint64_t bytes = asked > least_bytes ? asked : least_bytes;
  if (asked != 0) {
    if (drains(index, bytes)) return false;
    set_budget(d, shared, bytes);
    if (d->most_adopted_bytes == 0 || d->budget_bytes < d->least_adopted_bytes)
      d->least_adopted_bytes = d->budget_bytes;
    if (d->budget_bytes > d->most_adopted_bytes) d->most_adopted_bytes = d->budget_bytes;
  }
  /* A thread that sees this value also sees the numbers above. */
  PUMP_STORE_RELEASE(&shared->adopted_budget_bytes, asked);
  return true;
}

void pump_device_adopted_budgets(uint32_t device, uint64_t *least, uint64_t *most) {
  pthread_mutex_lock(&pump_range_lock);
  *least = devices[device].least_adopted_bytes;
  *most = devices[device].most_adopted_bytes;
  pthread_mutex_unlock(&pump_range_lock);
}

/* Requires pump_range_lock. */
static void set_most(struct device *d, const struct pump_neighbours *neighbours) {
  uint64_t found;
  d->neighbours = pump_neighbours_count(neighbours, d->uuid, &found);
  if (found > d->total_bytes) found = d->total_bytes;
  if (found > d->found_bytes) d->found_bytes = found;
  uint64_t whole = without_reserve(d->found_bytes);
  uint64_t share = pump_neighbours_share(neighbours, d->uuid, whole);
  uint64_t least = whole < least_bytes ? whole : least_bytes;
  d->most_bytes = share > least ? share : least;
}

static void notify(void) {
  PUMP_ADD(&pump_shm->header.activity, 1);
  pump_wake(&pump_shm->header.worker_asleep, &pump_shm->header.worker_wakes);
}

bool pump_device_read_use(uint32_t device, struct pump_gpu_use *gpu) {
  const struct device *d = &devices[device];
  pthread_mutex_lock(&pump_range_lock);
  bool ready = d->state == READY;
  if (ready) {
    memcpy(gpu->uuid, d->uuid, sizeof gpu->uuid);
    gpu->found_bytes = d->found_bytes;
    gpu->plain_bytes = d->plain_bytes;
    gpu->need_bytes = d->allocated_bytes + d->plain_bytes;
    if (d->asked_bytes < d->gpu_bytes && gpu->need_bytes > d->budget_bytes)
      gpu->need_bytes = d->budget_bytes;
  }
  pthread_mutex_unlock(&pump_range_lock);
  return ready;
}

uint32_t pump_device_share(const struct pump_neighbours *neighbours) {
  uint32_t active = 0;
  bool changed = false;
  pthread_mutex_lock(&pump_range_lock);
  for (uint32_t i = 0; i < PUMP_MAX_DEVICES; i++) {
    struct device *d = &devices[i];
    struct pump_device *shared = &pump_shm->devices[i];
    if (d->state != READY) continue;
    uint64_t before = d->budget_bytes;
    set_most(d, neighbours);
    if (d->neighbours > PUMP_LOAD(&shared->neighbours))
      PUMP_STORE(&shared->neighbours, d->neighbours);
    if (drains(i, d->asked_bytes)) continue;
    set_budget(d, shared, d->asked_bytes);
    if (d->budget_bytes == before) continue;
    changed = true;
    if (d->active) active |= 1u << i;
  }
  pthread_mutex_unlock(&pump_range_lock);
  if (changed) notify();
  return active;
}

uint32_t pump_device_adopt_budgets(void) {
  uint32_t active = 0;
  bool adopted = false;
  for (uint32_t i = 0; i < PUMP_MAX_DEVICES; i++) {
    const struct pump_device *shared = &pump_shm->devices[i];
    pump_hold_set(i, PUMP_LOAD(&shared->held_until_ns));
    if (PUMP_LOAD(&shared->asked_budget_bytes) !=
        PUMP_LOAD(&shared->adopted_budget_bytes)) {
      pthread_mutex_lock(&pump_range_lock);
      adopted |= adopt_budget(i);
      pthread_mutex_unlock(&pump_range_lock);
    }
    if (PUMP_LOAD(&shared->adopted_budget_bytes) != 0 &&
        PUMP_LOAD(&shared->device_state) == PUMP_DEVICE_ACTIVE)
      active |= 1u << i;
  }
  if (adopted) notify();
  return active;
}

void pump_device_add_bytes(uint32_t device, int64_t range_bytes, int64_t plain_bytes) {
  struct device *d = &devices[device];
  PUMP_ASSERT(pump_is_locked(&pump_range_lock), "pump_range_lock guards the numbers");
  PUMP_ASSERT((int64_t)d->allocated_bytes + range_bytes >= 0 &&
                  (int64_t)d->plain_bytes + plain_bytes >= 0,
              "only live memory ends");
  d->allocated_bytes += (uint64_t)range_bytes;
  d->plain_bytes += (uint64_t)plain_bytes;
  live_bytes += (uint64_t)range_bytes;
  live_plain_bytes += (uint64_t)plain_bytes;
  if (live_plain_bytes > plain_peak_bytes) PUMP_STORE(&plain_peak_bytes, live_plain_bytes);
  PUMP_STORE(&pump_shm->devices[device].allocated_bytes, d->allocated_bytes);
  PUMP_STORE(&pump_shm->devices[device].plain_bytes, d->plain_bytes);
  uint64_t *peak = &pump_shm->shim_counters.converted_bytes_peak;
  if (live_bytes > PUMP_LOAD(peak)) PUMP_STORE(peak, live_bytes);
  activate_if_full(device);
}

void pump_device_add_left_bytes(uint32_t device, int64_t bytes) {
  pthread_mutex_lock(&pump_range_lock);
  devices[device].left_bytes += (uint64_t)bytes;
  pthread_mutex_unlock(&pump_range_lock);
}

static void copy_uuid(CUdevice device, uint8_t uuid[16]) {
  CUuuid answer = {{0}};
  if (PUMP_HAS(cuDeviceGetUuid_v2))
    pump_real.cuDeviceGetUuid_v2(&answer, device);
  else if (PUMP_HAS(cuDeviceGetUuid))
    pump_real.cuDeviceGetUuid(&answer, device);
  memcpy(uuid, answer.bytes, 16);
}

static bool can_page(CUdevice device) {
  int concurrent = 0;
  if (PUMP_HAS(cuDeviceGetAttribute))
    pump_real.cuDeviceGetAttribute(&concurrent, CONCURRENT_MANAGED_ACCESS, device);
  return concurrent != 0;
}

static bool device_converts(CUdevice device) {
  bool converts = can_page(device);
  if (!converts)
    pump_log(PUMP_LOG_WARNING,
             "device %d cannot page its memory (concurrentManagedAccess is 0, as under WSL "
             "and on some virtual GPUs): the program has only the GPU's own memory there",
             device);
  return converts;
}

/* Requires prepare_lock, a driver scope, and a current context of the device. */
static void prepare(CUdevice device) {
  size_t free_bytes, total_bytes;
  if (pump_real.cuMemGetInfo_v2(&free_bytes, &total_bytes) != CUDA_SUCCESS) return;
  struct device *d = &devices[device];
  struct pump_device *shared = &pump_shm->devices[device];
  uint8_t uuid[16];
  copy_uuid(device, uuid);
  bool converts = device_converts(device);
  struct pump_neighbours neighbours;
  pump_neighbours_read(&neighbours); /* may be incomplete at first */
  uint64_t asked = first_budget(device, total_bytes);
  uint64_t bound = bound_budget(device, total_bytes, asked);
  const char *always = getenv("PUMP_ACTIVE");
  pthread_mutex_lock(&pump_range_lock);
  d->converts = converts;
  d->total_bytes = total_bytes;
  d->found_bytes = free_bytes;
  memcpy(d->uuid, uuid, sizeof uuid);
  set_most(d, &neighbours);
  d->gpu_bytes = without_reserve(total_bytes);
  d->bound_bytes = bound;
  memcpy(shared->uuid, uuid, sizeof uuid);
  PUMP_STORE(&shared->total_bytes, total_bytes);
  PUMP_STORE(&shared->free_at_start_bytes, free_bytes);
  set_budget(d, shared, asked);
  PUMP_STORE(&shared->device_state, PUMP_DEVICE_DORMANT);
  PUMP_STORE_RELEASE(&d->state, READY);
  adopt_budget((uint32_t)device);
  activate_if_full((uint32_t)device);
  if (always != NULL && strcmp(always, "always") == 0) become_active((uint32_t)device);
  if (pump_recording) begin_reports((uint32_t)device);
  pthread_mutex_unlock(&pump_range_lock);
}

bool pump_device_prepare(CUdevice device) {
  static uint32_t said;
  if (device < 0 || device >= PUMP_MAX_DEVICES) {
    pump_log_once(&said, PUMP_LOG_WARNING,
                  "ignoring device %d: pump manages the first %d devices", device,
                  PUMP_MAX_DEVICES);
    return false;
  }
  uint32_t state = PUMP_LOAD_ACQUIRE(&devices[device].state);
  if (PUMP_LIKELY(state != UNSEEN)) return state == READY;
  struct pump_driver_scope scope = pump_driver_scope_open();
  pthread_mutex_lock(&prepare_lock);
  if (devices[device].state == UNSEEN) prepare(device);
  pthread_mutex_unlock(&prepare_lock);
  pump_driver_scope_close(scope);
  return PUMP_LOAD_ACQUIRE(&devices[device].state) == READY;
}

uint64_t pump_plain_peak_bytes(void) {
  return PUMP_LOAD(&plain_peak_bytes);
}

bool pump_device_converts(uint32_t device) {
  return devices[device].converts;
}

bool pump_device_will_convert(uint32_t device) {
  return PUMP_LOAD_ACQUIRE(&devices[device].state) == UNSEEN && can_page((CUdevice)device);
}

/* Returns whether PUMP_REPORT=limit: the program sees all that the job may convert. */
static bool reports_limit(void) {
  static uint32_t known; /* 0: not read yet, 1: no, 2: yes */
  uint32_t answer = PUMP_LOAD(&known);
  if (answer == 0) {
    const char *text = pump_setting("PUMP_REPORT");
    answer = text != NULL && strcmp(text, "limit") == 0 ? 2 : 1;
    PUMP_STORE(&known, answer);
  }
  return answer == 2;
}

void pump_device_answer_memory_info(uint32_t device, uint64_t idle_bytes,
                                    size_t *free_bytes, size_t *total_bytes) {
  if (reports_limit() && PUMP_LOAD(&devices[device].converts)) {
    uint64_t left, whole;
    pump_limit_read(&left, &whole);
    left = left + idle_bytes < whole ? left + idle_bytes : whole;
    if (total_bytes != NULL && whole > *total_bytes && whole != UINT64_MAX)
      *total_bytes = whole;
    if (total_bytes != NULL && left > *total_bytes) left = *total_bytes;
    *free_bytes = left;
    return;
  }
  pthread_mutex_lock(&pump_range_lock);
  const struct device *d = &devices[device];
  uint64_t taken = d->allocated_bytes + d->plain_bytes;
  taken -= idle_bytes < taken ? idle_bytes : taken;
  uint64_t left = d->budget_bytes > taken ? d->budget_bytes - taken : 0;
  /* Neighbours' memory and pages without an owner are not free, but can be evicted. */
  bool makes_way = d->neighbours != 0 || d->left_bytes != 0;
  pthread_mutex_unlock(&pump_range_lock);
  /* Idle memory may have pages on the device, too. */
  if (left < *free_bytes + idle_bytes || makes_way)
    *free_bytes = left;
  else
    *free_bytes += idle_bytes;
}

void pump_device_reset(void) {
  memset(devices, 0, sizeof devices);
  live_bytes = live_plain_bytes = plain_peak_bytes = 0;
  pthread_mutex_init(&prepare_lock, NULL);
  pthread_mutex_init(&pump_range_lock, NULL);
}
