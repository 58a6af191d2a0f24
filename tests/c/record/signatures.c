/* signatures.c - information of launches other than pointers: the signature; names and
 * parameters, which are sent once. Usage: signatures SCENARIO
 */
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "record_harness.h"

#define FUNCTIONS 5

/* A kernel with every kind of parameter, and its launch's signature. */
static struct {
  uint64_t pointer, table[8];
  uint32_t number;
  unsigned char odd[5];
} given;

static unsigned int threads = 32;

static uint64_t signature_of(unsigned int grid_y, CUfunction function) {
  void *params[] = {&given.pointer, given.table, &given.number, given.odd};
  driver.sizes[0] = 8, driver.sizes[1] = sizeof given.table, driver.sizes[2] = 4;
  driver.sizes[3] = 5, driver.parameters = 4;
  CHECK(cuLaunchKernel(function, 7, grid_y, 1, threads, 2, 1, 0, (CUstream)9, params,
                       NULL) == 0);
  CHECK(next_event() && head.signature != 0);
  return head.signature;
}

static void give(uint64_t a, uint64_t b) {
  memset(&given, 0, sizeof given);
  given.pointer = a + 65536;
  given.table[1] = b;
  given.table[2] = 12345;
  given.table[5] = b + 131072;
  given.number = 3;
  given.odd[4] = 1;
}

static void launches_that_differ_in_addresses_alone_have_one_signature(void) {
  struct pump_range_info a = range(0x7f0010000000, 4), b = range(0x7f0020000000, 2),
                         c = range(0x7f0030000000, 2);
  give(a.base, b.base);
  uint64_t first = signature_of(1, KERNEL);
  give(c.base, b.base);
  CHECK(signature_of(1, KERNEL) == first);
  given.table[5] = a.base + BLOCK; /* other adjacent pointers, and one twice */
  given.table[1] = a.base + BLOCK;
  CHECK(signature_of(1, KERNEL) == first);
}

static void anything_else_makes_another_signature(void) {
  struct pump_range_info a = range(0x7f0010000000, 4), b = range(0x7f0100000000, 2);
  give(a.base, b.base);
  uint64_t first = signature_of(1, KERNEL), other[11];
  size_t count = 0;
  other[count++] = signature_of(2, KERNEL);
  threads = 64;
  other[count++] = signature_of(1, KERNEL);
  threads = 32;
  other[count++] = signature_of(1, (CUfunction)0x77770040);
  given.number = 4;
  other[count++] = signature_of(1, KERNEL);
  give(a.base, b.base);
  given.odd[4] = 2; /* bytes after the last whole word */
  other[count++] = signature_of(1, KERNEL);
  give(a.base, b.base);
  given.table[2] = 12346;
  other[count++] = signature_of(1, KERNEL);
  give(a.base, b.base);
  given.table[2] = 0, given.table[3] = 12345; /* the same words elsewhere */
  other[count++] = signature_of(1, KERNEL);
  give(a.base, b.base);
  given.table[7] = 0x7f0040000000; /* stale: nothing is there */
  other[count++] = signature_of(1, KERNEL);
  given.table[7] = b.base | 32; /* half overwritten */
  other[count++] = signature_of(1, KERNEL);
  given.table[7] = b.base + 131072; /* one more pointer */
  other[count++] = signature_of(1, KERNEL);
  give(a.base, b.base);
  given.table[1] = 0; /* one less */
  other[count++] = signature_of(1, KERNEL);
  for (size_t i = 0; i < count; i++) {
    CHECK(other[i] != first);
    for (size_t j = 0; j < i; j++) CHECK(other[i] != other[j]);
  }
  give(a.base, b.base);
  CHECK(signature_of(1, KERNEL) == first);
}

/* Names and layouts distinguish functions. If those are equal, the order of the functions'
 * first launches does. */
static void launch_functions(uint64_t *signatures, uintptr_t handles) {
  static const char *const names[FUNCTIONS] = {"one", "two", "one", NULL, NULL};
  for (uintptr_t i = 0; i < FUNCTIONS; i++) {
    driver.name = names[i];
    signatures[i] = signature_of(1, (CUfunction)(handles + 0x40 * i));
    for (uintptr_t k = 0; k < i; k++) CHECK(signatures[k] != signatures[i]);
  }
}

