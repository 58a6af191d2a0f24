/* budget_share.c - tests how memory/devices.c adopts a worker's requested budgets, and
 * the share that other processes leave (memory/share.c). No driver, no pumpd, no ledger.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "pump_ring.h"
#include "shim/base/upcalls.h"
#include "shim/memory/host.h"
#include "shim/record/allocator_blocks.h"

#define BLOCK ((uint64_t)PUMP_BLOCK_BYTES)
#define FREE_BLOCKS 1000
#define MOST_BLOCKS 970 /* 3 % less */

struct pump_real pump_real;
struct pump_present pump_present;
struct pump_shm *pump_shm;
bool pump_off, pump_recording;
uint32_t pump_reporting;
__thread uint32_t pump_reentry_depth __attribute__((tls_model("initial-exec")));
pthread_mutex_t pump_range_lock = PTHREAD_MUTEX_INITIALIZER;

struct pump_driver_scope pump_driver_scope_open(void) {
  return (struct pump_driver_scope){false, 0};
}
void pump_driver_scope_close(struct pump_driver_scope scope) {
  (void)scope;
}
static int warned;
void pump_log(int level, const char *format, ...) {
  CHECK(format[0] != 0);
  warned += level == PUMP_LOG_WARNING;
}
bool pump_log_once(uint32_t *said, int level, const char *format, ...) {
  (void)said, (void)level, (void)format;
  return true;
}
const char *pump_quoted(char text[PUMP_QUOTED_BYTES], const char *name) {
  (void)text;
  return name;
}
static uint64_t room_left, room_whole;
static int settled;
void pump_blocks_settle(void) {
  settled++;
}
const struct pump_upcalls pump_upcalls = {.device_reports = pump_blocks_settle};
void pump_limit_read(uint64_t *left, uint64_t *whole) {
  *left = room_left;
  *whole = room_whole;
}
/* Contents of the ledger. */
static struct pump_neighbours others;
static struct pump_gpu_use told;
static int blind; /* errno of the next read of the ledger */
int pump_claims_read_gpus(struct pump_neighbours *neighbours) {
  if (blind == 0) *neighbours = others;
  return -blind;
}
int pump_claims_publish(const struct pump_gpu_use *gpus, uint32_t count) {
  CHECK(count == PUMP_MAX_DEVICES);
  told = gpus[2];
  return 0;
}
static uint64_t now_ns = 1000000000000;
uint64_t pump_now_ns(void) {
  return now_ns;
}
static uint64_t free_blocks = FREE_BLOCKS;
static CUresult memory(size_t *free_bytes, size_t *total_bytes) {
  *free_bytes = free_blocks * BLOCK;
  *total_bytes = 1024 * BLOCK;
  return CUDA_SUCCESS;
}
static CUresult identity(CUuuid *uuid, CUdevice device) {
  memset(uuid->bytes, device, sizeof uuid->bytes);
  return CUDA_SUCCESS;
}
static CUresult attribute(int *value, CUdevice_attribute which, CUdevice device) {
  (void)which, (void)device;
  *value = 1;
  return CUDA_SUCCESS;
}

static struct pump_device *set_up(const char *budget) {
  setenv("PUMP_BUDGET", budget, 1);
  pump_real.cuMemGetInfo_v2 = memory;
  pump_real.cuDeviceGetAttribute = attribute;
  pump_present.cuDeviceGetAttribute = true;
  pump_real.cuDeviceGetUuid_v2 = identity;
  pump_present.cuDeviceGetUuid_v2 = true;
  pump_shm = calloc(1, sizeof *pump_shm);
  CHECK(pump_shm != NULL);
  pump_device_reset();
  pump_share_start();
  return &pump_shm->devices[2];
}

static struct pump_device *prepared(const char *budget) {
  struct pump_device *device = set_up(budget);
  CHECK(pump_device_prepare(2));
  return device;
}

static void allocate(int64_t blocks) {
  pthread_mutex_lock(&pump_range_lock);
  pump_device_add_bytes(2, blocks * (int64_t)BLOCK, 0);
  pthread_mutex_unlock(&pump_range_lock);
}

