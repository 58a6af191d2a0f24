/* sim_decide.c - transfers that a studied policy chooses itself, instead of the schedule.
 *
 * A decision becomes transfers of consecutive blocks. They wait in a queue of their
 * direction, which is served before populating, and the worker notes their ends at its
 * next tick.
 */
#include <stdlib.h>

#include "sim_state.h"

#define CHOSEN_MAX SIM_DECISIONS

/* ---- transfers of the model ---------------------------------------------------------- */

static bool may_start(const struct pump_model *m, uint32_t device, uint32_t direction,
                      int64_t block) {
  if (block < 0 || block >= m->ranges.block_end) return false;
  const struct block *b = &m->blocks.all[block];
  if (b->device != device) return false;
  bool there = b->state == PUMP_BLOCK_RESIDENT || b->state == PUMP_BLOCK_MAYBE_EVICTED;
  /* Prefetching a resident block again refreshes its age. */
  return there || (direction == PUMP_TO_GPU &&
                   (b->state == PUMP_BLOCK_HOST || b->state == PUMP_BLOCK_ABSENT));
}

/* Returns how many of the chosen blocks, starting at `i`, make one transfer. */
static uint32_t run_length(const struct pump_model *m, uint32_t device, uint32_t direction,
                           const int64_t *blocks, uint32_t count, uint32_t i) {
  const struct block *first = &m->blocks.all[blocks[i]];
  uint32_t most = model_slice(m, &m->devices[device], (int)direction), length = 1;
  while (length < most && i + length < count && blocks[i + length] == blocks[i] + length) {
    const struct block *b = &m->blocks.all[blocks[i + length]];
    if (!may_start(m, device, direction, blocks[i + length]) || b->slot != first->slot)
      break;
    /* All blocks must serve the same operation, because an arrival is dropped when its
     * operation has executed. */
    if (direction == PUMP_TO_GPU && b->next_use != first->next_use) break;
    length++;
  }
  return length;
}

/* Starts a transfer of these blocks in the model, and fills in its command. Returns its
 * index. */
static uint16_t start(struct pump_model *m, uint32_t device, uint32_t direction,
                      int32_t first_block, int32_t blocks, struct pump_command *command) {
  const struct block *first = &m->blocks.all[first_block];
  const struct op *op =
      first->first != NONE ? &m->window.ops[m->window.uses[first->first].op] : NULL;
  bool serves = direction == PUMP_TO_GPU && op != NULL;
  struct schedule_entry entry = {.first_block = first_block,
                                 .blocks = blocks,
                                 .slot = first->slot,
                                 .need = serves ? (int64_t)op->seq : 0};
  uint16_t index;
  if (schedule_make_transfers(m, device, direction, &entry, 1, &index) == 0)
    return UINT16_MAX;
  struct transfer *transfer = &m->transfers.all[index];
  transfer->observed_seq = (int64_t)m->totals.observed_seq;
  *command = (struct pump_command){
      .ticket = transfer->ticket,
      .slot = transfer->slot,
      .generation = transfer->generation,
      .offset_bytes = transfer->offset_bytes,
      .length_bytes = transfer->bytes,
      .observed_seq = direction == PUMP_TO_HOST ? m->totals.observed_seq : 0,
      .needed_by_seq = serves ? op->seq : 0,
      .stream = serves ? op->stream : 0};
  schedule_note_taken(m, index, PUMP_ALL_VALID);
  m->schedules.changes++;
  return index;
}

static int by_number(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

uint32_t pump_sim_start(struct pump_model *m, uint32_t device, uint32_t direction,
                        const int64_t *chosen, uint32_t count,
                        struct pump_command *commands, uint32_t most) {
  int64_t blocks[CHOSEN_MAX];
  uint32_t made = 0;
  if (count > CHOSEN_MAX) count = CHOSEN_MAX;
  for (uint32_t i = 0; i < count; i++) blocks[i] = chosen[i];
  /* No operation waits for evictions, so neighbours can leave together. */
  if (direction == PUMP_TO_HOST) qsort(blocks, count, sizeof blocks[0], by_number);
  for (uint32_t i = 0; i < count && made < most;) {
    uint32_t length = 1;
    if (may_start(m, device, direction, blocks[i])) {
      length = run_length(m, device, direction, blocks, count, i);
      if (start(m, device, direction, (int32_t)blocks[i], (int32_t)length,
                &commands[made]) == UINT16_MAX)
        break;
      made++;
    }
    i += length;
  }
  return made;
}

void pump_sim_end(struct pump_model *m, uint64_t ticket, uint32_t result,
                  uint32_t duration_us) {
  uint32_t index = (uint32_t)ticket & (PUMP_MAX_IN_FLIGHT - 1);
  if (ticket != 0 && m->transfers.all[index].ticket == ticket)
    model_transfer_ended(m, index, result, duration_us, 0);
}

/* ---- the queues ---------------------------------------------------------------------- */

static void send(struct pump_sim *sim, uint32_t direction, const int64_t *blocks,
                 uint32_t count) {
  struct pump_command commands[SIM_DECISIONS];
  struct sim_decisions *queue = &sim->directions[direction].decisions;
  uint32_t most = SIM_DECISIONS - (uint32_t)(queue->tail - queue->noted);
  uint32_t made = pump_sim_start(sim->model, 0, direction, blocks, count, commands, most);
  for (uint32_t i = 0; i < made; i++)
    *sim_decision_at(queue, queue->tail++) = (struct sim_decision){.command = commands[i]};
}

void pump_sim_decide(struct pump_sim *sim, const int64_t *to_host, uint32_t to_host_count,
                     const int64_t *to_gpu, uint32_t to_gpu_count) {
  send(sim, PUMP_TO_HOST, to_host, to_host_count);
  send(sim, PUMP_TO_GPU, to_gpu, to_gpu_count);
}

static void note_ends(struct pump_sim *sim, uint32_t direction) {
  struct sim_decisions *queue = &sim->directions[direction].decisions;
  bool all_before_noted = true;
  for (uint64_t at = queue->noted; at != queue->tail; at++) {
    struct sim_decision *decision = sim_decision_at(queue, at);
    if (decision->ended && !decision->noted) {
      pump_sim_end(sim->model, decision->command.ticket, decision->result,
                   decision->duration_us);
      decision->noted = true;
    }
    all_before_noted = all_before_noted && decision->noted;
    if (all_before_noted) queue->noted = at + 1;
  }
}

void sim_decide_follow(struct pump_sim *sim) {
  pump_model_progress(sim->model, &sim->shm->progress[0].executed_seq,
                      sizeof sim->shm->progress[0] / sizeof(uint64_t));
  for (uint32_t direction = 0; direction < PUMP_DIRECTIONS; direction++)
    note_ends(sim, direction);
  pump_model_predict(sim->model, PUMP_PREDICT_AT_ONCE);
  pump_model_turn(sim->model, 0);
}
