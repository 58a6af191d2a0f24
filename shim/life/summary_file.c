/* summary_file.c - PUMP_SUMMARY: writes pump's counters as one JSON object when the
 * process ends.
 *
 * For scripts and tests; people get the line of summary.c. Every process that reached
 * cuInit writes the file, dormant or not, so that "intercepted" differs from "loaded".
 * The file is written next to its final name and renamed, so that no reader sees a
 * partial file. "%p" in the name becomes the process id. Another process writes the
 * worker's counters, so they are not trusted.
 */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "life.h"
#include "shim/base/draft.h"
#include "shim/execute/executors.h"
#include "shim/link/link.h"
#include "shim/memory/host.h"

struct field {
  const char *name;
  size_t offset;
};

#define SHIM(field) {#field, offsetof(struct pump_shim_counters, field)}
static const struct field shim_fields[] = {
    SHIM(operations),
    SHIM(events_dropped),
    SHIM(extents_dropped),
    SHIM(ranges_untracked),
    SHIM(converted_bytes_peak),
    SHIM(moved_to_gpu_bytes),
    SHIM(moved_to_host_bytes),
    SHIM(commands_stale),
    SHIM(commands_late),
    SHIM(commands_dead),
    SHIM(commands_invalid),
    SHIM(commands_failed),
    SHIM(markers),
    SHIM(populate_bytes),
    SHIM(attaches),
    SHIM(signatures),
    SHIM(graph_launches),
    SHIM(graph_operations),
    SHIM(graphs_unknown),
    SHIM(block_events),
    SHIM(block_dead_bytes),
    SHIM(scheduled_bytes),
    SHIM(schedules_dropped),
    SHIM(own_contexts),
    SHIM(gates),
    SHIM(gates_large),
    SHIM(gates_forced),
    SHIM(held_ns),
};

#define WORKER(field) {#field, offsetof(struct pump_worker_counters, field)}
static const struct field worker_fields[] = {
    WORKER(operations),
    WORKER(operations_hit),
    WORKER(blocks_used),
    WORKER(blocks_hit),
    WORKER(miss_late),
    WORKER(miss_unseen),
    WORKER(miss_no_room),
    WORKER(miss_policy),
    WORKER(resyncs),
    WORKER(overshoot_bytes_peak),
    WORKER(ticks),
    WORKER(schedules),
    WORKER(catch_ups),
    WORKER(ops_larger),
    WORKER(recorded_file),
    WORKER(recording_error),
    WORKER(predicted),
    WORKER(predictions_lost),
    WORKER(figures_final),
    WORKER(lost_ns),
    WORKER(lost_least_ns),
    WORKER(lost_most_ns),
    WORKER(lost_of_ns),
    WORKER(lost_delayed_ns),
    WORKER(in_place_bytes_peak),
};

#define DEVICE(field) {#field, offsetof(struct pump_device, field)}
static const struct field device_fields[] = {
    DEVICE(total_bytes),     DEVICE(free_at_start_bytes), DEVICE(budget_bytes),
    DEVICE(allocated_bytes), DEVICE(plain_bytes),
};

#define COUNT(fields) (sizeof(fields) / sizeof *(fields))

static void put(FILE *file, const void *counters, const struct field *fields,
                size_t count) {
  for (size_t i = 0; i < count; i++) {
    const uint64_t *value = (const uint64_t *)((const char *)counters + fields[i].offset);
    fprintf(file, "%s\"%s\": %llu", i == 0 ? "" : ", ", fields[i].name,
            (unsigned long long)PUMP_LOAD(value));
  }
}

static void put_devices(FILE *file) {
  for (uint32_t d = 0; d < PUMP_LOAD(&pump_shm->header.device_count); d++) {
    const struct pump_device *device = &pump_shm->devices[d];
    if (d >= PUMP_MAX_DEVICES) return;
    fprintf(file, "%s\n  {\"active\": %s, ", d == 0 ? "" : ",",
            PUMP_LOAD(&device->device_state) == PUMP_DEVICE_ACTIVE ? "true" : "false");
    put(file, device, device_fields, COUNT(device_fields));
    uint64_t least, most;
    pump_device_adopted_budgets(d, &least, &most);
    fprintf(file, ", \"least_budget_bytes\": %llu, \"most_budget_bytes\": %llu}",
            (unsigned long long)least, (unsigned long long)most);
  }
}

#define HEAD "{\"schema\": \"pump.summary/1\", \"pid\": "

/* Writes the object. No text of last_line.c has a character that JSON escapes. */
static void write_object(FILE *file, const char *line) {
  fprintf(file, "%s%d, \"line\": \"%s\", \"worker_losses\": %u,\n\"shim\": {", HEAD,
          (int)getpid(), line, pump_link_losses());
  put(file, &pump_shm->shim_counters, shim_fields, COUNT(shim_fields));
  fputs("},\n\"worker\": {", file);
  put(file, &pump_shm->worker_counters, worker_fields, COUNT(worker_fields));
  fputs("},\n\"devices\": [", file);
  put_devices(file);
  fputs("]}\n", file);
}

static void say_not_written(const char *path, int error) {
  pump_log(PUMP_LOG_WARNING,
           "PUMP_SUMMARY: cannot write %s: %s; choose a file that can be written",
           PUMP_QUOTED(path), strerror(error));
}

void pump_summary_write(const char *line) {
  const char *name = getenv("PUMP_SUMMARY");
  char path[4096], partial[PUMP_DRAFT_BYTES];
  if (pump_shm == NULL || name == NULL || *name == '\0') return;
  const char *mark = strstr(name, "%p");
  int length = mark == NULL ? snprintf(path, sizeof path, "%s", name)
                            : snprintf(path, sizeof path, "%.*s%d%s", (int)(mark - name),
                                       name, (int)getpid(), mark + 2);
  if (length < 0 || (size_t)length >= sizeof path) return;
  if (!pump_may_replace(path, HEAD)) {
    pump_log(PUMP_LOG_WARNING,
             "PUMP_SUMMARY: %s is not a summary that pump wrote; choose another file",
             PUMP_QUOTED(path));
    return;
  }
  FILE *file = pump_draft(path, partial);
  struct pump_write_signals signals;
  if (file == NULL || !pump_block_write_signals(&signals)) {
    say_not_written(path, file == NULL ? errno : EAGAIN);
    if (file != NULL) fclose(file);
    return;
  }
  write_object(file, line);
  int error = fclose(file) == 0 ? 0 : errno;
  pump_restore_write_signals(&signals);
  if (error == 0 && rename(partial, path) != 0) error = errno;
  if (error != 0) {
    say_not_written(path, error);
    unlink(partial);
  }
}
