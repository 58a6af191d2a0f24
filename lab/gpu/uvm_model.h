/* uvm_model.h - unified memory of one GPU. Internal to the model: callers use
 * gpu_engine.h.
 *
 * DESIGN
 * State per 2 MiB block: which of its 64 KiB pages are on the GPU (gpu_pages),
 * which exist at all (data_pages; those not on the GPU are on the host), and
 * whether it holds a chunk of the GPU's memory, which is the same as being in one
 * of the lists USED, DISCARDED, UNUSED. Movement is bookkeeping at once, with
 * times beside it: ready_at is when the last arrival is complete, left_at when
 * the last departure is, each by the clock of its direction of the link (uvm_link.h). A
 * chunk changes hands at once too; the newcomer's copy starts after the old contents have
 * left.
 *
 *   chunks: free + UNUSED + DISCARDED + USED + plain = capacity, always
 *   gpu_pages != 0  <=>  in USED or DISCARDED;  DISCARDED <=> the block is discarded
 *   UNUSED: the contents went to the CPU by request, or were discarded; the chunk stays
 *   with its block, and is first to be taken
 *
 * Room is taken in the driver's order: free, then the heads of UNUSED, DISCARDED, USED
 * (uvm_pmm_gpu.c). Each is in the order in which its blocks came to it; USED in order of
 * migration, which a prefetch of what is there already counts as; accesses never touch
 * it. There is no dirty tracking: what leaves USED is copied, page for page.
 *
 * Under READ_MOSTLY pages are duplicated: what comes to the GPU from the host stays valid
 * there (host_pages), so it leaves without a copy. A write takes the host's copy away, by
 * 4 KiB: a use names 64 KiB pages at the finest, so each that is written has 16 faults. A
 * prefetch to the host makes duplicates and frees nothing. The end of the advice leaves one
 * copy: the GPU's of blocks that prefer the GPU, else the host's; what only the GPU has
 * stays there. So a block departs by that and an ordinary prefetch to the host behind it.
 *
 * Costs, with the constants of the profile (t_x is x_us, bw_x is x_gbps):
 *
 *   fault batch  fault_base + blocks * fault_block + 64 KiB pages * fault_page
 *                + unmapping + room + copies at prefetch_h2d_gbps + fault_replay;
 *                one at a time; fault_wake before it if there was none for that long
 *   prefetch in  caller: prefetch_call + blocks * prefetch_block (* 1.3 when more
 *                than one) + room; copies at prefetch_h2d_gbps behind it
 *   prefetch out caller: the same without room, host_alloc at a block's first
 *                time; in the second pass, block by block, until its copy has ended
 *                and 512 * cpu_pte more, while later blocks are copied
 *   room         evict_us for each chunk taken from a block, its copy at
 *                copy_d2h_gbps before the newcomer's, host_alloc at its first time
 *   way back     for each part of a block that was mapped for the CPU and comes at once
 *                (all of it by a prefetch, a step of the tree by a fault): cpu_unmap, and
 *                cpu_unmap_page for each 64 KiB page
 *   discard      discard_call, and discard_block for each block that is unmapped; the
 *                thread and the waits are those of a prefetch
 *   advice       advise_call, and advise_block for each block whose mappings it changes
 *   collapse     collapse_page for each 4 KiB page, in the batch
 *   populate     bytes / populate_gbps, no link
 *
 * Choices made here:
 *   - host work of a batch comes before its copies; copies of a batch run in a
 *     pipeline with the write-back of its victims
 *   - evict_us is paid for every chunk that is taken from another block, also
 *     from UNUSED and DISCARDED; only USED moves bytes
 *   - what was discarded gets host pages when its chunk is taken, although nothing is
 *     copied there: the driver makes its pages resident on the CPU (uvm_va_block.c)
 *   - a kernel sweeps over each use that is not wide: a batch has one page of the first
 *     absent block of each, and the prefetcher's steps bring a whole block in six
 *     batches, as counted on cards (docs/uvm.md). Of wide uses, a batch has all pages of as
 *     many blocks as fit into 256 faults
 *   - faults are 64 KiB pages; inside a block the tree prefetcher completes every
 *     aligned group of which more than 51 % is resident or faulted
 *   - a copy engine's faults are serviced one block a batch, plus nonreplayable_us
 *   - where no chunk can be had at all (plain allocations hold everything) pages
 *     are read over the link and stay where they are: "remote"
 */
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
#define UVM_COLLAPSE_FAULTS 16u /* 4 KiB pages of a page */

