/* gpu_block.c - the state of a block of a modelled GPU, only for tests (gpu_model.py). */
#include "lab/gpu/gpu_engine_state.h"

/* cffi: begin */
struct block_info {
  uint32_t list;       /* GPU_LIST_* */
  uint32_t gpu_pages;  /* bit per 64 KiB page resident on the GPU */
  uint32_t data_pages; /* bit per page that was ever populated, on either side */
  uint32_t discarded;  /* 0 or GPU_DISCARD_* */
  uint32_t host_pages; /* bit per page of gpu_pages that is also valid on the host */
  uint64_t ready_ns;   /* end of the last arrival, by the inward clock */
  uint64_t left_ns;    /* end of the last departure, by the outward clock */
  uint64_t mapped_ns;  /* the GPU maps the host's pages from then on; 0: it does not */
};
void block_info_get(const struct gpu_engine *engine, uint32_t block,
                    struct block_info *out);
/* Removes the GPU's mappings of the block's pages on the host. A driver may lack them for
 * some time, or if it could not create them. */
void block_unmapped(struct gpu_engine *engine, uint32_t block);
/* cffi: end */

void block_info_get(const struct gpu_engine *engine, uint32_t block,
                    struct block_info *out) {
  const struct uvm_block *b = &uvm_blocks(&engine->uvm)[block];
  *out = (struct block_info){
      .list = b->list,
      .gpu_pages = b->gpu_pages,
      .data_pages = b->data_pages,
      .discarded = b->discard,
      .host_pages = b->host_pages,
      .ready_ns = b->ready_at,
      .left_ns = b->left_at,
      .mapped_ns = b->mapped_ns,
  };
}

void block_unmapped(struct gpu_engine *engine, uint32_t block) {
  uvm_edit(&engine->uvm, block)->mapped_ns = 0;
}