static void signatures_are_the_same_in_a_run_with_other_handles(void) {
  uint64_t here[FUNCTIONS], *there = mmap(NULL, sizeof here, PROT_READ | PROT_WRITE,
                                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(there != MAP_FAILED);
  struct pump_range_info a = range(0x7f0010000000, 4), b = range(0x7f0020000000, 2);
  give(a.base, b.base);
  pid_t other = fork();
  if (other == 0) {
    launch_functions(there, 0x77790000);
    _exit(0);
  }
  int status = -1;
  CHECK(other > 0 && waitpid(other, &status, 0) == other && status == 0);
  launch_functions(here, 0x77780000);
  CHECK(memcmp(here, there, sizeof here) == 0);
  munmap(there, sizeof here);
}

static void a_buffer_has_a_signature_too(void) {
  struct pump_range_info a = range(0x7f0010000000, 2);
  uint64_t buffer[3] = {1, a.base, 2}, seen[3];
  size_t bytes = sizeof buffer;
  void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_BUFFER_SIZE,
                   &bytes, CU_LAUNCH_PARAM_END};
  for (uint64_t i = 0; i < 3; i++) {
    buffer[1] = a.base + (i == 1 ? BLOCK : 0);
    buffer[2] = i;
    launch(NULL, extra);
    CHECK(next_of_any_kind());
    while (head.kind != PUMP_EVENT_KERNEL) {
      if (head.kind == PUMP_EVENT_PARAMS) {
        CHECK(head.payload_bytes == sizeof(struct pump_params) + sizeof buffer);
        CHECK(memcmp(payload + sizeof(struct pump_params), buffer, sizeof buffer) == 0);
      }
      CHECK(next_of_any_kind());
    }
    seen[i] = head.signature;
  }
  CHECK(seen[0] != seen[1] && seen[1] != seen[2]);
  buffer[2] = 0;
  launch(NULL, extra);
  CHECK(next_event() && head.signature == seen[0]);
}

/* Launches once and notes the reported records, in order. */
static char order[8];
static void tell(void **params) {
  memset(order, 0, sizeof order);
  launch(params, NULL);
  for (size_t i = 0; next_of_any_kind(); i++)
    order[i] = head.kind == PUMP_EVENT_NAME     ? 'N'
               : head.kind == PUMP_EVENT_PARAMS ? 'P'
                                                : 'K';
}
#define TOLD(expected) CHECK(strcmp(order, expected) == 0)

static void names_and_parameters_are_told_before_the_first_launch_and_once(void) {
  struct pump_range_info a = range(0x7f0010000000, 2);
  uint32_t number = 5;
  void *params[] = {&number, &a.base};
  driver.sizes[0] = 4, driver.sizes[1] = 8, driver.parameters = 2;
  driver.name =
      "a name of more than seventy-two characters, which is what one record of the "
      "ring can hold";
  CHECK(cuLaunchKernel(KERNEL, 7, 8, 9, 10, 11, 12, 0, (CUstream)9, params, NULL) == 0);
  CHECK(next_of_any_kind() && head.kind == PUMP_EVENT_NAME && head.seq == 0);
  CHECK(head.function == (uint64_t)(uintptr_t)KERNEL && head.time_ns == NOW_NS);
  CHECK(head.payload_bytes == strlen(driver.name));
  CHECK(memcmp(payload, driver.name, head.payload_bytes) == 0);
  CHECK(next_of_any_kind() && head.kind == PUMP_EVENT_PARAMS && head.seq == 0);
  CHECK(head.function == (uint64_t)(uintptr_t)KERNEL);
  struct {
    struct pump_params params;
    uint32_t number, gap;
    uint64_t pointer;
  } expected = {{{7, 8, 9}, {10, 11, 12}, 16, 0}, 5, 0, a.base};
  CHECK(head.payload_bytes == sizeof expected);
  expected.params.identity = ((const struct pump_params *)(const void *)payload)->identity;
  CHECK(expected.params.identity != 0);
  CHECK(memcmp(payload, &expected, sizeof expected) == 0);
  uint64_t signature = head.signature;
  CHECK(next_of_any_kind() && head.kind == PUMP_EVENT_KERNEL);
  CHECK(head.signature == signature && head.seq == 1);
  CHECK(pump_shm->shim_counters.signatures == 1);
  tell(params);
  TOLD("PK"); /* another grid */
  tell(params);
  TOLD("K");
  CHECK(pump_shm->shim_counters.signatures == 2 &&
        driver.names == 2); /* for the identity, and for the worker */
  number = 6;
  tell(params);
  TOLD("PK");
  number = 5;
  tell(params);
  TOLD("K");
}

static void everything_is_told_again_when_it_may_have_been_missed(void) {
  driver.name = "kernel";
  tell(NULL);
  TOLD("NPK");
  tell(NULL);
  TOLD("K");
  pump_shm->header.resend++;
  tell(NULL);
  TOLD("NPK");
  tell(NULL);
  TOLD("K");
  pump_metadata_void(); /* another mapping */
  tell(NULL);
  TOLD("NPK");
  cuModuleUnload(NULL); /* the handle may become another kernel's */
  tell(NULL);
  TOLD("NPK");
  tell(NULL);
  TOLD("K");
}