#define IDLE_NS 250000000u /* without an operation, a drain ends (memory/drain.c) */

/* Requests a budget; returns the budget adopted after the launch queue drains. */
static uint64_t ask(struct pump_device *device, uint64_t bytes) {
  device->asked_budget_bytes = bytes;
  uint64_t activity = pump_shm->header.activity;
  pump_device_adopt_budgets();
  if (pump_draining()) {
    now_ns += IDLE_NS;
    pump_device_adopt_budgets();
  }
  CHECK(device->adopted_budget_bytes == bytes);
  CHECK(pump_shm->header.activity == activity + 1); /* the worker is notified */
  pump_device_adopt_budgets();
  CHECK(pump_shm->header.activity == activity + 1); /* only once */
  CHECK(device->budget_bytes % BLOCK == 0);
  return device->budget_bytes / BLOCK;
}

static void what_is_asked_is_brought_within_bounds(void) {
  struct pump_device *device = prepared("");
  CHECK(device->budget_bytes == MOST_BLOCKS * BLOCK && device->emulated == 0);
  CHECK(ask(device, 300 * BLOCK + 1) == 300 && device->emulated == 1);
  CHECK(ask(device, 1) == PUMP_BUDGET_BLOCKS_LEAST && device->emulated == 1);
  CHECK(ask(device, UINT64_MAX) == MOST_BLOCKS && device->emulated == 0);
  CHECK(ask(device, 400 * BLOCK) == 400);
  CHECK(ask(device, 0) == 400); /* no request: the budget stays */
}

static void a_first_budget_is_no_less_than_the_least_and_that_is_said(void) {
  struct pump_device *device = set_up("0.002x");
  CHECK(pump_device_prepare(2) && warned == 1);
  CHECK(device->budget_bytes == PUMP_BUDGET_BLOCKS_LEAST * BLOCK && device->emulated == 1);
  free(pump_shm);
  device = set_up("8388608");
  CHECK(pump_device_prepare(2) && warned == 1);
  CHECK(device->budget_bytes == PUMP_BUDGET_BLOCKS_LEAST * BLOCK && device->emulated == 1);
  free(pump_shm);
  free_blocks = 2; /* only a requested budget is raised */
  device = set_up("");
  CHECK(pump_device_prepare(2) && warned == 1);
  CHECK(device->budget_bytes == BLOCK && device->emulated == 0);
}

/* Returns the free memory reported to a program, and the total, in blocks. */
static uint64_t told_free(uint64_t *total) {
  size_t free_bytes = FREE_BLOCKS * BLOCK, total_bytes = 1024 * BLOCK;
  pump_device_answer_memory_info(2, 0, &free_bytes, &total_bytes);
  *total = total_bytes / BLOCK;
  return free_bytes / BLOCK;
}

static void an_administrators_bound_holds_whatever_is_asked(void) {
  setenv("PUMP_BUDGET_MOST", "0.5x", 1);
  struct pump_device *device = prepared("90%");
  CHECK(device->budget_bytes == 512 * BLOCK && device->emulated == 1);
  CHECK(ask(device, 600 * BLOCK) == 512 && device->emulated == 1);
  CHECK(ask(device, UINT64_MAX) == 512 && device->emulated == 1);
  CHECK(ask(device, 100 * BLOCK) == 100);
}

static void a_bound_above_what_is_free_changes_nothing(void) {
  setenv("PUMP_BUDGET_MOST", "100%", 1);
  struct pump_device *device = prepared("");
  CHECK(device->budget_bytes == MOST_BLOCKS * BLOCK && device->emulated == 0);
}

