/* actions.c - effects on data, one at a time, in the order of the model.
 *
 * DESIGN
 * The model calls the start hook when an operation begins to execute; its action is
 * appended here. Because an operation starts after everything it depends on has
 * ended in the model, one queue carried out front to back respects every stream and
 * event. One thread at a time works on it: the driver's own, or one that waits for
 * the device anyway (a helper). Only the driver's own thread calls the program's
 * host functions.
 *
 * A wait for a value cannot stand in the queue, since what it waits for may stand
 * behind it: it moves to a list that the driver's thread polls.
 *
 * Model time does not wait for actions. A thread that reports that work is done checks
 * both: the model's answer, and that the actions emitted until then are done.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "virtual/driver/driver.h"

#define POISON_BYTE 0xdb

static struct vd_action *queue_first, **queue_end = &queue_first;
static struct vd_action *polled; /* waits for values */
static bool running;             /* a thread carries out an action */
static uint64_t emitted, done;
static uint64_t pending; /* submitted with an action that has not started */
static struct vd_action *spare;

struct vd_action *vd_action_new(enum vd_action_kind kind) {
  struct vd_action *action = spare;
  if (action != NULL)
    spare = action->next;
  else
    action = malloc(sizeof *action);
  if (action == NULL) return NULL;
  memset(action, 0, sizeof *action);
  action->kind = kind;
  return action;
}

void vd_action_free(struct vd_action *action) {
  if (action == NULL) return;
  if (action->kind == VD_ACTION_KERNEL) free(action->kernel.parameters);
  free(action->staged);
  action->next = spare;
  spare = action;
}

void vd_action_emit(struct vd_action *action) {
  action->next = NULL;
  *queue_end = action;
  queue_end = &action->next;
  emitted++;
}

void vd_action_pending(int change) {
  pending = (uint64_t)((int64_t)pending + change);
}
bool vd_actions_wanted(void) {
  return pending > 0 || queue_first != NULL;
}
bool vd_actions_polling(void) {
  return polled != NULL;
}
uint64_t vd_actions_emitted(void) {
  return emitted;
}
bool vd_actions_done(uint64_t until) {
  return done >= until;
}

/* -- the effects, without the lock -- */

static void copy_bytes(const struct vd_copy *copy) {
  for (size_t z = 0; z < copy->depth; z++)
    for (size_t y = 0; y < copy->height; y++) {
      uint64_t to =
          copy->destination + z * copy->destination_slice + y * copy->destination_pitch;
      uint64_t from = copy->source + z * copy->source_slice + y * copy->source_pitch;
      memmove((void *)to, (const void *)from, copy->width_bytes);
    }
}

/* Zeroes of whole pages of ours are free: the kernel hands out zero pages. */
static void zero_bytes(uint64_t begin, uint64_t length_bytes) {
  uint64_t first = (begin + 4095) & ~4095ull, last = (begin + length_bytes) & ~4095ull;
  bool ours = (begin >= vd.managed.base && begin < vd.managed.end) ||
              (begin >= vd.plain.base && begin < vd.plain.end);
  if (ours && last > first + 65536 &&
      madvise((void *)first, last - first, MADV_DONTNEED) == 0) {
    memset((void *)begin, 0, first - begin);
    memset((void *)last, 0, begin + length_bytes - last);
    return;
  }
  memset((void *)begin, 0, length_bytes);
}

static void set_row(uint64_t row, const struct vd_set *set) {
  if (set->value == 0) {
    zero_bytes(row, set->width * set->element_bytes);
  } else if (set->element_bytes == 1) {
    memset((void *)row, (int)set->value, set->width);
  } else if (set->element_bytes == 2) {
    for (size_t i = 0; i < set->width; i++) ((uint16_t *)row)[i] = (uint16_t)set->value;
  } else {
    for (size_t i = 0; i < set->width; i++) ((uint32_t *)row)[i] = set->value;
  }
}

static void call_kernel(const struct vd_kernel_call *call) {
  const struct image_kernel *kernel = call->function->kernel;
  void *pointers[kernel->parameter_count + 1];
  for (uint32_t i = 0; i < kernel->parameter_count; i++)
    pointers[i] = call->parameters + kernel->parameters[i].offset_bytes;
  pointers[kernel->parameter_count] = NULL;
  call->function->host(pointers, call->grid, call->block);
}

