/* uvm_journal.c - saves old contents, and restores them. See uvm_journal.h. */
#include <stdlib.h>
#include <string.h>

#include "gpu_engine_state.h"

/* Follows the saved contents, so that undo finds it from the end. */
struct record {
  uint64_t offset_bytes; /* relative to the engine */
  uint64_t length_bytes;
};

#ifdef UVM_JOURNAL_PROBE
void uvm_journal_probe(const struct uvm *uvm, bool committed); /* defined by a test */
#define PROBE(uvm, committed) uvm_journal_probe(uvm, committed)
#else
#define PROBE(uvm, committed) ((void)0)
#endif

static struct uvm_journal *journal_of(const struct uvm *uvm) {
  if (uvm->journal_offset == 0) return NULL;
  return (struct uvm_journal *)((uintptr_t)uvm + (uintptr_t)uvm->journal_offset);
}

static uint8_t *engine_of(const struct uvm *uvm) {
  return (uint8_t *)((uintptr_t)uvm - offsetof(struct gpu_engine, uvm));
}

static void publish(struct uvm_journal *journal, uint64_t used_bytes) {
  __atomic_store_n(&journal->used_bytes, used_bytes, __ATOMIC_RELEASE);
  __atomic_signal_fence(__ATOMIC_SEQ_CST); /* later stores must not move before this */
}

static uint64_t append(const struct uvm *uvm, struct uvm_journal *journal, uint64_t at,
                       const void *from, uint64_t length_bytes) {
  uint64_t padded_bytes = (length_bytes + 7) & ~7ull;
  struct record record = {.offset_bytes =
                              (uint64_t)((const uint8_t *)from - engine_of(uvm)),
                          .length_bytes = length_bytes};
  /* Callers make checkpoints in time. If one did not, this process dies without harm to
   * others: its changes can be undone. */
  if (at + padded_bytes + sizeof record > journal->room_bytes) abort();
  uint8_t *to = (uint8_t *)(journal + 1) + at;
  memcpy(to, from, length_bytes);
  memcpy(to + padded_bytes, &record, sizeof record);
  return at + padded_bytes + sizeof record;
}

void uvm_journal_arm(struct uvm *uvm) {
  struct uvm_journal *journal = journal_of(uvm);
  if (journal == NULL) return;
  const uint8_t *engine = engine_of(uvm), *rest = (const uint8_t *)&uvm->counters;
  uint64_t at =
      append(uvm, journal, 0, engine, (uint64_t)((const uint8_t *)&uvm->profile - engine));
  at = append(uvm, journal, at, rest, (uint64_t)((const uint8_t *)(uvm + 1) - rest));
  publish(journal, at);
}

void uvm_journal_save(const struct uvm *uvm, const void *entry, uint32_t length_bytes) {
  struct uvm_journal *journal = journal_of(uvm);
  if (journal->used_bytes == 0) return; /* while the state is being built */
  publish(journal, append(uvm, journal, journal->used_bytes, entry, length_bytes));
  PROBE(uvm, false);
}

void uvm_journal_commit(struct uvm *uvm) {
  struct uvm_journal *journal = journal_of(uvm);
  if (journal == NULL) return;
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
  publish(journal, 0);
  PROBE(uvm, true);
}

void uvm_checkpoint(struct uvm *uvm) {
  const struct uvm_journal *journal = journal_of(uvm);
  if (journal == NULL || journal->used_bytes == 0) return;
  uvm_journal_commit(uvm);
  uvm_journal_arm(uvm);
}

bool uvm_journal_filling(const struct uvm *uvm) {
  const struct uvm_journal *journal = journal_of(uvm);
  return journal != NULL && journal->used_bytes > journal->room_bytes / 2;
}

bool uvm_journal_undo(struct uvm *uvm) {
  struct uvm_journal *journal = journal_of(uvm);
  if (journal == NULL || journal->used_bytes == 0) return false;
  uint64_t at = journal->used_bytes;
  while (at > 0) {
    struct record record;
    const uint8_t *end = (const uint8_t *)(journal + 1) + at;
    memcpy(&record, end - sizeof record, sizeof record);
    uint64_t padded_bytes = (record.length_bytes + 7) & ~7ull;
    at -= padded_bytes + sizeof record;
    memcpy(engine_of(uvm) + record.offset_bytes, (const uint8_t *)(journal + 1) + at,
           record.length_bytes);
  }
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
  publish(journal, 0);
  return true;
}