/* flags of a block */
#define UVM_LIVE 1u
#define UVM_CPU_MAPPED 2u
#define UVM_HOST_ALLOCATED 4u
#define UVM_READ_MOSTLY 8u
#define UVM_CPU_READS 64u /* CPU_MAPPED, for reading alone */
#define UVM_PREFERS_GPU 128u

struct uvm_block {
  uint64_t ready_at; /* on the clock of the way in */
  uint64_t left_at;  /* on that of the way out */
  uint32_t gpu_pages;
  uint32_t data_pages;
  uint32_t previous;
  uint32_t next;
  uint8_t list;
  uint8_t flags;
  uint8_t discard;
  uint8_t place;       /* of a limited host: GPU_IN_HOST, GPU_ON_FLASH */
  uint32_t host_pages; /* of gpu_pages: valid on the host, too */
};

struct uvm_list {
  uint32_t head;
  uint32_t tail;
  uint32_t count;
  uint32_t reserved;
};

/* The host's memory and what is behind it; room 0: it holds everything. In blocks. */
struct uvm_host {
  struct gpu_host facts;
  uint64_t read_free_ns, write_free_ns;
  uint32_t room, held;
  uint32_t victims[GPU_HOST_VICTIMS]; /* that go to flash where room is short, in order */
  uint32_t victims_taken, victims_made;
};

/* How long transfers take, of what they should; see gpu_jitter. */
struct uvm_pace {
  double share, now;
  uint64_t state;
};

/* Locks of the driver: until when each is held (gpu_engine_locks.c). */
struct uvm_locks {
  uint32_t kinds;
  uint64_t context_until_ns[GPU_LOCK_CONTEXTS];
  uint64_t read_until_ns; /* of the address space */
  uint64_t write_until_ns;
};

struct uvm {
  struct uvm_profile profile; /* constant, and first: no journal keeps it */
  struct gpu_counters counters;
  struct uvm_links links;
  uint64_t now_ns;
  uint64_t handler_free_ns; /* the serial fault handler */
  struct uvm_locks locks;
  uint64_t blocks_offset; /* of the block table, from this struct */
  uint64_t plain_bytes;
  uint32_t block_count;
  uint32_t capacity_blocks;
  uint32_t plain_blocks;
  uint32_t free_blocks;
  struct uvm_host host;
  struct uvm_pace pace;
  struct uvm_list lists[UVM_LISTS]; /* [GPU_LIST_NONE] stays empty */
  /* of a shared GPU */
  uint64_t journal_offset;       /* from this struct; 0: none */
  uint32_t owner_blocks;         /* of each owner, one after the other; 0: not shared */
  uint32_t actor;                /* the owner that calls */
  uint32_t held[GPU_MAX_OWNERS]; /* blocks in USED and DISCARDED, by owner */
};

/* For reading. uvm_edit() returns a block to be changed. */
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

/* What a block's transfer carries per nanosecond: each host page is copied by itself. */
static inline double uvm_rate(const struct uvm *uvm, uint32_t pages, double gbps) {
  double bytes = (double)uvm_pages_bytes(pages);
  double pieces = bytes / 1024 / uvm->profile.host_page_kib;
  if (pieces <= 1) return gbps / uvm->pace.now;
  double pieces_ns = (pieces - 1) * uvm->profile.piece_us * 1000;
  return bytes / (bytes / gbps + pieces_ns) / uvm->pace.now;
}

static inline uint64_t uvm_max(uint64_t a, uint64_t b) {
  return a > b ? a : b;
}

/* When the block's last arrival and departure are complete, as far as it is known; a time
 * that has passed if they are. */
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

