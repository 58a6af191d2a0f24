/* report.c - PUMP_VIRTUAL_REPORT: one JSON object when the process ends.
 *
 * The report is written next to its final name and renamed, so that no reader sees half
 * of one. "%p" in the name is replaced by the process id. `profiled` counts only events
 * between cuProfilerStart and cuProfilerStop.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "calls.h"
#include "shim/base/draft.h"

static void put_string(FILE *file, const char *text) {
  fputc('"', file);
  for (; *text; text++) {
    unsigned char c = (unsigned char)*text;
    if (c == '"' || c == '\\')
      fprintf(file, "\\%c", c);
    else if (c < 0x20)
      fprintf(file, "\\u%04x", c);
    else
      fputc(c, file);
  }
  fputc('"', file);
}

static void put(FILE *file, const char *key, uint64_t value, const char *separator) {
  fprintf(file, "\"%s\": %llu%s", key, (unsigned long long)value, separator);
}

static void put_calls(FILE *file) {
  const char *separator = "";
  fputs("  \"calls\": {", file);
  for (uint32_t i = 0; i < VD_CALLS; i++) {
    uint64_t count = __atomic_load_n(&vd_call_counts[i], __ATOMIC_RELAXED);
    if (count == 0) continue;
    fprintf(file, "%s\"%s\": %llu", separator, vd_exports[i].symbol,
            (unsigned long long)count);
    separator = ", ";
  }
  fputs("},\n  \"kernels\": {", file);
  separator = "";
  for (const struct vd_kernel_count *k = vd_kernel_counts; k != NULL; k = k->next) {
    if (k->launches == 0) continue;
    fputs(separator, file);
    put_string(file, k->name);
    fprintf(file, ": %llu", (unsigned long long)k->launches);
    separator = ", ";
  }
  fputs("},\n", file);
}

/* All counters of the model, by name (gpu_engine.h). */
#define COUNTER(name) {#name, offsetof(struct gpu_counters, name)}
static const struct {
  const char *name;
  size_t offset;
} counters_by_name[] = {
    COUNTER(fault_blocks),
    COUNTER(fault_pages),
    COUNTER(fault_batches),
    COUNTER(nonreplayable_blocks),
    COUNTER(remote_blocks),
    COUNTER(h2d_demand_bytes),
    COUNTER(h2d_prefetch_bytes),
    COUNTER(h2d_copy_bytes),
    COUNTER(h2d_remote_bytes),
    COUNTER(d2h_evict_bytes),
    COUNTER(d2h_prefetch_bytes),
    COUNTER(d2h_ahead_bytes),
    COUNTER(d2h_copy_bytes),
    COUNTER(d2h_remote_bytes),
    COUNTER(d2h_pull_bytes),
    COUNTER(populated_bytes),
    COUNTER(dropped_bytes),
    COUNTER(freed_bytes),
    COUNTER(clean_bytes),
    COUNTER(collapsed_pages),
    COUNTER(evictions_used),
    COUNTER(evictions_unused),
    COUNTER(evictions_discarded),
    COUNTER(prefetch_in_blocks),
    COUNTER(prefetch_out_blocks),
    COUNTER(prefetch_resident_blocks),
    COUNTER(discarded_blocks),
    COUNTER(host_alloc_blocks),
    COUNTER(kernels),
    COUNTER(copies),
    COUNTER(compute_busy_ns),
    COUNTER(stall_fault_ns),
    COUNTER(stall_arrival_ns),
    COUNTER(copy_stall_ns),
    COUNTER(h2d_busy_ns),
    COUNTER(d2h_busy_ns),
    COUNTER(caller_ns),
    COUNTER(errors),
};

static void put_raw_counters(FILE *file, const char *key, const struct gpu_counters *c,
                             const char *end) {
  fprintf(file, "  \"%s\": {", key);
  for (size_t i = 0; i < sizeof counters_by_name / sizeof *counters_by_name; i++) {
    uint64_t value;
    memcpy(&value, (const char *)c + counters_by_name[i].offset, sizeof value);
    put(file, counters_by_name[i].name, value, ", ");
  }
  put(file, "last_error", c->last_error, end);
}

