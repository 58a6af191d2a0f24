/* event.c - turns observations of hooks into extents, operations and events.
 *
 * DESIGN. An operation gets its number after its real call has returned, except for
 * blocking copies. If a thread then records a marker after number n, the real calls of
 * all numbers up to n were made before. So once the marker has executed, everything
 * issued on its stream up to n has executed too. The price: the worker sees operations a
 * microsecond later.
 *
 * No thread waits here. If the ring is full, the event is dropped and counted. The worker
 * then recovers from last_use_seq in the range table, which is always written.
 *
 * Cache misses dominate the cost of a launch: ranges not read recently, ring records that
 * the worker read last, the newest number. So these lines are prefetched before they are
 * needed, and no code here waits for a store (see pump_wake_later).
 */
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "allocator_blocks.h"
#include "record.h"
#include "shim/base/upcalls.h"

/* Ring records prefetched into the cache, enough for a launch with twelve pointers. */
#define PREFETCHED 4u

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

/* Adds the rest of a block that continues in the ranges after `hit`. */
static void add_continued(struct pump_op *op, const struct pump_hit *hit, uint64_t index) {
  struct pump_hit next = *hit;
  struct pool_piece piece;
  do {
    const struct pump_pool_map *map;
    if (!pump_range_lookup(next.base + next.length_bytes, &next) || next.pool != NULL ||
        (map = pump_blocks_of(&next)) == NULL || !pump_block_continues(&next))
      return;
    piece = pool_map_piece(map, 0);
    if (!piece.live) return;
    add_extent(op, &next, 0,
               piece.length_bytes / PUMP_UNIT_BYTES << PUMP_ARGUMENT_BITS | index,
               PUMP_ACCESS_ARGUMENT);
  } while (piece.length_bytes == next.length_bytes);
}

void pump_op_argument(struct pump_op *op, const struct pump_hit *hit, uint64_t offset,
                      uint32_t argument) {
  uint64_t units = 0, index = argument & ((1u << PUMP_ARGUMENT_BITS) - 1);
  bool continued = false;
  const struct pump_pool_map *map = pump_blocks_of(hit);
  if (PUMP_UNLIKELY(map != NULL)) {
    struct pool_piece piece = pool_map_piece(map, offset);
    /* A pointer outside all live blocks is stale. */
    if (!piece.live && !op->of_graph) return;
    uint64_t end = piece.offset_bytes + piece.length_bytes;
    if (piece.live) units = end / PUMP_UNIT_BYTES - offset / PUMP_UNIT_BYTES;
    continued = piece.live && hit->by_handle && end == hit->length_bytes;
  }
  add_extent(op, hit, offset, units << PUMP_ARGUMENT_BITS | index, PUMP_ACCESS_ARGUMENT);
  if (PUMP_UNLIKELY(continued)) add_continued(op, hit, index);
}

