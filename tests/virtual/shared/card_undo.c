/* card_undo.c - interrupts calls on the model of a shared GPU in their middle.
 *
 *   card_undo PROFILE SEED ROUNDS
 *
 * Two owners make random calls. Sometimes one dies at a random change of the state, in
 * the middle of a step. The other must then find the state exactly as it was at the last
 * commit, byte by byte. It removes the dead owner, and that is interrupted too. Prints
 * the numbers of deaths and of evictions. Built with UVM_JOURNAL_PROBE. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/gpu/gpu_engine_state.h"

#define BLOCKS 512u /* of both owners */
#define HALF (BLOCKS / 2)
#define MEMORY (48ull << 21)
#define STREAMS 6
#define EVENTS 8
#define NOTES 64
#define TICKETS 1024
#define MUST(what)                                                                         \
  do {                                                                                     \
    if (!(what)) {                                                                         \
      fprintf(stderr, "round %ld: %s\n", round_number, #what);                             \
      exit(1);                                                                             \
    }                                                                                      \
  } while (0)

void uvm_journal_probe(const struct uvm *uvm, bool committed);

struct owner {
  uint32_t number;
  int streams[STREAMS], events[EVENTS];
  uint8_t live[HALF];
  uint64_t plain_bytes, host_tickets[TICKETS];
  uint32_t host_count;
};

static struct gpu_engine *engine;
static uint8_t *snapshot, *copy;
static size_t before_journal, after_journal, all_bytes;
static long until_death, deaths, round_number;
static jmp_buf at_death;
static uint64_t now_ns = 1000;
static unsigned seed;
static struct owner owners[2];
static struct uvm_profile profile;

void uvm_journal_probe(const struct uvm *uvm, bool committed) {
  (void)uvm;
  if (committed) {
    memcpy(snapshot, engine, before_journal);
    memcpy(snapshot + after_journal, (uint8_t *)engine + after_journal,
           all_bytes - after_journal);
  } else if (until_death > 0 && --until_death == 0) {
    longjmp(at_death, 1);
  }
}

static uint32_t pick(uint32_t count) {
  return (uint32_t)rand_r(&seed) % count;
}

/* Clears the uses in free nodes, which are never read and which no journal keeps. */
static void forget_free_uses(uint8_t *state) {
  const struct gpu_engine *e = (const struct gpu_engine *)(void *)state;
  struct gpu_use_node *nodes = (struct gpu_use_node *)(void *)(state + e->uses_offset);
  for (uint32_t i = e->free_use; i != GPU_NONE; i = nodes[i].next)
    nodes[i] = (struct gpu_use_node){.next = nodes[i].next};
}

static bool as_committed(void) {
  memcpy(copy, engine, all_bytes);
  forget_free_uses(copy);
  forget_free_uses(snapshot);
  return memcmp(copy, snapshot, before_journal) == 0 &&
         memcmp(copy + after_journal, snapshot + after_journal,
                all_bytes - after_journal) == 0;
}

static uint32_t run_of(const struct owner *o, bool live, uint32_t *first) {
  *first = pick(HALF);
  uint32_t count = 0, most = 1 + pick(40);
  while (count < most && *first + count < HALF && (o->live[*first + count] != 0) == live)
    count++;
  return count;
}

static void submit(struct owner *o) {
  static const uint32_t kinds[] = {
      GPU_KERNEL,       GPU_KERNEL,     GPU_COPY_H2D, GPU_COPY_D2H, GPU_MEMSET,
      GPU_EVENT_RECORD, GPU_EVENT_WAIT, GPU_HOST,     GPU_DISCARD,  GPU_PREFETCH_IN};
  struct gpu_use uses[4];
  struct gpu_submitted out;
  struct gpu_operation operation = {.kind = kinds[pick(10)],
                                    .uses = uses,
                                    .duration_ns = pick(200000),
                                    .length_bytes = (uint64_t)pick(40) << 21,
                                    .cookie = 1 + pick(3),
                                    .discard_kind = 1 + pick(2),
                                    .event = (uint32_t)o->events[pick(EVENTS)]};
  for (uint32_t tries = pick(4); tries > 0; tries--) {
    uint32_t first, count = run_of(o, true, &first);
    if (count > 0)
      uses[operation.use_count++] = (struct gpu_use){o->number * HALF + first, count,
                                                     (uint16_t)pick(3), GPU_WRITE, 0};
  }
  uint32_t stream = pick(3) ? (uint32_t)o->streams[pick(STREAMS)] : o->number;
  gpu_submit(engine, now_ns, NULL, stream, &operation, &out);
  if (operation.kind == GPU_HOST) o->host_tickets[o->host_count++ % TICKETS] = out.ticket;
}

/* Completes host operations that have started; tickets that have ended are refused. */
static void complete(const struct owner *o) {
  for (uint32_t i = 0; i < o->host_count && i < TICKETS; i++)
    gpu_complete(engine, now_ns, NULL, o->host_tickets[i]);
}

static void act(struct owner *o) {
  struct gpu_cost cost;
  uint32_t first, count;
  uint64_t bytes = (uint64_t)pick(12) << 19;
  now_ns += pick(300000);
  switch (pick(11)) {
  case 0:
    count = run_of(o, false, &first);
    if (count > 0 &&
        gpu_range_create(engine, now_ns, NULL, o->number * HALF + first, count) == GPU_OK)
      memset(o->live + first, 1, count);
    break;
  case 1:
    count = run_of(o, true, &first);
    if (count > 0 && pick(3) == 0 &&
        gpu_range_destroy(engine, now_ns, NULL, o->number * HALF + first, count, &cost) ==
            0)
      memset(o->live + first, 0, count);
    break;
  case 2:
    if (gpu_plain_reserve(engine, now_ns, NULL, bytes, &cost) == GPU_OK)
      o->plain_bytes += bytes;
    break;
  case 3:
    if (gpu_plain_release(engine, now_ns, NULL, o->plain_bytes / 2) == GPU_OK)
      o->plain_bytes -= o->plain_bytes / 2;
    break;
  case 4: {
    struct gpu_prefetch_call call = {.stream = (uint32_t)o->streams[pick(STREAMS)],
                                     .to_host = pick(2)};
    call.block_count = run_of(o, true, &call.first_block);
    call.first_block += o->number * HALF;
    while (gpu_prefetch_step(engine, now_ns, NULL, &call) == GPU_MORE)
      now_ns = call.cost.caller_free_ns;
    break;
  }
  case 5:
    gpu_stream_destroy(engine, (uint32_t)o->streams[0]);
    o->streams[0] = gpu_stream_create(engine, pick(2), pick(GPU_PRIORITIES));
    break;
  case 6:
    gpu_event_destroy(engine, (uint32_t)o->events[0]);
    o->events[0] = gpu_event_create(engine);
    break;
  default:
    submit(o);
  }
  if (pick(4) == 0) complete(o);
  gpu_notes_deliver(engine, NULL);
}

static void join(struct owner *o) {
  *o = (struct owner){0};
  gpu_lock_taken(engine, 2);
  int number = gpu_owner_join(engine);
  MUST(number >= 0);
  o->number = engine->uvm.actor = (uint32_t)number;
  for (int i = 0; i < STREAMS; i++) o->streams[i] = gpu_stream_create(engine, i % 2, 0);
  for (int i = 0; i < EVENTS; i++) o->events[i] = gpu_event_create(engine);
  gpu_lock_given(engine);
}

/* Cleans up after a dead owner, whose lock the other one finds. */
static void clean_up_after(struct owner *dead, struct owner *survivor) {
  deaths++;
  MUST(uvm_journal_undo(&engine->uvm));
  MUST(as_committed());
  MUST(gpu_check(engine) == 0);
  until_death = 1 + pick(60); /* the survivor may die, too; the work then starts again */
  if (setjmp(at_death) == 0) {
    gpu_lock_taken(engine, survivor->number);
    gpu_owner_leave(engine, now_ns, NULL, dead->number);
  } else {
    MUST(gpu_lock_taken(engine, survivor->number));
    gpu_owner_leave(engine, now_ns, NULL, dead->number);
  }
  until_death = 0;
  gpu_lock_given(engine);
  MUST(gpu_check(engine) == 0);
  struct gpu_owner_info info;
  MUST(gpu_owner_get(engine, dead->number, &info) == GPU_INVALID);
  join(dead);
}

int main(int argc, char **argv) {
  char error[200];
  if (argc != 4 || uvm_profile_parse(argv[1], &profile, error, sizeof error) != 0) return 2;
  seed = (unsigned)atoi(argv[2]);
  struct gpu_capacity capacity = {.blocks = BLOCKS,
                                  .streams = 64,
                                  .events = 64,
                                  .operations = 512,
                                  .uses = 512,
                                  .owners = 2,
                                  .notes = NOTES};
  all_bytes = gpu_engine_bytes(&capacity);
  engine = calloc(1, all_bytes);
  snapshot = calloc(1, all_bytes);
  copy = calloc(1, all_bytes);
  MUST(gpu_engine_create(engine, all_bytes, &capacity, &profile, MEMORY, now_ns) == engine);
  before_journal = (size_t)engine->uvm.journal_offset + offsetof(struct gpu_engine, uvm);
  after_journal = (size_t)engine->uvm.blocks_offset + offsetof(struct gpu_engine, uvm);
  join(&owners[0]);
  join(&owners[1]);
  for (long rounds = atol(argv[3]); round_number < rounds; round_number++) {
    uint32_t actor = pick(2);
    until_death = pick(20) == 0 ? 1 + pick(pick(2) ? 20 : 300) : 0;
    if (setjmp(at_death) == 0) {
      gpu_lock_taken(engine, owners[actor].number);
      for (uint32_t calls = 1 + pick(3); calls > 0; calls--) act(&owners[actor]);
      until_death = 0;
      gpu_lock_given(engine);
    } else {
      clean_up_after(&owners[actor], &owners[1 - actor]);
    }
  }
  MUST(gpu_check(engine) == 0);
  struct gpu_counters counters;
  gpu_counters_get(engine, &counters);
  printf("%ld %llu\n", deaths, (unsigned long long)counters.evictions_used);
  return 0;
}
