/* card_die.c - part of a driver for tests: kills its process, without a message, at the
 * PUMP_TEST_DIE-th change of a shared card's state. */
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>

struct uvm;
void uvm_journal_probe(const struct uvm *uvm, bool committed);

void uvm_journal_probe(const struct uvm *uvm, bool committed) {
  static long left = -1;
  (void)uvm;
  if (committed) return;
  if (left < 0) {
    const char *text = getenv("PUMP_TEST_DIE");
    left = text != NULL ? atol(text) : 0;
  }
  if (left > 0 && --left == 0) raise(SIGKILL);
}