static void put_totals(FILE *file, const struct gpu_counters *c, uint64_t peak_bytes) {
  fputs("  ", file);
  put(file, "operations", c->kernels + c->copies, ", ");
  put(file, "faults", c->fault_pages, ", ");
  put(file, "fault_batches", c->fault_batches, ",\n  ");
  put(file, "h2d_bytes",
      c->h2d_demand_bytes + c->h2d_prefetch_bytes + c->h2d_copy_bytes + c->h2d_remote_bytes,
      ", ");
  put(file, "d2h_bytes",
      c->d2h_evict_bytes + c->d2h_prefetch_bytes + c->d2h_ahead_bytes + c->d2h_copy_bytes +
          c->d2h_remote_bytes + c->d2h_pull_bytes,
      ", ");
  put(file, "evictions", c->evictions_used + c->evictions_unused + c->evictions_discarded,
      ",\n  ");
  put(file, "stall_ns", c->stall_fault_ns + c->stall_arrival_ns + c->copy_stall_ns, ", ");
  put(file, "compute_busy_ns", c->compute_busy_ns, ", ");
  put(file, "peak_resident_bytes", peak_bytes, ",\n");
}

static void put_graphs(FILE *file) {
  const struct vd_graph_counts *g = &vd_graphs;
  fputs("  \"graphs\": {", file);
  put(file, "launches", g->launches, ", ");
  put(file, "kernels", g->kernels, ", ");
  put(file, "copies", g->copies, ", ");
  put(file, "memsets", g->memsets, "},\n");
}

static void put_checks(FILE *file, const struct gpu_counters *c) {
  const struct vd_checks *v = &vd.checks;
  fputs("  ", file);
  put(file, "violations",
      v->prefetch_unknown + v->discard_unknown + v->discard_live + v->discard_pending +
          v->advise_pool + v->free_unknown + v->capture_invalidated +
          v->managed_stream_operations + c->errors,
      ",\n  ");
  fputs("\"violations_by_check\": {", file);
  put(file, "prefetch_unknown", v->prefetch_unknown, ", ");
  put(file, "discard_unknown", v->discard_unknown, ", ");
  put(file, "discard_live", v->discard_live, ", ");
  put(file, "discard_pending", v->discard_pending, ", ");
  put(file, "advise_pool", v->advise_pool, ", ");
  put(file, "free_unknown", v->free_unknown, ", ");
  put(file, "capture_invalidated", v->capture_invalidated, ", ");
  put(file, "managed_stream_operations", v->managed_stream_operations, ", ");
  put(file, "model_errors", c->errors, "},\n  ");
  put(file, "calls_failed_on_request", v->calls_failed_on_request, "\n");
}

/* Writes the shared GPU's totals over all processes; other parts cover this process. */
static void put_card(FILE *file) {
  struct vd_card_figures card;
  vd_card_figures_locked(&card);
  fputs("  \"card\": {\"name\": ", file);
  put_string(file, card.name);
  fputs(", ", file);
  put(file, "processes", card.processes, ", ");
  put(file, "joined", card.joined, ", ");
  put(file, "died", card.died, ",\n  ");
  put(file, "check", (uint64_t)card.check, ", ");
  put(file, "plain_bytes", card.memory.plain_bytes, ", ");
  put(file, "resident_bytes", card.memory.resident_bytes, ", ");
  put(file, "free_bytes", card.memory.free_bytes, ",\n");
  put_totals(file, &card.counters, card.peak_bytes);
  put_raw_counters(file, "counters", &card.counters, "}},\n");
}

/* Returns this process's counters, up to now. */
static void counters_locked(const struct gpu_hooks *effects, struct gpu_counters *out) {
  struct gpu_owner_info share;
  gpu_advance(vd.engine, vd_now_ns(), effects);
  gpu_counters_get(vd.engine, out);
  if (vd.shared) {
    vd_card_own_locked(&share);
    *out = share.counters;
  }
}

