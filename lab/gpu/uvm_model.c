/* uvm_model.c - blocks, eviction lists and chunks of the GPU. See uvm_model.h. */
#include "uvm_model.h"

#include <string.h>

void uvm_init(struct uvm *uvm, const struct uvm_profile *profile, uint64_t blocks_offset,
              uint32_t block_count, uint64_t memory_bytes, uint64_t now_ns) {
  uvm->profile = *profile;
  uvm->blocks_offset = blocks_offset;
  uvm->block_count = block_count;
  uvm->capacity_blocks = (uint32_t)(memory_bytes / GPU_BLOCK_BYTES);
  uvm->free_blocks = uvm->capacity_blocks;
  uvm->now_ns = now_ns;
  uvm->handler_free_ns = now_ns;
  uvm->pace.now = 1;
  uvm->links.now_ns = now_ns;
  uvm->links.ways[UVM_LINK_IN].duplex = profile->duplex_in;
  uvm->links.ways[UVM_LINK_OUT].duplex = profile->duplex_out;
  for (uint32_t list = 0; list < UVM_LISTS; list++)
    uvm->lists[list].head = uvm->lists[list].tail = UVM_NO_BLOCK;
}

void uvm_error(struct uvm *uvm, uint32_t error, uint32_t block) {
  uvm->counters.errors++;
  uvm->counters.last_error = error;
  uvm->counters.last_error_block = block;
}

/* Adds `change` to the blocks held by the block's owner, except blocks in UNUSED. */
static void count_held(struct uvm *uvm, uint32_t block, uint32_t list, uint32_t change) {
  if (uvm->owner_blocks != 0 && list != GPU_LIST_UNUSED)
    uvm->held[block / uvm->owner_blocks] += change;
}

void uvm_list_remove(struct uvm *uvm, uint32_t block) {
  if (uvm_blocks(uvm)[block].list == GPU_LIST_NONE) return;
  struct uvm_block *b = uvm_edit(uvm, block);
  struct uvm_list *list = &uvm->lists[b->list];
  if (b->previous == UVM_NO_BLOCK)
    list->head = b->next;
  else
    uvm_edit(uvm, b->previous)->next = b->next;
  if (b->next == UVM_NO_BLOCK)
    list->tail = b->previous;
  else
    uvm_edit(uvm, b->next)->previous = b->previous;
  list->count--;
  count_held(uvm, block, b->list, (uint32_t)-1);
  b->previous = b->next = UVM_NO_BLOCK;
  b->list = GPU_LIST_NONE;
}

void uvm_list_push(struct uvm *uvm, uint32_t block, uint32_t list_number, bool front) {
  struct uvm_block *b = uvm_edit(uvm, block);
  struct uvm_list *list = &uvm->lists[list_number];
  b->list = (uint8_t)list_number;
  b->previous = front ? UVM_NO_BLOCK : list->tail;
  b->next = front ? list->head : UVM_NO_BLOCK;
  if (b->previous == UVM_NO_BLOCK)
    list->head = block;
  else
    uvm_edit(uvm, b->previous)->next = block;
  if (b->next == UVM_NO_BLOCK)
    list->tail = block;
  else
    uvm_edit(uvm, b->next)->previous = block;
  list->count++;
  count_held(uvm, block, list_number, 1);
}

void uvm_list_refresh(struct uvm *uvm, uint32_t block) {
  uint32_t list = uvm_blocks(uvm)[block].discard != 0 ? GPU_LIST_DISCARDED : GPU_LIST_USED;
  uvm_list_remove(uvm, block);
  uvm_list_push(uvm, block, list, false);
}

uint64_t uvm_host_allocate_ns(struct uvm *uvm, uint32_t block) {
  if (uvm_blocks(uvm)[block].flags & UVM_HOST_ALLOCATED) return 0;
  uvm_edit(uvm, block)->flags |= UVM_HOST_ALLOCATED;
  uvm->counters.host_alloc_blocks++;
  double more = GPU_BLOCK_BYTES / 1024 / uvm->profile.host_page_kib - 1;
  return uvm_ns(uvm->profile.host_alloc_us + more * uvm->profile.host_page_us);
}

void uvm_drop(struct uvm *uvm, const struct gpu_hooks *hooks, uint32_t block) {
  struct uvm_block *b = uvm_edit(uvm, block);
  uvm->counters.dropped_bytes += uvm_pages_bytes(b->gpu_pages);
  uvm_host_forget(uvm, block);
  b->gpu_pages = b->host_pages = 0;
  b->data_pages = 0;
  b->discard = 0;
  b->mapped_ns = 0;
  if (uvm->owner_blocks != 0 && block / uvm->owner_blocks != uvm->actor)
    gpu_note_drop(uvm, block);
  else if (hooks && hooks->drop)
    hooks->drop(hooks->context, block);
}

void uvm_moves(const struct uvm *uvm, const struct gpu_hooks *hooks, uint32_t how,
               uint32_t block, uint32_t pages, uint64_t ready_ns) {
  if (hooks == NULL || hooks->move == NULL) return;
  struct gpu_move move = {how, block, pages, uvm->now_ns, ready_ns};
  hooks->move(hooks->context, &move);
}

/* Evicts the head of USED. Without dirty tracking, all pages but duplicates are copied. */
static void evict_used(struct uvm *uvm, const struct gpu_hooks *hooks, uint32_t block,
                       struct uvm_victim *out) {
  struct uvm_block *b = uvm_edit(uvm, block);
  out->pages = b->gpu_pages & ~b->host_pages;
  if (out->pages != 0)
    uvm_moves(uvm, hooks, GPU_MOVE_EVICT, block, out->pages, uvm->now_ns);
  out->after_ns = uvm_ready_ns(uvm, b);
  out->host_ns += uvm_host_allocate_ns(uvm, block);
  uvm->counters.clean_bytes += uvm_pages_bytes(b->host_pages);
  b->gpu_pages = b->host_pages = 0;
  b->mapped_ns = 0;
  uvm->counters.d2h_evict_bytes += uvm_pages_bytes(out->pages);
  uvm->counters.evictions_used++;
}

