/* uvm_move.c - costs and moves of demand faults, prefetches, discards and advice. See
 * uvm_model.h. */
#include "random.h"
#include "uvm_model.h"

uint32_t uvm_touched_pages(uint32_t block, uint32_t pages_per_block) {
  if (pages_per_block == 0 || pages_per_block >= GPU_PAGES_PER_BLOCK) return UVM_ALL_PAGES;
  /* Spread over the block, from a first page that depends only on the block. */
  uint32_t start = (block * 2654435761u) >> 27;
  uint32_t stride = GPU_PAGES_PER_BLOCK / pages_per_block;
  uint32_t pages = 0;
  for (uint32_t i = 0; i < pages_per_block; i++)
    pages |= 1u << ((start + i * stride) % GPU_PAGES_PER_BLOCK);
  return pages;
}

/* As the driver's prefetcher (uvm_perf_prefetch.c) completes each aligned group with more
 * than 51 % of its pages resident or faulted. Pages that it adds do not count toward larger
 * groups. */
uint32_t uvm_complete_groups(uint32_t pages, uint32_t around) {
  uint32_t completed = pages;
  for (uint32_t size = 2; size <= GPU_PAGES_PER_BLOCK; size *= 2) {
    uint32_t group = size == 32 ? UVM_ALL_PAGES : (1u << size) - 1;
    for (uint32_t at = 0; at < GPU_PAGES_PER_BLOCK; at += size) {
      uint32_t mask = group << at;
      if ((around & mask) != 0 &&
          (uint32_t)__builtin_popcount(pages & mask) * 100 > 51 * size)
        completed |= mask;
    }
  }
  return completed;
}

/* Draws the time factor of the next transfer. */
static void next_pace(struct uvm *uvm) {
  struct uvm_pace *pace = &uvm->pace;
  if (pace->share == 0) return;
  pace->now = 1 + pace->share * (2 * gpu_random(&pace->state) - 1);
}

static uint64_t book_in(struct uvm *uvm, uint64_t earliest_ns, uint32_t pages,
                        double gbps) {
  return uvm_link_book(&uvm->links, UVM_LINK_IN, uvm->now_ns, earliest_ns,
                       uvm_pages_bytes(pages), uvm_rate(uvm, pages, gbps));
}

static uint64_t book_out(struct uvm *uvm, uint64_t earliest_ns, uint32_t pages) {
  return uvm_link_book(&uvm->links, UVM_LINK_OUT, uvm->now_ns, earliest_ns,
                       uvm_pages_bytes(pages),
                       uvm_rate(uvm, pages, uvm->profile.copy_d2h_gbps));
}

/* One block in flight to the GPU: its victim, and the pages to copy and to zero. */
struct arrival {
  uint32_t block;
  uint32_t copy_pages;
  uint32_t populate_pages;
  uint64_t host_ns; /* for eviction and unmapping */
  struct uvm_victim victim;
  uint32_t kept_pages; /* faulted, but mapped on the host under ACCESSED_BY */
  bool remote;         /* no chunk is available */
};

/* Returns the CPU work to unmap these pages from the CPU: one walk over the page table
 * and one TLB invalidation. */
static uint64_t unmap_ns(const struct uvm *uvm, uint32_t pages) {
  uint32_t count = (uint32_t)__builtin_popcount(pages);
  return uvm_ns(uvm->profile.cpu_unmap_us + count * uvm->profile.cpu_unmap_page_us);
}

/* Returns the CPU work to map these pages for the CPU, each 4 KiB separately. */
static uint64_t map_ns(const struct uvm *uvm, uint32_t pages) {
  uint32_t count = (uint32_t)__builtin_popcount(pages) * (512 / GPU_PAGES_PER_BLOCK);
  return uvm_ns(count * uvm->profile.cpu_pte_us);
}

