/* init.c - cuInit, its environment variables, fork and exit.
 *
 * Without PUMP_VIRTUAL_PROFILE there is no device. pump-run --virtual is the only entry,
 * so modelled numbers are never mistaken for real ones. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"

#define MAX_PROFILE_BYTES 65536

static pthread_mutex_t init_lock = PTHREAD_MUTEX_INITIALIZER;

/* The child of a fork has the parent's memory without its threads. An initialised driver
 * is unusable in the child; an uninitialised one starts fresh. */
static void forked_prepare(void) {
  pthread_mutex_lock(&init_lock);
}
static void forked_parent(void) {
  pthread_mutex_unlock(&init_lock);
}
static void forked_child(void) {
  if (vd.state != VD_COLD) __atomic_store_n(&vd.state, VD_FORKED, __ATOMIC_RELEASE);
  memset(vd_call_counts, 0, sizeof vd_call_counts);
  memset(&vd_thread, 0, sizeof vd_thread);
  pthread_mutex_unlock(&init_lock);
}

__attribute__((constructor)) static void loaded(void) {
  pthread_atfork(forked_prepare, forked_parent, forked_child);
}

__attribute__((destructor)) static void unloaded(void) {
  if (__atomic_load_n(&vd.state, __ATOMIC_ACQUIRE) != VD_READY) return;
  vd_report_write();
  __atomic_store_n(&vd.state, VD_EXITED, __ATOMIC_RELEASE);
  if (vd.shared && vd_lock_at_exit()) vd_card_leave_locked();
}

static bool entry_is(const char *entry, size_t length, const char *expected) {
  return length == strlen(expected) && memcmp(entry, expected, length) == 0;
}

/* Returns 1: a key of the driver. 0: a key of the model. -1: an invalid value. */
static int take_own_key(const char *entry, size_t length) {
  if (strncmp(entry, "mode=", 5) == 0) {
    vd.mode = entry_is(entry, length, "mode=compute") ? VD_COMPUTE : VD_TIMING;
    if (vd.mode == VD_COMPUTE || entry_is(entry, length, "mode=timing")) return 1;
    vd_error("profile: mode must be timing or compute, not \"%.*s\"", (int)length - 5,
             entry + 5);
    return -1;
  }
  if (strncmp(entry, "copies=", 7) == 0) {
    vd.copies_modelled = entry_is(entry, length, "copies=modelled");
    if (vd.copies_modelled || entry_is(entry, length, "copies=real")) return 1;
    vd_error("profile: copies must be real or modelled, not \"%.*s\"", (int)length - 7,
             entry + 7);
    return -1;
  }
  if (strncmp(entry, "locks=", 6) == 0) {
    static const char *const names[] = {"locks=none", "locks=context", "locks=space",
                                        "locks=both", "locks=lazy"};
    for (vd.locks = 0; vd.locks <= VD_LOCK_LAZY; vd.locks++) /* GPU_LOCK_* */
      if (entry_is(entry, length, names[vd.locks])) return 1;
    vd_error("profile: locks must be none, context, space, both or lazy, not \"%.*s\"",
             (int)length - 6, entry + 6);
    return -1;
  }
  if (strncmp(entry, "queues=", 7) == 0) {
    vd.queues_shared = entry_is(entry, length, "queues=shared");
    if (vd.queues_shared || entry_is(entry, length, "queues=apart")) return 1;
    vd_error("profile: queues must be apart or shared, not \"%.*s\"", (int)length - 7,
             entry + 7);
    return -1;
  }
  if (strncmp(entry, "hash=", 5) == 0) {
    size_t digits = sizeof vd.profile_hash - 1;
    if (length == 5 + digits && strspn(entry + 5, "0123456789abcdef") >= digits) {
      memcpy(vd.profile_hash, entry + 5, digits);
      return 1;
    }
    vd_error("profile: hash must be %zu hexadecimal digits, not \"%.*s\"", digits,
             (int)length - 5, entry + 5);
    return -1;
  }
  if (strncmp(entry, "card=", 5) == 0) {
    if (length == 13 && strspn(entry + 5, "0123456789abcdef") >= 8) {
      vd.card_number = (uint32_t)strtoul(entry + 5, NULL, 16);
      return 1;
    }
    vd_error("profile: card must be 8 hexadecimal digits, not \"%.*s\"", (int)length - 5,
             entry + 5);
    return -1;
  }
  if (strncmp(entry, "shared=", 7) == 0) {
    if (vd_card_name_set(entry + 7, length - 7)) return 1;
    vd_error(
        "profile: shared must be a name of up to 48 letters, digits, '-', '_' and '.', "
        "not \"%.*s\"",
        (int)length - 7, entry + 7);
    return -1;
  }
  return 0;
}

/* Refuses settings that exclude each other. A shared GPU excludes settings that affect
 * only one process. */
static int check_own_keys(void) {
  const char *events = getenv("PUMP_VIRTUAL_EVENTS");
  if (vd.copies_modelled && vd.mode != VD_TIMING) {
    vd_error(
        "profile: mode=compute needs copies=real, because copies=modelled moves no data");
    return -1;
  }
  if (vd_card_wanted() && vd.profile_hash[0] == 0) {
    vd_error(
        "profile: a shared card needs a profile hash; start the program with pump-run");
    return -1;
  }
  if (vd_card_wanted() && vd.locks != 0) {
    vd_error("profile: a shared card cannot have locks, which belong to one process");
    return -1;
  }
  if (vd_card_wanted() && events != NULL && *events != 0) {
    vd_error("profile: PUMP_VIRTUAL_EVENTS does not work with a shared card; leave one "
             "of the two out");
    return -1;
  }
  return 0;
}