/* A chunk on its way from one block to another. */
struct uvm_victim {
  uint32_t block;    /* UVM_NO_BLOCK: it was free */
  uint32_t pages;    /* to copy to the host */
  uint64_t after_ns; /* its own traffic ends */
  uint64_t host_ns;  /* work of the CPU for it */
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

/* uvm_model.c: lists and room */
void uvm_list_remove(struct uvm *uvm, uint32_t block);
void uvm_list_push(struct uvm *uvm, uint32_t block, uint32_t list, bool front);
/* Puts a block with resident pages where it belongs: USED or DISCARDED, at the end. */
void uvm_list_refresh(struct uvm *uvm, uint32_t block);
/* Takes a chunk in the driver's order; false when there is none to take. */
bool uvm_take_chunk(struct uvm *uvm, const struct gpu_hooks *hooks, struct uvm_victim *out);
/* Books the victim's way out from `earliest_ns`; returns when its chunk is empty. */
uint64_t uvm_victim_leaves(struct uvm *uvm, const struct uvm_victim *victim,
                           uint64_t earliest_ns);
/* Host pages for the block, at its first time: work of the CPU, else 0. */
uint64_t uvm_host_allocate(struct uvm *uvm, uint32_t block);
/* The contents are worthless and forgotten. The chunk stays where it is. */
void uvm_drop(struct uvm *uvm, const struct gpu_hooks *hooks, uint32_t block);
/* Reports a move to the caller's hooks. */
void uvm_moves(const struct uvm *uvm, const struct gpu_hooks *hooks, uint32_t how,
               uint32_t block, uint32_t pages, uint64_t ready_ns);
void uvm_free_block(struct uvm *uvm, uint32_t block, uint64_t *complete_ns);
int uvm_plain_reserve(struct uvm *uvm, const struct gpu_hooks *hooks, uint64_t length_bytes,
                      struct gpu_cost *cost);
int uvm_plain_release(struct uvm *uvm, uint64_t length_bytes);

/* uvm_move.c: what brings blocks in and out */
/* Pages of `block` that a use with so many pages a block touches. */
uint32_t uvm_touched_pages(uint32_t block, uint32_t pages_per_block);
/* Services one batch of faults; returns the time of the replay. */
uint64_t uvm_fault_batch(struct uvm *uvm, const struct gpu_hooks *hooks,
                         const struct uvm_miss *misses, uint32_t count, bool replayable);
/* Brings blocks onto the GPU; `first_slice` pays for the call, `two_passes` when
 * the whole call has more than one block. */
void uvm_prefetch_in(struct uvm *uvm, const struct gpu_hooks *hooks, uint32_t first,
                     uint32_t count, bool first_slice, bool two_passes,
                     struct gpu_cost *cost);
void uvm_prefetch_out(struct uvm *uvm, const struct gpu_hooks *hooks, uint32_t first,
                      uint32_t count, bool first_slice, bool two_passes,
                      struct gpu_cost *cost);
/* `first_slice` pays for the call. */
void uvm_discard(struct uvm *uvm, const struct gpu_hooks *hooks, uint32_t first,
                 uint32_t count, uint32_t kind, bool first_slice, struct gpu_cost *cost);

/* Applies advice to the block, from `time_ns` on; returns when that has ended. */
uint64_t uvm_advise_block(struct uvm *uvm, uint32_t block, uint32_t advice,
                          uint64_t time_ns);
/* uvm_flash.c: nothing happens in there while the host holds everything */
/* Contents come to the host: returns when it has room for them. */
uint64_t uvm_host_take(struct uvm *uvm, uint32_t block, uint64_t earliest_ns);
/* Contents return to the GPU: returns when they can be read from the host. Duplicates keep
 * their place there. */
uint64_t uvm_host_give(struct uvm *uvm, uint32_t block, uint64_t earliest_ns);
/* The block's contents are gone: takes them from the host's account. */
void uvm_host_forget(struct uvm *uvm, uint32_t block);
/* What gpu_flash_write(), gpu_flash_read() and gpu_host_drop() do, of a valid block. */
int uvm_flash_write(struct uvm *uvm, uint32_t block, uint64_t *free_ns);
int uvm_flash_read(struct uvm *uvm, uint32_t block, uint64_t *free_ns);
int uvm_host_drop(struct uvm *uvm, uint32_t block);

/* gpu_engine_owners.c: notifies the owner of the block, which is not the caller */
void gpu_note_drop(struct uvm *uvm, uint32_t block);

/* uvm_check.c: 0, or the number of the broken invariant. `counters` of all owners;
 * `owners`: a bit for each whose blocks are checked, the others have none. */
int uvm_check(const struct uvm *uvm, const struct gpu_counters *counters, uint32_t owners);

#endif
