/* resolve_error.c - the exported dlerror, and look-ups of ours that leave no trace in it.
 *
 * DESIGN. Every dl function forgets what dlerror() has still to report, and even what it
 * has reported, and there is no way to put a text back. So before we look something up
 * within a call of the program's, its text is taken over, and afterwards one look-up for a
 * name that no library has fails on purpose: its error stands for the program's. It goes
 * where that would have gone: the program's next dl function forgets it, its dlerror()
 * would report it. Ours reports the program's text in its place.
 *
 * Each thread has errors of its own, as in libc.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "resolve.h"

#define STANDS_FOR_ANOTHER "pump.stands.for.another"

struct errors {
  char *kept; /* the text that our error stands for, not reported yet; or NULL */
  char *told; /* the program may read it until its next dlerror() */
};

static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static bool key_made;

static void free_errors(void *errors) {
  struct errors *mine = errors;
  free(mine->kept);
  free(mine->told);
  free(mine);
}

static void make_key(void) {
  key_made = pthread_key_create(&key, free_errors) == 0;
}

/* The calling thread's; NULL: no memory. */
static struct errors *errors_of_thread(void) {
  pthread_once(&key_once, make_key);
  struct errors *mine = key_made ? pthread_getspecific(key) : NULL;
  if (mine != NULL || !key_made) return mine;
  mine = calloc(1, sizeof *mine);
  if (mine == NULL || pthread_setspecific(key, mine) == 0) return mine;
  free(mine);
  return NULL;
}

static void replace(char **text, char *by) {
  free(*text);
  *text = by;
}

/* The text that dlerror() has to report, which the caller frees; where libc holds our
 * error, the text that it stands for. NULL: none, or no memory. */
static char *take(struct errors *mine) {
  const char *text = pump_real_dlerror();
  char *kept = mine->kept;
  mine->kept = NULL;
  if (text != NULL && strstr(text, STANDS_FOR_ANOTHER) != NULL) return kept;
  free(kept); /* the program's next dl function has forgotten it */
  return text == NULL ? NULL : strdup(text);
}

char *pump_dl_begin(void) {
  pump_dlsym_ready();
  struct errors *mine = errors_of_thread();
  return mine == NULL ? NULL : take(mine);
}

void pump_dl_end(char *pending) {
  pump_real_dlerror(); /* ours, not the program's */
  if (pending == NULL) return;
  replace(&errors_of_thread()->kept, pending); /* it was made when we began */
  pump_real_dlsym(RTLD_DEFAULT, STANDS_FOR_ANOTHER);
}

__attribute__((visibility("default"))) char *dlerror(void) {
  pump_dlsym_ready();
  struct errors *mine = errors_of_thread();
  if (mine == NULL) return pump_real_dlerror();
  replace(&mine->told, take(mine));
  return mine->told;
}
