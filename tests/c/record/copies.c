/* copies.c - copies of rows, boxes and batches: the bytes that they are reported to reach.
 *
 * Built like operations.c. Usage: copies SCENARIO
 */
#include "record_harness.h"

#define A 0x7f0010000000
#define B 0x7f0020000000

static CUDA_MEMCPY2D rows(uint64_t to, uint64_t from, size_t pitch) {
  return (CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                         .srcDevice = from,
                         .srcPitch = pitch,
                         .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                         .dstDevice = to,
                         .dstPitch = pitch,
                         .WidthInBytes = 4096,
                         .Height = 512};
}

static void rows_without_gaps_overwrite_and_rows_with_gaps_write(void) {
  struct pump_range_info a = range(A, 8), b = range(B, 8);
  CUDA_MEMCPY2D copy = rows(A, B, 4096);
  CHECK(cuMemcpy2DAsync_v2(&copy, (CUstream)9) == CUDA_SUCCESS);
  CHECK(next_event() && head.kind == PUMP_EVENT_COPY && head.stream == 9);
  CHECK(head.extent_count == 2 && extent_is(0, &b, 0, BLOCK, PUMP_ACCESS_READ));
  CHECK(extent_is(1, &a, 0, BLOCK, PUMP_ACCESS_OVERWRITE));
  copy = rows(A, B, 8192);
  copy.srcXInBytes = 64, copy.srcY = 2, copy.dstY = 1;
  CHECK(cuMemcpy2DAsync_v2_ptsz(&copy, NULL) == CUDA_SUCCESS);
  CHECK(next_event() && head.extent_count == 2 && head.stream == 2);
  CHECK(extent_is(0, &b, 2 * 8192 + 64, 511 * 8192 + 4096, PUMP_ACCESS_READ));
  CHECK(extent_is(1, &a, 8192, 511 * 8192 + 4096, PUMP_ACCESS_WRITE));
  copy.Height = 0;
  CHECK(cuMemcpy2DAsync_v2(&copy, NULL) == CUDA_SUCCESS && !next_event());
}

static void a_blocking_copy_of_rows_is_announced_before_it_waits(void) {
  struct pump_range_info b = range(B, 8);
  static char host[4096];
  CUDA_MEMCPY2D copy = rows(A, B, 4096);
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = host;
  CHECK(cuMemcpy2DUnaligned_v2(&copy) == CUDA_SUCCESS);
  CHECK(next_event() && head.extent_count == 1 && driver.newest_at_call == head.seq);
  CHECK(extent_is(0, &b, 0, BLOCK, PUMP_ACCESS_READ) && told.synced_seq == head.seq);
  CHECK(next_event() && head.kind == PUMP_EVENT_SYNC && head.seq == told.synced_seq);
  copy = rows(A, B, 4096);
  CHECK(cuMemcpy2D_v2_ptds(&copy) == CUDA_SUCCESS);
  CHECK(next_event() && told.synced_seq == head.seq - 1 && told.issued_seq == head.seq);
  driver.answer = CUDA_ERROR_INVALID_VALUE;
  CHECK(cuMemcpy2D_v2(NULL) == CUDA_ERROR_INVALID_VALUE && !next_event());
}

