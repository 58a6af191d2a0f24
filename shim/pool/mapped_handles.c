/* mapped_handles.c - handles of memory that pump serves (mapped.h): creation, properties
 * and end.
 *
 * A key is neither an address nor a small number, so it never equals a handle of the
 * driver. An ended handle's key is still known as pump's, and never reaches the driver.
 */
#include <errno.h>

#include "mapped_state.h"
#include "pool.h"
#include "shim/base/key_table.h"
#include "shim/memory/rules.h"

#define BUCKETS (1u << 16)
#define KEY_BEGIN (0x9e4dull << 48) /* keys are KEY_BEGIN + 1, KEY_BEGIN + 2, ... */
#define KEY_MASK (0xffffull << 48)

pthread_mutex_t mapped_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t mapped_real_lock = PTHREAD_MUTEX_INITIALIZER;

/* Guarded by mapped_lock. */
static struct mapped_handle handle_buckets[BUCKETS];
static struct pump_table handles = PUMP_TABLE(handle_buckets);
static uint64_t made;

/* The driver's answers for each kind of memory; see asked(). */
#define KINDS 32
static struct kind {
  CUmemAllocationProp properties; /* requested */
  unsigned char compression;      /* granted */
  CUresult answer;
} kinds[KINDS];
static uint32_t kind_count;

/* Handles of the driver that are not mapped yet; further ones are not recorded. */
#define WAITING 64
static uint64_t waiting[WAITING];
static uint32_t waiting_count;

struct mapped_handle *mapped_handle_find(uint64_t key, bool *ours) {
  PUMP_ASSERT(pump_is_locked(&mapped_lock), "mapped_lock guards the handles");
  *ours = (key & KEY_MASK) == KEY_BEGIN;
  return *ours ? pump_table_find(&handles, key) : NULL;
}

void mapped_explain(const char *call, const char *why, uint32_t *said) {
  char caller[64];
  pump_rule_caller(caller, sizeof caller);
  pump_log_once(said, PUMP_LOG_WARNING,
                "%s by %s fails: %s. Exclude such memory with pump-run --keep-device vmm",
                call, PUMP_QUOTED(caller), why);
}

/* ---- create ------------------------------ */

/* Returns whether managed memory can replace such memory, on a device that converts. The
 * lack of compression shows only in its bandwidth. */
static bool is_served(const CUmemAllocationProp *properties, size_t bytes) {
  return properties->type == CU_MEM_ALLOCATION_TYPE_PINNED &&
         properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
         properties->location.id >= 0 && properties->location.id < PUMP_MAX_DEVICES &&
         properties->allocFlags.usage == 0 && bytes != 0 && bytes % PUMP_BLOCK_BYTES == 0 &&
         bytes < 1ull << 47 &&
         (pump_device_converts((uint32_t)properties->location.id) ||
          pump_device_will_convert((uint32_t)properties->location.id));
}

/* Finds out whether the driver can make memory of that kind, because programs try which
 * handle types exist. Done once for each kind, with one block, without the lock. */
static CUresult ask(struct kind *kind) {
  CUmemGenericAllocationHandle handle;
  CUmemAllocationProp granted;
  CUresult result = pump_real.cuMemCreate(&handle, PUMP_BLOCK_BYTES, &kind->properties, 0);
  if (result != CUDA_SUCCESS) return result;
  if (pump_real.cuMemGetAllocationPropertiesFromHandle(&granted, handle) == CUDA_SUCCESS)
    kind->compression = granted.allocFlags.compressionType;
  pump_real.cuMemRelease(handle);
  return CUDA_SUCCESS;
}

static bool same_kind(const CUmemAllocationProp *a, const CUmemAllocationProp *b) {
  return a->requestedHandleTypes == b->requestedHandleTypes &&
         a->location.id == b->location.id &&
         a->allocFlags.gpuDirectRDMACapable == b->allocFlags.gpuDirectRDMACapable &&
         a->allocFlags.compressionType == b->allocFlags.compressionType;
}

static struct kind asked(const CUmemAllocationProp *properties) {
  struct kind kind = {.properties = *properties,
                      .compression = properties->allocFlags.compressionType};
  bool known = false;
  pthread_mutex_lock(&mapped_lock);
  for (uint32_t i = 0; i < kind_count && !known; i++) {
    known = same_kind(&kinds[i].properties, properties);
    if (known) kind = kinds[i];
  }
  pthread_mutex_unlock(&mapped_lock);
  if (known) return kind;
  kind.answer = ask(&kind);
  if (kind.answer == CUDA_ERROR_OUT_OF_MEMORY) { /* a full GPU gives no answer */
    kind.answer = CUDA_SUCCESS;
    return kind;
  }
  pthread_mutex_lock(&mapped_lock);
  if (kind_count < KINDS) kinds[kind_count++] = kind;
  pthread_mutex_unlock(&mapped_lock);
  return kind;
}