/* Other jobs have budgets of their own, and the driver evicts what exceeds them. */
static void what_other_jobs_hold_gives_way_to_a_budget_that_was_asked_for(void) {
  free_blocks = 100;
  struct pump_device *device = prepared("50%");
  CHECK(device->budget_bytes == 512 * BLOCK && device->emulated == 1);
  CHECK(ask(device, 700 * BLOCK) == 700 && device->emulated == 1);
  CHECK(ask(device, UINT64_MAX) == 97 && device->emulated == 0); /* as without a request */
  free(pump_shm);
  device = set_up("");
  CHECK(pump_device_prepare(2));
  CHECK(device->budget_bytes == 97 * BLOCK && device->emulated == 0);
  CHECK(ask(device, 512 * BLOCK) == 512 && device->emulated == 1);
}

static void an_unreadable_budget_or_bound_counts_as_none(void) {
  const char *const wrong[] = {"many", "1.5", "0x", "0.0x", "1001x", "0%", "200%"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    if (i != 0) free(pump_shm);
    setenv("PUMP_BUDGET_MOST", wrong[i], 1);
    struct pump_device *device = set_up(wrong[i]);
    CHECK(pump_device_prepare(2));
    CHECK(device->budget_bytes == MOST_BLOCKS * BLOCK && device->emulated == 0);
  }
}

static void programs_that_want_it_are_told_what_the_limit_leaves(void) {
  setenv("PUMP_REPORT", "limit", 1);
  struct pump_device *device = set_up("25%");
  CHECK(pump_device_prepare(2) && device->budget_bytes == 256 * BLOCK);
  uint64_t total;
  room_left = 1400 * BLOCK, room_whole = 1536 * BLOCK;
  CHECK(told_free(&total) == 1400 && total == 1536);
  room_left = 10 * BLOCK, room_whole = 512 * BLOCK; /* a limit below the GPU's memory */
  CHECK(told_free(&total) == 10 && total == 1024);
  room_left = room_whole = UINT64_MAX; /* no limit: only the GPU's memory counts */
  CHECK(told_free(&total) == 1024 && total == 1024);
}

static void programs_are_told_what_the_budget_leaves(void) {
  uint64_t total, least, most;
  struct pump_device *device = prepared("");
  allocate(100);
  CHECK(ask(device, 300 * BLOCK) == 300);
  CHECK(told_free(&total) == 200 && total == 1024);
  CHECK(ask(device, 50 * BLOCK) == 50);
  CHECK(told_free(&total) == 0 && total == 1024);
  CHECK(ask(device, 900 * BLOCK) == 900);
  CHECK(told_free(&total) == 800 && total == 1024);
  pump_device_adopted_budgets(2, &least, &most); /* excludes the first one */
  CHECK(least == 50 * BLOCK && most == 900 * BLOCK);
}

static void a_device_that_fits_no_more_becomes_active(void) {
  struct pump_device *device = prepared("");
  allocate(100);
  CHECK(ask(device, 100 * BLOCK) == 100);
  CHECK(device->device_state == PUMP_DEVICE_DORMANT && pump_reporting == 0);
  CHECK(pump_device_adopt_budgets() == 0);
  CHECK(ask(device, 99 * BLOCK) == 99);
  CHECK(device->device_state == PUMP_DEVICE_ACTIVE && pump_reporting == 1);
  CHECK(pump_device_adopt_budgets() == 1u << 2); /* it needs its executors */
  CHECK(ask(device, 900 * BLOCK) == 900);
  CHECK(device->device_state == PUMP_DEVICE_ACTIVE && pump_reporting == 1);
}

/* Begins a drain with a budget that is too small. */
static struct pump_device *draining(void) {
  struct pump_device *device = prepared("");
  allocate(100);
  device->asked_budget_bytes = 50 * BLOCK;
  pump_device_adopt_budgets();
  CHECK(device->device_state == PUMP_DEVICE_ACTIVE && pump_draining());
  return device;
}

static bool is_adopted(const struct pump_device *device) {
  pump_device_adopt_budgets();
  bool adopted = device->adopted_budget_bytes == 50 * BLOCK;
  CHECK((device->budget_bytes == 50 * BLOCK) == adopted);
  CHECK(pump_draining() != adopted);
  return adopted;
}

