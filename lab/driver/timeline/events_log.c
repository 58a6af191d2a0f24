/* events_log.c - PUMP_VIRTUAL_EVENTS: writes a line for each event on the GPU.
 *
 *   launch TICKET TIME NAME FIRST+COUNT ...   The program issues a kernel, which touches
 *                                             these runs of managed blocks.
 *   start TICKET TIME                         An operation begins to execute.
 *   end TICKET TIME                           The operation has ended.
 *   stall TICKET fault|arrival FROM UNTIL     The operation waits for faults, or for pages
 *                                             in flight.
 *   HOW BLOCK PAGES TIME READY                Pages of a block move. HOW is one of HOWS
 *                                             (struct gpu_move).
 *
 * Blocks are addresses divided by 2 MiB. PAGES are hexadecimal, one bit for each 64 KiB.
 * Times are in nanoseconds of CLOCK_MONOTONIC. Lines are written under the lock, in the
 * order of the model. But the model may have advanced before the line of a launch. Shared
 * GPUs have no such log. */
#include <stdio.h>

#include "timeline.h"

static const char *const HOWS[] = {
    [GPU_MOVE_FAULT] = "fault",       [GPU_MOVE_FIRST] = "first",
    [GPU_MOVE_PREFETCH] = "prefetch", [GPU_MOVE_NONE] = "none",
    [GPU_MOVE_OUT] = "out",           [GPU_MOVE_AHEAD] = "ahead",
    [GPU_MOVE_EVICT] = "evict",
};

static unsigned long long address_in_blocks(uint32_t block) {
  return vd_block_address(block) / GPU_BLOCK_BYTES;
}

void vd_log_launch(uint64_t ticket, uint64_t issued_ns, const char *name,
                   const struct gpu_operation *operation) {
  FILE *file = vd_record();
  if (file == NULL) return;
  fprintf(file, "launch %llu %llu %s", (unsigned long long)ticket,
          (unsigned long long)issued_ns, name);
  for (uint32_t i = 0; i < operation->use_count; i++)
    fprintf(file, " %llu+%u", address_in_blocks(operation->uses[i].first_block),
            operation->uses[i].block_count);
  fputc('\n', file);
}

static void log_time(const char *word, uint64_t ticket, uint64_t time_ns) {
  FILE *file = vd_record();
  if (file != NULL)
    fprintf(file, "%s %llu %llu\n", word, (unsigned long long)ticket,
            (unsigned long long)time_ns);
}

void vd_log_start(uint64_t ticket, uint64_t time_ns) {
  log_time("start", ticket, time_ns);
}

void vd_on_finish(void *context, uint64_t cookie, uint64_t ticket, uint64_t start_ns,
                  uint64_t end_ns) {
  (void)context, (void)cookie, (void)start_ns;
  log_time("end", ticket, end_ns);
}

void vd_on_stall(void *context, uint64_t ticket, bool fault, uint64_t from_ns,
                 uint64_t until_ns) {
  FILE *file = vd_record();
  (void)context;
  if (file != NULL)
    fprintf(file, "stall %llu %s %llu %llu\n", (unsigned long long)ticket,
            fault ? "fault" : "arrival", (unsigned long long)from_ns,
            (unsigned long long)until_ns);
}

void vd_on_move(void *context, const struct gpu_move *move) {
  FILE *file = vd_record();
  (void)context;
  if (file != NULL)
    fprintf(file, "%s %llu %x %llu %llu\n", HOWS[move->how], address_in_blocks(move->block),
            move->pages, (unsigned long long)move->now_ns,
            (unsigned long long)move->ready_ns);
}