/* Decides on an arrival and updates the lists; arrive() adds the times. */
static void prepare_arrival(struct uvm *uvm, const struct gpu_hooks *hooks, uint32_t block,
                            uint32_t pages, struct arrival *out) {
  struct uvm_block *b = uvm_edit(uvm, block);
  *out = (struct arrival){.block = block, .victim.block = UVM_NO_BLOCK};
  if (b->discard != 0 && b->gpu_pages == 0 && b->data_pages != 0) {
    /* Discarded on the host: the contents are worthless, so nothing is copied. A fault
     * does not end the discarded state. */
    uint8_t discard = b->discard;
    uvm_drop(uvm, hooks, block);
    b->discard = discard;
  } else if (b->discard != 0) {
    b->data_pages = b->gpu_pages;
  }
  uint32_t missing = pages & ~b->gpu_pages;
  out->copy_pages = missing & b->data_pages;
  out->populate_pages = missing & ~b->data_pages;
  bool duplicates = (b->flags & UVM_READ_MOSTLY) != 0;
  if ((b->flags & UVM_CPU_MAPPED) && out->copy_pages != 0 &&
      !(duplicates && (b->flags & UVM_CPU_READS))) {
    out->host_ns += unmap_ns(uvm, out->copy_pages);
    if (duplicates) { /* the CPU keeps read access */
      out->host_ns += map_ns(uvm, out->copy_pages);
      b->flags |= UVM_CPU_READS;
    } else if ((missing | b->gpu_pages) == UVM_ALL_PAGES) {
      b->flags &= (uint8_t)~(UVM_CPU_MAPPED | UVM_CPU_READS);
    }
  }
  if (b->list == GPU_LIST_NONE) {
    if (!uvm_take_chunk(uvm, hooks, &out->victim)) {
      out->remote = true;
      return;
    }
    out->host_ns += out->victim.host_ns;
  }
  b->gpu_pages |= missing;
  b->data_pages |= missing;
  if (duplicates) b->host_pages |= out->copy_pages;
  if (b->gpu_pages == UVM_ALL_PAGES) b->mapped_ns = 0;
  uvm->counters.populated_bytes += uvm_pages_bytes(out->populate_pages);
  uvm_list_refresh(uvm, block);
}

/* Books the copies of a prepared arrival from `earliest_ns`; returns its end. */
static uint64_t arrive(struct uvm *uvm, const struct arrival *arrival, uint64_t earliest_ns,
                       double gbps) {
  const struct uvm_block *b = &uvm_blocks(uvm)[arrival->block];
  uint64_t room_ns = uvm_victim_leaves(uvm, &arrival->victim, earliest_ns);
  uint64_t ready_ns = room_ns;
  if (arrival->copy_pages != 0)
    ready_ns = book_in(
        uvm, uvm_host_give(uvm, arrival->block, uvm_max(room_ns, uvm_left_ns(uvm, b))),
        arrival->copy_pages, gbps);
  if (arrival->populate_pages != 0) {
    double zero_ns =
        (double)uvm_pages_bytes(arrival->populate_pages) / uvm->profile.populate_gbps;
    ready_ns = uvm_max(ready_ns, room_ns + (uint64_t)(zero_ns + 0.5));
  }
  return ready_ns;
}

/* Notes that the GPU writes these pages; returns the work for collapsed duplicates. */
static uint64_t written(struct uvm *uvm, uint32_t block, uint32_t pages) {
  const struct uvm_block *b = &uvm_blocks(uvm)[block];
  uint32_t collapsed = b->host_pages & pages;
  uint64_t count = (uint64_t)(uint32_t)__builtin_popcount(collapsed) * UVM_COLLAPSE_FAULTS;
  if (collapsed != 0) uvm_edit(uvm, block)->host_pages &= ~collapsed;
  uvm->counters.collapsed_pages += count;
  if (b->discard == GPU_DISCARD_UNMAP && b->gpu_pages != 0) {
    uvm_edit(uvm, block)->discard = 0;
    uvm_list_refresh(uvm, block);
  }
  return count * uvm_ns(uvm->profile.collapse_page_us);
}

/* Serves one miss of a batch, without its copies; returns the CPU work. */
static uint64_t serve(struct uvm *uvm, const struct gpu_hooks *hooks,
                      const struct uvm_miss *miss, struct arrival *out) {
  const struct uvm_block *b = &uvm_blocks(uvm)[miss->block];
  uint32_t faulted = miss->pages & ~b->gpu_pages;
  uint32_t kept = uvm_stays(uvm, b) ? faulted & b->data_pages : 0;
  uvm->counters.fault_blocks += b->gpu_pages == 0 || faulted == 0;
  uvm->counters.fault_pages += (uint32_t)__builtin_popcount(faulted);
  uvm->counters.remote_blocks += kept != 0;
  if (kept != 0 && kept == faulted) {
    *out = (struct arrival){
        .block = miss->block, .victim.block = UVM_NO_BLOCK, .kept_pages = kept};
    return 0;
  }
  faulted &= ~kept;
  uint32_t pages = b->gpu_pages;
  if (faulted != 0) pages = uvm_complete_groups(b->gpu_pages | faulted, UVM_ALL_PAGES);
  prepare_arrival(uvm, hooks, miss->block, pages, out);
  out->kept_pages = kept & ~uvm_blocks(uvm)[miss->block].gpu_pages;
  uint64_t copied_bytes = uvm_pages_bytes(out->copy_pages);
  if (out->remote) {
    uvm->counters.remote_blocks++;
    uvm->counters.h2d_remote_bytes += copied_bytes;
    return out->host_ns;
  }
  uvm->counters.h2d_demand_bytes += copied_bytes;
  uint64_t host_ns = out->host_ns;
  if (miss->access != GPU_READ) host_ns += written(uvm, miss->block, miss->pages);
  return host_ns;
}

