/* mapping.c - keeps executors away from the command rings while the region's mapping is
 * replaced (link/attach.c).
 */
#include <sched.h>

#include "base.h"

/* mapping_epoch: odd during a replacement; mapping_users: threads in a ring access. */
static uint64_t mapping_epoch;
static uint32_t mapping_users;

bool pump_mapping_enter(uint64_t *epoch) {
  __atomic_fetch_add(&mapping_users, 1, __ATOMIC_SEQ_CST);
  *epoch = __atomic_load_n(&mapping_epoch, __ATOMIC_SEQ_CST);
  if ((*epoch & 1) == 0) return true;
  pump_mapping_leave();
  return false;
}

void pump_mapping_leave(void) {
  PUMP_ASSERT(pump_mapping_entered(), "each pump_mapping_leave follows an enter");
  __atomic_fetch_sub(&mapping_users, 1, __ATOMIC_SEQ_CST);
}

bool pump_mapping_entered(void) {
  return __atomic_load_n(&mapping_users, __ATOMIC_SEQ_CST) != 0;
}

void pump_mapping_close(void) {
  __atomic_fetch_add(&mapping_epoch, 1, __ATOMIC_SEQ_CST);
  while (__atomic_load_n(&mapping_users, __ATOMIC_SEQ_CST) != 0) sched_yield();
}

void pump_mapping_open(void) {
  __atomic_fetch_add(&mapping_epoch, 1, __ATOMIC_SEQ_CST);
}

void pump_mapping_fork_child(void) {
  mapping_epoch = 0;
  mapping_users = 0;
}
