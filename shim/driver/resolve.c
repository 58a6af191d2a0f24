/* resolve.c - finds the driver, fills the table of real functions, and makes
 * cuGetProcAddress return wrappers.
 *
 * DESIGN. The table is filled from one driver, by its own ELF names, when it is first
 * needed. Until then each thread fills a table of its own on its stack; only the copy
 * into pump_real is exclusive. A lock held across dlopen or dlsym could deadlock with a
 * thread inside dlopen, which holds the loader's lock and waits for ours.
 *
 * The real cuGetProcAddress decides, version and flags included. The address that it
 * returns is looked up among the driver's hooked functions, because a name does not
 * identify an ABI. If no ELF symbol of the driver has the address, pump chooses by name,
 * version and flags, but never beyond the versions it knows.
 */
#include "resolve.h"

#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "shim/base/glibc.h"
#include "shim/base/upcalls.h"

/* Later versions may have ABIs that driver/hooks.h does not know. */
#define NEWEST_KNOWN_VERSION 13050

/* Names that cuda.h maps to a differently named function, and since when:
 * PUMP_RENAMED(requested name, since, ELF name). With the signatures of driver/hooks.h
 * this covers all pairs of name and version; tests/abi checks both against cuda.h. */
static const struct {
  const char *symbol;
  int since;
  const char *elf_name;
} renamed[] = {
#define PUMP_RENAMED(symbol, since, elf_name) {#symbol, since, #elf_name}
    PUMP_RENAMED(cuGraphInstantiate, 12000, cuGraphInstantiateWithFlags),
};

struct hook {
  const char *name;      /* ELF name */
  const char *signature; /* "cuMemAlloc_v3020": name and first version */
  size_t real_offset, present_offset;
};

