/* departures.c - PUMP_VIRTUAL_DEPARTURES: a line for each block that leaves the GPU by a
 * copy.
 *
 *   ISSUED_NS ADDRESS PAGES LEFT_NS
 *
 * ADDRESS: of the block. PAGES: hexadecimal, a bit for each 64 KiB page that is copied out.
 * ISSUED_NS (CLOCK_MONOTONIC): when the program issued the newest kernel that the GPU has
 * begun. Programs run ahead of the GPU; what had been allocated and freed by then is what
 * is allocated in the order of the stream, when one stream has all the work. LEFT_NS: the
 * same clock when it left. Written from the model's order, under the lock; kernels carry
 * their time in timing mode alone. What leaves after the report is not in here.
 */
#include <stdio.h>

#include "timeline.h"

static uint64_t begun_ns;

bool vd_departures_wanted(void) {
  return vd_record(VD_RECORD_DEPARTURES) != NULL;
}

void vd_departures_kernel(uint64_t issued_ns) {
  if (issued_ns > begun_ns) begun_ns = issued_ns;
}

void vd_on_leave(void *context, uint32_t block, uint32_t pages) {
  FILE *file = vd_record(VD_RECORD_DEPARTURES);
  (void)context;
  if (file == NULL) return;
  fprintf(file, "%llu %llu %x %llu\n", (unsigned long long)begun_ns,
          (unsigned long long)vd_block_address(block), pages,
          (unsigned long long)vd_now_ns());
}
