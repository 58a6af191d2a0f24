/* rules.h - which allocations stay device memory, and why (rules.c). */
#ifndef PUMP_RULES_H
#define PUMP_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* RULE_SIZE is a preference: where the card has no room, such an allocation may be
 * converted after all. RULE_LIBRARY is a need: converted, the memory would not do. */
enum pump_rule { PUMP_RULE_NONE, PUMP_RULE_SIZE, PUMP_RULE_LIBRARY };

/* Reads PUMP_KEEP_DEVICE; no other thread runs (start of a process). */
void pump_rules_reset(void);

/* The rule that keeps an allocation of `bytes` by the calling thread. Walks a bounded
 * piece of its stack, only while a library of the rules is loaded. In the guard. */
enum pump_rule pump_rule_for(size_t bytes);

/* Whether a library of the rules has called us. Walks as pump_rule_for does. In the guard.
 */
bool pump_rule_keeps_caller(void);

/* Whether the caller is a library that has to tell managed memory from device memory,
 * because it registers the latter with a network card. Walks as pump_rule_for does. In the
 * guard. */
bool pump_rule_sees_managed(void);

/* Only whether RULE_SIZE keeps it; walks nothing. */
bool pump_rule_by_size(size_t bytes);

/* The library that has called us, passing over CUDA's own: its file name, or "the
 * program" for the executable. Writes at most `room` bytes. In the guard. */
void pump_rule_caller(char *name, size_t room);

/* The rule "stream-ordered": the driver's own pools serve what is allocated in stream
 * order. */
bool pump_rule_stream_ordered(void);

/* The rule "vmm", or a library of the rules has called: virtual memory management calls are
 * the driver's. Walks as pump_rule_for does. In the guard. */
bool pump_rule_mapped(void);

/* The rule "ipc": that library has requested something that only device memory can do, so
 * what it allocates from this call on stays device memory, as far as the allowance reaches:
 * returned, a multiple of what was refused. 0 when the rule is off or the table is full. */
uint64_t pump_rule_learn_caller(uint64_t refused_bytes);

/* A program has been given a handle: libraries that share go on to, and their allowance is
 * whole again. Walks nothing. */
void pump_rule_handle_given(void);

#endif
