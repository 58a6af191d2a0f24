/* mapped.h - virtual memory management (cuMemAddressReserve, cuMemCreate, cuMemMap)
 * served from managed memory: the interface for the hooks.
 *
 * A reservation of addresses is one managed allocation, which has no pages until they are
 * touched. A handle represents bytes that the limit has admitted. Mapping it only changes
 * tables. See docs/decisions/0056-mapped-memory.md for the calls that are served, and for
 * the differences from the driver's memory. Files: mapped_handles.c (handles),
 * mapped_reservations.c (reservations and mappings), mapped_access.c (which devices may
 * access them), mapped_ranges.c (ranges of mapped memory, contents).
 *
 * Functions with a `result` return false if the driver itself must serve the call. They
 * require the guard and a saved errno.
 */
#ifndef PUMP_MAPPED_H
#define PUMP_MAPPED_H

#include "shim/execute/execute.h"

/* ---- handles (mapped_handles.c) ------------------------------------------------- */

bool pump_mapped_create(CUmemGenericAllocationHandle *handle, size_t bytes,
                        const CUmemAllocationProp *properties, unsigned long long flags,
                        CUresult *result);
/* Records a handle that the driver has made or imported, for the program to map. */
void pump_mapped_note_real(CUmemGenericAllocationHandle handle);
bool pump_mapped_release(CUmemGenericAllocationHandle *handle, CUresult *result);
bool pump_mapped_retain(CUmemGenericAllocationHandle *handle, CUdeviceptr address,
                        CUresult *result);
bool pump_mapped_properties(CUmemAllocationProp *properties,
                            CUmemGenericAllocationHandle *handle, CUresult *result);

/* Checks a call that maps memory into a sparse array, for which a handle must have been
 * made as a tile pool. Returns false, and logs that the call fails, if a handle in the
 * list is pump's, because pump makes no tile pools. */
bool pump_mapped_no_tiles(const CUarrayMapInfo *list, unsigned int count);

/* Prepares a call that only memory of the driver can serve (an export, a multicast
 * object), and finds the driver's handle `real` for it. For a handle that was never
 * mapped, the driver makes such memory and `lent` is set. Then other calls that map or
 * lend wait, and pump_mapped_lent must follow. If that is impossible, returns false and
 * logs, once for each flag, that `call` fails. */
struct pump_mapped_loan {
  CUmemGenericAllocationHandle handle, real;
  bool lent;
};
bool pump_mapped_lend(struct pump_mapped_loan *loan, const char *call, uint32_t *said,
                      CUresult *result);
/* Ends the loan after the call. If the call has succeeded, the memory stays the driver's.
 * If it only showed that it cannot be made, the handle stays pageable. */
void pump_mapped_lent(const struct pump_mapped_loan *loan, bool succeeded);

/* ---- addresses (mapped_reservations.c) ------------------------------------------- */

bool pump_mapped_reserve(CUdeviceptr *address, size_t bytes, size_t alignment,
                         unsigned long long flags, CUresult *result);
bool pump_mapped_unreserve(CUdeviceptr address, size_t bytes, CUresult *result);

/* Maps a handle. If it returns false, `*handle` is the driver's handle for the call. */
bool pump_mapped_map(CUdeviceptr address, size_t bytes, size_t offset,
                     CUmemGenericAllocationHandle *handle, unsigned long long flags,
                     CUresult *result);
bool pump_mapped_unmap(CUdeviceptr address, size_t bytes, CUresult *result);
bool pump_mapped_set_access(CUdeviceptr address, size_t bytes,
                            const CUmemAccessDesc *access, size_t count, CUresult *result);
bool pump_mapped_get_access(unsigned long long *flags, const CUmemLocation *location,
                            CUdeviceptr address, CUresult *result);

/* ---- look-ups by address -------------------------------------- */

/* Served reservations; if there are none, the functions below need not be called. */
extern uint32_t pump_mapped_reservations;

/* Returns whether the address is in a reservation. */
bool pump_mapped_contains(CUdeviceptr address);

/* Returns whether [address, +bytes) touches reserved bytes that no device may access. A
 * copy there would be refused without pump. */
bool pump_mapped_touches_gap(CUdeviceptr address, uint64_t bytes);

/* Finds the accessible memory (`live`), or the gap in it, around an address; false
 * outside of reservations. The virtual driver calls this through pump_pool_piece, under
 * its own lock. So it takes no lock that is held across driver calls. */
bool pump_mapped_piece(CUdeviceptr address, uint64_t *base, uint64_t *bytes, bool *live);

struct pump_mapping {
  uint64_t base, bytes;
  int handle_types; /* requested for its memory */
};
/* Finds the mapping of an address; false if there is none. */
bool pump_mapped_find(CUdeviceptr address, struct pump_mapping *mapping);

/* ---- ends ------------------------------ */

/* Called after a context has ended, with the managed memory that was allocated in it. */
void pump_mapped_context_gone(CUcontext context);
/* Empties all tables, at the start of a process with a single thread. */
void pump_mapped_reset(void);
/* Empties all tables in a forked child, which owns nothing in them. */
void pump_mapped_fork_child(void);

#endif