static CUresult no_host_memory(void *data, CUpointer_attribute attribute,
                               CUdeviceptr address) {
  (void)data;
  CHECK(attribute == CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
  return address >= A ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static void check_wait(struct pump_range_info *b, CUstream stream) {
  CHECK(next_event() && head.extent_count == 1 && driver.newest_at_call == head.seq);
  CHECK(extent_is(0, b, 0, BLOCK, PUMP_ACCESS_READ) && told.issued_seq == head.seq);
  CHECK(told.issued_stream == stream);
  uint64_t seq = head.seq, issued_ns = head.time_ns;
  CHECK(next_event() && head.kind == PUMP_EVENT_SYNC && head.seq == seq);
  CHECK(head.signature == issued_ns && told.synced_seq < seq && !next_event());
}

static void an_asynchronous_copy_into_pageable_memory_is_announced_and_a_wait(void) {
  struct pump_range_info b = range(B, 8);
  CUstream stream = (CUstream)9;
  CUDA_MEMCPY2D copy = rows(A, B, 4096);
  pump_real.cuPointerGetAttribute = no_host_memory;
  void *host = (void *)0x5000; /* neither read nor written: nothing is copied */
  CHECK(cuMemcpyDtoHAsync_v2(host, B, BLOCK, stream) == CUDA_SUCCESS);
  check_wait(&b, stream);
  CHECK(cuMemcpyAsync((CUdeviceptr)host, B, BLOCK, stream) == CUDA_SUCCESS);
  check_wait(&b, stream);
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = host;
  CHECK(cuMemcpy2DAsync_v2(&copy, stream) == CUDA_SUCCESS);
  check_wait(&b, stream);
  /* The driver knows the destination, does not wait or has failed. */
  CHECK(cuMemcpyDtoHAsync_v2((void *)A, B, BLOCK, stream) == CUDA_SUCCESS);
  CHECK(next_event() && driver.newest_at_call == head.seq - 1 && !next_event());
  CUstream captured = (CUstream)0x42;
  CHECK(cuStreamBeginCapture_v2(captured, 0) == CUDA_SUCCESS);
  driver.capturing = true;
  CHECK(cuMemcpyDtoHAsync_v2(host, B, BLOCK, captured) == CUDA_SUCCESS && !next_event());
  driver.answer = CUDA_ERROR_INVALID_VALUE;
  CHECK(cuMemcpyDtoHAsync_v2(host, B, BLOCK, stream) == CUDA_ERROR_INVALID_VALUE);
  CHECK(next_event() && head.kind == PUMP_EVENT_COPY && !next_event());
}

static void a_box_reaches_from_its_first_byte_to_its_last(void) {
  struct pump_range_info a = range(A, 8), b = range(B, 8);
  CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                        .srcDevice = B,
                        .srcPitch = 1024,
                        .srcHeight = 100,
                        .srcZ = 3,
                        .srcY = 2,
                        .srcXInBytes = 8,
                        .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                        .dstDevice = A,
                        .WidthInBytes = 1000,
                        .Height = 10,
                        .Depth = 4};
  CHECK(cuMemcpy3DAsync_v2(&copy, (CUstream)9) == CUDA_SUCCESS);
  CHECK(next_event() && head.extent_count == 2);
  uint64_t layer = 1024 * 100;
  CHECK(extent_is(0, &b, 3 * layer + 2 * 1024 + 8, 3 * layer + 9 * 1024 + 1000,
                  PUMP_ACCESS_READ));
  CHECK(extent_is(1, &a, 0, 4 * 10 * 1000, PUMP_ACCESS_WRITE)); /* less than a block */
  copy.Depth = 400; /* without gaps, so it overwrites */
  CHECK(cuMemcpy3D_v2(&copy) == CUDA_SUCCESS && next_event());
  CHECK(extent_is(1, &a, 0, BLOCK, PUMP_ACCESS_OVERWRITE));
  CUDA_MEMCPY3D_PEER peer = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                             .srcDevice = B,
                             .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                             .dstDevice = A,
                             .WidthInBytes = 64,
                             .Height = 1,
                             .Depth = 1};
  CHECK(cuMemcpy3DPeerAsync(&peer, (CUstream)9) == CUDA_SUCCESS && next_event());
  CHECK(extent_is(0, &b, 0, 64, PUMP_ACCESS_READ) && head.extent_count == 2);
}