/* Returns when the handler begins the batch. An idle handler needs an interrupt; a busy
 * one finds the faults in its next check. */
static uint64_t batch_begins(const struct uvm *uvm) {
  uint64_t wake_ns = uvm_ns(uvm->profile.fault_wake_us);
  bool idle = uvm->now_ns >= uvm->handler_free_ns + wake_ns;
  uint64_t begin_ns =
      idle ? uvm->now_ns + wake_ns : uvm_max(uvm->now_ns, uvm->handler_free_ns);
  return uvm_max(begin_ns, uvm->locks.write_until_ns);
}

uint64_t uvm_fault_batch(struct uvm *uvm, const struct gpu_hooks *hooks,
                         const struct uvm_miss *misses, uint32_t count, bool replayable) {
  const struct uvm_profile *profile = &uvm->profile;
  struct arrival arrivals[UVM_BATCH_FAULTS];
  uint64_t host_ns =
      uvm_ns(profile->fault_base_us) + count * uvm_ns(profile->fault_block_us);
  uint32_t moved_pages = 0;
  next_pace(uvm);
  for (uint32_t i = 0; i < count; i++) {
    host_ns += serve(uvm, hooks, &misses[i], &arrivals[i]);
    uint32_t moved = arrivals[i].copy_pages | arrivals[i].populate_pages;
    moved_pages += (uint32_t)__builtin_popcount(moved);
  }
  host_ns += (uint64_t)((double)moved_pages * profile->fault_page_us * 1000 + 0.5);
  if (!replayable) host_ns += count * uvm_ns(profile->nonreplayable_us);

  uint64_t copies_ns = batch_begins(uvm) + host_ns;
  uint64_t end_ns = copies_ns;
  for (uint32_t i = 0; i < count; i++) {
    const struct arrival *arrival = &arrivals[i];
    end_ns = uvm_max(end_ns, arrive(uvm, arrival, copies_ns, profile->prefetch_h2d_gbps));
    if (arrival->kept_pages != 0)
      end_ns = uvm_max(
          end_ns, uvm_keep(uvm, hooks, arrival->block, arrival->kept_pages, copies_ns));
  }
  end_ns += uvm_ns(profile->fault_replay_us);
  for (uint32_t i = 0; i < count; i++) {
    const struct arrival *arrival = &arrivals[i];
    if (arrival->kept_pages != 0) uvm_map(uvm, arrival->block, end_ns);
    uint32_t moved = arrival->copy_pages | arrival->populate_pages;
    if (arrival->remote || (arrival->kept_pages != 0 && moved == 0)) continue;
    uvm_set_ready(uvm, uvm_edit(uvm, arrival->block), end_ns);
    uvm_moves(uvm, hooks, arrival->copy_pages != 0 ? GPU_MOVE_FAULT : GPU_MOVE_FIRST,
              arrival->block, moved, end_ns);
  }
  uvm->handler_free_ns = end_ns;
  uvm->locks.read_until_ns = uvm_max(uvm->locks.read_until_ns, end_ns);
  uvm->counters.fault_batches++;
  uvm->counters.fault_groups += count;
  if (!replayable) uvm->counters.nonreplayable_blocks += count;
  return end_ns;
}

static uint64_t second_pass_ns(const struct uvm *uvm, uint32_t count) {
  const struct uvm_profile *profile = &uvm->profile;
  return (uint64_t)((double)count * profile->prefetch_block_us *
                        profile->prefetch_second_pass * 1000 +
                    0.5);
}