static void write_value(const struct vd_action *action) {
  if (action->word.bytes == 4)
    __atomic_store_n((uint32_t *)action->word.address, (uint32_t)action->word.value,
                     __ATOMIC_RELEASE);
  else
    __atomic_store_n((uint64_t *)action->word.address, action->word.value,
                     __ATOMIC_RELEASE);
}

static bool value_arrived(const struct vd_action *action) {
  uint64_t seen, value = action->word.value;
  if (action->word.bytes == 4)
    seen = __atomic_load_n((const uint32_t *)action->word.address, __ATOMIC_ACQUIRE);
  else
    seen = __atomic_load_n((const uint64_t *)action->word.address, __ATOMIC_ACQUIRE);
  switch (action->word.flags & 3) {
  case CU_STREAM_WAIT_VALUE_GEQ:
    if (action->word.bytes == 4) return (int32_t)((uint32_t)seen - (uint32_t)value) >= 0;
    return (int64_t)(seen - value) >= 0;
  case CU_STREAM_WAIT_VALUE_EQ:
    return action->word.bytes == 4 ? (uint32_t)seen == (uint32_t)value : seen == value;
  case CU_STREAM_WAIT_VALUE_AND:
    return (seen & value) != 0;
  default:
    return (action->word.bytes == 4 ? (uint32_t)~(seen | value) : ~(seen | value)) != 0;
  }
}

static void carry_out(const struct vd_action *action) {
  switch (action->kind) {
  case VD_ACTION_KERNEL:
    call_kernel(&action->kernel);
    break;
  case VD_ACTION_COPY:
    copy_bytes(&action->copy);
    break;
  case VD_ACTION_SET:
    for (size_t y = 0; y < action->set.height; y++)
      set_row(action->set.destination + y * action->set.pitch, &action->set);
    break;
  case VD_ACTION_HOST_FUNCTION:
    action->host.function(action->host.user_data);
    break;
  case VD_ACTION_CALLBACK:
    action->host.callback(action->host.stream, CUDA_SUCCESS, action->host.user_data);
    break;
  case VD_ACTION_WRITE_VALUE:
    write_value(action);
    break;
  case VD_ACTION_WAIT_VALUE:
  case VD_ACTION_FREE:
  case VD_ACTION_POISON:
    break; /* with the lock, below */
  }
}

/* Carries out effects on the driver's own state; false: the action lives on. */
static bool carry_out_locked(struct vd_action *action) {
  if (action->kind == VD_ACTION_WAIT_VALUE) {
    action->next = polled;
    polled = action;
    return false;
  }
  struct vd_memory *memory = vd_memory_at(action->address);
  if (memory == NULL) return true;
  if (action->kind == VD_ACTION_FREE) vd_memory_release(memory);
  if (action->kind == VD_ACTION_POISON)
    memset((void *)action->address, POISON_BYTE, GPU_BLOCK_BYTES);
  return true;
}

static void finish(struct vd_action *action) {
  if (action->ends_operation)
    gpu_complete(vd.engine, vd_now_ns(), &vd_hooks, action->ticket);
  vd_action_free(action);
}

bool vd_actions_run_locked(bool helper) {
  bool any = false;
  while (queue_first != NULL && !running) {
    struct vd_action *action = queue_first;
    bool programs =
        action->kind == VD_ACTION_HOST_FUNCTION || action->kind == VD_ACTION_CALLBACK;
    if (helper && programs) break;
    queue_first = action->next;
    if (queue_first == NULL) queue_end = &queue_first;
    if (action->kind >= VD_ACTION_WAIT_VALUE) {
      if (carry_out_locked(action)) finish(action);
    } else {
      running = true;
      vd_unlock();
      carry_out(action);
      vd_lock();
      running = false;
      finish(action);
    }
    done++;
    any = true;
  }
  if (any) vd_changed_locked();
  return any;
}

bool vd_actions_poll_locked(uint64_t now_ns) {
  bool any = false;
  struct vd_action **link = &polled;
  while (*link != NULL) {
    struct vd_action *action = *link;
    if (!value_arrived(action)) {
      link = &action->next;
      continue;
    }
    *link = action->next;
    gpu_complete(vd.engine, now_ns, &vd_hooks, action->ticket);
    vd_action_free(action);
    vd_changed_locked();
    any = true;
  }
  return any;
}
