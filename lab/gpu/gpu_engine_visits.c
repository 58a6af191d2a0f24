/* gpu_engine_visits.c - which blocks and pages a step of an operation touches, in order,
 * and what it accesses in place, on the host.
 *
 * DESIGN
 * The visits of a step add up the cost of accesses in place (uvm_remote.c). The step's
 * computing overlaps with them, and the step ends with the later. The accesses occupy the
 * link only for their bytes, so prefetches go on beside accesses that wait for
 * translations. Rows fall on the host in proportion to the block's pages there. */
#include "gpu_engine_state.h"
#include "random.h"

/* Returns whether a kernel may reach any block of the use at any time. */
bool gpu_scattered(const struct gpu_op *op, const struct gpu_use *use) {
  return op->kind == GPU_KERNEL &&
         (use->pages_per_block != 0 || (use->rows != 0 && use->pages == 0) ||
          (use->access & GPU_WIDE) != 0);
}

/* Returns how often each block of a use is visited. Threads all over a use reach pages of
 * the same block at different times, so a block that was evicted in between is needed
 * again. */
uint32_t gpu_visits_of(const struct gpu_op *op, const struct gpu_use *use) {
  return gpu_scattered(op, use) ? 2 : 1;
}

/* Returns the first visit (of a use) of step `step`; step `steps` is the end. */
uint32_t gpu_visits_begin(const struct gpu_use *use, const struct gpu_op *op,
                          uint32_t step) {
  uint64_t visits = (uint64_t)use->block_count * gpu_visits_of(op, use);
  return (uint32_t)(visits * step / op->steps);
}

/* Returns the block of a visit. A sweep visits blocks in ascending order. A scattered use
 * has a new order in each launch and round: a random start and a stride that reaches all
 * blocks. */
uint32_t gpu_block_of(const struct gpu_op *op, const struct gpu_use *use, uint32_t visit) {
  uint32_t count = use->block_count;
  if (!gpu_scattered(op, use) || count < 3) return use->first_block + visit % count;
  uint64_t seed = 2 * op->seq + visit / count;
  uint32_t shift = (uint32_t)(gpu_random(&seed) * count);
  uint32_t stride = 1 + (uint32_t)(gpu_random(&seed) * (count - 1));
  while (uvm_common_divisor(stride, count) != 1) stride = stride % (count - 1) + 1;
  return use->first_block + (uint32_t)((shift + (uint64_t)visit * stride) % count);
}

/* Returns exp(-x) for x from 0 to 32, with the same digits on each machine. */
static double decay(double x) {
  double power = 1 - x / 1024;
  for (int i = 0; i < 10; i++) power *= power;
  return power;
}

/* Returns the pages that have at least one of the visit's rows. Each visit touches its
 * share of the rows, so their number in a page has a Poisson distribution. */
static uint32_t pages_of_rows(const struct gpu_op *op, const struct gpu_use *use,
                              uint32_t visit) {
  double visits = (double)use->block_count * gpu_visits_of(op, use);
  double pages =
      use->row_bytes > UVM_PAGE_BYTES ? (double)use->row_bytes / UVM_PAGE_BYTES : 1;
  double hits = (double)use->rows * pages / visits / GPU_PAGES_PER_BLOCK;
  if (hits > 24) return UVM_ALL_PAGES;
  double spared = decay(hits);
  uint64_t seed = op->seq << 32 ^ (uint64_t)use->first_block << 8 ^ visit;
  uint32_t found = 0;
  for (uint32_t i = 0; i < GPU_PAGES_PER_BLOCK; i++)
    if (gpu_random(&seed) >= spared) found |= 1u << i;
  return found;
}

uint32_t gpu_pages_of(const struct gpu_op *op, const struct gpu_use *use, uint32_t visit) {
  if (use->pages != 0) return use->pages;
  if (use->rows != 0) return pages_of_rows(op, use, visit);
  return uvm_touched_pages(gpu_block_of(op, use, visit), use->pages_per_block);
}

/* -- accesses in place -- */

