/* case_adapt.c - scenarios of the controller, with synthetic latencies.
 *
 * A direction is modelled by two resources. The link carries one slice at a time. Threads
 * spend CPU time in the driver, on a number of CPU cores.
 */
#include "executor_harness.h"

struct direction_model {
  double link_us, cpu_us; /* per slice */
  double processors;
  double noise; /* relative, either way */
  uint64_t bytes;
};

static const struct pump_adapt_bounds in_bounds = {1, 2, 1, PUMP_IN_FLIGHT_BYTES};
static const struct pump_adapt_bounds out_bounds = {2, 4, 2, PUMP_OUT_FLIGHT_BYTES};

static double least(double a, double b) {
  return a < b ? a : b;
}

/* Returns the times of one slice while the queue is never empty. With one slice in flight
 * a thread waits for the link inside the call; with two, the link works in parallel. */
static struct pump_adapt_sample measure(const struct direction_model *model,
                                        uint32_t threads, uint32_t slices) {
  double flight = threads * slices;
  double rate = least(flight / (model->cpu_us + model->link_us), 1 / model->link_us);
  rate = least(rate, least(threads, model->processors) / model->cpu_us);
  double slice_us = flight / rate;
  double call_us = slices == 1 ? slice_us : model->cpu_us;
  double wobble = 1 + model->noise * (harness_random() % 2001 / 1000.0 - 1);
  return (struct pump_adapt_sample){.call_ns = (uint64_t)(call_us * 1000 * wobble),
                                    .done_ns =
                                        (uint64_t)((slice_us - call_us) * 1000 * wobble),
                                    .bytes = model->bytes,
                                    .waiting = 1,
                                    .in_flight = (uint32_t)flight};
}

/* Returns the number of threads, ignoring a current trial. */
static uint32_t settled(const struct pump_adapt *state) {
  return state->trial != 0 ? state->base : state->threads;
}

/* Runs `slices` slices; returns how often the settled number of threads changed. */
static uint32_t run(struct pump_adapt *state, const struct pump_adapt_bounds *bounds,
                    const struct direction_model *model, uint32_t slices,
                    double *mean_threads) {
  uint32_t changes = 0;
  double sum = 0;
  for (uint32_t i = 0; i < slices; i++) {
    struct pump_adapt_sample sample =
        measure(model, state->threads, bounds == &in_bounds ? 2 : 1);
    struct pump_adapt next = pump_adapt_next(*state, bounds, &sample);
    changes += settled(&next) != settled(state);
    *state = next;
    sum += state->threads;
    CHECK(state->threads >= bounds->threads_min && state->threads <= bounds->threads_max);
  }
  if (mean_threads != NULL) *mean_threads = sum / slices;
  return changes;
}

/* ---- a link with threads -----------------------------------------------------------
 *
 * Each thread prepares a slice, waits for the link, which serves threads in order, and
 * maps the copied pages. Sometimes the other direction is busy and slows the link by a
 * quarter. Each part takes its time plus or minus `noise`. */
struct link_model {
  double prepare_us, copy_us, map_us;
  double noise;
};

struct link_run {
  struct pump_adapt state;
  double now_us, link_us;         /* when the link is free */
  double begun_us[4], ends_us[4]; /* 0: the thread has nothing in flight */
  uint32_t in_flight[4];
};

static double noisy(const struct link_model *model, double us) {
  return us * (1 + model->noise * (harness_random() % 2001 / 1000.0 - 1));
}

static void begin_slice(struct link_run *run, const struct link_model *model, uint32_t i) {
  double ready_us = run->now_us + noisy(model, model->prepare_us);
  if (run->link_us < ready_us) run->link_us = ready_us;
  bool duplex = (uint64_t)(run->now_us / 20000) % 2 != 0;
  run->link_us += noisy(model, model->copy_us) * (duplex ? 1.25 : 1);
  run->begun_us[i] = run->now_us;
  run->ends_us[i] = run->link_us + noisy(model, model->map_us);
  run->in_flight[i] = 1;
  for (uint32_t j = 0; j < 4; j++)
    if (j != i && run->ends_us[j] != 0) run->in_flight[i]++;
}

/* Runs until one slice arrives. */
static void step(struct link_run *run, const struct link_model *model) {
  for (uint32_t i = 0; i < run->state.threads; i++)
    if (run->ends_us[i] == 0) begin_slice(run, model, i);
  uint32_t first = 4;
  for (uint32_t i = 0; i < 4; i++)
    if (run->ends_us[i] != 0 && (first == 4 || run->ends_us[i] < run->ends_us[first]))
      first = i;
  run->now_us = run->ends_us[first];
  run->ends_us[first] = 0;
  struct pump_adapt_sample sample = {
      .call_ns = (uint64_t)((run->now_us - run->begun_us[first]) * 1000),
      .bytes = 8u << 20,
      .waiting = 1,
      .in_flight = run->in_flight[first]};
  run->state = pump_adapt_next(run->state, &out_bounds, &sample);
}

