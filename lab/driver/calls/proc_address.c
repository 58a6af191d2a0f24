/* proc_address.c - cuGetProcAddress: name, version and flags to an address.
 *
 * Returns the newest ABI of a name that is not newer than the requested version. Unknown
 * names are logged, because they are the usual reason why a program fails with this
 * driver. */
#include <dlfcn.h>
#include <execinfo.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"

/* Since CUDA 12.0, cuda.h defines cuGraphInstantiate as cuGraphInstantiateWithFlags. */
static const struct {
  const char *name;
  int version;
  const char *symbol;
} renamed[] = {{"cuGraphInstantiate", 12000, "cuGraphInstantiateWithFlags"}};

/* Returns the newest usable row among `rows` and `best`. */
static const struct vd_export *best_of(const struct vd_export *best,
                                       const struct vd_export *rows, size_t count,
                                       const char *name, int version, bool *known) {
  for (size_t i = 0; i < count; i++) {
    const struct vd_export *row = &rows[i];
    if (strcmp(row->name, name) != 0) continue;
    *known = true;
    if (row->version <= version && row->version <= vd_version() &&
        (best == NULL || row->version > best->version))
      best = row;
  }
  return best;
}

static const struct vd_export *find(const char *name, int version, bool *known) {
  for (size_t i = 0; i < sizeof renamed / sizeof *renamed; i++)
    if (version >= renamed[i].version && strcmp(renamed[i].name, name) == 0)
      name = renamed[i].symbol;
  const struct vd_export *best = best_of(NULL, vd_exports, VD_CALLS, name, version, known);
  return best_of(best, vd_lacking, vd_lacking_count, name, version, known);
}

CUresult vd_cuGetProcAddress_v2(const char *name, void **function, int version,
                                uint64_t flags, int *status) {
  bool known = false;
  if (function != NULL) *function = NULL;
  if (status != NULL) *status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  if (name == NULL || function == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (flags > CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
    return CUDA_ERROR_INVALID_VALUE;
  const struct vd_export *row = find(name, version, &known);
  if (row == NULL) {
    if (known && status != NULL) *status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
    vd_log("cuGetProcAddress: found no \"%s\" for version %d%s", name, version,
           known ? " (newer versions exist)" : "");
    return CUDA_ERROR_NOT_FOUND;
  }
  bool per_thread = flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  *function = per_thread && row->twin != NULL ? row->twin : row->function;
  if (status != NULL) *status = CU_GET_PROC_ADDRESS_SUCCESS;
  return CUDA_SUCCESS;
}

CUresult vd_cuGetProcAddress(const char *name, void **function, int version,
                             uint64_t flags) {
  return vd_cuGetProcAddress_v2(name, function, version, flags, NULL);
}

/* Returns whether NVRTC is among the callers: it asks for private tables too, and
 * compiles without them. The shim may be in between, so one return address is not
 * enough. */
static bool called_by_nvrtc(void) {
  void *callers[6];
  Dl_info info;
  int count = backtrace(callers, sizeof callers / sizeof callers[0]);
  for (int i = 0; i < count; i++)
    if (dladdr(callers[i], &info) != 0 && strstr(info.dli_fname, "/libnvrtc.") != NULL)
      return true;
  return false;
}

/* Prints once why the program will fail: CUDA's runtime only reports an "error 500". */
static void explain_private_tables(void) {
  static bool said;
  if (called_by_nvrtc() || __atomic_exchange_n(&said, true, __ATOMIC_RELAXED)) return;
  const char *preloaded = getenv("LD_PRELOAD");
  bool has_stand_ins = preloaded != NULL && strstr(preloaded, "/libcudart.so") != NULL;
  vd_error("NVIDIA's CUDA runtime works only with NVIDIA's driver; %s",
           has_stand_ins ? "one that is linked statically needs a real GPU"
                         : "start the program with pump-run --virtual PROFILE");
}

/* Private tables authenticate the driver; this driver never has any (see README.md). */
CUresult vd_cuGetExportTable(const void **table, const CUuuid *id) {
  (void)id;
  explain_private_tables();
  if (table != NULL) *table = NULL;
  return CUDA_ERROR_NOT_FOUND;
}