static void what_found_no_room_in_the_ring_is_told_later(void) {
  static const char *const expected[] = {"NPK", "PK", "K", "K"};
  driver.name = "kernel";
  tell(NULL);
  for (int room = 0; room <= 3; room++) { /* free records in the ring */
    for (int i = 0; i < PUMP_EVENT_SLOTS - room; i++) launch(NULL, NULL);
    pump_shm->header.resend++;
    launch(NULL, NULL);
    while (next_of_any_kind());
    tell(NULL);
    TOLD(expected[room]);
  }
}

static void a_driver_without_names_is_asked_once(void) {
  tell(NULL);
  TOLD("PK");
  CHECK(driver.names == 1);
  tell(NULL);
  TOLD("K");
  CHECK(driver.names == 1);
  driver.only_kernel_handles = true; /* of a library */
  driver.name = "kernel";
  pump_params_forget();
  tell(NULL);
  TOLD("NPK");
  pump_present.cuFuncGetName = pump_present.cuKernelGetName = false;
  pump_params_forget();
  tell(NULL);
  TOLD("PK");
  CHECK(driver.names == 2);
}

static void a_payload_is_cut_at_its_bound(void) {
  static uint64_t buffer[1500];
  void *params[] = {buffer};
  static char name[PUMP_MAX_PAYLOAD_BYTES + 100];
  memset(name, 'x', sizeof name - 1);
  for (size_t i = 0; i < 1500; i++) buffer[i] = i + 1;
  driver.name = name;
  driver.sizes[0] = sizeof buffer, driver.parameters = 1;
  launch(params, NULL);
  CHECK(next_of_any_kind() && head.kind == PUMP_EVENT_NAME);
  CHECK(head.payload_bytes == PUMP_MAX_PAYLOAD_BYTES);
  CHECK(next_of_any_kind() && head.kind == PUMP_EVENT_PARAMS);
  CHECK(head.payload_bytes == PUMP_MAX_PAYLOAD_BYTES);
  const struct pump_params *first = (const void *)payload;
  CHECK(first->parameter_bytes == sizeof buffer); /* the full size, even if cut */
  CHECK(memcmp(payload + sizeof *first, buffer, PUMP_MAX_PAYLOAD_BYTES - sizeof *first) ==
        0);
  CHECK(next_of_any_kind() && head.kind == PUMP_EVENT_KERNEL);
  buffer[1499] = 77; /* beyond the cut, but part of the signature */
  launch(params, NULL);
  CHECK(next_of_any_kind() && head.kind == PUMP_EVENT_PARAMS);
}

static void thousands_of_signatures_are_remembered_at_once(void) {
  uint32_t number;
  void *params[] = {&number};
  driver.sizes[0] = 4, driver.parameters = 1;
  for (int round = 0; round < 2; round++)
    for (number = 0; number < 5000; number++) {
      launch(params, NULL);
      CHECK(next_event());
    }
  /* A few sets of the table may be full. */
  CHECK(pump_shm->shim_counters.signatures >= 5000);
  CHECK(pump_shm->shim_counters.signatures < 5050);
}

static void more_different_words_than_can_be_sorted_are_counted_as_dropped(void) {
  range(0x7f0010000000, 4096);
  static uint64_t table[PUMP_SCAN_WORDS_MOST + 100];
  for (uint64_t i = 0; i < PUMP_SCAN_WORDS_MOST + 100; i++)
    table[i] = 0x7f0010000000 + i * 2 * BLOCK + 65536;
  void *params[] = {table};
  driver.sizes[0] = sizeof table, driver.parameters = 1;
  launch(params, NULL);
  CHECK(next_event() && head.extent_count == PUMP_MAX_EXTENTS);
  CHECK(head.extents_dropped == PUMP_SCAN_WORDS_MOST + 100 - PUMP_MAX_EXTENTS);
}

int main(int argc, char **argv) {
  static const struct scenario scenarios[] = {
      SCENARIO(launches_that_differ_in_addresses_alone_have_one_signature),
      SCENARIO(anything_else_makes_another_signature),
      SCENARIO(signatures_are_the_same_in_a_run_with_other_handles),
      SCENARIO(a_buffer_has_a_signature_too),
      SCENARIO(names_and_parameters_are_told_before_the_first_launch_and_once),
      SCENARIO(everything_is_told_again_when_it_may_have_been_missed),
      SCENARIO(what_found_no_room_in_the_ring_is_told_later),
      SCENARIO(a_driver_without_names_is_asked_once),
      SCENARIO(a_payload_is_cut_at_its_bound),
      SCENARIO(thousands_of_signatures_are_remembered_at_once),
      SCENARIO(more_different_words_than_can_be_sorted_are_counted_as_dropped),
  };
  return run_scenario(scenarios, sizeof scenarios / sizeof *scenarios, argc, argv);
}