static void a_smaller_budget_waits_until_what_is_issued_has_executed(void) {
  struct pump_device *device = draining();
  pump_drain_enter();
  pump_drain_leave(true); /* too soon after the drain began */
  CHECK(!is_adopted(device));
  now_ns += 60000000;
  pump_drain_enter();
  pump_drain_enter();
  pump_drain_leave(true); /* another thread waits */
  CHECK(!is_adopted(device));
  now_ns += 2 * IDLE_NS;
  CHECK(!is_adopted(device));
  pump_drain_leave(true);
  CHECK(is_adopted(device));
}

static void a_smaller_budget_waits_for_a_bounded_time(void) {
  struct pump_device *device = draining();
  pump_drain_enter();
  now_ns += PUMP_DRAIN_MOST_NS - 1;
  CHECK(!is_adopted(device) && pump_drain_lasts());
  now_ns += 1;
  CHECK(!pump_drain_lasts());
  pump_drain_leave(false);
  CHECK(is_adopted(device));
}

static void a_smaller_budget_waits_shortly_for_an_idle_program(void) {
  struct pump_device *device = draining();
  now_ns += 40000000;
  pump_drain_enter();
  pump_drain_leave(true);
  now_ns += IDLE_NS - 1;
  CHECK(!is_adopted(device));
  now_ns += 1;
  CHECK(is_adopted(device));
}

static void a_smaller_budget_waits_for_the_drain_that_a_hold_begins(void) {
  struct pump_device *device = prepared("50%");
  device->held_until_ns = now_ns + 4 * IDLE_NS;
  device->asked_budget_bytes = 50 * BLOCK;
  pump_device_adopt_budgets();
  CHECK(device->device_state == PUMP_DEVICE_DORMANT && pump_drain_lasts());
  now_ns += IDLE_NS - 1;
  pump_device_adopt_budgets();
  CHECK(device->budget_bytes == 512 * BLOCK && device->adopted_budget_bytes == 0);
  now_ns += 1;
  pump_device_adopt_budgets();
  CHECK(device->budget_bytes == 50 * BLOCK && !pump_drain_lasts());
  CHECK(pump_draining() && pump_hold_lasts(2)); /* the hold lasts longer */
}

static void a_device_that_comes_later_finds_what_was_asked(void) {
  struct pump_device *device = set_up("100%");
  device->asked_budget_bytes = 77 * BLOCK;
  CHECK(pump_device_adopt_budgets() == 0);
  CHECK(device->budget_bytes == 0 && device->adopted_budget_bytes == 0);
  CHECK(pump_device_prepare(2));
  CHECK(device->budget_bytes == 77 * BLOCK && device->emulated == 1);
  CHECK(device->adopted_budget_bytes == 77 * BLOCK);
}

static void without_a_request_no_budget_changes(void) {
  struct pump_device *device = prepared("50%");
  struct pump_device before = *device;
  for (int i = 0; i < 100; i++) CHECK(pump_device_adopt_budgets() == 0);
  CHECK(memcmp(&before, device, sizeof before) == 0 && pump_shm->header.activity == 0);
  CHECK(device->budget_bytes == 512 * BLOCK && device->emulated == 1);
}

/* Adds another process on device 2, or on another GPU; sizes in blocks. */
static void neighbour(uint8_t gpu, uint64_t found, uint64_t plain, uint64_t need) {
  struct pump_gpu_use *one = &others.gpus[others.count++];
  *one = (struct pump_gpu_use){.found_bytes = found * BLOCK,
                               .plain_bytes = plain * BLOCK,
                               .need_bytes = need * BLOCK};
  memset(one->uuid, gpu, sizeof one->uuid);
}

/* Returns this process's share of the device after its next refresh, in blocks. */
static uint64_t share(const struct pump_device *device) {
  pump_share_refresh(false);
  CHECK(device->emulated == 0);
  return device->budget_bytes / BLOCK;
}