void uvm_prefetch_in(struct uvm *uvm, const struct gpu_hooks *hooks, uint32_t first,
                     uint32_t count, bool first_slice, bool two_passes,
                     struct gpu_cost *cost) {
  const struct uvm_profile *profile = &uvm->profile;
  uint64_t host_ns = uvm->now_ns + (first_slice ? uvm_ns(profile->prefetch_call_us) : 0);
  uint64_t complete_ns = host_ns;
  next_pace(uvm);
  for (uint32_t block = first; block < first + count; block++) {
    struct uvm_block *b = uvm_edit(uvm, block);
    struct arrival arrival;
    host_ns += uvm_ns(profile->prefetch_block_us);
    prepare_arrival(uvm, hooks, block, UVM_ALL_PAGES, &arrival);
    b->discard = 0; /* an explicit migration clears the state */
    uvm->counters.prefetch_in_blocks++;
    if (arrival.remote) continue; /* stays on the host */
    uvm_list_refresh(uvm, block);
    host_ns += arrival.host_ns;
    if ((arrival.copy_pages | arrival.populate_pages) == 0) {
      uvm->counters.prefetch_resident_blocks++;
    } else {
      uvm->counters.h2d_prefetch_bytes += uvm_pages_bytes(arrival.copy_pages);
      uint64_t ready_ns = arrive(uvm, &arrival, host_ns, profile->prefetch_h2d_gbps);
      uvm_set_ready(uvm, b, ready_ns);
    }
    uint64_t ready_ns = uvm_ready_ns(uvm, b);
    uint32_t pages = arrival.copy_pages | arrival.populate_pages;
    uvm_moves(uvm, hooks, pages != 0 ? GPU_MOVE_PREFETCH : GPU_MOVE_NONE, block, pages,
              ready_ns);
    complete_ns = uvm_max(complete_ns, ready_ns);
  }
  if (two_passes) host_ns += second_pass_ns(uvm, count);
  *cost = (struct gpu_cost){.caller_free_ns = host_ns,
                            .complete_ns = uvm_max(complete_ns, host_ns)};
  uvm->counters.caller_ns += host_ns - uvm->now_ns;
}

void uvm_vacate(struct uvm *uvm, uint32_t block) {
  const struct uvm_block *b = &uvm_blocks(uvm)[block];
  if (b->list != GPU_LIST_USED && b->list != GPU_LIST_DISCARDED) return;
  uvm_list_remove(uvm, block);
  uvm_list_push(uvm, block, GPU_LIST_UNUSED, false);
}

/* Books the copy of these pages to the host; returns its end. */
static uint64_t copy_out(struct uvm *uvm, const struct gpu_hooks *hooks, uint32_t how,
                         uint32_t block, uint32_t pages, uint64_t earliest_ns) {
  const struct uvm_block *b = &uvm_blocks(uvm)[block];
  uint64_t room_ns = uvm_host_take(uvm, block, uvm_max(earliest_ns, uvm_ready_ns(uvm, b)));
  uint64_t end_ns = book_out(uvm, room_ns, pages);
  uvm_moves(uvm, hooks, how, block, pages, end_ns);
  return end_ns;
}

/* Prefetches a READ_MOSTLY block to the host: copies pages that only the GPU has, and
 * evicts nothing. */
static uint64_t copy_ahead(struct uvm *uvm, const struct gpu_hooks *hooks, uint32_t block,
                           uint64_t earliest_ns) {
  struct uvm_block *b = uvm_edit(uvm, block);
  uint32_t pages = b->gpu_pages & ~b->host_pages;
  b->data_pages = UVM_ALL_PAGES;
  b->host_pages = b->gpu_pages;
  b->flags |= UVM_CPU_MAPPED | UVM_CPU_READS;
  if (pages == 0) return uvm_max(earliest_ns, uvm_left_ns(uvm, b));
  uvm->counters.d2h_ahead_bytes += uvm_pages_bytes(pages);
  uint64_t end_ns = copy_out(uvm, hooks, GPU_MOVE_AHEAD, block, pages, earliest_ns);
  uvm_set_left(uvm, b, end_ns);
  return end_ns;
}

/* Moves a block to the host by request; its chunk is then evicted before all used ones.
 * Returns the end of the copy. */