/* Counters at the last cuProfilerStart; their growth, summed over all profiled spans. */
static struct gpu_counters began, profiled;
static bool profiling;

static void add_profiled(const struct gpu_counters *now) {
  for (size_t i = 0; i < sizeof counters_by_name / sizeof *counters_by_name; i++) {
    size_t at = counters_by_name[i].offset;
    uint64_t sum, end, begin;
    memcpy(&sum, (const char *)&profiled + at, sizeof sum);
    memcpy(&end, (const char *)now + at, sizeof end);
    memcpy(&begin, (const char *)&began + at, sizeof begin);
    sum += end - begin;
    memcpy((char *)&profiled + at, &sum, sizeof sum);
  }
}

static CUresult profile(bool on) {
  struct gpu_counters now;
  if (__atomic_load_n(&vd.state, __ATOMIC_ACQUIRE) != VD_READY) return CUDA_SUCCESS;
  vd_lock();
  counters_locked(&vd_hooks, &now);
  if (profiling) add_profiled(&now);
  profiling = on;
  began = now;
  vd_unlock();
  return CUDA_SUCCESS;
}

CUresult vd_cuProfilerStart(void) {
  return profile(true);
}
CUresult vd_cuProfilerStop(void) {
  return profile(false);
}

#define HEAD "{\n  \"virtual\": true, "

static void write_report(FILE *file) {
  struct gpu_counters counters;
  counters_locked(NULL, &counters); /* without effects on data */
  if (profiling) add_profiled(&counters);
  vd_record_end();
  fputs(HEAD "\"mode\": ", file);
  put_string(file, vd.mode == VD_COMPUTE ? "compute" : "timing");
  fputs(", \"copies\": ", file);
  put_string(file, vd.copies_modelled ? "modelled" : "real");
  fputs(", \"time_scale\": 1,\n  \"profile\": ", file);
  put_string(file, vd.profile.name);
  fprintf(file, ", \"profile_hash\": \"%s\",\n  ", vd.profile_hash);
  put(file, "memory_bytes", vd.profile.memory_bytes, ", ");
  put(file, "pid", (uint64_t)getpid(), ",\n");
  put_calls(file);
  put_totals(file, &counters, vd_peak_resident_bytes());
  put_raw_counters(file, "counters", &counters, "},\n");
  put_raw_counters(file, "profiled", &profiled, "},\n");
  if (vd.shared) put_card(file);
  put_graphs(file);
  put_checks(file, &counters);
  fputs("}\n", file);
}

/* Takes the lock within a second: a thread that never releases it must not keep the
 * process from ending. */
bool vd_lock_at_exit(void) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += 1;
  if (pthread_mutex_timedlock(&vd.lock, &until) != 0) return false;
  if (vd.shared) vd_card_take();
  return true;
}

void vd_report_write(void) {
  const char *name = getenv("PUMP_VIRTUAL_REPORT");
  char path[4096], partial[PUMP_DRAFT_BYTES];
  if (name == NULL || *name == 0) return;
  const char *mark = strstr(name, "%p");
  int length = mark == NULL ? snprintf(path, sizeof path, "%s", name)
                            : snprintf(path, sizeof path, "%.*s%d%s", (int)(mark - name),
                                       name, (int)getpid(), mark + 2);
  if (length < 0 || (size_t)length >= sizeof path) return;
  if (!pump_may_replace(path, HEAD)) {
    vd_error(
        "PUMP_VIRTUAL_REPORT: %s is not a report of the virtual GPU; choose another file",
        path);
    return;
  }
  if (!vd_lock_at_exit()) {
    vd_error("no report: the driver's lock is busy");
    return;
  }
  FILE *file = pump_draft(path, partial);
  if (file != NULL) {
    write_report(file);
    if (fclose(file) != 0 || rename(partial, path) != 0)
      vd_error("PUMP_VIRTUAL_REPORT %s: %s", path, strerror(errno));
  } else {
    vd_error("PUMP_VIRTUAL_REPORT %s: %s", path, strerror(errno));
  }
  vd_unlock();
}
