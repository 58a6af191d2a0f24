/* observe_gate.c - which launches may wait at a gate (act_gate.c).
 *
 * Not those whose blocks wait for others': cooperative launches, whose hooks do not ask,
 * and kernels of collective libraries, which other processes' GPUs wait for. None in a
 * capture, and none between launches of which the second may begin before the first has
 * ended.
 */
#include <errno.h>
#include <string.h>

#include "act.h"
#include "observe.h"
#include "observe_rules.h"
#include "pump_ring.h"

/* Without a name nobody knows. */
static bool is_collective(CUfunction function) {
  static const char *const marks[] = {"nccl", "nvshmem"};
  const char *name = NULL;
  if (pump_function_name(function, &name) != CUDA_SUCCESS || name == NULL) return true;
  for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++)
    if (strstr(name, marks[i]) != NULL) return true;
  return pump_rule_for(SIZE_MAX) == PUMP_RULE_LIBRARY; /* by one of those libraries */
}

void pump_gate_launch(const struct pump_launch *launch, struct pump_at at) {
  if (launch->chained) return;
  int saved = errno;
  struct pump_bracket bracket = pump_bracket_open();
  if (!pump_capturing(at.stream)) {
    struct pump_place place = pump_place_of(at);
    struct pump_gate_wish wish = {.stream = at.stream,
                                  .stream_index = place.stream_index,
                                  .device = place.device,
                                  .seq = pump_newest_seq() + 1,
                                  .function = (uint64_t)(uintptr_t)launch->function};
    if (pump_gate_wanted(&wish) && !is_collective(launch->function)) pump_gate_set(&wish);
  }
  pump_bracket_close(bracket);
  errno = saved;
}
