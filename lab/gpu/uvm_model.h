/* uvm_model.h - unified memory of one GPU. Internal to the model: callers use gpu_engine.h.
 *
 * DESIGN
 * Each 2 MiB block records which of its 64 KiB pages are on the GPU (gpu_pages) and which
 * exist at all (data_pages). Existing pages that are not on the GPU are on the host. A
 * block that holds a chunk of GPU memory is in one of the lists USED, DISCARDED, UNUSED.
 * A move changes this state at once and records its times: ready_at is the end of the
 * last arrival, left_at the end of the last departure. Each is a reading of the clock of
 * its link direction (uvm_link.h). A chunk changes hands at once too; the copy of the new
 * block starts after the old contents have left.
 *
 *   1. Always free + UNUSED + DISCARDED + USED + plain = capacity, in chunks.
 *   2. `gpu_pages` != 0  <=>  the block is in USED or DISCARDED.
 *   3. Among these, the discarded blocks are in DISCARDED.
 *   4. UNUSED: the contents were prefetched to the CPU or discarded. The chunk stays
 *      with its block, and is taken first.
 *
 * Chunks are taken in the driver's order: free, then the heads of UNUSED, DISCARDED, USED
 * (uvm_pmm_gpu.c). Blocks join a list at its end, so USED is in order of migration. A
 * prefetch of resident pages counts as a migration; an access does not. There is no dirty
 * tracking: all pages of a block evicted from USED are copied.
 *
 * Under READ_MOSTLY pages are duplicated: a page copied to the GPU stays valid on the
 * host (host_pages) and is evicted without a copy. A write by the GPU invalidates the
 * host's copy, 4 KiB at a time. A use names 64 KiB pages, so each written page causes 16
 * faults. A prefetch to the host makes duplicates and frees nothing. The end of the
 * advice leaves one copy: the GPU's if the block prefers the GPU, else the host's. Pages
 * that only the GPU has stay there. So a block departs by the end of its advice, then an
 * ordinary prefetch to the host.
 *
 * Under ACCESSED_BY a fault on a page of the host maps it and leaves it there: mapped_ns.
 * uvm_remote.c has the rules and the cost of accesses in place.
 *
 * Costs, with the constants of the profile (t_x is x_us, bw_x is x_gbps):
 *
 *   Fault batch:  `fault_base + blocks * fault_block + 64 KiB pages * fault_page`
 *                 + unmapping + eviction + copies at prefetch_h2d_gbps + fault_replay.
 *                 One batch at a time; fault_wake first if there was none for that long.
 *   Prefetch in:  The caller pays prefetch_call + blocks * prefetch_block (* 1.3 for more
 *                 than one) + eviction. Copies at prefetch_h2d_gbps follow.
 *   Prefetch out: The caller pays the same without eviction, and host_alloc once per
 *                 block. The second pass waits for each block's copy, then takes
 *                 512 * cpu_pte, while later blocks are copied.
 *   Eviction:     `evict_us` for each chunk taken from a block, host_alloc once per
 *                 block. The old block's copy at copy_d2h_gbps precedes the new one's.
 *   Unmapping:    `cpu_unmap`, and cpu_unmap_page for each 64 KiB page. Charged for each
 *                 part of a block that was mapped for the CPU and moves at once: a
 *                 prefetch moves the whole block, a fault one step of the tree.
 *   Discard:      `discard_call`, and discard_block for each block that is unmapped. The
 *                 thread and the waits are as for a prefetch.
 *   Advice:       `advise_call`, and advise_block for each block with changed mappings.
 *   Collapse:     `collapse_page` for each 4 KiB page, in the batch.
 *   Populate:     `bytes / populate_gbps`, without the link.
 *
 * Choices made here:
 *   1. CPU work of a batch precedes its copies. The copies of a batch are pipelined with
 *      the write-back of its evicted blocks.
 *   2. `evict_us` is charged for each chunk that is taken from another block, also from
 *      UNUSED and DISCARDED. Only USED moves bytes.
 *   3. A discarded block gets host pages when its chunk is taken, although nothing is
 *      copied there: the driver makes its pages resident on the CPU (uvm_va_block.c).
 *   4. A kernel sweeps over each use that is not wide. A batch has one page of the first
 *      absent block of each use, so the prefetcher's steps bring a whole block in six
 *      batches, as counted on real GPUs (docs/uvm.md). For wide uses, a batch has all
 *      pages of as many blocks as fit into 256 faults.
 *   5. A fault covers a 64 KiB page. Inside a block the tree prefetcher completes every
 *      aligned group with more than 51 % of its pages resident or faulted.
 *   6. Faults of a copy engine are serviced one block a batch, plus nonreplayable_us.
 *   7. If no chunk is available (plain allocations hold everything), pages are read over
 *      the link and stay on the host: "remote". */