static void a_batch_is_so_many_copies(void) {
  struct pump_range_info a = range(A, 4), b = range(B, 4);
  CUdeviceptr to[] = {A, 0x5000, A + BLOCK}, from[] = {B, 0x6000, B + BLOCK};
  size_t bytes[] = {64, 64, BLOCK};
  CUstream stream = (CUstream)9;
  CHECK(cuMemcpyBatchAsync_v2(to, from, bytes, 3, NULL, NULL, 0, stream) == CUDA_SUCCESS);
  CHECK(next_event() && head.seq == 1 && extent_is(0, &b, 0, 64, PUMP_ACCESS_READ));
  CHECK(next_event() && head.seq == 2 && head.extent_count == 2); /* one is foreign */
  CHECK(extent_is(1, &a, BLOCK, BLOCK, PUMP_ACCESS_OVERWRITE) && !next_event());
  size_t failed = 0;
  driver.answer = CUDA_ERROR_INVALID_VALUE;
  CHECK(cuMemcpyBatchAsync(to, from, bytes, 3, NULL, NULL, 0, &failed, stream) ==
        CUDA_ERROR_INVALID_VALUE);
  CHECK(!next_event());
}

static struct pump_range_info short_of_its_last_block(uint64_t base) {
  struct pump_range_info info = {.base = base,
                                 .length_bytes = 2 * BLOCK,
                                 .requested_bytes = BLOCK + 100,
                                 .kind = PUMP_RANGE_CONVERTED};
  CHECK(pump_range_add(&info) >= 0);
  return info;
}

static void a_batch_that_leaves_requested_memory_is_refused_by_number(void) {
  short_of_its_last_block(A);
  CUdeviceptr to[] = {0x5000, A + BLOCK, A + BLOCK}, from[] = {A, 0x6000, 0x7000};
  size_t bytes[] = {BLOCK + 100, 100, 101}, failed = SIZE_MAX;
  CUstream stream = (CUstream)9;
  CHECK(cuMemcpyBatchAsync(to, from, bytes, 3, NULL, NULL, 0, &failed, stream) ==
        CUDA_ERROR_INVALID_VALUE);
  CHECK(failed == 2 && !next_event());
  CHECK(cuMemcpyBatchAsync_v2(to, from, bytes, 3, NULL, NULL, 0, stream) ==
        CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemcpyBatchAsync(to, from, bytes, 2, NULL, NULL, 0, &failed, stream) ==
        CUDA_SUCCESS);
  CHECK(next_event() && next_event() && !next_event());
}

/* Only the driver knows the size of an array's elements; pump uses a bound. */
static void what_an_array_may_reach_is_not_refused(void) {
  short_of_its_last_block(A);
  CUDA_MEMCPY3D_BATCH_OP copy = {
      .src = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr.ptr = A},
      .dst = {.type = CU_MEMCPY_OPERAND_TYPE_ARRAY},
      .extent = {(BLOCK + 100) / 4, 1, 1}};
  CHECK(cuMemcpy3DBatchAsync_v2(1, &copy, 0, NULL) == CUDA_SUCCESS && next_event());
}

static void lengths_beyond_any_memory_are_left_to_the_driver(void) {
  short_of_its_last_block(A);
  driver.answer = CUDA_ERROR_INVALID_CONTEXT;
  CHECK(cuMemcpyDtoDAsync_v2(A, 0x5000, SIZE_MAX, NULL) == CUDA_ERROR_INVALID_CONTEXT);
  CHECK(cuMemsetD2D8Async(A, SIZE_MAX, 0, 64, 3, NULL) == CUDA_ERROR_INVALID_CONTEXT);
  CHECK(cuMemsetD8Async(A + BLOCK + 100, 0, 0, NULL) == CUDA_ERROR_INVALID_CONTEXT);
  CHECK(cuMemsetD8Async(A + BLOCK + 100, 0, 1, NULL) == CUDA_ERROR_INVALID_VALUE);
  CHECK(!next_event());
}

static void boxes_beside_an_array_reach_as_far_as_its_largest_element(void) {
  struct pump_range_info b = range(B, 4);
  CUDA_MEMCPY3D_BATCH_OP copies[2] = {
      {.src = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr.ptr = B},
       .dst = {.type = CU_MEMCPY_OPERAND_TYPE_ARRAY},
       .extent = {100, 2, 1}},
      {.src = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER,
               .op.ptr = {.ptr = B, .rowLength = 256, .layerHeight = 4}},
       .dst = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr.ptr = 0x5000},
       .extent = {100, 2, 3}}};
  CHECK(cuMemcpy3DBatchAsync_v2_ptsz(2, copies, 0, NULL) == CUDA_SUCCESS);
  CHECK(next_event() && head.extent_count == 1);
  CHECK(extent_is(0, &b, 0, 2 * 100 * 16, PUMP_ACCESS_READ));
  CHECK(next_event() && head.extent_count == 1);
  CHECK(extent_is(0, &b, 0, 2 * 1024 + 256 + 100, PUMP_ACCESS_READ) && !next_event());
}

