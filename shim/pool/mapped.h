/* mapped.h - virtual memory management (cuMemAddressReserve, cuMemCreate, cuMemMap) served
 * from managed memory: what it offers to the hooks.
 *
 * A reservation of addresses is one managed allocation, which has no pages until they are
 * touched. A handle stands for bytes that the limit has admitted, and mapping it is
 * bookkeeping. docs/decisions/0056-mapped-memory.md says which calls are served, and what
 * of the driver's own memory differs. Files: mapped_handles.c (handles), mapped_places.c
 * (reservations and mappings), mapped_access.c (which devices may access them),
 * mapped_ranges.c (ranges of mapped memory, contents).
 *
 * Functions that take `result` return false where the driver itself has to serve the call.
 * They are called in the guard, errno saved.
 */
#ifndef PUMP_MAPPED_H
#define PUMP_MAPPED_H

#include "shim/execute/execute.h"

/* ---- handles (mapped_handles.c) ------------------------------------------------- */

bool pump_mapped_create(CUmemGenericAllocationHandle *handle, size_t bytes,
                        const CUmemAllocationProp *properties, unsigned long long flags,
                        CUresult *result);
/* The driver has made or imported a handle, which the program is going to map. */
void pump_mapped_waits(CUmemGenericAllocationHandle handle);
bool pump_mapped_release(CUmemGenericAllocationHandle *handle, CUresult *result);
bool pump_mapped_retain(CUmemGenericAllocationHandle *handle, CUdeviceptr address,
                        CUresult *result);
bool pump_mapped_properties(CUmemAllocationProp *properties,
                            CUmemGenericAllocationHandle *handle, CUresult *result);

/* Before memory is mapped into a sparse array, which wants a handle made as a tile pool.
 * None of pump's is. false: a handle of the list is pump's, and a line has said that the
 * call fails. */
bool pump_mapped_no_tiles(const CUarrayMapInfo *list, unsigned int count);

/* Before a call that only memory of the driver's can serve (an export, a multicast object):
 * `real` is the driver's handle to make it with. For a handle that was never mapped the
 * driver has made such memory. Then `lent` is set, other calls that map or lend wait, and
 * pump_mapped_lent has to follow. false: it cannot be, and one line for each `said` has
 * explained that `call` fails. */
struct pump_mapped_loan {
  CUmemGenericAllocationHandle handle, real;
  bool lent;
};
bool pump_mapped_lend(struct pump_mapped_loan *loan, const char *call, uint32_t *said,
                      CUresult *result);
/* After it. The memory stays the driver's if the call has succeeded; after a call that only
 * found out that it cannot be made, the handle is pageable as before. */
void pump_mapped_lent(const struct pump_mapped_loan *loan, bool succeeded);

/* ---- addresses (mapped_places.c) -------------------------------------------------- */

bool pump_mapped_reserve(CUdeviceptr *address, size_t bytes, size_t alignment,
                         unsigned long long flags, CUresult *result);
bool pump_mapped_unreserve(CUdeviceptr address, size_t bytes, CUresult *result);

/* `handle` becomes the driver's where it returns false. */
bool pump_mapped_map(CUdeviceptr address, size_t bytes, size_t offset,
                     CUmemGenericAllocationHandle *handle, unsigned long long flags,
                     CUresult *result);
bool pump_mapped_unmap(CUdeviceptr address, size_t bytes, CUresult *result);
bool pump_mapped_set_access(CUdeviceptr address, size_t bytes,
                            const CUmemAccessDesc *access, size_t count, CUresult *result);
bool pump_mapped_get_access(unsigned long long *flags, const CUmemLocation *location,
                            CUdeviceptr address, CUresult *result);

/* ---- what is known of an address ------------------------------ */

/* Reservations that are served; 0: none of the questions below needs to be asked. */
extern uint32_t pump_mapped_places;

/* Whether the address lies in one. */
bool pump_mapped_holds(CUdeviceptr address);

/* Whether [address, +bytes) touches a byte of a reservation that no device may access:
 * there plain memory would refuse a copy. */
bool pump_mapped_gap(CUdeviceptr address, uint64_t bytes);

/* Where accessible memory (`live`), or a gap between such, begins and ends around the
 * address; false: it lies in no reservation. For pump_pool_piece, which the virtual driver
 * calls under its own lock: takes none that is held across the driver's calls. */
bool pump_mapped_piece(CUdeviceptr address, uint64_t *base, uint64_t *bytes, bool *live);

struct pump_mapping {
  uint64_t base, bytes;
  int handle_types; /* that the program has requested of its memory */
};
/* The mapping that the address lies in; false: none. */
bool pump_mapped_find(CUdeviceptr address, struct pump_mapping *mapping);

/* ---- ends ------------------------------ */

/* After a context has gone, with the managed memory that was allocated in it. */
void pump_mapped_context_gone(CUcontext context);
/* Empties everything; no other thread runs (start of a process). */
void pump_mapped_reset(void);
/* In the child of a fork: nothing here is the child's. */
void pump_mapped_fork_child(void);

#endif
