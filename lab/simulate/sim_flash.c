/* sim_flash.c - what of a full host is on flash, and when it goes there and returns, for
 * policies that know operations ahead (docs/decisions/0064-flash.md).
 *
 * DESIGN. The schedule's rule, one tier further down: room decides, not time. The known
 * operations say how many blocks with contents there will be at once. What GPU and host
 * cannot hold of the most of them has to be on flash by then, and no more:
 *
 *   write  while less than that has a copy on flash, the block of the host that is needed
 *          last is written, and stays in the host as long as there is room: clean
 *   drop   where the host is nearly full, the clean block that is needed last
 *   read   the block of flash that is needed first, once all operations up to that one
 *          leave room for it
 *
 * Where the host is full all the same, what comes to it takes the place of the block that
 * is needed last, which is written then (uvm_flash.c). As nothing tells of each change,
 * choices are made anew after PLAN_NS, and while nothing can be done after longer times.
 */
#include "daemon/core/model/model_state.h"
#include "sim_state.h"

#define PLAN_NS 2000000
#define PLAN_MOST_NS 8000000
#define SPARE_BLOCKS 32 /* of the host, for what is under way; 1/SPARE_PART at most */
#define SPARE_PART 16

static uint32_t spare(uint64_t blocks) {
  uint64_t part = blocks / SPARE_PART;
  return part < SPARE_BLOCKS ? (uint32_t)part : SPARE_BLOCKS;
}

static uint32_t host_blocks(const struct pump_sim *sim) {
  return (uint32_t)(sim->settings.host.memory_bytes / GPU_BLOCK_BYTES);
}

bool sim_flash_init(struct pump_sim *sim) {
  return sim->settings.host.memory_bytes != 0 || !sim->settings.flash_ahead;
}

/* ---- choosing ---------------------------------------------------------------------- */

/* Whether `a` goes to flash before `b`: needed later, or unused for longer. */
static bool is_further(const struct sim_tiered *a, const struct sim_tiered *b) {
  if (a->next_use != b->next_use) return a->next_use > b->next_use;
  return a->last_use < b->last_use;
}

static bool is_sooner(const struct sim_tiered *a, const struct sim_tiered *b) {
  return is_further(b, a);
}

/* Puts the block among the chosen, in order, as far as there are places. */
static void offer(struct sim_chosen *chosen, const struct sim_tiered *one,
                  bool (*before)(const struct sim_tiered *, const struct sim_tiered *)) {
  uint32_t at = chosen->count;
  if (at == SIM_FLASH_BLOCKS && !before(one, &chosen->blocks[at - 1])) return;
  if (at == SIM_FLASH_BLOCKS)
    at--;
  else
    chosen->count++;
  for (; at > 0 && before(one, &chosen->blocks[at - 1]); at--)
    chosen->blocks[at] = chosen->blocks[at - 1];
  chosen->blocks[at] = *one;
}

/* Looks at all blocks that are away; returns how many have a copy on flash, and in
 * `*only` how many of them are nowhere else. */
static uint32_t look(struct pump_sim *sim, uint32_t *only) {
  struct sim_flash *flash = &sim->flash;
  const struct pump_model *m = sim->model;
  uint32_t on_flash = 0;
  *only = 0;
  flash->writes.count = flash->reads.count = flash->drops.count = 0;
  for (uint32_t i = 0; i < sim->program.range_count; i++) {
    const struct pump_sim_range *range = &sim->program.ranges[i];
    const struct range *known = &m->ranges.all[range->slot];
    if (!sim->live[i] || known->first_block == NONE ||
        known->generation != range->generation)
      continue;
    uint32_t count = (uint32_t)(range->length_bytes / GPU_BLOCK_BYTES);
    for (uint32_t at = 0; at < count && (int32_t)at < known->blocks; at++) {
      uint32_t place = gpu_host_place(sim->engine, range->first_block + at);
      if (place == 0) continue;
      const struct block *b = &m->blocks.all[known->first_block + (int32_t)at];
      struct sim_tiered one = {b->next_use, b->last_use, range->first_block + at};
      on_flash += (place & GPU_ON_FLASH) != 0;
      *only += place == GPU_ON_FLASH;
      if (place == GPU_IN_HOST)
        offer(&flash->writes, &one, is_further);
      else if (place != GPU_ON_FLASH)
        offer(&flash->drops, &one, is_further);
      else if (one.next_use != PUMP_NOT_NEEDED)
        offer(&flash->reads, &one, is_sooner);
    }
  }
  return on_flash;
}

