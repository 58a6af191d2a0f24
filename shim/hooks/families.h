/* families.h - what the families of hooks offer each other, and to the start of a process.
 */
#ifndef PUMP_FAMILIES_H
#define PUMP_FAMILIES_H

#include <stdint.h>

/* Starts of a process: no other thread runs. */
void pump_primaries_reset(void); /* observe_context.c */
void pump_globals_reset(void);   /* observe_globals.c */
void pump_graph_reset(void);     /* observe_graph.c */
void pump_vmm_reset(void);       /* observe_vmm.c */

/* The most that virtual memory management had at its peak, in bytes (observe_vmm.c). */
uint64_t pump_vmm_peak_bytes(void);

/* observe_graph_memory.c: with a context that is current and outside of all locks, counts
 * what graphs hold that allocate. Due where one is uploaded or destroyed, and behind its
 * first launch in each era: when the program has idle memory given back, one ends, and all
 * take theirs anew. */
extern uint32_t pump_graph_memory_era;
void pump_graph_memory_look(void);
void pump_graph_memory_reset(void);

#endif