static bool reaches_host(const struct uvm *uvm, uint32_t block) {
  const struct uvm_block *b = &uvm_blocks(uvm)[block];
  return (b->mapped_ns != 0 || uvm_stays(uvm, b)) && (b->data_pages & ~b->gpu_pages) != 0;
}

void gpu_remote_start(struct gpu_engine *engine, struct gpu_op *op) {
  if (!engine->uvm.in_place) return;
  for (uint32_t n = op->first_use; n != GPU_NONE; n = gpu_uses(engine)[n].next) {
    const struct gpu_use *use = &gpu_uses(engine)[n].use;
    for (uint32_t i = 0; i < use->block_count; i++)
      op->host_blocks += reaches_host(&engine->uvm, use->first_block + i);
  }
}

/* Returns the bytes of rows, or of everything, that the visit touches on the host, and the
 * cost of each row or byte. */
static double touched_there(const struct uvm *uvm, const struct gpu_op *op,
                            const struct gpu_use *use, uint32_t visit,
                            struct uvm_reach *each) {
  const struct uvm_block *b = &uvm_blocks(uvm)[gpu_block_of(op, use, visit)];
  uint32_t there = b->data_pages & ~b->gpu_pages;
  double range_bytes = (double)op->host_blocks * GPU_BLOCK_BYTES;
  uint32_t visits = gpu_visits_of(op, use);
  if (use->rows != 0) {
    *each = uvm_row(uvm, use->row_bytes, range_bytes, (use->access & GPU_SORTED) != 0);
    uint32_t pages = use->pages != 0 ? use->pages : UVM_ALL_PAGES;
    double share =
        (double)__builtin_popcount(there & pages) / (double)__builtin_popcount(pages);
    return (double)use->rows * share / use->block_count / visits;
  }
  *each = uvm_swept(uvm, range_bytes);
  return (double)uvm_pages_bytes(there & gpu_pages_of(op, use, visit)) / visits;
}

void gpu_remote_visit(struct gpu_engine *engine, struct gpu_op *op,
                      const struct gpu_use *use, uint32_t visit) {
  const struct uvm *uvm = &engine->uvm;
  if (!uvm->in_place || !reaches_host(uvm, gpu_block_of(op, use, visit))) return;
  struct uvm_reach each;
  double count = touched_there(uvm, op, use, visit, &each);
  uint32_t access = use->access & (GPU_READ | GPU_WRITE);
  op->remote_ns += count * each.ns;
  if (access != GPU_WRITE) {
    op->in_bytes += count * each.bytes;
    op->in_link_ns += count * each.link_ns;
  }
  if (access != GPU_READ) op->out_bytes += count * each.bytes;
}

void gpu_remote_step(struct gpu_engine *engine, struct gpu_op *op) {
  if (op->remote_ns <= 0) return;
  struct uvm *uvm = &engine->uvm;
  uint64_t end_ns = uvm->now_ns + (uint64_t)(op->remote_ns + 0.5);
  if (op->step == 0) end_ns += uvm_ns(uvm->profile.remote_us);
  uint64_t in = (uint64_t)(op->in_bytes + 0.5), out = (uint64_t)(op->out_bytes + 0.5);
  if (in != 0) {
    uint64_t read_ns = uvm_link_book(&uvm->links, UVM_LINK_IN, uvm->now_ns, uvm->now_ns, in,
                                     op->in_bytes / op->in_link_ns);
    op->wait_at = uvm_max(op->wait_at, uvm_link_at(&uvm->links, UVM_LINK_IN, read_ns));
    end_ns = uvm_max(end_ns, read_ns);
  }
  end_ns = uvm_max(end_ns, uvm_link_book(&uvm->links, UVM_LINK_OUT, uvm->now_ns,
                                         uvm->now_ns, out, uvm->profile.copy_d2h_gbps));
  uvm->counters.h2d_remote_bytes += in;
  uvm->counters.d2h_remote_bytes += out;
  op->next_ns = uvm_max(op->next_ns, end_ns);
  op->remote_ns = op->in_bytes = op->in_link_ns = op->out_bytes = 0;
}