static void of_an_array_copy_the_other_side_is_told(void) {
  struct pump_range_info a = range(A, 4);
  CHECK(cuMemcpyDtoA_v2(NULL, 0, A + 512, 4096) == CUDA_SUCCESS);
  CHECK(next_event() && head.extent_count == 1);
  CHECK(extent_is(0, &a, 512, 4096, PUMP_ACCESS_READ));
  CHECK(cuMemcpyAtoD_v2_ptds(A, NULL, 0, BLOCK) == CUDA_SUCCESS);
  CHECK(next_event() && extent_is(0, &a, 0, BLOCK, PUMP_ACCESS_OVERWRITE));
  CHECK(driver.newest_at_call == head.seq && head.stream == 2);
}

static void a_batch_of_decompressions_reads_writes_and_tells_its_lengths(void) {
  struct pump_range_info a = range(A, 4), b = range(B, 4);
  CUmemDecompressParams parts[2] = {{.src = (void *)(B + 64),
                                     .srcNumBytes = 1000,
                                     .dst = (void *)A,
                                     .dstNumBytes = 4096,
                                     .dstActBytes = (void *)(B + BLOCK)},
                                    {.src = (void *)0x5000,
                                     .srcNumBytes = 10,
                                     .dst = (void *)(A + BLOCK),
                                     .dstNumBytes = 20,
                                     .dstActBytes = (void *)0x6000}};
  CHECK(cuMemBatchDecompressAsync_ptsz(parts, 2, 0, NULL, NULL) == CUDA_SUCCESS);
  CHECK(next_event() && head.kind == PUMP_EVENT_COPY && head.stream == 2);
  CHECK(head.extent_count == 3 && extent_is(0, &b, 64, 1000, PUMP_ACCESS_READ));
  CHECK(extent_is(1, &a, 0, 4096, PUMP_ACCESS_WRITE));
  CHECK(extent_is(2, &b, BLOCK, 4, PUMP_ACCESS_WRITE));
  CHECK(next_event() && head.extent_count == 1);
  CHECK(extent_is(0, &a, BLOCK, 20, PUMP_ACCESS_WRITE) && !next_event());
  driver.answer = CUDA_ERROR_INVALID_VALUE;
  CHECK(cuMemBatchDecompressAsync(parts, 2, 0, NULL, NULL) == CUDA_ERROR_INVALID_VALUE);
  CHECK(!next_event());
}

int main(int argc, char **argv) {
  static const struct scenario scenarios[] = {
      SCENARIO(rows_without_gaps_overwrite_and_rows_with_gaps_write),
      SCENARIO(a_blocking_copy_of_rows_is_announced_before_it_waits),
      SCENARIO(an_asynchronous_copy_into_pageable_memory_is_announced_and_a_wait),
      SCENARIO(a_box_reaches_from_its_first_byte_to_its_last),
      SCENARIO(a_batch_is_so_many_copies),
      SCENARIO(a_batch_that_leaves_requested_memory_is_refused_by_number),
      SCENARIO(what_an_array_may_reach_is_not_refused),
      SCENARIO(lengths_beyond_any_memory_are_left_to_the_driver),
      SCENARIO(boxes_beside_an_array_reach_as_far_as_its_largest_element),
      SCENARIO(of_an_array_copy_the_other_side_is_told),
      SCENARIO(a_batch_of_decompressions_reads_writes_and_tells_its_lengths),
  };
  return run_scenario(scenarios, sizeof scenarios / sizeof *scenarios, argc, argv);
}