bool uvm_take_chunk(struct uvm *uvm, const struct gpu_hooks *hooks,
                    struct uvm_victim *out) {
  memset(out, 0, sizeof *out);
  out->block = UVM_NO_BLOCK;
  if (uvm->free_blocks > 0) {
    uvm->free_blocks--;
    return true;
  }
  uint32_t list = GPU_LIST_UNUSED;
  while (list <= GPU_LIST_USED && uvm->lists[list].count == 0) list++;
  if (list > GPU_LIST_USED) return false;
  uint32_t block = uvm->lists[list].head;
  struct uvm_block *b = uvm_edit(uvm, block);
  out->block = block;
  out->host_ns = uvm_ns(uvm->profile.evict_us);
  uvm_list_remove(uvm, block);
  if (b->discard != 0) out->host_ns += uvm_host_allocate_ns(uvm, block);
  if (list == GPU_LIST_USED) {
    evict_used(uvm, hooks, block, out);
  } else if (list == GPU_LIST_UNUSED) {
    out->after_ns = uvm_max(uvm_left_ns(uvm, b), uvm_ready_ns(uvm, b));
    uvm->counters.evictions_unused++;
  } else {
    out->after_ns = uvm_ready_ns(uvm, b);
    uvm_drop(uvm, hooks, block);
    uvm->counters.evictions_discarded++;
  }
  return true;
}

uint64_t uvm_victim_leaves(struct uvm *uvm, const struct uvm_victim *victim,
                           uint64_t earliest_ns) {
  if (victim->pages == 0) return uvm_max(victim->after_ns, earliest_ns);
  earliest_ns = uvm_host_take(uvm, victim->block, uvm_max(earliest_ns, victim->after_ns));
  uint64_t left_ns = uvm_link_book(
      &uvm->links, UVM_LINK_OUT, uvm->now_ns, earliest_ns, uvm_pages_bytes(victim->pages),
      uvm_rate(uvm, victim->pages, uvm->profile.copy_d2h_gbps));
  uvm_set_left(uvm, uvm_edit(uvm, victim->block), left_ns);
  uvm_map_late(uvm, victim->block, left_ns);
  return left_ns;
}

void uvm_free_block(struct uvm *uvm, uint32_t block, uint64_t *complete_ns) {
  struct uvm_block *b = uvm_edit(uvm, block);
  *complete_ns = uvm_max(*complete_ns, uvm_max(uvm_ready_ns(uvm, b), uvm_left_ns(uvm, b)));
  if (b->list != GPU_LIST_NONE) {
    uvm_list_remove(uvm, block);
    uvm->free_blocks++;
  }
  uvm->counters.freed_bytes += uvm_pages_bytes(b->gpu_pages);
  uvm_host_forget(uvm, block);
  memset(b, 0, sizeof *b);
  b->previous = b->next = UVM_NO_BLOCK;
}

/* Empties `count` chunks for a plain allocation. Adds them to *blocks one by one, so that
 * all are counted even if the caller is killed. */
static void take_chunks(struct uvm *uvm, const struct gpu_hooks *hooks, uint32_t count,
                        uint32_t *blocks, struct gpu_cost *cost) {
  *cost = (struct gpu_cost){.caller_free_ns = uvm->now_ns, .complete_ns = uvm->now_ns};
  for (uint32_t i = 0; i < count; i++) {
    struct uvm_victim victim;
    if (!uvm_take_chunk(uvm, hooks, &victim)) return; /* cannot be: callers counted */
    cost->caller_free_ns += victim.host_ns;
    cost->complete_ns =
        uvm_max(cost->complete_ns, uvm_victim_leaves(uvm, &victim, cost->caller_free_ns));
    ++*blocks;
    if (uvm_journal_filling(uvm)) uvm_checkpoint(uvm);
  }
  cost->complete_ns = uvm_max(cost->complete_ns, cost->caller_free_ns);
}

static uint32_t whole_blocks(uint64_t length_bytes) {
  return (uint32_t)((length_bytes + GPU_BLOCK_BYTES - 1) / GPU_BLOCK_BYTES);
}

int uvm_plain_reserve(struct uvm *uvm, const struct gpu_hooks *hooks, uint64_t length_bytes,
                      struct gpu_cost *cost) {
  uint64_t capacity_bytes = (uint64_t)uvm->capacity_blocks * GPU_BLOCK_BYTES;
  if (length_bytes > capacity_bytes - uvm->plain_bytes) return GPU_NO_MEMORY;
  uint32_t plain_blocks = whole_blocks(uvm->plain_bytes + length_bytes);
  /* After a process was killed in here, more chunks are held until its part is freed. */
  uint32_t missing =
      plain_blocks > uvm->plain_blocks ? plain_blocks - uvm->plain_blocks : 0;
  take_chunks(uvm, hooks, missing, &uvm->plain_blocks, cost);
  uvm->plain_bytes += length_bytes;
  return GPU_OK;
}

int uvm_plain_release(struct uvm *uvm, uint64_t length_bytes) {
  if (length_bytes > uvm->plain_bytes) return GPU_INVALID;
  uvm->plain_bytes -= length_bytes;
  uint32_t plain_blocks = whole_blocks(uvm->plain_bytes);
  uvm->free_blocks += uvm->plain_blocks - plain_blocks;
  uvm->plain_blocks = plain_blocks;
  return GPU_OK;
}