#ifndef PUMP_UVM_MODEL_H
#define PUMP_UVM_MODEL_H

#include <stdbool.h>

#include "gpu_engine.h"
#include "uvm_journal.h"
#include "uvm_link.h"

#define UVM_NO_BLOCK 0xffffffffu
#define UVM_ALL_PAGES 0xffffffffu
#define UVM_PAGE_BYTES 65536u
#define UVM_BATCH_FAULTS 256u
#define UVM_LISTS 4
#define UVM_COLLAPSE_FAULTS 16u /* 4 KiB pages in a 64 KiB page */

/* flags of a block */
#define UVM_LIVE 1u
#define UVM_CPU_MAPPED 2u
#define UVM_HOST_ALLOCATED 4u
#define UVM_READ_MOSTLY 8u
#define UVM_ACCESSED_BY 16u /* by the GPU */
#define UVM_CPU_READS 64u   /* CPU_MAPPED, but only for reading */
#define UVM_PREFERS_GPU 128u

struct uvm_block {
  uint64_t ready_at; /* on the clock of the direction to the GPU */
  uint64_t left_at;  /* on the clock of the direction to the host */
  uint32_t gpu_pages;
  uint32_t data_pages;
  uint32_t previous;
  uint32_t next;
  uint8_t list;
  uint8_t flags;
  uint8_t discard;
  uint8_t place;       /* limited host: GPU_IN_HOST, GPU_ON_FLASH, GPU_TO_FLASH */
  uint32_t host_pages; /* subset of gpu_pages that is valid on the host too */
  uint64_t mapped_ns;  /* the GPU maps the host's pages from then on; 0: it does not */
};

struct uvm_list {
  uint32_t head;
  uint32_t tail;
  uint32_t count;
  uint32_t reserved;
};

/* The host's memory and its flash tier, in blocks; room 0: the host holds everything. */
struct uvm_host {
  struct gpu_host facts;
  uint64_t read_free_ns, write_free_ns;
  uint32_t room, held;
  uint32_t victims[GPU_HOST_VICTIMS]; /* move to flash, in order, when the host is full */
  uint32_t victims_taken, victims_made;
};

/* The factor on the time of transfers; see gpu_jitter(). */
struct uvm_pace {
  double share, now;
  uint64_t state;
};

/* Locks of the driver: the time until which each is held (gpu_engine_locks.c). */
struct uvm_locks {
  uint32_t kinds;
  uint64_t context_until_ns[GPU_LOCK_CONTEXTS];
  uint64_t read_until_ns; /* the lock of the address space */
  uint64_t write_until_ns;
};

struct uvm {
  struct uvm_profile profile; /* constant, so the journal skips it; must be first */
  struct gpu_counters counters;
  struct uvm_links links;
  uint64_t now_ns;
  uint64_t handler_free_ns; /* the serial fault handler */
  struct uvm_locks locks;
  uint64_t remap_free_ns; /* the driver's queue that maps evicted blocks for the GPU */
  uint64_t blocks_offset; /* of the block table, relative to this struct */
  uint64_t plain_bytes;
  uint32_t block_count;
  uint32_t capacity_blocks;
  uint32_t plain_blocks;
  uint32_t free_blocks;
  uint32_t in_place; /* 1: some block has been under ACCESSED_BY */
  struct uvm_host host;
  struct uvm_pace pace;
  struct uvm_list lists[UVM_LISTS]; /* [GPU_LIST_NONE] stays empty */
  /* used by a shared GPU */
  uint64_t journal_offset;       /* relative to this struct; 0: no journal */
  uint32_t owner_blocks;         /* blocks of each owner; 0: not shared */
  uint32_t actor;                /* the owner that makes the call */
  uint32_t held[GPU_MAX_OWNERS]; /* blocks in USED and DISCARDED, by owner */
};

/* Returns the blocks, for reading. uvm_edit() returns a block to change. */
static inline const struct uvm_block *uvm_blocks(const struct uvm *uvm) {
  return (const struct uvm_block *)((uintptr_t)uvm + (uintptr_t)uvm->blocks_offset);
}

static inline struct uvm_block *uvm_edit(struct uvm *uvm, uint32_t block) {
  struct uvm_block *b =
      (struct uvm_block *)((uintptr_t)uvm + (uintptr_t)uvm->blocks_offset) + block;
  if (uvm->journal_offset != 0) uvm_journal_save(uvm, b, sizeof *b);
  return b;
}