/* Returns 0, -ENOSPC (it fits as plain memory), or -ENOMEM after a log line. */
static int admit(uint32_t device, uint64_t bytes) {
  int admitted = pump_limit_try(device, bytes);
  if (admitted != -ENOMEM) return admitted;
  pump_pool_free_idle(device);
  return pump_limit_admit(device, bytes);
}

static void account(uint32_t device, int64_t bytes) {
  pthread_mutex_lock(&pump_range_lock);
  pump_device_add_bytes(device, bytes, 0);
  pthread_mutex_unlock(&pump_range_lock);
}

bool pump_mapped_create(CUmemGenericAllocationHandle *out, size_t bytes,
                        const CUmemAllocationProp *properties, unsigned long long flags,
                        CUresult *result) {
  if (out == NULL || properties == NULL || flags != 0 || !is_served(properties, bytes) ||
      pump_rule_mapped())
    return false;
  struct kind kind = asked(properties);
  if (kind.answer != CUDA_SUCCESS) return false;
  uint32_t device = (uint32_t)properties->location.id;
  bool ready = pump_device_converts(device); /* false: the limit may be unknown yet */
  int admitted = ready ? admit(device, bytes) : pump_limit_try(device, bytes);
  if (admitted != 0 && !ready) return false;
  if (admitted == -ENOSPC && PUMP_LOAD(&pump_mapped_reservations) == 0) return false;
  if (admitted != 0) {
    if (admitted == -ENOSPC) pump_limit_explain(device, bytes);
    *result = CUDA_ERROR_OUT_OF_MEMORY;
    return true;
  }
  pthread_mutex_lock(&mapped_lock);
  struct mapped_handle *handle = pump_table_add(&handles, KEY_BEGIN + ++made);
  if (handle != NULL) {
    handle->bytes = bytes;
    handle->properties = *properties;
    handle->properties.allocFlags.compressionType = kind.compression;
    handle->device = device;
    handle->references = 1;
    *out = handle->key;
    account(device, (int64_t)bytes);
  }
  pthread_mutex_unlock(&mapped_lock);
  if (handle == NULL) pump_limit_return(device, bytes);
  *result = CUDA_SUCCESS;
  return handle != NULL;
}

/* ---- end ------------------------------ */

void mapped_home_leave(struct mapped_handle *handle) {
  uint64_t counted = 0, from = handle->home, bytes = handle->home_bytes;
  struct mapped_reservation *reserved = mapped_span_find(&mapped_reservations, from);
  mapped_span_remove(&mapped_homes, mapped_span_find(&mapped_homes, from));
  handle->home = 0;
  if (reserved->managed != 0) {
    mapped_contents_discard(reserved, from, bytes);
    counted = mapped_set_left(from, bytes, 1);
  }
  pump_limit_return(handle->device, bytes - counted);
  PUMP_ASSERT(reserved->homes != 0, "a reservation counts the contents in it");
  reserved->homes--;
  mapped_reservation_settle(reserved);
}

void mapped_handle_settle(struct mapped_handle *handle) {
  if (handle->references != 0 || handle->mapped) return;
  if (handle->real == 0) {
    uint64_t elsewhere_bytes = handle->bytes;
    account(handle->device, -(int64_t)handle->bytes);
    if (handle->home != 0) {
      elsewhere_bytes -= handle->home_bytes;
      mapped_home_leave(handle);
    }
    pump_limit_return(handle->device, elsewhere_bytes);
  }
  pump_table_take_out(&handles, handle);
}

bool pump_mapped_release(CUmemGenericAllocationHandle *key, CUresult *result) {
  bool ours;
  CUmemGenericAllocationHandle real = 0;
  pthread_mutex_lock(&mapped_lock);
  struct mapped_handle *handle = mapped_handle_find(*key, &ours);
  bool referenced = handle != NULL && handle->references != 0;
  if (referenced && --handle->references == 0) {
    real = handle->real; /* the driver's handle has one reference */
    mapped_handle_settle(handle);
  }
  if (!ours || real != 0) mapped_forget_waiting(ours ? real : *key);
  pthread_mutex_unlock(&mapped_lock);
  mapped_free_pending();
  if (real != 0) *key = real;
  *result = referenced ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  return ours && real == 0;
}

bool pump_mapped_retain(CUmemGenericAllocationHandle *key, CUdeviceptr address,
                        CUresult *result) {
  if (key == NULL || !pump_mapped_contains(address)) return false;
  bool ours;
  pthread_mutex_lock(&mapped_lock);
  const struct mapped_mapping *mapping = mapped_span_find(&mapped_mappings, address);
  struct mapped_handle *handle =
      mapping == NULL ? NULL : mapped_handle_find(mapping->handle, &ours);
  if (handle != NULL) {
    handle->references++;
    *key = handle->key;
  }
  pthread_mutex_unlock(&mapped_lock);
  *result = handle != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  return true;
}