void pump_op_bytes(struct pump_op *op, uint64_t address, uint64_t bytes, uint32_t access) {
  struct pump_hit hit;
  if (bytes == 0 || !pump_range_lookup(address, &hit)) return;
  uint64_t begin = address - hit.base, left = hit.length_bytes - begin;
  if (PUMP_UNLIKELY(bytes > left && hit.by_handle)) /* continues in the next mapping */
    pump_op_bytes(op, address + left, bytes - left, access);
  uint64_t end = begin + (bytes < left ? bytes : left);
  if (access != PUMP_ACCESS_OVERWRITE) {
    add_extent(op, &hit, begin, end - begin, access);
    return;
  }
  /* Padding after the requested bytes has no contents. An overwrite up to there covers
   * the last block completely. */
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

#define HEAD_WORDS (offsetof(struct pump_event, extents) / sizeof(uint64_t))
#define BODY_WORDS (PUMP_EVENT_PAYLOAD_BYTES / sizeof(uint64_t))
_Static_assert(sizeof(((struct pump_event *)0)->extents) == PUMP_EVENT_PAYLOAD_BYTES,
               "a payload takes their place");

/* Writes one record: the event's head, or a MORE record, and `count` words of body. */
static inline void fill(uint64_t position, const struct pump_event *head, bool more,
                        const uint64_t *body, size_t count) {
  struct pump_event *record = pump_event_at(pump_shm, position);
  uint64_t *to = (uint64_t *)record;
  const uint64_t *from = (const uint64_t *)head;
  /* Copies all words except `turn`, which is published last. */
#pragma GCC unroll 8
  for (size_t i = 1; i < HEAD_WORDS; i++) PUMP_STORE(&to[i], from[i]);
  if (more) PUMP_STORE(&record->kind, PUMP_EVENT_MORE);
  if (count >= BODY_WORDS) {
#pragma GCC unroll 16
    for (size_t i = 0; i < BODY_WORDS; i++) PUMP_STORE(&to[HEAD_WORDS + i], body[i]);
  } else {
    for (size_t i = 0; i < count; i++) PUMP_STORE(&to[HEAD_WORDS + i], body[i]);
  }
}

/* Pushes an event with `words` body words. If the ring is full, counts it, returns
 * false. */
static bool push(const struct pump_event *head, const uint64_t *body, size_t words) {
  struct pump_header *header = &pump_shm->header;
  uint64_t records = words == 0 ? 1 : (words + BODY_WORDS - 1) / BODY_WORDS, position;
  bool reserved = pump_event_reserve(pump_shm, records, &position);
  if (PUMP_LIKELY(reserved)) {
    for (uint64_t i = records; i-- > 0;) {
      size_t first = i * BODY_WORDS;
      fill(position + i, head, i > 0, body + first, words - first);
      pump_event_publish(pump_shm, position + i);
    }
  } else {
    PUMP_ADD(&pump_shm->shim_counters.events_dropped, 1);
  }
  pump_wake_later(&header->worker_asleep, &header->worker_wakes);
  return reserved;
}

static bool push_extents(const struct pump_event *head, const struct pump_extent *extents) {
  return push(head, (const uint64_t *)extents,
              head->extent_count * sizeof extents[0] / sizeof(uint64_t));
}

bool pump_event_payload(const struct pump_event *head, const void *payload, size_t bytes) {
  uint64_t words[PUMP_MAX_PAYLOAD_BYTES / sizeof(uint64_t)];
  struct pump_event event = *head;
  if (bytes > PUMP_MAX_PAYLOAD_BYTES) bytes = PUMP_MAX_PAYLOAD_BYTES;
  size_t count = (bytes + sizeof words[0] - 1) / sizeof words[0];
  if (count != 0) words[count - 1] = 0;
  memcpy(words, payload, bytes);
  event.time_ns = pump_now_ns();
  event.payload_bytes = (uint32_t)bytes;
  return push(&event, words, count);
}

/* Prefetches the lines of the next records, from number `first` up to `end`. The worker
 * read them last, so they are in its core's cache. */
static void prefetch_records(uint64_t first, uint64_t end) {
  uint64_t tail = PUMP_LOAD(&pump_shm->header.event_tail);
  for (uint64_t i = first; i < end; i++) {
    const char *record = (const char *)pump_event_at(pump_shm, tail + i);
    __builtin_prefetch(record, 1);
    __builtin_prefetch(record + 64, 1);
  }
}

/* ---- operations ----------------------------------------------------------- */

/* Compares an issued operation with its prediction. `launch` may be NULL. */
static inline void compare(const struct pump_event *head, const struct pump_launch *launch,
                           uint32_t identity) {
  if (PUMP_LIKELY(PUMP_LOAD(&pump_shm->header.armed) == 0)) return;
  struct pump_issued issued = {.seq = head->seq,
                               .stream = head->stream,
                               .kind = head->kind,
                               .signature = head->signature,
                               .identity = identity};
  if (launch != NULL) {
    issued.grid = launch->grid;
    issued.block = launch->block;
  }
  pump_upcalls.operation_issued(&issued);
}

/* Registers the thread as an issuer, whose waits for a CPU core the worker measures. */
static __thread const struct pump_header *issues_into;
static void note_issuer(struct pump_header *header) {
  uint32_t thread = (uint32_t)syscall(SYS_gettid);
  issues_into = header;
  for (uint32_t i = 0; i < PUMP_ISSUERS; i++) {
    uint32_t none = 0;
    if (__atomic_compare_exchange_n(&header->issuers[i], &none, thread, false,
                                    __ATOMIC_RELAXED, __ATOMIC_RELAXED))
      return;
  }
}

/* Numbers and sends an operation, in the guard. `launch`: NULL if it is not a launch. */
static struct pump_token announce(struct pump_op *op, uint32_t kind, uint64_t function,
                                  const struct pump_launch *launch,
                                  struct pump_stream_ref ref, uint64_t now_ns) {
  struct pump_token token = {.time_ns = now_ns, .stream_index = ref.stream_index};
  token.seq = PUMP_ADD(&pump_shm->header.next_seq, 1);
  PUMP_ADD(&pump_shm->shim_counters.operations, 1);
  if (PUMP_UNLIKELY(issues_into != &pump_shm->header)) note_issuer(&pump_shm->header);
  if (PUMP_UNLIKELY(op->dropped != 0))
    PUMP_ADD(&pump_shm->shim_counters.extents_dropped, op->dropped);
  for (uint32_t i = 0; i < op->count; i++)
    token.touched_bytes += pump_range_touch(&op->extents[i], token.seq);
  if (launch != NULL) pump_launch_touched(launch, ref.device, token.touched_bytes);
  struct pump_event head; /* all but the extents, which push() does not read */
  head.seq = token.seq;
  head.time_ns = token.time_ns;
  head.function = function;
  head.kind = (uint16_t)kind;
  head.extent_count = (uint16_t)op->count;
  head.stream = token.stream_index;
  head.device = (uint16_t)ref.device;
  head.extents_dropped = op->dropped < UINT16_MAX ? (uint16_t)op->dropped : UINT16_MAX;
  head.payload_bytes = 0;
  head.signature = op->signature;
  compare(&head, launch, op->identity);
  push_extents(&head, op->extents);
  return token;
}

static void issued(struct pump_token token, struct pump_at at) {
  if (token.seq != 0)
    pump_progress_issued(token.stream_index, at.stream, token.seq, token.time_ns,
                         token.touched_bytes);
}

/* Announces an operation, in the guard. Returns seq 0 on a capturing stream. */
static struct pump_token announce_at(struct pump_op *op, uint32_t kind, uint64_t function,
                                     struct pump_at at) {
  struct pump_token none = {0, 0, 0, 0};
  if (pump_capturing(at.stream)) return none;
  return announce(op, kind, function, NULL, pump_stream_ref_of(at), pump_now_ns());
}

void pump_op_start_timing(struct pump_at at) {
  if (pump_quiet()) return;
  int saved = errno;
  pump_enter();
  pump_progress_time(pump_stream_ref_of(at).stream_index, at.stream);
  pump_leave();
  errno = saved;
}

void pump_op_gate(struct pump_at at, bool large) {
  if (pump_quiet()) return;
  int saved = errno;
  pump_enter();
  pump_progress_gate(pump_stream_ref_of(at).stream_index, at.stream, large);
  pump_leave();
  errno = saved;
}

void pump_op_report(struct pump_op *op, uint32_t kind, uint64_t function,
                    struct pump_at at) {
  int saved = errno;
  pump_enter();
  issued(announce_at(op, kind, function, at), at);
  pump_leave();
  errno = saved;
}

void pump_launch_report(const struct pump_launch *launch, struct pump_at at) {
  int saved = errno;
  pump_enter();
  if (PUMP_LIKELY(!pump_capturing(at.stream))) {
    struct pump_op op;
    struct pump_scan words;
    pump_params_scan(&words, launch);
    pump_scan_look_ahead(&words);
    /* While these lines arrive, do the work that does not need them. */
    prefetch_records(0, PREFETCHED);
    __builtin_prefetch(&pump_shm->header.next_seq, 1);
    struct pump_stream_ref ref = pump_stream_ref_of(at);
    uint64_t now_ns = pump_now_ns(), function = (uint64_t)(uintptr_t)launch->function;
    pump_op_begin(&op);
    pump_scan_resolve(&words, &op);
    op.dropped += launch->unknown;
    op.signature = pump_scan_signature(&words, launch);
    op.identity = words.identity;
    prefetch_records(PREFETCHED, op.count / PUMP_EVENT_EXTENTS + 1);
    pump_send_metadata(launch, op.signature, words.identity);
    struct pump_token token =
        announce(&op, PUMP_EVENT_KERNEL, function, launch, ref, now_ns);
    if (PUMP_UNLIKELY(launch->chained)) pump_progress_chained(token.stream_index);
    issued(token, at);
  }
  pump_leave();
  errno = saved;
}

void pump_launch_describe(const struct pump_launch *launch, struct pump_op *op) {
  struct pump_scan words;
  pump_params_scan(&words, launch);
  pump_scan_look_ahead(&words);
  pump_op_begin(op);
  op->of_graph = true;
  pump_scan_resolve(&words, op);
  op->signature = pump_scan_signature(&words, launch);
  op->identity = words.identity;
}

/* ---- series ---------------------------------------------------------------- */

static void send_series_metadata(const struct pump_series *series) {
  uint64_t state = pump_metadata_state();
  if (PUMP_LIKELY(*series->sent == state)) return;
  bool all = true;
  for (uint32_t i = 0; i < series->count; i++) {
    const struct pump_ready *ready = &series->operations[i];
    if (ready->launch != NULL)
      all &= pump_send_metadata(ready->launch, ready->signature, ready->identity);
  }
  if (all) *series->sent = state;
}

/* Sends the GRAPH record: the next series->count operations are one graph launch. */
static void push_graph(const struct pump_series *series, const struct pump_event *first) {
  struct pump_event head = *first;
  head.kind = PUMP_EVENT_GRAPH;
  head.extent_count = head.extents_dropped = 0;
  head.function = series->graph;
  head.signature = series->count;
  push(&head, NULL, 0);
}

/* Numbers and sends a series. One step allocates all numbers, so they have no gaps. */
static struct pump_token announce_series(const struct pump_series *series,
                                         struct pump_stream_ref ref) {
  struct pump_shim_counters *counters = &pump_shm->shim_counters;
  struct pump_token token = {.time_ns = pump_now_ns(), .stream_index = ref.stream_index};
  uint64_t dropped = 0, seq = PUMP_ADD(&pump_shm->header.next_seq, series->count);
  struct pump_event head = {.seq = seq,
                            .time_ns = token.time_ns,
                            .stream = ref.stream_index,
                            .device = (uint16_t)ref.device};
  if (PUMP_UNLIKELY(issues_into != &pump_shm->header)) note_issuer(&pump_shm->header);
  push_graph(series, &head);
  for (uint32_t i = 0; i < series->count; i++, seq++) {
    const struct pump_ready *ready = &series->operations[i];
    for (uint32_t k = 0; k < ready->count; k++)
      token.touched_bytes += pump_range_touch(&ready->extents[k], seq);
    dropped += ready->dropped;
    head.seq = seq;
    head.function =
        ready->launch == NULL ? 0 : (uint64_t)(uintptr_t)ready->launch->function;
    head.kind = (uint16_t)ready->kind;
    head.extent_count = ready->count;
    head.extents_dropped = ready->dropped;
    head.signature = ready->signature;
    compare(&head, ready->launch, ready->identity);
    push_extents(&head, ready->extents);
  }
  token.seq = seq - 1;
  PUMP_ADD(&counters->operations, series->count);
  PUMP_ADD(&counters->graph_operations, series->count);
  PUMP_ADD(&counters->graph_launches, 1);
  if (dropped != 0) PUMP_ADD(&counters->extents_dropped, dropped);
  return token;
}

void pump_series_report(const struct pump_series *series, struct pump_at at) {
  if (series->count == 0 || pump_capturing(at.stream)) return;
  struct pump_stream_ref ref = pump_stream_ref_of(at);
  send_series_metadata(series);
  struct pump_token token = announce_series(series, ref);
  pump_progress_issued_many(token.stream_index, series->count - 1);
  issued(token, at);
}

struct pump_token pump_op_announce(struct pump_op *op, uint32_t kind, uint64_t function,
                                   struct pump_at at) {
  int saved = errno;
  pump_enter();
  struct pump_token token = announce_at(op, kind, function, at);
  pump_leave();
  errno = saved;
  return token;
}

void pump_op_issued(struct pump_token token, struct pump_at at) {
  int saved = errno;
  pump_enter();
  issued(token, at);
  pump_leave();
  errno = saved;
}

/* ---- other events --------------------------------------------------------- */

void pump_event_range(uint32_t kind, const struct pump_range_info *info) {
  if (pump_reports_nothing()) return;
  struct pump_extent whole = {.slot = info->slot,
                              .generation = info->generation,
                              .length_access = info->length_bytes << 2 | PUMP_ACCESS_WRITE};
  struct pump_event head = {.time_ns = pump_now_ns(),
                            .function = info->base,
                            .kind = (uint16_t)kind,
                            .extent_count = 1,
                            .device = (uint16_t)info->device};
  push_extents(&head, &whole);
}

void pump_event_block(uint32_t kind, uint32_t slot, uint64_t offset_bytes,
                      uint64_t length_bytes) {
  if (pump_reports_nothing()) return;
  const struct pump_range *range = &pump_shm->ranges[slot];
  struct pump_extent blocks = {.slot = slot,
                               .generation = PUMP_LOAD(&range->generation),
                               .offset_bytes = offset_bytes,
                               .length_access = length_bytes << 2 | PUMP_ACCESS_WRITE};
  struct pump_event head = {.time_ns = pump_now_ns(),
                            .kind = (uint16_t)kind,
                            .extent_count = 1,
                            .device =
                                (uint16_t)(PUMP_LOAD(&range->device) % PUMP_MAX_DEVICES)};
  push_extents(&head, &blocks);
}

/* Process-wide. Written by any thread and read at the process's end. A forked child
 * inherits the value. */
static bool waited;

bool pump_event_waited(void) {
  return PUMP_LOAD(&waited);
}

void pump_event_sync(uint32_t stream_index, uint64_t seq, uint64_t began_ns) {
  PUMP_STORE(&waited, true);
  struct pump_event head = {.seq = seq,
                            .time_ns = pump_now_ns(),
                            .kind = PUMP_EVENT_SYNC,
                            .stream = stream_index,
                            .signature = began_ns};
  push(&head, NULL, 0);
}

/* Sends a record about a stream's operations, from one of the shim's threads. */
static void push_of_stream(struct pump_event *head) {
  uint32_t device = head->stream < PUMP_MAX_STREAMS
                        ? PUMP_LOAD(&pump_shm->progress[head->stream].device)
                        : 0;
  head->device = (uint16_t)(device % PUMP_MAX_DEVICES);
  push(head, NULL, 0);
}

void pump_event_progress(uint32_t stream_index, uint64_t seq, uint64_t time_ns,
                         uint64_t before_ns) {
  if (PUMP_LIKELY(!pump_recording) || pump_reports_nothing()) return;
  struct pump_event head = {.seq = seq,
                            .time_ns = time_ns,
                            .kind = PUMP_EVENT_PROGRESS,
                            .stream = stream_index,
                            .signature = before_ns};
  push_of_stream(&head);
}

void pump_event_timed(uint32_t stream_index, uint64_t seq, uint64_t elapsed_ns) {
  if (pump_reports_nothing()) return;
  struct pump_event head = {.seq = seq,
                            .time_ns = pump_now_ns(),
                            .kind = PUMP_EVENT_TIMED,
                            .stream = stream_index,
                            .signature = elapsed_ns};
  push_of_stream(&head);
}

void pump_event_hint(uint64_t address, uint64_t bytes, struct pump_at at) {
  int saved = errno;
  pump_enter();
  struct pump_op op;
  pump_op_begin(&op);
  pump_op_bytes(&op, address, bytes, PUMP_ACCESS_READ);
  if (op.count != 0 && !pump_capturing(at.stream)) {
    struct pump_stream_ref ref = pump_stream_ref_of(at);
    struct pump_event head = {.seq = pump_newest_seq(),
                              .time_ns = pump_now_ns(),
                              .kind = PUMP_EVENT_HINT,
                              .extent_count = (uint16_t)op.count,
                              .stream = ref.stream_index,
                              .device = (uint16_t)ref.device};
    push_extents(&head, op.extents);
  }
  pump_leave();
  errno = saved;
}
