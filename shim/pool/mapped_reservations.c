/* mapped_reservations.c - reservations of addresses, and handles mapped in them (mapped.h).
 *
 * A reservation must be managed memory or the driver's before it is known what will be
 * mapped there. It is the driver's if a rule applies, or if the host could not take what
 * the device can hold: memory that fits there must not be refused. It is also the
 * driver's if a handle of the driver is not mapped yet and could be mapped there; each
 * such handle decides on one reservation. Handles that are mapped in the driver's
 * reservations become the driver's.
 */
#include <errno.h>

#include "mapped_state.h"
#include "shim/memory/rules.h"

#define PENDING 64u

pthread_mutex_t mapped_spans_lock = PTHREAD_MUTEX_INITIALIZER;
struct mapped_spans mapped_reservations = {.record_bytes =
                                               sizeof(struct mapped_reservation)};
struct mapped_spans mapped_mappings = {.record_bytes = sizeof(struct mapped_mapping)};
struct mapped_spans mapped_homes = {.record_bytes = sizeof(struct mapped_home)};
uint32_t pump_mapped_reservations;

/* Managed memory to be freed without the lock, because cuMemFree waits for the device,
 * perhaps for long. */
static CUdeviceptr pending[PENDING];
static uint32_t pending_count;

static bool misaligned(uint64_t value) {
  return value == 0 || value % PUMP_BLOCK_BYTES != 0;
}

/* ---- managed memory ------------------------------ */

/* Allocates aligned addresses for `bytes`; 0 if the driver gives none. */
static CUdeviceptr take_managed(uint64_t bytes, uint64_t alignment, CUdeviceptr *managed) {
  uint64_t slack = alignment > PUMP_BLOCK_BYTES ? alignment : 0;
  struct pump_driver_scope scope = pump_driver_scope_open();
  CUresult result =
      pump_real.cuMemAllocManaged(managed, bytes + slack, CU_MEM_ATTACH_GLOBAL);
  CUdeviceptr base = 0;
  if (result == CUDA_SUCCESS) {
    base = slack == 0 ? *managed : (*managed + slack - 1) / slack * slack;
    if (misaligned(base) || base > PUMP_ADDRESS_END - bytes) {
      pump_real.cuMemFree_v2(*managed);
      base = 0;
    }
  }
  pump_driver_scope_close(scope);
  return base;
}

static void free_managed(CUdeviceptr managed) {
  struct pump_driver_scope scope = pump_driver_scope_open();
  pump_real.cuMemFree_v2(managed);
  pump_driver_scope_close(scope);
}

void mapped_free_pending(void) {
  for (;;) {
    CUdeviceptr managed = 0;
    pthread_mutex_lock(&mapped_lock);
    if (pending_count != 0) managed = pending[--pending_count];
    pthread_mutex_unlock(&mapped_lock);
    if (managed == 0) return;
    free_managed(managed);
  }
}

/* ---- reservations ------------------------------ */

static struct mapped_reservation *add_reservation(CUdeviceptr base, uint64_t bytes,
                                                  CUdeviceptr managed, uint32_t device,
                                                  CUcontext context) {
  uint8_t *left = calloc(bytes / PUMP_BLOCK_BYTES, 1);
  struct mapped_reservation *reserved =
      left == NULL ? NULL : mapped_span_add(&mapped_reservations, base, bytes);
  if (reserved == NULL) {
    free(left);
    return NULL;
  }
  reserved->managed = managed;
  reserved->device = device;
  reserved->context = context;
  reserved->left = left;
  PUMP_STORE(&pump_mapped_reservations, (uint32_t)mapped_reservations.count);
  return reserved;
}

static void remove_reservation(struct mapped_reservation *reserved) {
  free(reserved->left);
  mapped_span_remove(&mapped_reservations, reserved);
  PUMP_STORE(&pump_mapped_reservations, (uint32_t)mapped_reservations.count);
}

struct mapped_reservation *mapped_reservation_at(CUdeviceptr address) {
  struct mapped_reservation *reserved = mapped_span_find(&mapped_reservations, address);
  return reserved == NULL || reserved->freed ? NULL : reserved;
}

/* Returns whether the host could take it all, or as much as the device may hold. */
static bool host_takes(uint32_t device, uint64_t bytes) {
  uint64_t left, whole, most = PUMP_LOAD(&pump_shm->devices[device].budget_bytes);
  pump_limit_read(&left, &whole);
  return left >= (bytes < most ? bytes : most);
}

/* Returns whether a handle of the driver waits for addresses that may be these. No handle
 * is larger than its device. */
