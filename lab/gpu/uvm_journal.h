/* uvm_journal.h - what makes a change of a shared state whole. Internal to the model.
 *
 * DESIGN
 * A process may be killed while it changes a state that others use too. So before
 * anything changes, its old contents go into a journal that lies in the same state. A
 * process that finds a journal left open puts the old contents back, newest first: the
 * state is as it was before the change began. A state of one process has no journal; there
 * a save is one comparison.
 *
 *   arm         the struct at the head of the state is saved as a whole: its fields may
 *               be written freely from then on
 *   save        an entry of a table, before it is written; uvm_edit() and its like do so,
 *               and tables are otherwise const
 *   checkpoint  all up to here stays; armed anew. Only where the state is whole.
 *   commit      all stays, nothing is armed
 *   undo        after the death of a writer; may itself be broken off and repeated
 *
 * A kill takes effect between two instructions, so the order of stores is the order in
 * the program; the compiler alone has to be kept from changing it.
 */
#ifndef PUMP_UVM_JOURNAL_H
#define PUMP_UVM_JOURNAL_H

#include <stdbool.h>
#include <stdint.h>

struct uvm;

struct uvm_journal {
  uint64_t used_bytes; /* 0: not armed */
  uint64_t room_bytes; /* behind this struct */
};

/* No change between two checkpoints writes more than half of this: the largest, a batch
 * of 256 faults, saves some 20 blocks for each. */
#define UVM_JOURNAL_BYTES 4194304u

void uvm_journal_arm(struct uvm *uvm);
void uvm_journal_save(const struct uvm *uvm, const void *entry, uint32_t length_bytes);
void uvm_journal_commit(struct uvm *uvm);
/* commit and arm; without a journal, or with one that is not armed, nothing. */
void uvm_checkpoint(struct uvm *uvm);
/* Is it time for a checkpoint in the middle of something long? */
bool uvm_journal_filling(const struct uvm *uvm);
/* false: there was nothing to undo. */
bool uvm_journal_undo(struct uvm *uvm);

#endif
