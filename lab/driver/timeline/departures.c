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
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "timeline.h"

static FILE *file;
static bool opened;
static uint64_t begun_ns;

bool vd_departures_wanted(void) {
  if (opened) return file != NULL;
  opened = true;
  const char *name = getenv("PUMP_VIRTUAL_DEPARTURES");
  if (name == NULL || *name == 0) return false;
  file = fopen(name, "wxe"); /* over nothing, through no link */
  if (file == NULL) vd_error("PUMP_VIRTUAL_DEPARTURES %s: %s", name, strerror(errno));
  return file != NULL;
}

void vd_departures_kernel(uint64_t issued_ns) {
  if (issued_ns > begun_ns) begun_ns = issued_ns;
}

void vd_on_leave(void *context, uint32_t block, uint32_t pages) {
  (void)context;
  if (!vd_departures_wanted()) return;
  fprintf(file, "%llu %llu %x %llu\n", (unsigned long long)begun_ns,
          (unsigned long long)vd_block_address(block), pages,
          (unsigned long long)vd_now_ns());
}

void vd_departures_end(void) {
  if (file != NULL && fclose(file) != 0)
    vd_error("PUMP_VIRTUAL_DEPARTURES: %s", strerror(errno));
  file = NULL;
  opened = true;
}
