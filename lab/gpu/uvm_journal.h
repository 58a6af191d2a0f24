/* uvm_journal.h - makes changes of a shared state atomic. Internal to the model.
 *
 * DESIGN
 * A process may be killed while it changes a state that other processes use too. So
 * before each change, the old contents go into a journal inside the same state. A process
 * that finds an open journal restores the old contents, newest first, which undoes the
 * change. The state of a single process has no journal; a save there is one comparison.
 *
 *   arm:         Saves the struct at the head of the state as a whole. Afterwards its
 *                fields may be written freely.
 *   save:        Saves a table entry before a write. uvm_edit() and similar functions
 *                call it; tables are otherwise const.
 *   checkpoint:  Keeps all changes made until now, and arms again. Allowed only when the
 *                state is consistent.
 *   commit:      Keeps all changes, and disarms.
 *   undo:        Restores the old contents after a writer died. May itself be
 *                interrupted and repeated.
 *
 * A kill takes effect between two instructions, so the order of stores is program order.
 * Only the compiler must be kept from reordering them. */
#ifndef PUMP_UVM_JOURNAL_H
#define PUMP_UVM_JOURNAL_H

#include <stdbool.h>
#include <stdint.h>

struct uvm;

struct uvm_journal {
  uint64_t used_bytes; /* 0: not armed */
  uint64_t room_bytes; /* size of the space after this struct */
};

/* A change between two checkpoints writes at most half of this. The largest one, a batch
 * of 256 faults, saves about 20 blocks per fault. */
#define UVM_JOURNAL_BYTES 4194304u

void uvm_journal_arm(struct uvm *uvm);
void uvm_journal_save(const struct uvm *uvm, const void *entry, uint32_t length_bytes);
void uvm_journal_commit(struct uvm *uvm);
/* Commits and arms again. Does nothing without a journal or if it is not armed. */
void uvm_checkpoint(struct uvm *uvm);
/* Returns whether a long change needs a checkpoint now. */
bool uvm_journal_filling(const struct uvm *uvm);
/* Returns false if there was nothing to undo. */
bool uvm_journal_undo(struct uvm *uvm);

#endif
