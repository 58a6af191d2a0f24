/* refusal.c - names libraries that need device memory, and the remedy, if the driver has
 * refused a call for converted memory or may refuse one.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "memory.h"
#include "rules.h"

#define MIB (1u << 20)

/* Writes the rule for --keep-device with which `caller` gets device memory. */
static void rule_for(char *text, size_t capacity, const char *caller, uint64_t bytes) {
  const char *end = strstr(caller, ".so");
  if (strncmp(caller, "lib", 3) == 0 && end != NULL)
    snprintf(text, capacity, "library=%.*s", (int)(end - caller), caller);
  else
    snprintf(text, capacity, "below=%lluMiB", (unsigned long long)(bytes / MIB + 1));
}

void pump_refusal_explain(const char *call, uint64_t address, bool rule_ipc,
                          uint32_t *said) {
  struct pump_hit hit;
  char caller[64], rule[96], size[32], then[96] = "";
  if (!pump_range_lookup(address, &hit) || hit.kind != PUMP_RANGE_CONVERTED) return;
  int saved = errno;
  pump_enter();
  uint64_t kept = rule_ipc ? pump_rule_learn_caller(hit.requested_bytes) : 0;
  pump_rule_caller(caller, sizeof caller);
  rule_for(rule, sizeof rule, caller, hit.requested_bytes);
  if (kept != 0) {
    pump_bytes_text(size, sizeof size, kept);
    snprintf(then, sizeof then, "; its next %s of allocations stay device memory", size);
  }
  pump_log_once(said, PUMP_LOG_WARNING,
                "%s by %s fails, because CUDA does not support it for pageable memory. "
                "Exclude that memory with pump-run --keep-device %s%s",
                call, PUMP_QUOTED(caller), PUMP_QUOTED(rule), then);
  pump_leave();
  errno = saved;
}

/* Finds NCCL by its kernels, even inside a library that no rule names. Searches mangled
 * names; before NCCL 2.19 they had the second form. */
void pump_refusal_warn_of_nccl(const char *kernel) {
  static uint32_t said;
  char caller[64];
  if (kernel == NULL ||
      (strstr(kernel, "ncclDevKernel") == NULL && strstr(kernel, "ncclKernel") == NULL))
    return;
  int saved = errno;
  pump_enter();
  if (!pump_rule_keeps_caller()) {
    pump_rule_caller(caller, sizeof caller);
    pump_log_once(&said, PUMP_LOG_WARNING,
                  "NCCL is built into %s, so pump cannot recognize its buffers and made "
                  "them pageable. If a collective fails, set NCCL_CUMEM_ENABLE=1 or use "
                  "pump-run --keep-device below=16MiB",
                  PUMP_QUOTED(caller));
  }
  pump_leave();
  errno = saved;
}