/* Blocks that get their first contents in that operation. */
static int64_t first_contents(const struct pump_model *m, const struct op *op) {
  int64_t found = 0, at = op->first_use, end = at + op->uses;
  if (op->due[DUE_AWAY] == 0) return 0;
  while ((at = model_next_due(m, DUE_AWAY, at, end)) < end) {
    int32_t block = m->window.uses[use_index(at++)].block;
    found += m->blocks.all[block].state == PUMP_BLOCK_ABSENT;
  }
  return found;
}

/* Walks over the known operations with the blocks that have contents. Returns how many of
 * the most cannot be in GPU and host, and in `*most_seq` when that is; leaves as many of
 * `reads` as may come now. */
static int64_t walk(struct pump_sim *sim, int64_t only, int64_t *most_seq) {
  const struct pump_model *m = sim->model;
  const struct device *device = &m->devices[0];
  int64_t gpu = device->facts.budget, host = host_blocks(sim), most = 0;
  int64_t room = gpu + host - spare((uint64_t)host);
  int64_t held = device->counts[PUMP_BLOCK_HOST] + device->counts[PUMP_BLOCK_ARRIVING] +
                 device->counts[PUMP_BLOCK_RESIDENT] + device->counts[PUMP_BLOCK_LEAVING] +
                 device->counts[PUMP_BLOCK_MAYBE_EVICTED];
  struct sim_chosen *reads = &sim->flash.reads;
  uint32_t may_come = 0;
  for (int64_t at = m->window.op_tail; at < m->window.op_head; at++) {
    uint32_t i = op_index(at);
    const struct op *op = &m->window.ops[i];
    if (op->executed) continue;
    held += first_contents(m, op) + m->window.allocates_blocks[i];
    if (held - room > most) {
      most = held - room;
      *most_seq = (int64_t)op->seq;
    }
    for (; may_come < reads->count &&
           reads->blocks[may_come].next_use <= (int64_t)op->seq && only > most;
         may_come++)
      only--;
    held -= m->window.frees_blocks[i];
  }
  reads->count = may_come;
  return most;
}

static void plan(struct pump_sim *sim) {
  struct sim_flash *flash = &sim->flash;
  uint32_t victims[2 * SIM_FLASH_BLOCKS], count = 0, only;
  int64_t on_flash = look(sim, &only);
  for (uint32_t i = 0; i < flash->drops.count; i++)
    victims[count++] = flash->drops.blocks[i].block;
  for (uint32_t i = 0; i < flash->writes.count; i++)
    victims[count++] = flash->writes.blocks[i].block;
  gpu_host_victims(sim->engine, victims, count);
  int64_t most_seq = 0, lacking = walk(sim, only, &most_seq) - on_flash;
  /* What is needed before then is on the GPU in the meantime, and its copy void. */
  struct sim_chosen *writes = &flash->writes;
  while (writes->count > 0 && (lacking < writes->count ||
                               writes->blocks[writes->count - 1].next_use <= most_seq))
    writes->count--;
  flash->writes.done = flash->reads.done = flash->drops.done = 0;
}

/* ---- doing ------------------------------------------------------------------------- */

typedef int (*step)(struct gpu_engine *, uint64_t, const struct gpu_hooks *, uint32_t,
                    uint64_t *);

/* The next of the chosen goes, once flash is free from `*free_ns` on. */
static void go(struct pump_sim *sim, struct sim_chosen *chosen, uint64_t *free_ns,
               step transfer) {
  for (; *free_ns <= sim->now_ns && chosen->done < chosen->count; chosen->done++)
    if (transfer(sim->engine, sim->now_ns, &sim->hooks, chosen->blocks[chosen->done].block,
                 free_ns) == GPU_OK)
      sim->flash.wait_ns = PLAN_NS;
  if (chosen->done < chosen->count)
    sim->flash.next_ns = sim_least(sim->flash.next_ns, *free_ns);
}

void sim_flash_go(struct pump_sim *sim) {
  struct sim_flash *flash = &sim->flash;
  uint32_t kept = spare(host_blocks(sim));
  if (flash->plan_ns <= sim->now_ns) {
    if (sim->active) plan(sim);
    flash->wait_ns = sim_least(sim_most(2 * flash->wait_ns, PLAN_NS), PLAN_MOST_NS);
    flash->plan_ns = sim->now_ns + flash->wait_ns;
  }
  flash->next_ns = flash->plan_ns;
  for (; gpu_host_room(sim->engine) < kept && flash->drops.done < flash->drops.count;
       flash->drops.done++)
    (void)gpu_host_drop(sim->engine, sim->now_ns, &sim->hooks,
                        flash->drops.blocks[flash->drops.done].block);
  go(sim, &flash->writes, &flash->write_ns, gpu_flash_write);
  if (gpu_host_room(sim->engine) > kept)
    go(sim, &flash->reads, &flash->read_ns, gpu_flash_read);
}