static void a_second_job_gets_its_share_and_not_what_the_first_left(void) {
  free_blocks = 5;
  neighbour(2, FREE_BLOCKS, 0, 5000);
  struct pump_device *device = prepared("");
  CHECK(device->budget_bytes == MOST_BLOCKS / 2 * BLOCK && device->emulated == 0);
  size_t free_bytes = 5 * BLOCK, total_bytes = 1024 * BLOCK;
  pump_device_answer_memory_info(2, 0, &free_bytes, &total_bytes); /* the other yields */
  CHECK(free_bytes == MOST_BLOCKS / 2 * BLOCK);
}

static void a_share_follows_processes_that_come_need_and_leave(void) {
  struct pump_device *device = prepared("");
  allocate(900);
  CHECK(share(device) == MOST_BLOCKS && device->device_state == PUMP_DEVICE_DORMANT);
  CHECK(device->neighbours == 0);
  neighbour(2, 5, 0, 0); /* it has only just started */
  CHECK(share(device) == MOST_BLOCKS && device->neighbours == 1);
  others.gpus[0].need_bytes = 100 * BLOCK;
  CHECK(share(device) == MOST_BLOCKS && pump_draining());
  CHECK(device->device_state == PUMP_DEVICE_ACTIVE); /* 900 do not fit */
  now_ns += IDLE_NS;
  CHECK(share(device) == MOST_BLOCKS - 100);
  uint64_t activity = pump_shm->header.activity;
  CHECK(share(device) == MOST_BLOCKS - 100 && pump_shm->header.activity == activity);
  others.gpus[0].need_bytes = 2000 * BLOCK;
  CHECK(share(device) == MOST_BLOCKS / 2 && pump_shm->header.activity == activity + 1);
  neighbour(2, 5, 0, 70); /* needs less than its third, and the rest is shared */
  CHECK(share(device) == (MOST_BLOCKS - 70) / 2);
  neighbour(7, 2000, 0, 2000); /* on another GPU */
  CHECK(share(device) == (MOST_BLOCKS - 70) / 2);
  blind = 24; /* unreadable ledger: this does not mean that processes ended */
  CHECK(share(device) == (MOST_BLOCKS - 70) / 2);
  blind = 0;
  others.count = 0;
  CHECK(share(device) == MOST_BLOCKS && device->neighbours == 2); /* the highest count */
}

static void what_cannot_make_way_is_left_to_its_owner(void) {
  struct pump_device *device = prepared("");
  neighbour(2, FREE_BLOCKS, 800, 800);
  CHECK(share(device) == MOST_BLOCKS - 800);
  others.gpus[0].need_bytes = 900 * BLOCK; /* more than its half, so it gets no more */
  CHECK(share(device) == MOST_BLOCKS - 800);
}

/* For any needs, the shares of all processes together fit on the GPU. */
static void all_shares_together_are_no_more_than_the_card(void) {
  struct pump_device *device = prepared("");
  srand(1);
  for (int round = 0; round < 2000; round++) {
    uint64_t needs[5], sum = 0, most = 0;
    for (int i = 0; i < 5; i++) needs[i] = (uint64_t)(rand() % (1 << (1 + rand() % 11)));
    for (int i = 0; i < 5; i++) { /* each in turn is this process */
      others.count = 0;
      for (int k = 0; k < 5; k++)
        if (k != i) neighbour(2, FREE_BLOCKS, 0, needs[k]);
      uint64_t mine = share(device);
      sum += mine < needs[i] ? mine : needs[i];
      most += needs[i];
      CHECK(mine >= MOST_BLOCKS / 5);
    }
    CHECK(sum <= MOST_BLOCKS);
    CHECK(sum + 5 >= (most < MOST_BLOCKS ? most : MOST_BLOCKS)); /* and use all of it */
  }
}

static void figures_that_are_lies_do_no_more_than_take_a_share(void) {
  struct pump_device *device = prepared("");
  neighbour(2, UINT64_MAX / BLOCK, 0, UINT64_MAX / BLOCK);
  CHECK(share(device) == 993 / 2); /* the whole GPU, less 3 % */
  for (int i = 1; i < PUMP_NEIGHBOURS_MOST; i++) neighbour(2, 1, UINT64_MAX / BLOCK, 1);
  CHECK(share(device) == PUMP_BUDGET_BLOCKS_LEAST);
}

