/* start.c - the life of the shim in a process: cuInit, fork, exit.
 *
 * Before the real cuInit succeeds, the shim runs only constructors of a few microseconds:
 * no mapping, no thread. So gcc, sh and the other helpers of a job pay almost nothing.
 *
 * A forked child keeps the driver's function table and forgets everything else: the
 * region is not inherited (MADV_DONTFORK), and hooks pass through. Only its own cuInit,
 * if the driver allows it, starts the shim again from scratch.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "life.h"
#include "shim/base/glibc.h"
#include "shim/driver/resolve.h"
#include "shim/memory/rules.h"
#include "shim/pool/convert.h"
#include "shim/pool/mapped.h"
#include "shim/pool/pool.h"
#include "shim/record/allocator_blocks.h"
#include "shim/record/graph_nodes.h"

/* Guarded by start_lock; `started` returns to false in a forked child. */
static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;
static bool started, handlers_set;
/* pump was started by a cuInit here or in an ancestor: kept over fork. */
static bool ever_started;

static void fork_child(void) {
  pump_state_fork_child();
  pump_captures_fork_child();
  pthread_mutex_init(&start_lock, NULL);
  started = false;
  pump_pool_fork_child();
  pump_mapped_fork_child();
  pump_threads_fork_child();
}

static void say_bypassed(int status) {
  struct pump_line line;
  pump_line_of_bypassed(&line);
  pump_log(PUMP_LOG_INFO,
           "not intercepted: this program bypasses pump on its way to the CUDA driver, "
           "usually by a library loaded with RTLD_DEEPBIND. Its memory is not pageable. "
           "Load that library without RTLD_DEEPBIND");
  pump_job_line(&line, status);
}

/* Runs at exit, before the driver's own handlers, which were registered earlier. Reports
 * a context that exists although no context or memory hook of ours was called. */
static void notice_unseen(int status, void *nothing) {
  (void)nothing;
  if (!started || pump_calls_seen != 0 || !PUMP_HAS(cuDevicePrimaryCtxGetState)) return;
  for (CUdevice i = 0; i < (CUdevice)pump_shm->header.device_count; i++) {
    unsigned int flags;
    int active = 0;
    pump_real.cuDevicePrimaryCtxGetState(i, &flags, &active);
    if (active == 0) continue;
    say_bypassed(status);
    return;
  }
}

static struct pump_shm *map_region(void) {
  void *region = mmap(NULL, sizeof(struct pump_shm), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (region == MAP_FAILED) return NULL;
  madvise(region, sizeof(struct pump_shm), MADV_DONTFORK);
  return region;
}

/* Under start_lock. */
static void start(void) {
  started = ever_started = true;
  struct pump_shm *region = map_region();
  if (region == NULL) {
    pump_give_up("no address space left for pump's tables (raise ulimit -v)");
    return;
  }
  int devices = 0;
  if (PUMP_HAS(cuDeviceGetCount)) pump_real.cuDeviceGetCount(&devices);
  region->header.client_pid = (uint32_t)getpid();
  region->header.client_state = PUMP_CLIENT_RUNNING;
  region->header.device_count =
      devices < PUMP_MAX_DEVICES ? (uint32_t)devices : PUMP_MAX_DEVICES;
  region->header.next_seq = 1;
  const char *record = getenv("PUMP_RECORD");
  pump_recording = record != NULL && record[0] != '\0';
  region->header.recording = pump_recording;
  pump_shm = region;
  pump_range_reset();
  pump_plain_reset();
  pump_physical_reset();
  pump_rules_reset();
  pump_pool_reset();
  pump_mapped_reset();
  pump_blocks_reset();
  pump_device_reset();
  pump_contexts_forget();
  pump_primaries_reset();
  pump_function_reset();
  pump_params_reset();
  pump_code_reset();
  pump_peer_reset();
  pump_tensor_reset();
  pump_graph_execs_reset();
  pump_variables_reset();
  pump_metadata_void();
  if (!handlers_set)
    handlers_set = __register_atfork(NULL, NULL, fork_child, __dso_handle) == 0 &&
                   on_exit(notice_unseen, NULL) == 0;
  pump_job_note("client\n");
  pump_threads_start();
  __atomic_store_n(&pump_off, false, __ATOMIC_RELEASE);
}

CUresult cuInit(unsigned int flags) {
  CUresult result = pump_real.cuInit(flags);
  if (pump_reentry_depth != 0 || pump_disabled()) return result;
  int saved = errno;
  if (result != CUDA_SUCCESS) {
    pump_job_init_failed((int)result);
    errno = saved;
    return result;
  }
  pump_enter();
  pthread_mutex_lock(&start_lock);
  bool begins = !ever_started;
  if (!started && pump_jobs_serve()) start();
  begins &= started;
  pthread_mutex_unlock(&start_lock);
  if (begins) pump_warn_of_uncalled_hooks();
  pump_leave();
  errno = saved;
  return result;
}

/* Notices, as the last chance, that even cuInit did not pass pump, for instance in a
 * library loaded with RTLD_DEEPBIND, which uses libc's own dlsym. */
static void notice_bypass(int status) {
  if (!pump_resolve() || !PUMP_HAS(cuDeviceGetCount)) return;
  int devices;
  CUresult result = pump_real.cuDeviceGetCount(&devices);
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_DEINITIALIZED) return;
  say_bypassed(status);
}

static void job_end(int status, void *nothing) {
  (void)nothing;
  if (!ever_started) notice_bypass(status);
  pump_job_flush();
  pump_job_end(status);
}

/* Registers a handler while the process ends. The C library still calls it, with the
 * status of exit(), which a destructor does not get. */
__attribute__((destructor)) static void process_end(void) {
  if (pump_disabled() || getenv("PUMP_SOCKET") == NULL) return;
  if (on_exit == NULL || on_exit(job_end, NULL) != 0) job_end(0, NULL);
}