static inline uint64_t uvm_ns(double time_us) {
  return (uint64_t)(time_us * 1000 + 0.5);
}

static inline uint64_t uvm_pages_bytes(uint32_t pages) {
  return (uint64_t)(uint32_t)__builtin_popcount(pages) * UVM_PAGE_BYTES;
}

/* Returns a block's transfer rate in bytes per ns: host pages are copied separately. */
static inline double uvm_rate(const struct uvm *uvm, uint32_t pages, double gbps) {
  double bytes = (double)uvm_pages_bytes(pages);
  double pieces = bytes / 1024 / uvm->profile.host_page_kib;
  if (pieces <= 1) return gbps / uvm->pace.now;
  double pieces_ns = (pieces - 1) * uvm->profile.piece_us * 1000;
  return bytes / (bytes / gbps + pieces_ns) / uvm->pace.now;
}

static inline uint32_t uvm_common_divisor(uint32_t a, uint32_t b) {
  while (b != 0) {
    uint32_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

static inline uint64_t uvm_max(uint64_t a, uint64_t b) {
  return a > b ? a : b;
}

/* Returns when the block's last arrival is complete, as known now, or a past time.
 * uvm_left_ns() does so for its last departure. */
static inline uint64_t uvm_ready_ns(const struct uvm *uvm, const struct uvm_block *b) {
  return uvm_link_time(&uvm->links, UVM_LINK_IN, b->ready_at);
}

static inline uint64_t uvm_left_ns(const struct uvm *uvm, const struct uvm_block *b) {
  return uvm_link_time(&uvm->links, UVM_LINK_OUT, b->left_at);
}

static inline void uvm_set_ready(const struct uvm *uvm, struct uvm_block *b,
                                 uint64_t time_ns) {
  b->ready_at = uvm_max(b->ready_at, uvm_link_at(&uvm->links, UVM_LINK_IN, time_ns));
}

static inline void uvm_set_left(const struct uvm *uvm, struct uvm_block *b,
                                uint64_t time_ns) {
  b->left_at = uvm_link_at(&uvm->links, UVM_LINK_OUT, time_ns);
}

/* A chunk that is taken from one block for another. */
struct uvm_victim {
  uint32_t block;    /* UVM_NO_BLOCK: the chunk was free */
  uint32_t pages;    /* pages to copy to the host */
  uint64_t after_ns; /* end of the block's own transfers */
  uint64_t host_ns;  /* CPU work to evict the block */
};

/* A block that an operation misses, and the pages that it touches. */
struct uvm_miss {
  uint32_t block;
  uint32_t pages;
  uint32_t access;
};

void uvm_init(struct uvm *uvm, const struct uvm_profile *profile, uint64_t blocks_offset,
              uint32_t block_count, uint64_t memory_bytes, uint64_t now_ns);
void uvm_error(struct uvm *uvm, uint32_t error, uint32_t block);

/* uvm_model.c: eviction lists and chunks */
void uvm_list_remove(struct uvm *uvm, uint32_t block);
void uvm_list_push(struct uvm *uvm, uint32_t block, uint32_t list, bool front);
/* Moves a block with resident pages to the end of USED or DISCARDED. */
void uvm_list_refresh(struct uvm *uvm, uint32_t block);
/* Takes a chunk in the driver's order; returns false if all memory is plain. */
bool uvm_take_chunk(struct uvm *uvm, const struct gpu_hooks *hooks, struct uvm_victim *out);
/* Books the victim's copy to the host; returns when its chunk is empty. */
uint64_t uvm_victim_leaves(struct uvm *uvm, const struct uvm_victim *victim,
                           uint64_t earliest_ns);
/* Allocates the block's host pages if it has none; returns the CPU time. */
uint64_t uvm_host_allocate_ns(struct uvm *uvm, uint32_t block);
/* Forgets the block's contents, which are worthless. Its chunk stays in its list. */
void uvm_drop(struct uvm *uvm, const struct gpu_hooks *hooks, uint32_t block);
/* Reports a move of a block's pages to the caller's hooks. */
void uvm_moves(const struct uvm *uvm, const struct gpu_hooks *hooks, uint32_t how,
               uint32_t block, uint32_t pages, uint64_t ready_ns);
void uvm_free_block(struct uvm *uvm, uint32_t block, uint64_t *complete_ns);
int uvm_plain_reserve(struct uvm *uvm, const struct gpu_hooks *hooks, uint64_t length_bytes,
                      struct gpu_cost *cost);
int uvm_plain_release(struct uvm *uvm, uint64_t length_bytes);

/* uvm_move.c: moves blocks in and out */
/* Returns the pages of `block` that a use touches, given their number per block. */
uint32_t uvm_touched_pages(uint32_t block, uint32_t pages_per_block);
/* Services one batch of faults; returns the time of the replay. */
uint64_t uvm_fault_batch(struct uvm *uvm, const struct gpu_hooks *hooks,
                         const struct uvm_miss *misses, uint32_t count, bool replayable);
/* Brings blocks onto the GPU. `first_slice` pays for the call; `two_passes`: the whole
 * call has more than one block. */
void uvm_prefetch_in(struct uvm *uvm, const struct gpu_hooks *hooks, uint32_t first,
                     uint32_t count, bool first_slice, bool two_passes,
                     struct gpu_cost *cost);
void uvm_prefetch_out(struct uvm *uvm, const struct gpu_hooks *hooks, uint32_t first,
                      uint32_t count, bool first_slice, bool two_passes,
                      struct gpu_cost *cost);
/* `first_slice` pays for the call. */
void uvm_discard(struct uvm *uvm, const struct gpu_hooks *hooks, uint32_t first,
                 uint32_t count, uint32_t kind, bool first_slice, struct gpu_cost *cost);

/* Moves a chunk to the end of UNUSED after its pages were moved or discarded. */
void uvm_vacate(struct uvm *uvm, uint32_t block);
/* Returns `pages` as the tree prefetcher completes them inside one block. It considers
 * only groups with at least one of the pages `around`. */
uint32_t uvm_complete_groups(uint32_t pages, uint32_t around);

/* uvm_remote.c: reads of the host's memory in place */
/* Returns the block's pages on the host that the GPU accesses in place now. */
uint32_t uvm_in_place(const struct uvm *uvm, const struct uvm_block *b);
/* Returns whether a fault leaves the block's pages on the host and maps them. */
bool uvm_stays(const struct uvm *uvm, const struct uvm_block *b);
/* Serves faults on pages that stay on the host, from `earliest_ns`; returns the end. */
uint64_t uvm_keep(struct uvm *uvm, const struct gpu_hooks *hooks, uint32_t block,
                  uint32_t faulted, uint64_t earliest_ns);
/* Notes that the GPU maps the block's pages on the host from `time_ns`. */
void uvm_map(struct uvm *uvm, uint32_t block, uint64_t time_ns);
/* Lets the driver's queue map an evicted block that has left the GPU at `left_ns`. */
void uvm_map_late(struct uvm *uvm, uint32_t block, uint64_t left_ns);
/* The cost of accesses in place: time by the GPU's rates, time of the link, and bytes. */
struct uvm_reach {
  double ns, link_ns, bytes;
};
/* Returns the cost of one row. `range_bytes`: on the host, of the whole operation. */
struct uvm_reach uvm_row(const struct uvm *uvm, uint32_t row_bytes, double range_bytes,
                         bool sorted);
/* Returns the cost for each byte of a sweep. */
struct uvm_reach uvm_swept(const struct uvm *uvm, double range_bytes);

/* Applies advice to the block at `time_ns`; returns the end. */
uint64_t uvm_advise_block(struct uvm *uvm, uint32_t block, uint32_t advice,
                          uint64_t time_ns);
/* uvm_flash.c: does nothing while the host holds everything */
/* Accounts for contents that arrive on the host; returns when it has space for them. */
uint64_t uvm_host_take(struct uvm *uvm, uint32_t block, uint64_t earliest_ns);
/* Accounts for contents that return to the GPU; returns when the host has them to read.
 * Duplicates keep their host memory. */
uint64_t uvm_host_give(struct uvm *uvm, uint32_t block, uint64_t earliest_ns);
/* Removes the block's lost contents from the host's account. */
void uvm_host_forget(struct uvm *uvm, uint32_t block);
/* Implement gpu_flash_write(), gpu_flash_read() and gpu_host_drop() for a valid block. */
int uvm_flash_write(struct uvm *uvm, uint32_t block, uint64_t *free_ns);
int uvm_flash_read(struct uvm *uvm, uint32_t block, uint64_t *free_ns);
int uvm_host_drop(struct uvm *uvm, uint32_t block);

/* gpu_engine_owners.c: notifies the block's owner, another process than the actor */
void gpu_note_drop(struct uvm *uvm, uint32_t block);

/* uvm_check.c: returns 0, or the number of the broken invariant. `counters`: sum over all
 * owners. `owners`: one bit for each owner whose blocks are checked; the others have
 * none. */
int uvm_check(const struct uvm *uvm, const struct gpu_counters *counters, uint32_t owners);

#endif