static bool one_waits(uint32_t device, uint64_t bytes) {
  if (bytes > PUMP_LOAD(&pump_shm->devices[device].total_bytes)) return false;
  pthread_mutex_lock(&mapped_lock);
  bool waits = mapped_take_waiting();
  pthread_mutex_unlock(&mapped_lock);
  return waits;
}

/* Warns that memory at such addresses will not be paged. */
static void say_refused(uint64_t bytes) {
  static uint32_t said;
  pump_log_once(&said, PUMP_LOG_WARNING,
                "the driver refuses %.1f GiB of managed memory for a reservation of "
                "addresses, so memory mapped there stays on the GPU. For PyTorch set "
                "PYTORCH_ALLOC_CONF=expandable_segments:False",
                (double)bytes / (1 << 30));
}

bool pump_mapped_reserve(CUdeviceptr *address, size_t bytes, size_t alignment,
                         unsigned long long flags, CUresult *result) {
  CUcontext context = NULL;
  CUdeviceptr managed;
  int device = pump_current_device(&context);
  bool power = (alignment & (alignment - 1)) == 0 && alignment <= 1ull << 40;
  if (address == NULL || flags != 0 || misaligned(bytes) || bytes >= PUMP_ADDRESS_END ||
      !power || device < 0 || !pump_device_converts((uint32_t)device) ||
      pump_rule_mapped() || !host_takes((uint32_t)device, bytes) ||
      one_waits((uint32_t)device, bytes))
    return false;
  CUdeviceptr base = take_managed(bytes, alignment, &managed);
  if (base == 0) {
    say_refused(bytes);
    return false;
  }
  pthread_mutex_lock(&mapped_lock);
  bool added = add_reservation(base, bytes, managed, (uint32_t)device, context) != NULL;
  pthread_mutex_unlock(&mapped_lock);
  if (!added) {
    free_managed(managed);
    return false;
  }
  *address = base;
  *result = CUDA_SUCCESS;
  return true;
}

uint64_t mapped_set_left(uint64_t base, uint64_t bytes, uint8_t left) {
  const struct mapped_reservation *reserved = mapped_span_find(&mapped_reservations, base);
  uint64_t changed = 0, first = (base - reserved->base) / PUMP_BLOCK_BYTES;
  PUMP_ASSERT(bytes <= reserved->base + reserved->bytes - base, "spans do not overlap");
  for (uint64_t i = first; i < first + bytes / PUMP_BLOCK_BYTES; i++) {
    changed += reserved->left[i] != left;
    reserved->left[i] = left;
  }
  changed *= PUMP_BLOCK_BYTES;
  pump_device_add_left_bytes(reserved->device, left ? (int64_t)changed : -(int64_t)changed);
  return changed;
}

void mapped_reservation_settle(struct mapped_reservation *reserved) {
  PUMP_ASSERT(pump_is_locked(&mapped_lock), "mapped_lock guards the reservations");
  if (!reserved->freed || reserved->homes != 0) return;
  if (reserved->managed != 0) {
    pump_limit_return(reserved->device,
                      mapped_set_left(reserved->base, reserved->bytes, 0));
    if (pending_count < PENDING)
      pending[pending_count++] = reserved->managed;
    else
      free_managed(reserved->managed);
  }
  remove_reservation(reserved);
}

bool pump_mapped_unreserve(CUdeviceptr address, size_t bytes, CUresult *result) {
  if (PUMP_LOAD(&pump_mapped_reservations) == 0) return false;
  pthread_mutex_lock(&mapped_lock);
  struct mapped_reservation *reserved = mapped_reservation_at(address);
  bool ours = reserved != NULL;
  bool whole = ours && reserved->base == address && reserved->bytes == bytes &&
               mapped_span_within(&mapped_mappings, address, bytes) == NULL;
  if (whole) {
    reserved->freed = true;
    mapped_reservation_settle(reserved);
  }
  pthread_mutex_unlock(&mapped_lock);
  mapped_free_pending();
  *result = whole ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  return ours;
}

/* Decides on mapping memory of the driver (`handle` NULL), or of a handle that can become
 * it, at `reserved`. Returns true if the driver has to map it. Requires the lock. */
static bool map_real(struct mapped_handle *handle,
                     const struct mapped_reservation *reserved, CUresult *result) {
  static uint32_t said, said_reserved;
  *result = CUDA_SUCCESS;
  if (reserved != NULL) {
    *result = CUDA_ERROR_NOT_SUPPORTED;
    mapped_explain("cuMemMap",
                   "device memory cannot be mapped at addresses that pump made pageable",
                   &said_reserved);
  } else if (handle != NULL && handle->real == 0 && handle->home != 0) {
    *result = CUDA_ERROR_NOT_SUPPORTED;
    mapped_explain(
        "cuMemMap",
        "this memory is already pageable, so the driver cannot map it at this address",
        &said);
  } else if (handle != NULL && handle->real == 0) {
    *result = mapped_handle_become_real(handle);
  }
  return *result == CUDA_SUCCESS;
}

