/* card.h - a GPU that several processes share, and the driver's lock. */
#ifndef PUMP_VIRTUAL_CARD_H
#define PUMP_VIRTUAL_CARD_H

#include "lab/driver/base/driver.h"

/* card.c */
struct vd_card_figures {
  const char *name;
  uint32_t processes; /* processes that use the GPU now */
  uint64_t joined, died, peak_bytes;
  int check; /* result of gpu_check() */
  struct gpu_memory memory;
  struct gpu_counters counters; /* of all processes, including departed ones */
};
bool vd_card_name_set(const char *name, size_t length); /* false: an invalid name */
bool vd_card_wanted(void);
const char *vd_card_name(void); /* empty: the GPU is private */
/* Joins the shared GPU, or creates it with capacity->blocks for each process. Sets
 * vd.engine, vd.shared, vd.owner and vd.first_block. */
CUresult vd_card_join(const struct gpu_capacity *capacity);
void vd_card_leave_locked(void); /* the process must keep its own lock afterwards */
void vd_card_take(void);
void vd_card_give(void);
/* Frees the GPU memory of processes that were killed; returns their number. */
uint32_t vd_card_reclaim_locked(void);
void vd_card_figures_locked(struct vd_card_figures *out);
void vd_card_own_locked(struct gpu_owner_info *out);

static inline void vd_lock(void) {
  pthread_mutex_lock(&vd.lock);
  if (vd.shared) vd_card_take();
}
static inline void vd_unlock(void) {
  if (vd.shared) vd_card_give();
  pthread_mutex_unlock(&vd.lock);
}
/* Waits without the locks; `until` NULL: without a limit. */
static inline void vd_wait_locked(pthread_cond_t *condition, const struct timespec *until) {
  if (vd.shared) vd_card_give();
  if (until == NULL)
    pthread_cond_wait(condition, &vd.lock);
  else
    pthread_cond_timedwait(condition, &vd.lock, until);
  if (vd.shared) vd_card_take();
}

#endif