static uint64_t depart(struct uvm *uvm, const struct gpu_hooks *hooks, uint32_t block,
                       uint64_t earliest_ns, uint64_t *copied_bytes) {
  struct uvm_block *b = uvm_edit(uvm, block);
  uint64_t end_ns = earliest_ns;
  if (b->gpu_pages != 0) b->mapped_ns = 0;
  if (b->discard != 0) uvm_drop(uvm, hooks, block);
  if ((b->flags & UVM_READ_MOSTLY) && b->gpu_pages != 0)
    return copy_ahead(uvm, hooks, block, earliest_ns);
  if (b->gpu_pages != 0) {
    end_ns = copy_out(uvm, hooks, GPU_MOVE_OUT, block, b->gpu_pages, earliest_ns);
    *copied_bytes += uvm_pages_bytes(b->gpu_pages);
    uvm_set_left(uvm, b, end_ns);
    b->gpu_pages = 0;
  } else {
    end_ns = uvm_max(end_ns, uvm_left_ns(uvm, b));
  }
  b->data_pages = UVM_ALL_PAGES; /* pages without contents are zeroed on the host */
  b->flags |= UVM_CPU_MAPPED;
  b->flags &= (uint8_t)~UVM_CPU_READS;
  uvm_vacate(uvm, block);
  if (uvm_stays(uvm, b)) uvm_map(uvm, block, end_ns);
  return end_ns;
}

/* Returns whether a prefetch to the host finds all pages mapped already. */
static bool is_mapped_for_cpu(const struct uvm_block *b) {
  if (!(b->flags & UVM_CPU_MAPPED)) return false;
  if (b->flags & UVM_READ_MOSTLY) return b->gpu_pages == b->host_pages;
  return !(b->flags & UVM_CPU_READS) && b->gpu_pages == 0;
}

void uvm_prefetch_out(struct uvm *uvm, const struct gpu_hooks *hooks, uint32_t first,
                      uint32_t count, bool first_slice, bool two_passes,
                      struct gpu_cost *cost) {
  const struct uvm_profile *profile = &uvm->profile;
  uint64_t host_ns = uvm->now_ns + (first_slice ? uvm_ns(profile->prefetch_call_us) : 0);
  uint64_t copied_ns[GPU_PREFETCH_SLICE_BLOCKS], copied_bytes = 0;
  bool mapped[GPU_PREFETCH_SLICE_BLOCKS];
  next_pace(uvm);
  for (uint32_t i = 0; i < count; i++) {
    const struct uvm_block *b = &uvm_blocks(uvm)[first + i];
    host_ns += uvm_ns(profile->prefetch_block_us) + uvm_host_allocate_ns(uvm, first + i);
    mapped[i] = is_mapped_for_cpu(b);
    copied_ns[i] = depart(uvm, hooks, first + i, host_ns, &copied_bytes);
    uvm->counters.prefetch_out_blocks++;
  }
  uvm->counters.d2h_prefetch_bytes += copied_bytes;
  /* Second pass of the caller: waits for the copy of each block and maps its pages. */
  uint64_t end_ns = host_ns, pass_ns = two_passes ? second_pass_ns(uvm, 1) : 0;
  uint64_t waited_ns = 0;
  for (uint32_t i = 0; i < count; i++) {
    end_ns += pass_ns;
    if (copied_ns[i] > end_ns) {
      waited_ns += copied_ns[i] - end_ns;
      end_ns = copied_ns[i];
    }
    if (!mapped[i]) end_ns += map_ns(uvm, UVM_ALL_PAGES);
  }
  *cost = (struct gpu_cost){.caller_free_ns = end_ns,
                            .complete_ns = end_ns,
                            .waits_from_ns = host_ns,
                            .waits_until_ns = host_ns + waited_ns};
  uvm->counters.caller_ns += end_ns - uvm->now_ns;
}

/* Returns whether the discard unmapped the block. */
static bool discard_block(struct uvm *uvm, const struct gpu_hooks *hooks, uint32_t block,
                          uint32_t kind) {
  struct uvm_block *b = uvm_edit(uvm, block);
  bool mapped = b->gpu_pages != 0 || (b->flags & UVM_CPU_MAPPED);
  uvm->counters.discarded_blocks++;
  if (kind == GPU_DISCARD_UNMAP) {
    uvm_drop(uvm, hooks, block);
    b->flags &= (uint8_t)~(UVM_CPU_MAPPED | UVM_CPU_READS);
    if (b->list != GPU_LIST_NONE) {
      uvm_list_remove(uvm, block);
      uvm_list_push(uvm, block, GPU_LIST_UNUSED, false);
    }
  }
  b->discard = (uint8_t)kind;
  if (b->gpu_pages != 0 && b->list != GPU_LIST_DISCARDED) uvm_list_refresh(uvm, block);
  return mapped && kind == GPU_DISCARD_UNMAP;
}

