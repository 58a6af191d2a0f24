/* pool_bins.c - free pieces by size: which one an allocation gets.
 *
 * Plain data under the pool's lock: it calls no driver function and reads no clock.
 */
#include "pool_state.h"

#define HOT_LOOKS 128u /* pieces examined to find one that was just freed */

static struct pool_bins *bins_of(const struct pool_piece_node *piece) {
  struct pool_arena *arena = piece->segment->arena;
  return piece->stream == 0 ? &arena->clean : arena->streams[piece->stream - 1].bins;
}

void pool_bin_put(struct pool_piece_node *piece) {
  PUMP_ASSERT(pump_is_locked(&pool_lock), "pool_lock guards the pieces");
  PUMP_ASSERT(!piece->live && !piece->quarantined,
              "pieces in bins are free, not in quarantine");
  struct pool_bins *bins = bins_of(piece);
  uint32_t kind = piece->segment->kind, bin = pool_bin(piece->length_bytes);
  struct pool_piece_node **first = &bins->first[kind][bin];
  piece->prev = NULL;
  piece->next = *first;
  if (*first != NULL) (*first)->prev = piece;
  *first = piece;
  bins->used[kind][bin / 64] |= 1ull << bin % 64;
}

void pool_bin_remove(struct pool_piece_node *piece) {
  struct pool_bins *bins = bins_of(piece);
  uint32_t kind = piece->segment->kind, bin = pool_bin(piece->length_bytes);
  PUMP_ASSERT((piece->prev != NULL ? piece->prev->next : bins->first[kind][bin]) == piece,
              "a piece is in the bin of its length, kind and stream");
  if (piece->prev != NULL)
    piece->prev->next = piece->next;
  else
    bins->first[kind][bin] = piece->next;
  if (piece->next != NULL) piece->next->prev = piece->prev;
  if (bins->first[kind][bin] == NULL) bins->used[kind][bin / 64] &= ~(1ull << bin % 64);
}

static struct pool_piece_node *bin_find(const struct pool_bins *bins, uint32_t kind,
                                        uint64_t length_bytes) {
  uint32_t bin = pool_bin(length_bytes), word = bin / 64;
  uint64_t bits = bins->used[kind][word] & (~0ull << bin % 64);
  while (bits == 0 && ++word < POOL_BINS / 64) bits = bins->used[kind][word];
  if (bits == 0) return NULL;
  return bins->first[kind][word * 64 + (uint32_t)__builtin_ctzll(bits)];
}

bool pool_page_is_hot(const struct pool_segment *segment, uint64_t i) {
  const struct pool_page *page = &segment->pages[i];
  return page->live != 0 ||
         segment->arena->handed_bytes - page->freed_at <= segment->arena->hot_bytes;
}

static bool is_hot(const struct pool_piece_node *piece, uint64_t length_bytes) {
  const struct pool_segment *segment = piece->segment;
  uint64_t first = (piece->base - segment->base) / PUMP_BLOCK_BYTES;
  uint64_t last = (piece->base - segment->base + length_bytes - 1) / PUMP_BLOCK_BYTES;
  while (first <= last && pool_page_is_hot(segment, first)) first++;
  return first > last;
}

/* Returns the newest hot piece of the first bin that has one, or NULL. */
static struct pool_piece_node *hot_find(const struct pool_bins *bins, uint32_t kind,
                                        uint64_t length_bytes) {
  uint32_t first = pool_bin(length_bytes), left = HOT_LOOKS;
  for (uint32_t word = first / 64; word < POOL_BINS / 64; word++) {
    uint64_t bits = bins->used[kind][word];
    if (word == first / 64) bits &= ~0ull << first % 64;
    for (; bits != 0; bits &= bits - 1) {
      uint32_t bin = word * 64 + (uint32_t)__builtin_ctzll(bits);
      struct pool_piece_node *piece = bins->first[kind][bin];
      for (; piece != NULL; piece = piece->next) {
        if (left-- == 0) return NULL;
        if (is_hot(piece, length_bytes)) return piece;
      }
    }
  }
  return NULL;
}

struct pool_piece_node *pool_find_free(struct pool_arena *arena, uint32_t kind,
                                       uint64_t length_bytes, uint32_t stream, bool hot) {
  struct pool_piece_node *clean = bin_find(&arena->clean, kind, length_bytes);
  const struct pool_bins *bins = arena->streams[stream - 1].bins;
  struct pool_piece_node *own =
      hot ? hot_find(bins, kind, length_bytes) : bin_find(bins, kind, length_bytes);
  if (own == NULL || clean == NULL) return own == NULL ? clean : own;
  if (hot) return own; /* it is on the GPU; a clean piece may not be */
  return clean->length_bytes < own->length_bytes ? clean : own;
}