static void what_was_asked_for_stays_and_bounds_what_is_told(void) {
  struct pump_device *device = prepared("50%");
  allocate(700);
  neighbour(2, FREE_BLOCKS, 0, 2000);
  pump_share_refresh(false);
  CHECK(device->budget_bytes == 512 * BLOCK && device->emulated == 1);
  CHECK(told.need_bytes >= 512 * BLOCK && told.need_bytes < 530 * BLOCK);
  CHECK(ask(device, UINT64_MAX) == MOST_BLOCKS / 2);
}

static void a_need_that_has_gone_is_told_for_a_while(void) {
  set_up("");
  CHECK(pump_device_prepare(2));
  allocate(800);
  pump_share_refresh(false);
  CHECK(told.found_bytes == FREE_BLOCKS * BLOCK && told.uuid[0] == 2);
  CHECK(told.need_bytes >= 800 * BLOCK && told.need_bytes < 820 * BLOCK);
  allocate(-790);
  for (int i = 0; i < 8; i++) {
    pump_share_refresh(false);
    CHECK(told.need_bytes >= 800 * BLOCK);
    now_ns += 1000000000;
  }
  for (int i = 0; i < 12; i++) {
    pump_share_refresh(false);
    now_ns += 1000000000;
  }
  CHECK(told.need_bytes >= 10 * BLOCK && told.need_bytes < 30 * BLOCK);
}

static void a_job_whose_cards_are_its_own_has_no_neighbours(void) {
  setenv("PUMP_NEIGHBOURS", "none", 1);
  neighbour(2, FREE_BLOCKS, 0, 2000);
  struct pump_device *device = prepared("");
  CHECK(share(device) == MOST_BLOCKS && told.found_bytes == 0);
  CHECK(device->neighbours == 0);
}

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    void (*run)(void);
  } scenarios[] = {
#define SCENARIO(name) {#name, name}
      SCENARIO(what_is_asked_is_brought_within_bounds),
      SCENARIO(a_first_budget_is_no_less_than_the_least_and_that_is_said),
      SCENARIO(programs_are_told_what_the_budget_leaves),
      SCENARIO(a_device_that_fits_no_more_becomes_active),
      SCENARIO(a_smaller_budget_waits_until_what_is_issued_has_executed),
      SCENARIO(a_smaller_budget_waits_for_a_bounded_time),
      SCENARIO(a_smaller_budget_waits_shortly_for_an_idle_program),
      SCENARIO(a_smaller_budget_waits_for_the_drain_that_a_hold_begins),
      SCENARIO(a_device_that_comes_later_finds_what_was_asked),
      SCENARIO(an_administrators_bound_holds_whatever_is_asked),
      SCENARIO(a_bound_above_what_is_free_changes_nothing),
      SCENARIO(what_other_jobs_hold_gives_way_to_a_budget_that_was_asked_for),
      SCENARIO(an_unreadable_budget_or_bound_counts_as_none),
      SCENARIO(programs_that_want_it_are_told_what_the_limit_leaves),
      SCENARIO(without_a_request_no_budget_changes),
      SCENARIO(a_second_job_gets_its_share_and_not_what_the_first_left),
      SCENARIO(a_share_follows_processes_that_come_need_and_leave),
      SCENARIO(what_cannot_make_way_is_left_to_its_owner),
      SCENARIO(all_shares_together_are_no_more_than_the_card),
      SCENARIO(figures_that_are_lies_do_no_more_than_take_a_share),
      SCENARIO(what_was_asked_for_stays_and_bounds_what_is_told),
      SCENARIO(a_need_that_has_gone_is_told_for_a_while),
      SCENARIO(a_job_whose_cards_are_its_own_has_no_neighbours),
  };
  for (size_t i = 0; i < sizeof scenarios / sizeof scenarios[0]; i++)
    if (argc == 2 && strcmp(argv[1], scenarios[i].name) == 0) {
      scenarios[i].run();
      free(pump_shm);
      return 0;
    }
  return 2;
}