/* Returns how often the settled number changed. */
static uint32_t steps(struct link_run *run, const struct link_model *model,
                      uint32_t slices) {
  uint32_t changes = 0;
  for (uint32_t i = 0; i < slices; i++) {
    uint32_t before = settled(&run->state);
    step(run, model);
    changes += settled(&run->state) != before;
  }
  return changes;
}

/* Transfers to the host on an A100, four blocks a slice: while blocks get host pages,
 * afterwards, and with the link as the only limit. */
static const struct link_model cpu_bound = {650, 336, 512, 0.25};
static const struct link_model mixed = {50, 336, 650, 0.25};
static const struct link_model link_bound = {10, 336, 20, 0.25};

SCENARIO(the_best_number_is_found_within_few_slices_on_a_noisy_link_and_kept) {
  for (int round = 0; round < 50; round++) {
    struct link_run run = {.state = pump_adapt_begin(&out_bounds)};
    steps(&run, &cpu_bound, 1000);
    CHECK(settled(&run.state) == 4);
    CHECK(steps(&run, &cpu_bound, 20000) == 0);
    run = (struct link_run){.state = pump_adapt_begin(&out_bounds)};
    run.state.threads = 4;
    steps(&run, &link_bound, 10000);
    CHECK(settled(&run.state) == 2);
    CHECK(steps(&run, &link_bound, 20000) == 0);
  }
}

/* The fourth thread gains 7 %, a fifth of the ideal gain. */
SCENARIO(the_fourth_thread_is_not_a_matter_of_luck) {
  for (int round = 0; round < 50; round++) {
    struct link_run run = {.state = pump_adapt_begin(&out_bounds)};
    steps(&run, &cpu_bound, 1000);
    CHECK(steps(&run, &mixed, 30000) == 0 && settled(&run.state) == 4);
  }
}

/* Threads are added sooner than removed, because too few cost the program more. */
SCENARIO(another_number_is_found_when_the_link_changes) {
  struct link_run run = {.state = pump_adapt_begin(&out_bounds)};
  for (int round = 0; round < 20; round++) {
    steps(&run, &cpu_bound, 6000);
    CHECK(settled(&run.state) == 4);
    steps(&run, &link_bound, 16000);
    CHECK(settled(&run.state) == 2);
  }
}

SCENARIO(threads_are_added_while_each_brings_its_share) {
  /* The link is so fast that only the driver's CPU work counts. */
  struct direction_model model = {50, 1000, 16, 0.02, 8u << 20};
  struct pump_adapt state = pump_adapt_begin(&out_bounds);
  CHECK(state.threads == 2);
  run(&state, &out_bounds, &model, 1000, NULL);
  CHECK(settled(&state) == 4);
  double mean;
  run(&state, &out_bounds, &model, 20000, &mean);
  CHECK(mean > 3.8); /* sometimes it tries with one less */
}

SCENARIO(no_thread_is_added_that_the_link_cannot_feed) {
  /* To the host on an A100: 8 MiB at 25 GB/s, and 2,048 pages at 0.25 us each. */
  struct direction_model model = {336, 512, 16, 0.02, 8u << 20};
  struct pump_adapt state = pump_adapt_begin(&out_bounds);
  double mean;
  run(&state, &out_bounds, &model, 2000, NULL);
  run(&state, &out_bounds, &model, 20000, &mean);
  CHECK(mean > 2.9 && mean < 3.2);
}

SCENARIO(no_thread_is_added_that_finds_no_processor) {
  struct direction_model model = {50, 1000, 2, 0.02, 8u << 20};
  struct pump_adapt state = pump_adapt_begin(&out_bounds);
  double mean;
  run(&state, &out_bounds, &model, 2000, NULL);
  run(&state, &out_bounds, &model, 20000, &mean);
  CHECK(mean < 2.2);
}

SCENARIO(a_thread_that_no_longer_pays_is_given_back) {
  struct direction_model fast = {50, 1000, 16, 0.02, 8u << 20};
  struct direction_model full = {1000, 300, 16, 0.02, 8u << 20};
  struct pump_adapt state = pump_adapt_begin(&out_bounds);
  run(&state, &out_bounds, &fast, 2000, NULL);
  CHECK(settled(&state) == 4);
  double mean;
  run(&state, &out_bounds, &full, 20000, NULL);
  run(&state, &out_bounds, &full, 10000, &mean);
  CHECK(mean < 2.2);
}

