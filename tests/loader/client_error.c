/* client_error.c - has its own dlerror() pending while pump looks up the driver, and
 * prints the dlerror() afterwards. Linked to the driver: the first call resolves.
 *
 *   client_error pending | told | forgotten | newer | thread | report
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "pump_cuda.h"

CUresult cuInit(unsigned int flags);
/* The function that PyTorch's allocator calls; here only pump defines it. */
void report(void *, long, unsigned long, unsigned long,
            short) __asm__("_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE")
    __attribute__((weak));

static void fail(const char *name) {
  if (dlopen(name, RTLD_NOW) != NULL) printf("there is a %s\n", name);
}

static void say(void) {
  const char *text = dlerror();
  printf("%s\n", text == NULL ? "nothing" : text);
}

static void *start(void *unused) {
  (void)unused;
  printf("%d\n", cuInit(0));
  say();
  return NULL;
}

int main(int argc, char **argv) {
  const char *way = argc > 1 ? argv[1] : "", *told = NULL;
  pthread_t thread;
  fail("libfirst.so");
  if (strcmp(way, "told") == 0) told = dlerror();
  if (strcmp(way, "report") == 0) {
    if (report != NULL) report(NULL, 0, 0, 0, 0);
  } else if (strcmp(way, "thread") == 0) {
    pthread_create(&thread, NULL, start, NULL);
    pthread_join(thread, NULL);
  } else {
    printf("%d\n", cuInit(0));
  }
  if (strcmp(way, "forgotten") == 0 && dlopen(NULL, RTLD_NOW) == NULL) return 1;
  if (strcmp(way, "newer") == 0) fail("libsecond.so");
  if (told != NULL) printf("%s\n", told);
  say();
  say();
  fail("libthird.so");
  say();
  return 0;
}
