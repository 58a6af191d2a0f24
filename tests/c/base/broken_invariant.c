/* broken_invariant.c - leaves the mapping twice after one enter, which breaks an invariant.
 *
 * With assertions the second call ends the process. Without them the process ends with
 * the number of conditions that were evaluated, which is 0. */
#include <string.h>

#include "check.h"
#include "shim/base/base.h"

__thread uint32_t pump_reentry_depth;

int main(int argc, char **argv) {
  int evaluated = 0;
  uint64_t epoch;
  PUMP_ASSERT(++evaluated == 1, "conditions are evaluated once");
  CHECK(pump_mapping_enter(&epoch) && pump_mapping_entered());
  pump_mapping_leave();
  CHECK(!pump_mapping_entered());
  if (argc == 2 && strcmp(argv[1], "twice") == 0) pump_mapping_leave();
  return evaluated;
}
