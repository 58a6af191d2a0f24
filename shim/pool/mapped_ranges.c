/* mapped_ranges.c - mapped memory as the worker knows it, and its contents (mapped.h).
 *
 * Mappings that become accessible in one call form one range. So a tensor of PyTorch,
 * which maps many handles for it at once, is in few ranges. A range stays until its last
 * mapping has ended; parts that are unmapped earlier are reported as dead.
 */
#include "mapped_state.h"

struct mapped_spans mapped_ranges = {.record_bytes = sizeof(struct mapped_range)};

/* Warns that a range cannot be tracked, so that only the driver pages its memory. */
static void say_untracked(void) {
  static uint32_t said;
  pump_log_once(&said, PUMP_LOG_WARNING,
                "mapped memory runs on demand paging: pump cannot track its range, because "
                "memory is short or there are too many ranges. Map fewer, larger ones");
}

static bool add_range(uint64_t base, uint64_t bytes, uint32_t device, CUcontext context) {
  struct pump_range_info info = {.base = base,
                                 .length_bytes = bytes,
                                 .requested_bytes = bytes,
                                 .kind = PUMP_RANGE_CONVERTED,
                                 .device = device,
                                 .context = context,
                                 .by_handle = true};
  struct mapped_range *range = mapped_span_add(&mapped_ranges, base, bytes);
  if (range == NULL || pump_range_add(&info) < 0) {
    if (range != NULL) mapped_span_remove(&mapped_ranges, range);
    say_untracked();
    return false;
  }
  if (info.displaced_bytes != 0) pump_limit_return(info.device, info.displaced_bytes);
  range->slot = info.slot;
  range->generation = info.generation;
  range->mapped_bytes = bytes;
  pump_peer_keep_on_device(&info);
  pump_populate_add(info.slot, info.generation);
  pump_event_range(PUMP_EVENT_ALLOC, &info);
  return true;
}

static uint32_t device_of(const struct mapped_mapping *mapping) {
  bool ours;
  return mapped_handle_find(mapping->handle, &ours)->device;
}

/* Returns the bytes of mappings, beginning with `first`, that can form one new range. */
static uint64_t run_bytes(const struct mapped_mapping *first, uint64_t end) {
  const struct mapped_mapping *mapping = first;
  uint64_t at = first->base;
  while (at < end && mapping != NULL && mapping->readers != 0 && !mapping->in_range &&
         device_of(mapping) == device_of(first) &&
         mapped_span_within(&mapped_ranges, at, mapping->bytes) == NULL) {
    at += mapping->bytes;
    mapping = mapped_span_find(&mapped_mappings, at);
  }
  return at - first->base;
}

/* Fills a hole of a range with a new mapping. */
static void refill(struct mapped_mapping *mapping) {
  struct mapped_range *range = mapped_span_find(&mapped_ranges, mapping->base);
  if (mapping->readers == 0 || mapping->in_range || range == NULL ||
      mapping->base + mapping->bytes > range->base + range->bytes)
    return;
  mapping->in_range = true;
  range->mapped_bytes += mapping->bytes;
  pump_populate_add(range->slot, range->generation);
}

void mapped_ranges_add(uint64_t base, uint64_t bytes) {
  CUcontext context =
      ((struct mapped_reservation *)mapped_span_find(&mapped_reservations, base))->context;
  uint64_t end = base + bytes;
  for (uint64_t at = base; at < end;) {
    struct mapped_mapping *mapping = mapped_span_find(&mapped_mappings, at);
    uint64_t run = run_bytes(mapping, end);
    if (run != 0 && add_range(at, run, device_of(mapping), context))
      for (uint64_t in = at; in < at + run; in += mapping->bytes) {
        mapping = mapped_span_find(&mapped_mappings, in);
        mapping->in_range = true;
      }
    if (run == 0) refill(mapping);
    at += run != 0 ? run : mapping->bytes;
  }
}

void mapped_ranges_leave(const struct mapped_mapping *mapping) {
  struct pump_range_info info;
  struct mapped_range *range = mapped_span_find(&mapped_ranges, mapping->base);
  if (!mapping->in_range || range == NULL) return;
  range->mapped_bytes -= mapping->bytes;
  if (range->mapped_bytes != 0) return;
  if (pump_range_remove(range->base, &info) == 0) {
    pump_event_range(PUMP_EVENT_FREE, &info);
    pump_slot_wait(info.slot);
    pump_range_release(info.slot);
  }
  mapped_span_remove(&mapped_ranges, range);
}

void mapped_ranges_forget(uint64_t base, uint64_t bytes) {
  struct mapped_range *range;
  while ((range = mapped_span_within(&mapped_ranges, base, bytes)) != NULL)
    mapped_span_remove(&mapped_ranges, range);
}

/* ---- contents ------------------------------ */

/* Makes a stream in the context if it is the current one. Requires a driver scope. */
static CUstream open_stream(CUcontext context) {
  CUcontext current = NULL;
  CUstream stream = NULL;
  if (pump_current_device(&current) < 0 || current != context) return NULL;
  return pump_stream_make(&stream) == CUDA_SUCCESS ? stream : NULL;
}

/* Discards contents, so that they take no GPU memory and are not copied to the host. */
static bool discard(CUcontext context, CUdeviceptr address, size_t bytes) {
  if (!PUMP_HAS(cuMemDiscardBatchAsync)) return false;
  struct pump_driver_scope scope = pump_driver_scope_open();
  CUstream stream = open_stream(context);
  bool done =
      stream != NULL &&
      pump_real.cuMemDiscardBatchAsync(&address, &bytes, 1, 0, stream) == CUDA_SUCCESS &&
      pump_real.cuStreamSynchronize(stream) == CUDA_SUCCESS;
  if (stream != NULL) pump_real.cuStreamDestroy_v2(stream);
  pump_driver_scope_close(scope);
  if (done) PUMP_ADD(&pump_shm->shim_counters.discarded_bytes, bytes);
  return done;
}

void mapped_contents_discard(const struct mapped_reservation *reserved, uint64_t base,
                             uint64_t bytes) {
  const struct mapped_range *range = mapped_span_find(&mapped_ranges, base);
  if (range == NULL) {
    discard(reserved->context, base, bytes);
    return;
  }
  bool closed = pump_slot_close(range->slot); /* false: an executor is working there */
  bool discarded = closed && discard(reserved->context, base, bytes);
  pump_slot_open(range->slot);
  pump_event_block(discarded ? PUMP_EVENT_DISCARDED : PUMP_EVENT_DEAD, range->slot,
                   base - range->base, bytes);
}

CUresult mapped_contents_copy(uint64_t to, uint64_t from, uint64_t bytes) {
  CUstream stream = NULL;
  struct pump_driver_scope scope = pump_driver_scope_open();
  CUresult result = pump_stream_make(&stream);
  if (result == CUDA_SUCCESS)
    result = pump_real.cuMemcpyDtoDAsync_v2(to, from, bytes, stream);
  if (result == CUDA_SUCCESS) result = pump_real.cuStreamSynchronize(stream);
  if (stream != NULL) pump_real.cuStreamDestroy_v2(stream);
  pump_driver_scope_close(scope);
  return result;
}
