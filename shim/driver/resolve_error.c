/* resolve_error.c - the exported dlerror, and look-ups of ours that leave no trace in it.
 *
 * DESIGN. Every dl function forgets the text that dlerror() has yet to report, and even
 * the text it has reported; nothing can put a text back. So before a look-up of ours
 * inside a call of the program, we take over the program's text. Afterwards we look up a
 * name that no library has: this error replaces the program's. libc handles it alike: the
 * program's next dl function forgets it, and dlerror() reports it. Our dlerror() then
 * returns the program's text instead.
 *
 * Each thread has its own errors, as in libc.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "resolve.h"

#define STANDS_FOR_ANOTHER "pump.stands.for.another"

struct errors {
  char *kept; /* the program's text that our error replaces, not reported yet; or NULL */
  char *reported; /* the program may read it until its next dlerror() */
};

static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static bool key_made;

static void free_errors(void *errors) {
  struct errors *mine = errors;
  free(mine->kept);
  free(mine->reported);
  free(mine);
}

static void make_key(void) {
  key_made = pthread_key_create(&key, free_errors) == 0;
}

/* Returns the calling thread's errors; NULL without memory. */
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

/* Returns the text that dlerror() has to report, for the caller to free. If libc holds
 * our error, this is the text it replaces. NULL: none, or no memory. */
static char *take(struct errors *mine) {
  const char *text = pump_real_dlerror();
  char *kept = mine->kept;
  mine->kept = NULL;
  if (text != NULL && strstr(text, STANDS_FOR_ANOTHER) != NULL) return kept;
  free(kept); /* a later dl function of the program has forgotten it */
  return text == NULL ? NULL : strdup(text);
}

char *pump_dl_begin(void) {
  pump_dlsym_ready();
  struct errors *mine = errors_of_thread();
  return mine == NULL ? NULL : take(mine);
}

void pump_dl_end(char *pending) {
  pump_real_dlerror(); /* drops our error, not the program's */
  if (pending == NULL) return;
  replace(&errors_of_thread()->kept, pending); /* they exist since pump_dl_begin */
  pump_real_dlsym(RTLD_DEFAULT, STANDS_FOR_ANOTHER);
}

__attribute__((visibility("default"))) char *dlerror(void) {
  pump_dlsym_ready();
  struct errors *mine = errors_of_thread();
  if (mine == NULL) return pump_real_dlerror();
  replace(&mine->reported, take(mine));
  return mine->reported;
}
