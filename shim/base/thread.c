/* thread.c - starts the shim's own threads, detached and with every signal blocked. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include "base.h"

/* CPU cores that the process may use, read at load. Programs pin each of their threads to
 * one core; a thread of ours that a pinned thread starts would have only that core. */
static cpu_set_t given;
static bool given_known;

__attribute__((constructor)) static void note_processors(void) {
  int saved = errno;
  given_known = sched_getaffinity(0, sizeof given, &given) == 0;
  errno = saved;
}

void pump_thread_begin(void) {
  pump_enter();
  /* The thread sets this itself, not as an attribute of pthread_create(). The call may
   * fail: a system call filter may refuse it, or the process may have lost these cores.
   * The thread still runs. */
  if (given_known) sched_setaffinity(0, sizeof given, &given);
}

void pump_thread_raise_priority(void) {
  int saved = errno;
  (void)!nice(-10); /* on Linux only the calling thread: sched(7), "The nice value" */
  errno = saved;
}

int pump_thread_start(const char *name, void *(*body)(void *), void *argument) {
  sigset_t all, before;
  sigfillset(&all);
  /* The new thread inherits the mask, so it never handles the program's signals. */
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
