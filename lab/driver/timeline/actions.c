/* actions.c - runs effects on data, one at a time, in the order of the model.
 *
 * DESIGN
 * The model calls the start hook when an operation begins to execute; its action is
 * appended here. An operation starts after the end of all its dependencies in the model,
 * so one queue, processed in order, respects every stream and event. One thread at a time
 * works on it: the driver's own, or a helper, which waits for the device anyway. Only the
 * driver's own thread calls the program's host functions.
 *
 * A wait for a value must not block the queue, because the write that it waits for may
 * come later in the queue. So it moves to a list that the driver's thread polls.
 *
 * Model time does not wait for actions. A thread that reports work as done checks both:
 * the model's answer, and that the actions emitted until then are done.
 */
#include <stdlib.h>
#include <string.h>

#include "timeline.h"

static struct vd_action *queue_first, **queue_end = &queue_first;
static struct vd_action *polled; /* actions that wait for values */
static bool running;             /* a thread is executing an action */
static uint64_t emitted, done;
static uint64_t pending; /* submitted operations whose action has not started */
static struct vd_action *spare;

struct vd_action *vd_action_new(enum vd_manner manner, vd_effect_fn run, const void *what,
                                size_t length_bytes) {
  struct vd_action *action = spare;
  if (action != NULL)
    spare = action->next;
  else
    action = malloc(sizeof *action);
  if (action == NULL) return NULL;
  *action = (struct vd_action){.manner = manner, .run = run};
  memcpy(action->what, what, length_bytes);
  return action;
}

void vd_action_free(struct vd_action *action) {
  if (action == NULL) return;
  free(action->owned);
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

static void finish(struct vd_action *action) {
  if (action->ends_operation)
    gpu_complete(vd.engine, vd_now_ns(), &vd_hooks, action->ticket);
  vd_action_free(action);
}

bool vd_actions_run_locked(bool helper) {
  bool any = false;
  while (queue_first != NULL && !running) {
    struct vd_action *action = queue_first;
    if (helper && action->manner == VD_PROGRAM) break;
    queue_first = action->next;
    if (queue_first == NULL) queue_end = &queue_first;
    if (action->manner == VD_POLLED) {
      action->next = polled;
      polled = action;
    } else if (action->manner == VD_LOCKED) {
      action->run(action->what);
      finish(action);
    } else {
      running = true;
      vd_unlock();
      action->run(action->what);
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
    if (!action->run(action->what)) {
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