SCENARIO(one_in_thread_with_two_slices_is_enough_while_the_link_is_the_limit) {
  struct direction_model model = {365, 80, 16, 0.05, 8u << 20};
  struct pump_adapt state = pump_adapt_begin(&in_bounds);
  CHECK(state.threads == 1);
  CHECK(run(&state, &in_bounds, &model, 20000, NULL) == 0); /* it does not even try */
}

SCENARIO(a_second_in_thread_comes_where_the_driver_is_the_limit) {
  struct direction_model model = {100, 400, 16, 0.05, 8u << 20};
  struct pump_adapt state = pump_adapt_begin(&in_bounds);
  run(&state, &in_bounds, &model, 500, NULL);
  CHECK(settled(&state) == 2);
  double mean;
  run(&state, &in_bounds, &model, 20000, &mean);
  CHECK(mean > 1.9);
}

/* Blocks without data need no link, so the driver limits them; others wait for the link. */
SCENARIO(a_load_that_waits_for_the_link_takes_no_thread_from_one_that_does_not) {
  struct direction_model without = {5, 60, 16, 0.25, 4u << 20};
  struct direction_model with = {365, 60, 16, 0.25, 4u << 20};
  struct pump_adapt state = pump_adapt_begin(&in_bounds);
  run(&state, &in_bounds, &without, 1000, NULL);
  CHECK(settled(&state) == 2);
  for (int round = 0; round < 100; round++) {
    CHECK(run(&state, &in_bounds, &with, 300 + harness_random() % 300, NULL) == 0);
    CHECK(run(&state, &in_bounds, &without, 300 + harness_random() % 300, NULL) == 0);
  }
}

SCENARIO(noise_does_not_swing_the_number_of_threads) {
  struct direction_model model = {336, 512, 16, 0.5, 8u << 20};
  uint32_t changes = 0;
  for (int round = 0; round < 50; round++) {
    struct pump_adapt state = pump_adapt_begin(&out_bounds);
    run(&state, &out_bounds, &model, 2000, NULL);
    changes += run(&state, &out_bounds, &model, 20000, NULL);
  }
  CHECK(changes <= 10);
}

SCENARIO(slices_that_no_queue_waited_behind_say_nothing_about_threads) {
  struct pump_adapt state = pump_adapt_begin(&out_bounds);
  struct pump_adapt_sample sample = {
      .call_ns = 1000000, .bytes = 8u << 20, .waiting = 0, .in_flight = 2};
  for (int i = 0; i < 10000; i++) state = pump_adapt_next(state, &out_bounds, &sample);
  CHECK(state.threads == 2 && state.count == 0);
}

SCENARIO(no_thread_is_added_that_the_bytes_in_flight_leave_nothing_for) {
  struct direction_model model = {50, 1000, 16, 0.02, 32u << 20};
  struct pump_adapt state = pump_adapt_begin(&out_bounds);
  CHECK(run(&state, &out_bounds, &model, 20000, NULL) == 0);
}

SCENARIO(slices_of_other_lengths_do_not_mislead_a_trial) {
  struct direction_model long_ones = {336, 512, 16, 0, 8u << 20};
  struct direction_model short_ones = {84, 128, 16, 0, 2u << 20};
  struct pump_adapt state = pump_adapt_begin(&out_bounds);
  run(&state, &out_bounds, &long_ones, 2000, NULL);
  CHECK(settled(&state) == 3);
  for (int round = 0; round < 2000; round++)
    CHECK(run(&state, &out_bounds, round % 2 != 0 ? &short_ones : &long_ones,
              1 + harness_random() % 200, NULL) == 0);
}

SCENARIO(whatever_is_measured_the_bounds_hold) {
  const struct pump_adapt_bounds *const both[] = {&in_bounds, &out_bounds};
  for (int round = 0; round < 200; round++) {
    const struct pump_adapt_bounds *bounds = both[round % 2];
    struct pump_adapt state = pump_adapt_begin(bounds);
    for (int i = 0; i < 2000; i++) {
      struct pump_adapt_sample sample = {
          .call_ns = harness_random() >> harness_random() % 32,
          .done_ns = harness_random() >> harness_random() % 32,
          .bytes = (uint64_t)(harness_random() % 17) << 21,
          .waiting = harness_random() % 3,
          .in_flight = harness_random() % 9};
      state = pump_adapt_next(state, bounds, &sample);
      CHECK(state.threads >= bounds->threads_min && state.threads <= bounds->threads_max);
    }
  }
}
