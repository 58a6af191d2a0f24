/* uvm_check.c - checks all invariants of the unified memory model. For tests: it visits
 * all blocks. */
#include "uvm_model.h"

/* Returns the length of a list, or block_count + 1 if the list is broken. */
static uint32_t walk(const struct uvm *uvm, uint32_t list_number) {
  const struct uvm_block *blocks = uvm_blocks(uvm);
  const struct uvm_list *list = &uvm->lists[list_number];
  uint32_t broken = uvm->block_count + 1, length = 0, previous = UVM_NO_BLOCK;
  for (uint32_t i = list->head; i != UVM_NO_BLOCK; i = blocks[i].next) {
    if (i >= uvm->block_count || blocks[i].list != list_number) return broken;
    if (blocks[i].previous != previous || ++length > uvm->block_count) return broken;
    previous = i;
  }
  return previous == list->tail ? length : broken;
}

/* Checks one block: returns 0, or the number of the broken invariant. */
static int check_block(const struct uvm_block *b) {
  bool chunk_in_use = b->list == GPU_LIST_USED || b->list == GPU_LIST_DISCARDED;
  if ((b->gpu_pages != 0) != chunk_in_use) return 4;
  if ((b->gpu_pages & ~b->data_pages) != 0) return 5;
  if (chunk_in_use && (b->discard != 0) != (b->list == GPU_LIST_DISCARDED)) return 6;
  if ((b->host_pages & ~b->gpu_pages) != 0) return 10;
  if (b->host_pages != 0 && !(b->flags & UVM_READ_MOSTLY)) return 11;
  if (b->mapped_ns != 0 && ((b->flags & (UVM_READ_MOSTLY | UVM_PREFERS_GPU)) != 0 ||
                            b->gpu_pages == UVM_ALL_PAGES || b->data_pages == 0))
    return 13;
  if (!(b->flags & UVM_LIVE) && (b->list != 0 || b->data_pages != 0 || b->flags != 0))
    return 7;
  return 0;
}

/* Returns the end of the blocks of the owner of `block`. */
static uint32_t owner_end(const struct uvm *uvm, uint32_t block) {
  if (uvm->owner_blocks == 0) return uvm->block_count;
  return (block / uvm->owner_blocks + 1) * uvm->owner_blocks;
}

int uvm_check(const struct uvm *uvm, const struct gpu_counters *c, uint32_t owners) {
  const struct uvm_block *blocks = uvm_blocks(uvm);
  uint64_t chunks = (uint64_t)uvm->free_blocks + uvm->plain_blocks;
  for (uint32_t list = GPU_LIST_UNUSED; list <= GPU_LIST_USED; list++) {
    if (walk(uvm, list) != uvm->lists[list].count) return 1;
    chunks += uvm->lists[list].count;
  }
  if (chunks != uvm->capacity_blocks) return 2;

  uint32_t found[UVM_LISTS] = {0}, in_host = 0;
  uint64_t resident_bytes = 0;
  for (uint32_t i = 0; i < uvm->block_count; i++) {
    if (uvm->owner_blocks != 0 && !(owners >> (i / uvm->owner_blocks) & 1)) {
      i = owner_end(uvm, i) - 1;
      continue;
    }
    if (blocks[i].list >= UVM_LISTS) return 3;
    found[blocks[i].list]++;
    in_host += (blocks[i].place & GPU_IN_HOST) != 0;
    resident_bytes += uvm_pages_bytes(blocks[i].gpu_pages);
    int broken = check_block(&blocks[i]);
    if (broken != 0) return broken;
  }
  for (uint32_t list = GPU_LIST_UNUSED; list <= GPU_LIST_USED; list++)
    if (found[list] != uvm->lists[list].count) return 8;
  if (in_host != uvm->host.held) return 12;

  uint64_t came = c->h2d_demand_bytes + c->h2d_prefetch_bytes + c->populated_bytes;
  uint64_t went = c->d2h_evict_bytes + c->d2h_prefetch_bytes + c->d2h_pull_bytes +
                  c->clean_bytes + c->dropped_bytes + c->freed_bytes;
  return came == went + resident_bytes ? 0 : 9;
}