/* ---- mappings ------------------------------ */

/* Makes a reservation of our own, which ends without contents; 0: out of memory. */
static CUdeviceptr reserve_hidden(uint64_t bytes, uint32_t device) {
  CUcontext context = NULL;
  CUdeviceptr managed;
  if (pump_current_device(&context) < 0) return 0;
  CUdeviceptr base = take_managed(bytes, 0, &managed);
  if (base == 0) return 0;
  struct mapped_reservation *reserved =
      add_reservation(base, bytes, managed, device, context);
  if (reserved == NULL) {
    free_managed(managed);
    return 0;
  }
  reserved->freed = true;
  return base;
}

/* Moves the contents of a handle that is not mapped to [to, +bytes). Blocks that they
 * leave then count by themselves; blocks that they take over count with the handle. */
static CUresult move_home(struct mapped_handle *handle, uint64_t to, uint64_t bytes) {
  uint64_t from = handle->home, old_bytes = handle->home_bytes;
  struct mapped_home *home = mapped_span_add(&mapped_homes, to, bytes);
  if (home == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  home->handle = handle->key;
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  if (pump_limit_admit(handle->device, old_bytes) == 0) {
    result = mapped_contents_copy(to, from, bytes < old_bytes ? bytes : old_bytes);
    if (result != CUDA_SUCCESS) pump_limit_return(handle->device, old_bytes);
  }
  if (result != CUDA_SUCCESS) {
    mapped_span_remove(&mapped_homes, mapped_span_find(&mapped_homes, to));
    return result;
  }
  mapped_home_leave(handle);
  pump_limit_return(handle->device, mapped_set_left(to, bytes, 0));
  handle->home = to;
  handle->home_bytes = bytes;
  ((struct mapped_reservation *)mapped_span_find(&mapped_reservations, to))->homes++;
  return CUDA_SUCCESS;
}

/* Moves contents to addresses that the program does not know. */
static CUresult hide(struct mapped_handle *handle) {
  uint64_t bytes = handle->home_bytes, to = reserve_hidden(bytes, handle->device);
  if (to == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = move_home(handle, to, bytes);
  if (result != CUDA_SUCCESS)
    mapped_reservation_settle(mapped_span_find(&mapped_reservations, to));
  return result;
}

/* Moves contents away from [base, +bytes), where another handle is to be mapped. Its own
 * may stay if they begin there. */
static CUresult clear_homes(const struct mapped_handle *arriving, uint64_t base,
                            uint64_t bytes) {
  bool stays = arriving->home == base && arriving->home_bytes <= bytes;
  uint64_t at = stays ? base + arriving->home_bytes : base, end = base + bytes;
  const struct mapped_home *home;
  while (at < end && (home = mapped_span_within(&mapped_homes, at, end - at)) != NULL) {
    bool ours;
    CUresult result = hide(mapped_handle_find(home->handle, &ours));
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

/* Moves the handle's contents to [base, +bytes), once every check has passed. */
static CUresult bring_contents(struct mapped_handle *handle, uint64_t base,
                               uint64_t bytes) {
  CUresult result = clear_homes(handle, base, bytes);
  if (result != CUDA_SUCCESS) return result;
  if (handle->home != 0 && handle->home != base) return move_home(handle, base, bytes);
  if (handle->home == base)
    mapped_span_remove(&mapped_homes, mapped_span_find(&mapped_homes, base));
  struct mapped_home *home = mapped_span_add(&mapped_homes, base, bytes);
  if (home == NULL) return CUDA_ERROR_OUT_OF_MEMORY; /* never if one was removed */
  home->handle = handle->key;
  if (handle->home == 0)
    ((struct mapped_reservation *)mapped_span_find(&mapped_reservations, base))->homes++;
  pump_limit_return(handle->device, mapped_set_left(base, bytes, 0));
  handle->home = base;
  handle->home_bytes = bytes;
  return CUDA_SUCCESS;
}

static CUresult map_served(struct mapped_handle *handle,
                           const struct mapped_reservation *reserved, uint64_t base,
                           uint64_t bytes) {
  static uint32_t said;
  if (misaligned(base) || misaligned(bytes) || bytes > handle->bytes ||
      bytes > reserved->base + reserved->bytes - base || reserved->managed == 0 ||
      mapped_span_within(&mapped_mappings, base, bytes) != NULL)
    return CUDA_ERROR_INVALID_VALUE;
  if (handle->mapped) {
    mapped_explain("cuMemMap", "pageable memory can be mapped only once", &said);
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  struct mapped_mapping *mapping = mapped_span_add(&mapped_mappings, base, bytes);
  if (mapping == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  mapping->handle = handle->key;
  CUresult result = bring_contents(handle, base, bytes);
  handle->mapped = result == CUDA_SUCCESS;
  if (result != CUDA_SUCCESS)
    mapped_span_remove(&mapped_mappings, mapped_span_find(&mapped_mappings, base));
  return result;
}

bool pump_mapped_map(CUdeviceptr address, size_t bytes, size_t offset,
                     CUmemGenericAllocationHandle *key, unsigned long long flags,
                     CUresult *result) {
  bool ours, forward = false;
  pthread_mutex_lock(&mapped_real_lock);
  pthread_mutex_lock(&mapped_lock);
  struct mapped_handle *handle = mapped_handle_find(*key, &ours);
  struct mapped_reservation *reserved = mapped_reservation_at(address);
  if (ours && (handle == NULL || offset != 0 || flags != 0)) {
    *result = CUDA_ERROR_INVALID_VALUE;
  } else if (ours && handle->real == 0 && reserved != NULL) {
    *result = map_served(handle, reserved, address, bytes);
  } else {
    forward = map_real(handle, reserved, result);
    if (forward && handle != NULL) *key = handle->real;
    if (forward) mapped_forget_waiting(*key);
  }
  pthread_mutex_unlock(&mapped_lock);
  pthread_mutex_unlock(&mapped_real_lock);
  mapped_free_pending();
  return !forward;
}

bool mapped_is_filled(uint64_t base, uint64_t bytes) {
  uint64_t at = base, end = base + bytes;
  const struct mapped_mapping *mapping;
  while (at < end && (mapping = mapped_span_find(&mapped_mappings, at)) != NULL &&
         mapping->base == at && mapping->bytes <= end - at)
    at += mapping->bytes;
  return at == end && bytes != 0;
}

/* Removes a mapping. The contents remain at their home. */
static void unmap_one(struct mapped_mapping *mapping) {
  struct mapped_mapping old = *mapping;
  bool ours;
  struct mapped_handle *handle = mapped_handle_find(old.handle, &ours);
  mapped_span_remove(&mapped_mappings, mapping);
  mapped_ranges_leave(&old);
  handle->mapped = false;
  mapped_handle_settle(handle);
}

bool pump_mapped_unmap(CUdeviceptr address, size_t bytes, CUresult *result) {
  if (PUMP_LOAD(&pump_mapped_reservations) == 0) return false;
  pthread_mutex_lock(&mapped_lock);
  bool ours = mapped_reservation_at(address) != NULL,
       whole = ours && mapped_is_filled(address, bytes);
  for (uint64_t at = address; whole && at < address + bytes;) {
    struct mapped_mapping *mapping = mapped_span_find(&mapped_mappings, at);
    at += mapping->bytes;
    unmap_one(mapping);
  }
  pthread_mutex_unlock(&mapped_lock);
  mapped_free_pending();
  *result = whole ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  return ours;
}

/* ---- ends ------------------------------ */

void pump_mapped_context_gone(CUcontext context) {
  pthread_mutex_lock(&mapped_lock);
  for (size_t i = 0; i < mapped_reservations.count; i++) {
    struct mapped_reservation *reserved = mapped_span_at(&mapped_reservations, i);
    if (reserved->context != context || reserved->managed == 0) continue;
    pump_limit_return(reserved->device,
                      mapped_set_left(reserved->base, reserved->bytes, 0));
    reserved->managed = 0;
    mapped_ranges_forget(reserved->base, reserved->bytes);
  }
  pthread_mutex_unlock(&mapped_lock);
}

static void empty(bool free_records) {
  struct mapped_spans *all[] = {&mapped_reservations, &mapped_mappings, &mapped_homes,
                                &mapped_ranges};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
    if (!free_records) all[i]->records = NULL;
    mapped_spans_reset(all[i]);
  }
  mapped_handles_reset();
  pending_count = 0;
  PUMP_STORE(&pump_mapped_reservations, 0);
}

void pump_mapped_reset(void) {
  empty(true);
}

/* Does not free the records, which another thread may have been changing at the fork. */
void pump_mapped_fork_child(void) {
  pthread_mutex_init(&mapped_real_lock, NULL);
  pthread_mutex_init(&mapped_lock, NULL);
  pthread_mutex_init(&mapped_spans_lock, NULL);
  empty(false);
}