bool pump_mapped_properties(CUmemAllocationProp *properties,
                            CUmemGenericAllocationHandle *key, CUresult *result) {
  bool ours;
  pthread_mutex_lock(&mapped_lock);
  const struct mapped_handle *handle = mapped_handle_find(*key, &ours);
  bool known = handle != NULL && properties != NULL;
  if (known) *properties = handle->properties;
  pthread_mutex_unlock(&mapped_lock);
  *result = known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  return ours;
}

/* ---- memory that is, or becomes, the driver's -------------------------------- */

/* Skips handles of libraries in the rules: these map them at the driver's addresses. */
void pump_mapped_note_real(CUmemGenericAllocationHandle handle) {
  if (pump_rule_mapped()) return;
  pthread_mutex_lock(&mapped_lock);
  if (waiting_count < WAITING) waiting[waiting_count++] = handle;
  pthread_mutex_unlock(&mapped_lock);
}

bool mapped_take_waiting(void) {
  if (waiting_count == 0) return false;
  waiting_count--;
  return true;
}

void mapped_forget_waiting(uint64_t real) {
  for (uint32_t i = 0; i < waiting_count; i++)
    if (waiting[i] == real) waiting[i--] = waiting[--waiting_count];
}

static CUresult make_real(const struct mapped_handle *handle,
                          CUmemGenericAllocationHandle *real) {
  struct pump_driver_scope scope = pump_driver_scope_open();
  CUresult result = pump_real.cuMemCreate(real, handle->bytes, &handle->properties, 0);
  pump_driver_scope_close(scope);
  return result;
}

static void become_real(struct mapped_handle *handle, uint64_t real) {
  account(handle->device, -(int64_t)handle->bytes);
  pump_limit_return(handle->device, handle->bytes);
  pump_physical_created(real, handle->bytes, handle->device);
  handle->real = real;
}

CUresult mapped_handle_become_real(struct mapped_handle *handle) {
  CUmemGenericAllocationHandle real;
  CUresult result = make_real(handle, &real);
  if (result == CUDA_SUCCESS) become_real(handle, real);
  return result;
}

/* Finds the driver's handle for a loan; false if there is none. Requires both locks. */
static bool lend(struct pump_mapped_loan *loan, CUresult *result) {
  bool ours;
  struct mapped_handle *handle = mapped_handle_find(loan->handle, &ours);
  *result = !ours || handle != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  if (handle == NULL) return !ours;
  if (handle->real == 0 && handle->home != 0) *result = CUDA_ERROR_NOT_SUPPORTED;
  loan->real = handle->real;
  if (handle->real != 0 || handle->home != 0) return handle->real != 0;
  *result = make_real(handle, &loan->real);
  loan->lent = *result == CUDA_SUCCESS;
  return loan->lent;
}

bool pump_mapped_lend(struct pump_mapped_loan *loan, const char *call, uint32_t *said,
                      CUresult *result) {
  pthread_mutex_lock(&mapped_real_lock);
  pthread_mutex_lock(&mapped_lock);
  bool can = lend(loan, result);
  pthread_mutex_unlock(&mapped_lock);
  if (!loan->lent) pthread_mutex_unlock(&mapped_real_lock);
  if (*result == CUDA_ERROR_NOT_SUPPORTED)
    mapped_explain(call, "CUDA cannot share memory that pump made pageable", said);
  return can;
}

void pump_mapped_lent(const struct pump_mapped_loan *loan, bool succeeded) {
  bool ours;
  pthread_mutex_lock(&mapped_lock);
  struct mapped_handle *handle = mapped_handle_find(loan->handle, &ours);
  bool kept = succeeded && handle != NULL; /* NULL: released by another thread */
  if (kept) become_real(handle, loan->real);
  pthread_mutex_unlock(&mapped_lock);
  pthread_mutex_unlock(&mapped_real_lock);
  if (kept)
    pump_mapped_note_real(loan->real);
  else
    pump_real.cuMemRelease(loan->real);
}

bool pump_mapped_no_tiles(const CUarrayMapInfo *list, unsigned int count) {
  static uint32_t said;
  bool ours = false;
  pthread_mutex_lock(&mapped_lock);
  for (unsigned int i = 0; list != NULL && i < count && !ours; i++) {
    mapped_handle_find(list[i].memHandle.memHandle, &ours);
    mapped_forget_waiting(list[i].memHandle.memHandle);
  }
  pthread_mutex_unlock(&mapped_lock);
  if (ours)
    mapped_explain(
        "cuMemMapArrayAsync",
        "pump made memory pageable that was created without CU_MEM_CREATE_USAGE_TILE_POOL",
        &said);
  return !ours;
}

void mapped_handles_reset(void) {
  pump_table_reset(&handles);
  kind_count = waiting_count = 0;
}