void uvm_discard(struct uvm *uvm, const struct gpu_hooks *hooks, uint32_t first,
                 uint32_t count, uint32_t kind, bool first_slice, struct gpu_cost *cost) {
  const struct uvm_profile *profile = &uvm->profile;
  uint64_t time_ns = uvm->now_ns + (first_slice ? uvm_ns(profile->discard_call_us) : 0);
  for (uint32_t block = first; block < first + count; block++) {
    if (uvm_blocks(uvm)[block].data_pages == 0) continue; /* nothing to discard */
    if (discard_block(uvm, hooks, block, kind))
      time_ns += uvm_ns(profile->discard_block_us);
  }
  *cost = (struct gpu_cost){.caller_free_ns = time_ns, .complete_ns = time_ns};
  uvm->counters.caller_ns += time_ns - uvm->now_ns;
}

/* Leaves one copy of each duplicated page; returns whether there was one. */
static bool keep_one(struct uvm *uvm, uint32_t block) {
  struct uvm_block *b = uvm_edit(uvm, block);
  if (b->host_pages == 0) return false;
  if (!(b->flags & UVM_PREFERS_GPU)) {
    uvm->counters.clean_bytes += uvm_pages_bytes(b->host_pages);
    b->gpu_pages &= ~b->host_pages;
    if (b->gpu_pages == 0) uvm_vacate(uvm, block);
  }
  b->host_pages = 0;
  return true;
}

/* Changes the block's flags and copies; returns whether its mappings change, other than by
 * accesses in place. */
static bool note_advice(struct uvm *uvm, uint32_t block, uint32_t advice) {
  struct uvm_block *b = uvm_edit(uvm, block);
  bool hinted = (b->flags & UVM_READ_MOSTLY) != 0, changes = false;
  if (advice == GPU_ADVICE_READ_MOSTLY) {
    changes = !hinted && b->gpu_pages != 0; /* mapped for writing before the advice */
    b->flags |= UVM_READ_MOSTLY;
  } else if (advice == GPU_ADVICE_READ_MOSTLY_ENDS) {
    changes = keep_one(uvm, block);
    b->flags &= (uint8_t)~UVM_READ_MOSTLY;
  } else if (advice == GPU_ADVICE_PREFER_GPU) {
    b->flags |= UVM_PREFERS_GPU;
  } else if (advice == GPU_ADVICE_PREFER_NONE) {
    b->flags &= (uint8_t)~UVM_PREFERS_GPU;
  } else if (advice == GPU_ADVICE_ACCESSED_BY) {
    b->flags |= UVM_ACCESSED_BY;
    uvm->in_place = 1;
  } else {
    b->flags &= (uint8_t)~UVM_ACCESSED_BY; /* what is mapped stays mapped */
  }
  return changes;
}

uint64_t uvm_advise_block(struct uvm *uvm, uint32_t block, uint32_t advice,
                          uint64_t time_ns) {
  struct uvm_block *b = uvm_edit(uvm, block);
  bool changes = note_advice(uvm, block, advice);
  bool unmaps = b->mapped_ns != 0 && (b->flags & (UVM_READ_MOSTLY | UVM_PREFERS_GPU));
  bool maps = b->mapped_ns == 0 && uvm_stays(uvm, b) && (b->data_pages & ~b->gpu_pages);
  if (unmaps) b->mapped_ns = 0;
  if (!changes && !maps && !unmaps) return time_ns;
  time_ns += uvm_ns(uvm->profile.advise_block_us);
  if (maps) uvm_map(uvm, block, time_ns);
  bool kept_here = advice == GPU_ADVICE_READ_MOSTLY_ENDS && b->gpu_pages != 0 &&
                   (b->flags & UVM_PREFERS_GPU);
  if (kept_here && (b->flags & UVM_CPU_MAPPED)) {
    time_ns += unmap_ns(uvm, b->gpu_pages);
    b->flags &= (uint8_t)~(UVM_CPU_MAPPED | UVM_CPU_READS);
  }
  if (changes && b->gpu_pages == 0)
    uvm_set_left(uvm, b, time_ns); /* its chunk is free only then */
  return time_ns;
}
