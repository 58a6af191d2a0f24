/* thread.c - starts the shim's own threads, all detached, every signal blocked. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include "base.h"

/* The processors that this process was given. A program pins its own threads to one
 * of them each; ours, started by a pinned thread, would all run on that one. */
static cpu_set_t given;
static bool given_known;

__attribute__((constructor)) static void note_processors(void) {
  int saved = errno;
  given_known = sched_getaffinity(0, sizeof given, &given) == 0;
  errno = saved;
}

void pump_thread_begin(void) {
  pump_enter();
  /* By the thread itself, not as an attribute of pthread_create(): a filter of system calls
   * may refuse it, and none of these processors may be left to the process. Neither costs a
   * thread. */
  if (given_known) sched_setaffinity(0, sizeof given, &given);
}

void pump_thread_hurry(void) {
  int saved = errno;
  (void)!nice(-10); /* on Linux of the calling thread alone: sched(7), "The nice value" */
  errno = saved;
}

int pump_thread_start(const char *name, void *(*body)(void *), void *argument) {
  sigset_t all, before;
  sigfillset(&all);
  /* The new thread inherits the mask: no signal of the program is ever handled on it. */
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  int error = pthread_create(&thread, NULL, body, argument);
  if (error == 0) {
    pthread_setname_np(thread, name);
    pthread_detach(thread); /* after the name: a detached thread may have ended */
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return -error;
}
