/* observe_event.c - turns what hooks saw into extents, operations and events.
 *
 * DESIGN. The number of an operation is taken after its real call has returned
 * (blocking copies excepted). A thread that then records a marker behind number n
 * knows that the real calls of all numbers up to n were made before, so a marker
 * that has executed proves that everything issued on its stream up to n has. The
 * price: the worker hears of an operation a microsecond later than it could.
 *
 * Nobody waits here. A full ring drops the event and counts it; the worker then
 * recovers from the range table, whose last_use_seq is written in any case.
 */
#include <errno.h>

#include "act.h"
#include "observe.h"
#include "pump_ring.h"

/* ---- extents -------------------------------------------------------------- */

static void add_extent(struct pump_op *op, const struct pump_hit *hit, uint64_t offset,
                       uint64_t bytes, uint64_t access) {
  if (op->count == PUMP_MAX_EXTENTS) {
    op->dropped++;
    return;
  }
  op->extents[op->count++] = (struct pump_extent){.slot = hit->slot,
                                                  .generation = hit->generation,
                                                  .offset_bytes = offset,
                                                  .length_access = bytes << 2 | access};
}

/* Any aligned word may be a pointer. Two packed 32-bit numbers look like one too:
 * those whose low half is a small number, positive or negative, count only where
 * they are exactly the beginning of a range. */
void pump_op_word(struct pump_op *op, uint64_t word) {
  struct pump_hit hit;
  if (word < PUMP_BLOCK_BYTES || word >> 47 != 0) return;
  if (!pump_range_lookup(word, &hit)) return;
  uint32_t low = (uint32_t)word;
  if ((low < 0x10000u || low >= 0xffff0000u) && word != hit.base) return;
  uint64_t offset = word - hit.base;
  for (uint32_t i = op->count; i-- > 0;) {
    struct pump_extent *extent = &op->extents[i];
    if (extent->slot != hit.slot || extent->generation != hit.generation) continue;
    if (offset < extent->offset_bytes) extent->offset_bytes = offset;
    return;
  }
  add_extent(op, &hit, offset, 0, PUMP_ACCESS_ARGUMENT);
}

void pump_op_bytes(struct pump_op *op, uint64_t address, uint64_t bytes, uint32_t access) {
  struct pump_hit hit;
  if (bytes == 0 || !pump_range_lookup(address, &hit)) return;
  uint64_t begin = address - hit.base, room = hit.length_bytes - begin;
  uint64_t end = begin + (bytes < room ? bytes : room);
  if (access != PUMP_ACCESS_OVERWRITE) {
    add_extent(op, &hit, begin, end - begin, access);
    return;
  }
  /* What was rounded up behind the requested bytes is nobody's: a block that ends
   * there is overwritten whole. */
  if (hit.kind == PUMP_RANGE_CONVERTED && end == hit.requested_bytes)
    end = hit.length_bytes;
  const uint64_t block = PUMP_BLOCK_BYTES;
  uint64_t first = (hit.base + begin + block - 1) / block * block - hit.base;
  uint64_t last = (hit.base + end) / block * block;
  last = last > hit.base ? last - hit.base : 0;
  if (first >= last) {
    add_extent(op, &hit, begin, end - begin, PUMP_ACCESS_WRITE);
    return;
  }
  if (begin < first) add_extent(op, &hit, begin, first - begin, PUMP_ACCESS_WRITE);
  add_extent(op, &hit, first, last - first, PUMP_ACCESS_OVERWRITE);
  if (last < end) add_extent(op, &hit, last, end - last, PUMP_ACCESS_WRITE);
}

/* ---- the ring ------------------------------------------------------------- */

/* Writes one record: the head of the event, or a MORE record. */
static void fill(uint64_t position, const struct pump_event *head, uint64_t index,
                 const struct pump_extent *extents) {
  struct pump_event *record = pump_event_at(pump_shm, position);
  uint64_t *to = (uint64_t *)record;
  const uint64_t *from = (const uint64_t *)head;
  /* Word by word, `turn` left alone: it is published last. */
  for (size_t i = 1; i < offsetof(struct pump_event, extents) / sizeof *to; i++)
    PUMP_STORE(&to[i], from[i]);
  if (index > 0) PUMP_STORE(&record->kind, PUMP_EVENT_MORE);
  for (uint64_t i = 0; i < PUMP_EVENT_EXTENTS; i++) {
    uint64_t n = index * PUMP_EVENT_EXTENTS + i;
    if (n >= head->extent_count) break;
    const uint64_t *extent = (const uint64_t *)&extents[n];
    uint64_t *out = (uint64_t *)&record->extents[i];
    for (size_t w = 0; w < sizeof(struct pump_extent) / sizeof *out; w++)
      PUMP_STORE(&out[w], extent[w]);
  }
}