/* Applies the driver's own keys; `rest` gets the others, the model's profile. */
static int split_own_keys(const char *text, char *rest) {
  char *end = rest;
  while (*text) {
    size_t length = strcspn(text, ";");
    int own = take_own_key(text, length);
    if (own < 0) return -1;
    if (own == 0 && length > 0) {
      if (end != rest) *end++ = ';';
      memcpy(end, text, length);
      end += length;
    }
    text += length + (text[length] == ';');
  }
  *end = 0;
  return check_own_keys();
}

static int read_profile(void) {
  const char *text = getenv("PUMP_VIRTUAL_PROFILE");
  char error[256] = "";
  if (text == NULL || *text == 0) {
    vd_error("no profile: this libcuda.so.1 models a GPU; start the program with: pump-run "
             "--virtual PROFILE COMMAND");
    return -1;
  }
  size_t length = strlen(text);
  if (length > MAX_PROFILE_BYTES) {
    vd_error("profile: PUMP_VIRTUAL_PROFILE exceeds %d bytes", MAX_PROFILE_BYTES);
    return -1;
  }
  char *rest = malloc(length + 1);
  if (rest == NULL) return -1;
  int result = split_own_keys(text, rest);
  if (result == 0 && uvm_profile_parse(rest, &vd.profile, error, sizeof error) != 0) {
    vd_error("profile: %s", error);
    result = -1;
  }
  free(rest);
  return result;
}

/* Call it with init_lock. Reads once: another thread may be reading the profile. */
static int profile_read_locked(void) {
  static bool is_read;
  if (!is_read) is_read = read_profile() == 0;
  return is_read ? 0 : -1;
}

int vd_profile_read(void) {
  pthread_mutex_lock(&init_lock);
  int result = profile_read_locked();
  pthread_mutex_unlock(&init_lock);
  return result;
}

static int read_discard_kind(void) {
  const char *text = getenv("PUMP_VIRTUAL_DISCARD");
  vd.discard_kind = GPU_DISCARD_UNMAP;
  if (text == NULL || strcmp(text, "unmap") == 0) return 0;
  if (strcmp(text, "keep") == 0) {
    vd.discard_kind = GPU_DISCARD_KEEP;
    return 0;
  }
  vd_error("PUMP_VIRTUAL_DISCARD must be unmap or keep, not \"%s\"", text);
  return -1;
}

/* Reads CUDA_DEVICE_MAX_CONNECTIONS: clamps it, and ignores a value that is not a
 * number. */
static void read_connections(void) {
  const char *text = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  char *end = NULL;
  long connections = text == NULL ? 0 : strtol(text, &end, 10);
  if (text == NULL || end == text || *end != 0) return;
  if (connections < 1) connections = 1;
  if (connections > GPU_CONNECTIONS_MOST) connections = GPU_CONNECTIONS_MOST;
  vd_lock();
  gpu_connections(vd.engine, (uint32_t)connections);
  vd_unlock();
}

static CUresult initialise(void) {
  if (profile_read_locked() != 0) return CUDA_ERROR_NO_DEVICE;
  if (!vd_device_visible()) {
    vd_error("CUDA_VISIBLE_DEVICES=%s hides the virtual GPU, which is device 0",
             getenv("CUDA_VISIBLE_DEVICES"));
    return CUDA_ERROR_NO_DEVICE;
  }
  if (read_discard_kind() != 0 || vd_inject_setup() != 0) return CUDA_ERROR_INVALID_VALUE;
  vd_host_kernels_open();
  vd.primary = (struct vd_context){.magic = VD_CONTEXT, .primary = true, .id = 1};
  vd.contexts[0] = &vd.primary;
  vd.next_id = 2;
  CUresult result = vd_streams_start();
  if (result == CUDA_SUCCESS) result = vd_timeline_start();
  if (result != CUDA_SUCCESS) return result;
  read_connections();
  const char *loading = getenv("CUDA_MODULE_LOADING");
  if (loading != NULL && strcmp(loading, "EAGER") == 0) vd.locks &= ~VD_LOCK_LAZY;
  if (vd.locks != 0) gpu_locks(vd.engine, vd.locks & ~VD_LOCK_LAZY);
  __atomic_store_n(&vd.state, VD_READY, __ATOMIC_RELEASE);
  vd_log("device \"%s\" (%s), %.1f GiB, %s mode", vd.profile.device_name, vd.profile.name,
         (double)vd.profile.memory_bytes / (1 << 30),
         vd.mode == VD_COMPUTE ? "compute" : "timing");
  return CUDA_SUCCESS;
}

CUresult vd_cuInit(unsigned int flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&init_lock);
  int state = __atomic_load_n(&vd.state, __ATOMIC_ACQUIRE);
  CUresult result = CUDA_SUCCESS;
  if (state == VD_COLD) result = initialise();
  if (state == VD_FORKED) result = CUDA_ERROR_NOT_INITIALIZED;
  if (state == VD_EXITED) result = CUDA_ERROR_DEINITIALIZED;
  pthread_mutex_unlock(&init_lock);
  return result;
}

CUresult vd_cuDriverGetVersion(int *version) {
  if (version == NULL) return CUDA_ERROR_INVALID_VALUE;
  *version = vd_version();
  return CUDA_SUCCESS;
}
