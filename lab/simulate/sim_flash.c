/* sim_flash.c - for a full host: which blocks are on flash, and when they move there and
 * back, for policies that know operations in advance (docs/decisions/0064-flash.md).
 *
 * DESIGN. The schedule's rule, one tier further down: memory decides, not time. The known
 * operations determine the peak number of blocks with contents. The part of that peak
 * that exceeds GPU and host must be on flash by then, and no more:
 *
 *   write:  While fewer blocks than that have a copy on flash, the host's block with the
 *           furthest next use is written. It stays in the host while there is space: clean.
 *   drop:   If the host is nearly full, the clean block with the furthest next use goes.
 *   read:   The block on flash that is needed first returns, once all operations before
 *           its use leave space for it.
 *
 * If the host is still full, an arriving block replaces the block with the furthest next
 * use, which is then written (uvm_flash.c). Nothing reports each change, so choices are
 * repeated after PLAN_NS, and after longer times while nothing can be done. */
#include "daemon/core/model/model_state.h"
#include "sim_state.h"

#define PLAN_NS 2000000
#define PLAN_MOST_NS 8000000
#define SPARE_BLOCKS 32 /* host blocks kept free for transfers; at most 1/SPARE_PART */
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

/* Returns whether `a` goes to flash before `b`: needed later, or unused for longer. */
static bool is_further(const struct sim_tiered *a, const struct sim_tiered *b) {
  if (a->next_use != b->next_use) return a->next_use > b->next_use;
  return a->last_use < b->last_use;
}

static bool is_sooner(const struct sim_tiered *a, const struct sim_tiered *b) {
  return is_further(b, a);
}

/* Inserts the block among the chosen ones, in order, if it is good enough. */
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

/* Chooses among all blocks that are not on the GPU. Returns how many have a copy on
 * flash, and in `*only` how many have their only copy there. */
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

/* Returns how many blocks get their first contents in that operation. */
static int64_t first_contents(const struct pump_model *m, const struct op *op) {
  int64_t found = 0, at = op->first_use, end = at + op->uses;
  if (op->due[DUE_AWAY] == 0) return 0;
  while ((at = model_next_due(m, DUE_AWAY, at, end)) < end) {
    int32_t block = m->window.uses[use_index(at++)].block;
    found += m->blocks.all[block].state == PUMP_BLOCK_ABSENT;
  }
  return found;
}

/* Follows the number of blocks with contents over the known operations. Returns how many
 * of the peak exceed GPU and host, and in `*most_seq` when that is. Keeps as many of
 * `reads` as may return now. */
static int64_t walk(struct pump_sim *sim, int64_t only, int64_t *most_seq) {
  const struct pump_model *m = sim->model;
  const struct device *device = &m->devices[0];
  int64_t gpu = device->facts.budget, host = host_blocks(sim), most = 0;
  int64_t room = gpu + host - spare((uint64_t)host);
  int64_t in_host = device->counts[PUMP_BLOCK_HOST] + device->counts[PUMP_BLOCK_ARRIVING] +
                    device->counts[PUMP_BLOCK_RESIDENT] +
                    device->counts[PUMP_BLOCK_LEAVING] +
                    device->counts[PUMP_BLOCK_MAYBE_EVICTED];
  struct sim_chosen *reads = &sim->flash.reads;
  uint32_t may_come = 0;
  for (int64_t at = m->window.op_tail; at < m->window.op_head; at++) {
    uint32_t i = op_index(at);
    const struct op *op = &m->window.ops[i];
    if (op->executed) continue;
    in_host += first_contents(m, op) + m->window.allocates_blocks[i];
    if (in_host - room > most) {
      most = in_host - room;
      *most_seq = (int64_t)op->seq;
    }
    for (; may_come < reads->count &&
           reads->blocks[may_come].next_use <= (int64_t)op->seq && only > most;
         may_come++)
      only--;
    in_host -= m->window.frees_blocks[i];
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
  /* A block needed before the peak returns to the GPU, which makes its copy invalid. */
  struct sim_chosen *writes = &flash->writes;
  while (writes->count > 0 && (lacking < writes->count ||
                               writes->blocks[writes->count - 1].next_use <= most_seq))
    writes->count--;
  flash->writes.done = flash->reads.done = flash->drops.done = 0;
}

/* ---- acting ------------------------------------------------------------------------- */

typedef int (*step)(struct gpu_engine *, uint64_t, const struct gpu_hooks *, uint32_t,
                    uint64_t *);

/* Transfers the next chosen blocks, when flash is free from `*free_ns`. */
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
