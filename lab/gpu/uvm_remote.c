/* uvm_remote.c - accesses to the host's memory in place, under ACCESSED_BY.
 *
 * DESIGN
 * Rules, from the driver's sources (docs/uvm.md, "Reads in place"):
 *
 *   Fault:     On a page of the host, maps the block's pages there and moves nothing. A
 *              page that is nowhere is populated on the GPU, as without the advice.
 *   Stronger:  READ_MOSTLY, and a preferred location on the GPU: faults migrate.
 *   Advice:    Maps what is on the host, one round trip for each block. Its end removes no
 *              mapping; later faults migrate.
 *   Prefetch:  To the GPU it moves the block. To the host it maps the block there.
 *   Eviction:  A queue of the driver maps the block, after its copy; until then it faults.
 *   Mixed:     For faults in a block on both sides the tree prefetcher works towards the
 *              host: groups of pages that are mostly there pull the rest from the GPU.
 *
 * An access in place has the time of its requests at remote_gbps. Each request of up to
 * 128 bytes costs REQUEST_BYTES more on the wire, in sectors of 32 bytes. An access whose
 * translation is not cached costs remote_walk_ns more. Translations of remote_reach_gib
 * are cached, less if host pages are smaller; the rest misses in proportion. Short rows
 * in ascending order miss no translation. Sweeps, and long rows, miss one in each
 * SWEEP_BYTES. Nothing is cached on the GPU: what is read twice is transferred twice.
 * Writes do not wait. */
#include "uvm_model.h"

#define SECTOR_BYTES 32u
#define LINE_BYTES 128u
/* Header of a PCIe completion with data, framing and CRC; 32 bytes then take 1.8 ns at 25.1
 * GB/s. Published: 2.0 (github.com/dmlc/dgl pull request 6635, rows of 4 bytes). */
#define REQUEST_BYTES 20u
/* Bytes for each miss in a sweep. Makes copies by kernels as slow as published for 20 GiB
 * (github.com/NVIDIA/nvbandwidth issue 42): 16.5 GB/s. */
#define SWEEP_BYTES 1550.0

uint32_t uvm_in_place(const struct uvm *uvm, const struct uvm_block *b) {
  if (b->mapped_ns == 0 || b->mapped_ns > uvm->now_ns) return 0;
  return b->data_pages & ~b->gpu_pages;
}

bool uvm_stays(const struct uvm *uvm, const struct uvm_block *b) {
  return (b->flags & (UVM_ACCESSED_BY | UVM_READ_MOSTLY | UVM_PREFERS_GPU)) ==
             UVM_ACCESSED_BY &&
         b->discard == 0 && uvm->host.room == 0; /* not with a flash tier */
}

void uvm_map(struct uvm *uvm, uint32_t block, uint64_t time_ns) {
  struct uvm_block *b = uvm_edit(uvm, block);
  bool complete = b->gpu_pages == UVM_ALL_PAGES || b->data_pages == 0;
  if (complete || (b->mapped_ns != 0 && b->mapped_ns <= time_ns)) return;
  b->mapped_ns = uvm_max(time_ns, 1);
}

void uvm_map_late(struct uvm *uvm, uint32_t block, uint64_t left_ns) {
  if (!uvm_stays(uvm, &uvm_blocks(uvm)[block])) return;
  uvm->remap_free_ns =
      uvm_max(uvm->remap_free_ns, left_ns) + uvm_ns(uvm->profile.advise_block_us);
  uvm_map(uvm, block, uvm->remap_free_ns);
}

uint64_t uvm_keep(struct uvm *uvm, const struct gpu_hooks *hooks, uint32_t block,
                  uint32_t faulted, uint64_t earliest_ns) {
  struct uvm_block *b = uvm_edit(uvm, block);
  uint64_t end_ns = uvm_max(earliest_ns, uvm_left_ns(uvm, b));
  uint32_t there = uvm_complete_groups(b->data_pages & ~b->gpu_pages, faulted);
  uint32_t pulled = there & b->gpu_pages;
  b->data_pages |= there; /* pages that were nowhere are zeroed on the host */
  if (pulled == 0) return end_ns;
  b->gpu_pages &= ~pulled;
  uint64_t bytes = uvm_pages_bytes(pulled);
  end_ns = uvm_link_book(&uvm->links, UVM_LINK_OUT, uvm->now_ns,
                         uvm_max(earliest_ns, uvm_ready_ns(uvm, b)), bytes,
                         uvm_rate(uvm, pulled, uvm->profile.copy_d2h_gbps));
  uvm_set_left(uvm, b, end_ns);
  uvm->counters.d2h_pull_bytes += bytes;
  uvm_moves(uvm, hooks, GPU_MOVE_PULL, block, pulled, end_ns);
  if (b->gpu_pages == 0) uvm_vacate(uvm, block);
  return end_ns;
}

/* Returns how many units a row touches on average, if rows are stored without gaps. */
static double touched(uint32_t row_bytes, uint32_t unit_bytes) {
  uint32_t aligned = uvm_common_divisor(row_bytes, unit_bytes);
  return ((double)row_bytes + unit_bytes - aligned) / unit_bytes;
}

/* Returns the share of accesses whose translation is not cached. */
static double missed(const struct uvm *uvm, double range_bytes) {
  double reach_bytes = uvm->profile.remote_reach_gib * (1ull << 30) *
                       uvm->profile.host_page_kib * 1024 / GPU_BLOCK_BYTES;
  return range_bytes > reach_bytes ? 1 - reach_bytes / range_bytes : 0;
}

/* Returns the cost of `sectors` in `lines`, without walks. */
static struct uvm_reach reach(const struct uvm *uvm, double sectors, double lines) {
  const struct uvm_profile *profile = &uvm->profile;
  double share = (double)LINE_BYTES / (LINE_BYTES + REQUEST_BYTES);
  double bytes = sectors * SECTOR_BYTES;
  double wire_bytes = (bytes + lines * REQUEST_BYTES) * share;
  return (struct uvm_reach){.ns = wire_bytes / profile->remote_gbps,
                            .link_ns = wire_bytes / profile->copy_h2d_gbps,
                            .bytes = bytes};
}

struct uvm_reach uvm_row(const struct uvm *uvm, uint32_t row_bytes, double range_bytes,
                         bool sorted) {
  struct uvm_reach cost =
      reach(uvm, touched(row_bytes, SECTOR_BYTES), touched(row_bytes, LINE_BYTES));
  double walks = row_bytes > SWEEP_BYTES ? row_bytes / SWEEP_BYTES : sorted ? 0 : 1;
  cost.ns += walks * missed(uvm, range_bytes) * uvm->profile.remote_walk_ns;
  return cost;
}

struct uvm_reach uvm_swept(const struct uvm *uvm, double range_bytes) {
  struct uvm_reach cost = reach(uvm, 1.0 / SECTOR_BYTES, 1.0 / LINE_BYTES);
  cost.ns += missed(uvm, range_bytes) * uvm->profile.remote_walk_ns / SWEEP_BYTES;
  return cost;
}