static const struct hook hooks[] = {
#define PUMP_HOOK(name, pfn, parameters, arguments)                                        \
  {#name, #pfn, offsetof(struct pump_real, name), offsetof(struct pump_present, name)},
#include "hooks.h"
};

static const struct hook calls[] = {
#define PUMP_CALL(name, pfn, parameters)                                                   \
  {#name, #pfn, offsetof(struct pump_real, name), offsetof(struct pump_present, name)},
#include "hooks.h"
};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static void *wrapper_of(const struct hook *hook) {
  return pump_upcalls.wrappers[hook - hooks];
}

/* Resolves, and loads the driver if necessary. The program has called a driver function
 * without a loaded driver: its libraries' stubs would load one, but our exports hide
 * them. */
static bool resolve_or_load(void) {
  if (pump_resolve()) return true;
  int saved = errno;
  char *pending = pump_dl_begin();
  void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  pump_dl_end(pending);
  errno = saved;
  return driver != NULL && pump_resolve();
}

/* The initial functions of pump_real: each resolves, then calls the real function. */
#define PUMP_HOOK(name, pfn, parameters, arguments)                                        \
  static CUresult first_##name parameters {                                                \
    return resolve_or_load() ? pump_real.name arguments : CUDA_ERROR_NOT_FOUND;            \
  }
#include "hooks.h"

struct pump_real pump_real = {
#define PUMP_HOOK(name, pfn, parameters, arguments) .name = first_##name,
#include "hooks.h"
};
struct pump_present pump_present;
void (*pump_driver_page_map)(uint64_t address, uint64_t *entries, uint32_t count);

/* 0: unresolved; 1: one thread copies; 2: pump_real and driver_base are filled. */
static uint32_t resolved;
static const void *driver_base;

bool pump_disabled(void) {
  static int disabled = -1;
  int known = __atomic_load_n(&disabled, __ATOMIC_RELAXED);
  if (known < 0) {
    const char *text = getenv("PUMP_DISABLE");
    known = (text != NULL && strcmp(text, "1") == 0) || !pump_has_glibc();
    __atomic_store_n(&disabled, known, __ATOMIC_RELAXED);
  }
  return known != 0;
}

void *pump_wrapper_named(const char *name) {
  for (size_t i = 0; i < COUNT(hooks); i++)
    if (strcmp(hooks[i].name, name) == 0) return wrapper_of(&hooks[i]);
  return NULL;
}

bool pump_driver_has(const void *wrapper) {
  for (size_t i = 0; i < COUNT(hooks); i++)
    if (wrapper_of(&hooks[i]) == wrapper)
      return *((const bool *)&pump_present + hooks[i].present_offset);
  return false;
}

/* Replaces a function that the driver lacks: answers as the driver would. */
static CUresult missing(void) {
  return CUDA_ERROR_NOT_FOUND;
}

static void look_up(void *driver, const struct hook *hook, bool wrapped,
                    struct pump_real *real, struct pump_present *present) {
  void *found = pump_real_dlsym(driver, hook->name);
  *((bool *)present + hook->present_offset) = found != NULL;
  /* The caller cleans the stack in both ABIs, so `missing` may take any arguments. */
  if (found == NULL && wrapped) found = (void *)missing;
  memcpy((char *)real + hook->real_offset, &found, sizeof found);
}

/* Fills the table: `driver` is a handle, `base` its load address. */
static void fill_from(void *driver, const void *base) {
  struct pump_real real;
  struct pump_present present;
  for (size_t i = 0; i < COUNT(hooks); i++)
    look_up(driver, &hooks[i], true, &real, &present);
  for (size_t i = 0; i < COUNT(calls); i++)
    look_up(driver, &calls[i], false, &real, &present);
  void *page_map = pump_real_dlsym(driver, "pump_page_map");
  uint32_t none = 0;
  if (__atomic_compare_exchange_n(&resolved, &none, 1, false, __ATOMIC_ACQ_REL,
                                  __ATOMIC_ACQUIRE)) {
    pump_present = present;
    memcpy(&pump_driver_page_map, &page_map, sizeof page_map);
    driver_base = base;
    void *const *from = (void *const *)&real;
    void **to = (void **)&pump_real;
    for (size_t i = 0; i < sizeof real / sizeof *to; i++)
      __atomic_store_n(&to[i], from[i], __ATOMIC_RELEASE);
    __atomic_store_n(&resolved, 2, __ATOMIC_RELEASE);
  }
  while (__atomic_load_n(&resolved, __ATOMIC_ACQUIRE) != 2) sched_yield();
}

static bool named_libcuda(const char *path) {
  const char *slash = strrchr(path, '/');
  return strncmp(slash == NULL ? path : slash + 1, "libcuda.so", 10) == 0;
}

bool pump_is_driver(const void *address) {
  Dl_info info;
  if (dladdr(address, &info) == 0 || info.dli_fname == NULL) return false;
  if (__atomic_load_n(&resolved, __ATOMIC_ACQUIRE) == 2)
    return info.dli_fbase == driver_base;
  if (!named_libcuda(info.dli_fname)) return false;
  char *pending = pump_dl_begin();
  void *driver = dlopen(info.dli_fname, RTLD_NOLOAD | RTLD_LAZY);
  if (driver != NULL) fill_from(driver, info.dli_fbase);
  pump_dl_end(pending);
  return driver != NULL && info.dli_fbase == driver_base;
}

bool pump_resolve(void) {
  if (__atomic_load_n(&resolved, __ATOMIC_ACQUIRE) == 2) return true;
  int saved = errno;
  char *pending = pump_dl_begin();
  void *driver = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
  void *init = driver == NULL ? NULL : pump_real_dlsym(driver, "cuInit");
  bool found = init != NULL && pump_is_driver(init);
  pump_dl_end(pending);
  errno = saved;
  return found;
}

/* ---- hooks that nothing calls ------------------------------------------------- */

/* A library that defines more functions than this is not a hook: it replaces the driver,
 * like stubs that load it. */
#define HOOKED_MOST (COUNT(hooks) / 2)

/* Returns the library that defines the function after ours in the loader's order and
 * before the driver; NULL: none. */
static const char *hooked_in(const char *name) {
  Dl_info info;
  void *next = pump_real_dlsym(RTLD_NEXT, name);
  if (next == NULL || pump_is_driver(next) || dladdr(next, &info) == 0) return NULL;
  return info.dli_fname;
}

void pump_warn_of_uncalled_hooks(void) {
  const char *library = NULL, *function = NULL;
  size_t count = 0;
  char *pending = pump_dl_begin();
  for (size_t i = 0; i < COUNT(hooks); i++) {
    const char *in = hooked_in(hooks[i].name);
    if (in == NULL || (library != NULL && strcmp(in, library) != 0)) continue;
    library = in;
    if (count++ == 0) function = hooks[i].name;
  }
  pump_dl_end(pending);
  if (count == 0 || count > HOOKED_MOST) return;
  const char *slash = strrchr(library, '/');
  char more[32] = "";
  if (count > 1) snprintf(more, sizeof more, " and %zu more", count - 1);
  pump_log(
      PUMP_LOG_WARNING,
      "%s hooks %s%s but loads after pump, so its hooks are skipped (pump explain hooks)",
      PUMP_QUOTED(slash == NULL ? library : slash + 1), function, more);
}

/* ---- cuGetProcAddress ----------------------------------------------------- */

static void *real_of(const struct hook *hook) {
  void *address;
  memcpy(&address, (const char *)&pump_real + hook->real_offset, sizeof address);
  return address;
}

/* Returns the version of the hook if it is for `symbol` ("cuMemAlloc_v3020" or
 * "cuMemcpy_v7000_ptds"), and whether it is a per-thread twin; 0 if it is not. */
static int version_of(const struct hook *hook, const char *symbol, bool *twin) {
  size_t length = strlen(symbol);
  *twin = false;
  for (size_t i = 0; i < COUNT(renamed); i++)
    if (strcmp(symbol, renamed[i].symbol) == 0 &&
        strcmp(hook->name, renamed[i].elf_name) == 0)
      return renamed[i].since;
  if (strncmp(hook->signature, symbol, length) != 0 ||
      strncmp(hook->signature + length, "_v", 2) != 0)
    return 0;
  char *end;
  long version = strtol(hook->signature + length + 2, &end, 10);
  *twin = *end == '_';
  return (int)version;
}

/* Returns the newest hook of that name up to `version`. Prefers its twin if the caller
 * wants per-thread streams. */
static const struct hook *hook_for(const char *symbol, int version, cuuint64_t flags) {
  bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
  const struct hook *best = NULL;
  int best_version = 0;
  for (size_t i = 0; i < COUNT(hooks); i++) {
    bool twin;
    int v = version_of(&hooks[i], symbol, &twin);
    bool present = *((const bool *)&pump_present + hooks[i].present_offset);
    if (v == 0 || v > version || !present || (twin && !per_thread)) continue;
    if (v >= best_version) best = &hooks[i], best_version = v;
  }
  return best;
}

static void substitute(const char *symbol, void **pfn, int version, cuuint64_t flags) {
  if (symbol == NULL || pfn == NULL || *pfn == NULL || pump_disabled()) return;
  for (size_t i = 0; i < COUNT(hooks); i++) {
    if (*pfn != real_of(&hooks[i])) continue;
    *pfn = wrapper_of(&hooks[i]);
    return;
  }
  const struct hook *hook = hook_for(symbol, version, flags);
  Dl_info info;
  if (hook == NULL || (dladdr(*pfn, &info) != 0 && info.dli_saddr == *pfn)) return;
  static uint32_t said_newer, said_address;
  if (version > NEWEST_KNOWN_VERSION) {
    pump_log_once(&said_newer, PUMP_LOG_WARNING,
                  "%s of CUDA version %d is not intercepted: this driver hides its "
                  "address, and pump supports versions up to %d. Install a newer pump",
                  PUMP_QUOTED(symbol), version, NEWEST_KNOWN_VERSION);
    return;
  }
  *pfn = wrapper_of(hook);
  pump_log_once(&said_address, PUMP_LOG_INFO,
                "this driver returns addresses without names (%s): pump chooses wrappers "
                "by name, version and flags",
                PUMP_QUOTED(symbol));
}

CUresult cuGetProcAddress(const char *symbol, void **pfn, int version, cuuint64_t flags) {
  CUresult result = pump_real.cuGetProcAddress(symbol, pfn, version, flags);
  int saved = errno;
  if (result == CUDA_SUCCESS) substitute(symbol, pfn, version, flags);
  errno = saved;
  return result;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status) {
  CUresult result = pump_real.cuGetProcAddress_v2(symbol, pfn, version, flags, status);
  int saved = errno;
  if (result == CUDA_SUCCESS) substitute(symbol, pfn, version, flags);
  errno = saved;
  return result;
}
