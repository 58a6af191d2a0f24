/* managed_variables.c - managed variables of the program's code.
 *
 * A __managed__ variable is managed memory that no call of the program has allocated. If
 * it has at least a block, it becomes a range when the program looks up its address, and
 * ends with its code. Only the driver knows which code that is. So all variables are
 * removed before a module or library is unloaded, and the ones that are still managed
 * memory afterwards are put back. Smaller variables are left to demand paging.
 *
 * Managed memory that the program allocates itself (convert.c) becomes a range in the
 * same way.
 */
#include <errno.h>

#include "convert.h"

/* Base addresses; under `lock`. */
static uint64_t bases[PUMP_VARIABLES];
static uint32_t base_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static bool is_managed(uint64_t address) {
  unsigned int managed = 0;
  return pump_real.cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                         address) == CUDA_SUCCESS &&
         managed != 0;
}

/* Records a variable, which may outlast its context here; false if there are too many. */
static bool remember(uint64_t base) {
  bool known = false;
  pthread_mutex_lock(&lock);
  for (uint32_t i = 0; i < base_count; i++) known |= bases[i] == base;
  if (!known && base_count < PUMP_VARIABLES) {
    bases[base_count++] = base;
    known = true;
  }
  pthread_mutex_unlock(&lock);
  return known;
}

void pump_variable_found(uint64_t base, uint64_t bytes) {
  CUcontext context = NULL;
  struct pump_hit hit;
  if (bytes < PUMP_BLOCK_BYTES) return;
  int saved = errno;
  pump_enter();
  int device = pump_current_device(&context);
  if (device >= 0 && is_managed(base) && !pump_range_lookup(base + bytes / 2, &hit) &&
      !pump_plain_known(base) && remember(base))
    pump_managed_add(base, bytes, (uint32_t)device, context);
  pump_leave();
  errno = saved;
}

/* Removes all variables before the real call, so that our threads do not work on
 * variables that end. Variables whose context has ended are in no table. */
void pump_variables_remove(struct pump_variables *removed) {
  removed->count = removed->plain_count = 0;
  pthread_mutex_lock(&lock);
  for (uint32_t i = 0; i < base_count; i++)
    if (pump_range_remove(bases[i], &removed->ranges[removed->count]) == 0)
      removed->count++;
    else if (pump_plain_remove(bases[i], &removed->plains[removed->plain_count]))
      removed->plain_count++;
  base_count = 0;
  pthread_mutex_unlock(&lock);
  for (uint32_t i = 0; i < removed->count; i++) {
    pump_event_range(PUMP_EVENT_FREE, &removed->ranges[i]);
    pump_slot_wait(removed->ranges[i].slot);
  }
}

void pump_variables_restore(struct pump_variables *removed) {
  for (uint32_t i = 0; i < removed->count; i++) {
    struct pump_range_info *info = &removed->ranges[i];
    bool alive = is_managed(info->base) && remember(info->base);
    pump_range_free_ended(info, alive ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS);
  }
  for (uint32_t i = 0; i < removed->plain_count; i++)
    if (is_managed(removed->plains[i].base) && remember(removed->plains[i].base))
      pump_plain_add(&removed->plains[i]);
}

void pump_variables_reset(void) {
  pthread_mutex_init(&lock, NULL);
  base_count = 0;
}