static void push(const struct pump_event *head, const struct pump_extent *extents) {
  struct pump_header *header = &pump_shm->header;
  uint64_t records =
      head->extent_count == 0
          ? 1
          : ((uint64_t)head->extent_count + PUMP_EVENT_EXTENTS - 1) / PUMP_EVENT_EXTENTS;
  uint64_t position;
  if (!pump_event_reserve(pump_shm, records, &position)) {
    PUMP_ADD(&pump_shm->shim_counters.events_dropped, 1);
  } else {
    for (uint64_t i = records; i-- > 0;) {
      fill(position + i, head, i, extents);
      pump_event_publish(pump_shm, position + i);
    }
  }
  pump_bell_ring(&header->worker_asleep, &header->worker_bell);
}

/* ---- operations ----------------------------------------------------------- */

/* Asked only while something is being captured. An error answer (a legacy stream
 * beside a capture) counts as capturing: nothing of ours may touch that stream. */
static bool capturing(CUstream stream) {
  if (PUMP_LIKELY(__atomic_load_n(&pump_captures, __ATOMIC_RELAXED) == 0)) return false;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return PUMP_HAS(cuStreamIsCapturing) &&
         (pump_real.cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS ||
          status != CU_STREAM_CAPTURE_STATUS_NONE);
}

/* Inside a bracket. */
static struct pump_token announce(struct pump_op *op, uint32_t kind, uint64_t function,
                                  struct pump_at at) {
  struct pump_token token = {0, 0, 0, 0};
  if (capturing(at.stream)) return token;
  int device = pump_current_device(NULL);
  token.time_ns = pump_now_ns();
  token.stream_index = pump_stream_index(at.given, at.per_thread);
  token.seq = PUMP_ADD(&pump_shm->header.next_seq, 1);
  for (uint32_t i = 0; i < op->count; i++) {
    token.touched_bytes += pump_range_touch(&op->extents[i], token.seq);
  }
  struct pump_event head = {
      .seq = token.seq,
      .time_ns = token.time_ns,
      .function = function,
      .kind = (uint16_t)kind,
      .extent_count = (uint16_t)op->count,
      .stream = token.stream_index,
      .device = device < 0 ? 0 : (uint16_t)device,
      .extents_dropped = op->dropped < UINT16_MAX ? (uint16_t)op->dropped : UINT16_MAX};
  push(&head, op->extents);
  PUMP_ADD(&pump_shm->shim_counters.operations, 1);
  if (op->dropped != 0) PUMP_ADD(&pump_shm->shim_counters.extents_dropped, op->dropped);
  return token;
}

static void issued(struct pump_token token, struct pump_at at) {
  if (token.seq != 0)
    pump_progress_issued(token.stream_index, at.stream, token.seq, token.time_ns,
                         token.touched_bytes);
}

void pump_op_report(struct pump_op *op, uint32_t kind, uint64_t function,
                    struct pump_at at) {
  int saved = errno;
  struct pump_bracket bracket = pump_bracket_open();
  issued(announce(op, kind, function, at), at);
  pump_bracket_close(bracket);
  errno = saved;
}

struct pump_token pump_op_announce(struct pump_op *op, uint32_t kind, uint64_t function,
                                   struct pump_at at) {
  int saved = errno;
  struct pump_bracket bracket = pump_bracket_open();
  struct pump_token token = announce(op, kind, function, at);
  pump_bracket_close(bracket);
  errno = saved;
  return token;
}

void pump_op_issued(struct pump_token token, struct pump_at at) {
  int saved = errno;
  struct pump_bracket bracket = pump_bracket_open();
  issued(token, at);
  pump_bracket_close(bracket);
  errno = saved;
}

/* ---- other events --------------------------------------------------------- */

void pump_event_range(uint32_t kind, const struct pump_range_info *info) {
  if (pump_dormant()) return;
  struct pump_extent whole = {.slot = info->slot,
                              .generation = info->generation,
                              .length_access = info->length_bytes << 2 | PUMP_ACCESS_WRITE};
  struct pump_event head = {.time_ns = pump_now_ns(),
                            .function = info->base,
                            .kind = (uint16_t)kind,
                            .extent_count = 1,
                            .device = (uint16_t)info->device};
  push(&head, &whole);
}

void pump_event_sync(uint32_t stream_index, uint64_t seq) {
  struct pump_event head = {.seq = seq,
                            .time_ns = pump_now_ns(),
                            .kind = PUMP_EVENT_SYNC,
                            .stream = stream_index};
  push(&head, NULL);
}

void pump_event_hint(uint64_t address, uint64_t bytes, struct pump_at at) {
  int saved = errno;
  struct pump_bracket bracket = pump_bracket_open();
  struct pump_op op;
  pump_op_begin(&op);
  pump_op_bytes(&op, address, bytes, PUMP_ACCESS_READ);
  if (op.count != 0 && !capturing(at.stream)) {
    int device = pump_current_device(NULL);
    struct pump_event head = {.seq = pump_newest_seq(),
                              .time_ns = pump_now_ns(),
                              .kind = PUMP_EVENT_HINT,
                              .extent_count = (uint16_t)op.count,
                              .stream = pump_stream_index(at.given, at.per_thread),
                              .device = device < 0 ? 0 : (uint16_t)device};
    push(&head, op.extents);
  }
  pump_bracket_close(bracket);
  errno = saved;
}
