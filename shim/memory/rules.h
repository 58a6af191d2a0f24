/* rules.h - which allocations stay device memory, and why (rules.c). */
#ifndef PUMP_RULES_H
#define PUMP_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* PUMP_RULE_SIZE is a preference: if the GPU has no memory left, the allocation may still
 * be converted. PUMP_RULE_LIBRARY is a requirement: converted memory would not work. */
enum pump_rule { PUMP_RULE_NONE, PUMP_RULE_SIZE, PUMP_RULE_LIBRARY };

/* Reads PUMP_KEEP_DEVICE, at the start of a process with a single thread. */
void pump_rules_reset(void);

/* Returns the rule that keeps an allocation of `bytes` by the calling thread. Walks part
 * of its stack, only while a library of the rules is loaded. Requires the guard. */
enum pump_rule pump_rule_for(size_t bytes);

/* Returns whether a library of the rules has called us. Walks as pump_rule_for does.
 * Requires the guard. */
bool pump_rule_keeps_caller(void);

/* Returns whether the caller is a library that must distinguish managed from device
 * memory, because it registers device memory with a network card. Walks as pump_rule_for
 * does. Requires the guard. */
bool pump_rule_sees_managed(void);

/* Returns whether PUMP_RULE_SIZE keeps the allocation; does not walk the stack. */
bool pump_rule_by_size(size_t bytes);

/* Writes the file name of the library that has called us, skipping CUDA's own, or "the
 * program" for the executable. Writes at most `capacity` bytes. Requires the guard. */
void pump_rule_caller(char *name, size_t capacity);

/* Returns whether the rule "stream-ordered" is set: the driver's own pools serve
 * stream-ordered allocations. */
bool pump_rule_stream_ordered(void);

/* Returns whether the real driver, not pump, serves virtual memory management calls
 * (cuMemCreate, cuMemMap): if the rule "vmm" is set, or a library that the rules name has
 * called us. Walks the stack as pump_rule_for does. Requires the guard. */
bool pump_rule_mapped(void);

/* Applies the rule "ipc": the calling library has requested something that only device
 * memory can do, so its next allocations stay device memory. Returns their allowance in
 * bytes, a multiple of the refused bytes; 0 if the rule is off or the table is full. */
uint64_t pump_rule_learn_caller(uint64_t refused_bytes);

/* Resets the allowance of learned libraries, because the program has been given a handle:
 * they are still sharing memory. Does not walk the stack. */
void pump_rule_handle_given(void);

#endif
