/* client_routes.c - looks up every driver function in one way and calls it with zeros.
 * Prints the library of the address and the call's answer.
 *
 * Usage:
 *   client_routes dlsym | default | gpa1 | gpa2        (cuGetProcAddress v1, v2)
 *   client_direct                                      (-DDIRECT, linked to libcuda)
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int (*function)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                        uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
typedef int (*look_up_v1)(const char *, void **, int, uint64_t);
typedef int (*look_up_v2)(const char *, void **, int, uint64_t, int *);

static const char *const names[][2] = {
#define PUMP_HOOK(name, pfn, parameters, arguments) {#name, #pfn},
#define PUMP_CALL(name, pfn, parameters) {#name, #pfn},
#include "shim/driver/hooks.h"
#define EXTRA(name, pfn) {#name, #pfn},
#include "fake_extra.h"
};
#define COUNT (sizeof names / sizeof *names)

static const char *library_of(void *address) {
  static Dl_info info;
  if (dladdr(address, &info) == 0) return "nowhere";
  const char *slash = strrchr(info.dli_fname, '/');
  return slash == NULL ? info.dli_fname : slash + 1;
}

static int call(void *address) {
  return ((function)address)(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
}

#ifdef DIRECT

#define PUMP_HOOK(name, pfn, parameters, arguments) extern int name();
#define PUMP_CALL(name, pfn, parameters) extern int name();
#include "shim/driver/hooks.h"
#define EXTRA(name, pfn) extern int name();
#include "fake_extra.h"

static void *const addresses[] = {
#define PUMP_HOOK(name, pfn, parameters, arguments) (void *)name,
#define PUMP_CALL(name, pfn, parameters) (void *)name,
#include "shim/driver/hooks.h"
#define EXTRA(name, pfn) (void *)name,
#include "fake_extra.h"
};

int main(void) {
  for (size_t i = 0; i < COUNT; i++)
    printf("%s %s %d\n", names[i][0], library_of(addresses[i]), call(addresses[i]));
  return 0;
}

#else

static void by_dlsym(void *handle) {
  for (size_t i = 0; i < COUNT; i++) {
    void *address = dlsym(handle, names[i][0]);
    const char *error = dlerror();
    if ((address == NULL) != (error != NULL)) exit(4); /* a stale error, or none */
    if (address == NULL) {
      if (strstr(error, names[i][0]) == NULL) exit(3);
      printf("%s - -1\n", names[i][0]);
      continue;
    }
    printf("%s %s %d\n", names[i][0], library_of(address), call(address));
  }
}

static void by_proc_address(void *driver, int abi) {
  static const int versions[] = {0,     2000,  3000,  3010,  3020,  4000,  6050,  7000,
                                 8000,  9000,  10000, 10010, 11000, 11010, 11030, 11040,
                                 12000, 12020, 12030, 12040, 12050, 12080, 13000};
  void *look_up = dlsym(driver, abi == 1 ? "cuGetProcAddress" : "cuGetProcAddress_v2");
  for (size_t i = 0; i < COUNT; i++) {
    char name[64];
    snprintf(name, sizeof name, "%s", names[i][1]);
    for (char *v = name; (v = strstr(v, "_v")) != NULL; v++)
      if (v[2] >= '0' && v[2] <= '9') *v = '\0';
    for (size_t v = 0; v < sizeof versions / sizeof *versions; v++)
      for (uint64_t flags = 0; flags < 3; flags++) {
        void *address = NULL;
        int status = -1;
        int result =
            abi == 1 ? ((look_up_v1)look_up)(name, &address, versions[v], flags)
                     : ((look_up_v2)look_up)(name, &address, versions[v], flags, &status);
        printf("%s/%d/%d/%d/%d %s %d\n", name, versions[v], (int)flags, result, status,
               address == NULL ? "-" : library_of(address),
               address == NULL ? -1 : call(address));
      }
  }
}

int main(int argc, char **argv) {
  const char *way = argc > 1 ? argv[1] : "";
  int mode = strcmp(way, "default") == 0 ? RTLD_GLOBAL : RTLD_LOCAL;
  void *driver = dlopen("libcuda.so.1", RTLD_NOW | mode);
  if (driver == NULL) return 2;
  if (getenv("FAKE_INIT") != NULL) call(dlsym(driver, "cuInit"));
  if (strcmp(way, "dlsym") == 0)
    by_dlsym(driver);
  else if (strcmp(way, "default") == 0)
    by_dlsym(RTLD_DEFAULT);
  else
    by_proc_address(driver, strcmp(way, "gpa1") == 0 ? 1 : 2);
  return 0;
}

#endif
