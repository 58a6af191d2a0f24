/* resolve_dlsym.c - the exported dlsym: returns our wrappers for functions of the driver,
 * and passes every other look-up on unchanged.
 *
 * DESIGN. dlsym depends on its return address: RTLD_NEXT and RTLD_DEFAULT mean "after"
 * and "as seen by" the caller. A wrapper in C would become the caller. So every look-up
 * that is not substituted leaves by a tail jump, with registers and stack unchanged. The
 * symbol has no version and so satisfies references to GLIBC_2.2.5 and GLIBC_2.34 alike.
 *
 * A name is substituted only if the real look-up finds it in the driver:
 *   `handle`       Looked up here; the caller does not matter.
 *   RTLD_DEFAULT   May find our export, which precedes the driver's. A loaded driver must
 *                  then have the function.
 *   RTLD_NEXT      Never substituted. A caller before us finds our export by itself; a
 *                  caller after us asks for functions after us.
 * The driver's own look-ups are not substituted.
 */
#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#include "driver.h"
#include "resolve.h"
#include "shim/base/glibc.h"

#if defined(__x86_64__)
#define DLSYM_VERSION "GLIBC_2.2.5"
__asm__(".text\n"
        ".globl dlsym\n"
        ".type dlsym, @function\n"
        ".p2align 4\n"
        "dlsym:\n"
        ".cfi_startproc\n"
        "  endbr64\n"
        "  pushq %rdi\n"
        ".cfi_adjust_cfa_offset 8\n"
        "  pushq %rsi\n"
        ".cfi_adjust_cfa_offset 8\n"
        "  movq 16(%rsp), %rdx\n" /* return address: the caller */
        "  subq $8, %rsp\n"
        ".cfi_adjust_cfa_offset 8\n"
        "  call pump_dlsym_pick\n"
        "  addq $8, %rsp\n"
        ".cfi_adjust_cfa_offset -8\n"
        "  popq %rsi\n"
        ".cfi_adjust_cfa_offset -8\n"
        "  popq %rdi\n"
        ".cfi_adjust_cfa_offset -8\n"
        "  testq %rdx, %rdx\n" /* .settled */
        "  jz 1f\n"
        "  ret\n" /* .address */
        "1: jmpq *pump_real_dlsym(%rip)\n"
        ".cfi_endproc\n"
        ".size dlsym, . - dlsym\n");
#elif defined(__aarch64__)
#define DLSYM_VERSION "GLIBC_2.17"
__asm__(".text\n"
        ".globl dlsym\n"
        ".type dlsym, %function\n"
        ".p2align 4\n"
        "dlsym:\n"
        ".cfi_startproc\n"
        "  hint #34\n" /* bti c */
        "  stp x29, x30, [sp, #-32]!\n"
        ".cfi_def_cfa_offset 32\n"
        ".cfi_offset 29, -32\n"
        ".cfi_offset 30, -24\n"
        "  mov x29, sp\n"
        "  stp x0, x1, [sp, #16]\n"
        "  mov x2, x30\n" /* return address: the caller */
        "  bl pump_dlsym_pick\n"
        "  ldp x9, x10, [sp, #16]\n"
        "  ldp x29, x30, [sp], #32\n"
        ".cfi_restore 29\n"
        ".cfi_restore 30\n"
        ".cfi_def_cfa_offset 0\n"
        "  cbz x1, 1f\n" /* .settled */
        "  ret\n"        /* .address */
        "1: mov x0, x9\n"
        "  mov x1, x10\n"
        "  adrp x16, pump_real_dlsym\n"
        "  ldr x16, [x16, :lo12:pump_real_dlsym]\n"
        "  br x16\n"
        ".cfi_endproc\n"
        ".size dlsym, . - dlsym\n");
#else
#error "pump knows how to interpose dlsym on x86-64 and aarch64 only"
#endif

void *(*pump_real_dlsym)(void *handle, const char *name);
char *(*pump_real_dlerror)(void);

/* The answer in the two result registers, for the assembly: an address of ours, or (not
 * settled) a jump to the real dlsym. */
struct pick {
  void *address;
  uint64_t settled;
};
__attribute__((used)) struct pick pump_dlsym_pick(void *handle, const char *name,
                                                  const void *caller);

/* Replaces dlsym if we know none in the C library: every look-up fails. */
static void *find_nothing(void *handle, const char *name) {
  (void)handle, (void)name;
  return NULL;
}

static char *report_nothing(void) {
  return NULL;
}

static void *next_of_libc(const char *name) {
  if (!pump_has_glibc()) return pump_other_libc_symbol(name);
  void *found = dlvsym(RTLD_NEXT, name, DLSYM_VERSION);
  return found != NULL ? found : dlvsym(RTLD_NEXT, name, "GLIBC_2.34");
}

/* Runs at load, while the program has no dlerror() text that could change. */
__attribute__((constructor)) void pump_dlsym_ready(void) {
  if (__atomic_load_n(&pump_real_dlsym, __ATOMIC_ACQUIRE) != NULL) return;
  void *dlerror_ = next_of_libc("dlerror"), *found = next_of_libc("dlsym");
  char *(*error)(void) = report_nothing;
  if (dlerror_ != NULL) memcpy(&error, &dlerror_, sizeof error);
  __atomic_store_n(&pump_real_dlerror, error, __ATOMIC_RELAXED); /* before dlsym */
  void *(*function)(void *, const char *) = find_nothing;
  if (found != NULL)
    memcpy(&function, &found, sizeof function);
  else
    pump_log(
        PUMP_LOG_ERROR,
        "pump does not support dlsym of this C library: run the program without pump-run");
  __atomic_store_n(&pump_real_dlsym, function, __ATOMIC_RELEASE);
}

static bool same_library(const void *a, const void *b) {
  Dl_info first, second;
  return dladdr(a, &first) != 0 && dladdr(b, &second) != 0 &&
         first.dli_fbase == second.dli_fbase;
}

/* Answers a look-up in which `ours` hid the driver's function. `ours` is right only if a
 * driver has the function. Otherwise the look-up is repeated without us, which also
 * leaves the right dlerror. */
static struct pick hidden_by_us(void *ours, const char *name) {
  if (pump_resolve() && pump_driver_has(ours)) return (struct pick){ours, 1};
  void *next = pump_real_dlsym(RTLD_NEXT, name);
  return (struct pick){next != NULL && pump_is_driver(next) ? ours : next, 1};
}

struct pick pump_dlsym_pick(void *handle, const char *name, const void *caller) {
  struct pick pick = {NULL, 0};
  int saved = errno;
  pump_dlsym_ready();
  void *ours = NULL;
  if (name != NULL && name[0] == 'c' && name[1] == 'u' && handle != RTLD_NEXT)
    ours = pump_wrapper_named(name);
  void *found = ours == NULL ? NULL : pump_real_dlsym(handle, name);
  if (found == NULL)
    ; /* not ours, or not found: the real dlsym reports it */
  else if (found == ours)
    pick = hidden_by_us(ours, name);
  else if (!pump_disabled() && pump_is_driver(found) && !same_library(found, caller))
    pick = (struct pick){ours, 1};
  errno = saved;
  return pick;
}
