/* cudart_register.c - registrations of nvcc's start-up code: fat binaries, and kernels
 * and variables by the addresses of their host counterparts.
 *
 * A fat binary is loaded into the driver at its first use. If an address is registered
 * again (a library closed and opened), its entry takes the new binary. Entries are never
 * removed, and nothing is unloaded: at exit the driver may be gone already.
 */
#include <pthread.h>
#include <stdlib.h>

#include "cudart.h"

struct binary {
  const void *image;
  CUlibrary library; /* NULL: not loaded */
  struct entry *managed;
};

struct entry {
  const void *host; /* NULL: free */
  const char *name;
  struct binary *binary;
  CUkernel kernel;        /* NULL: not yet looked up */
  void **managed_address; /* for a managed variable */
  struct entry *next_managed;
};

/* Open addressing by host address, at most half full. */
static struct entry **table;
static size_t table_count, table_room;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static size_t slot_of(const void *host, size_t room) {
  return (size_t)(((uintptr_t)host >> 3) * 0x9e3779b97f4a7c15u) & (room - 1);
}

static struct entry *find_locked(const void *host) {
  if (table_room == 0) return NULL;
  for (size_t i = slot_of(host, table_room);; i = (i + 1) & (table_room - 1)) {
    if (table[i] == NULL) return NULL;
    if (table[i]->host == host) return table[i];
  }
}

static bool grow_locked(void) {
  size_t room = table_room ? 2 * table_room : 1024;
  struct entry **larger = calloc(room, sizeof(struct entry *));
  if (larger == NULL) return false;
  for (size_t i = 0; i < table_room; i++) {
    if (table[i] == NULL) continue;
    size_t slot = slot_of(table[i]->host, room);
    while (larger[slot] != NULL) slot = (slot + 1) & (room - 1);
    larger[slot] = table[i];
  }
  free(table);
  table = larger;
  table_room = room;
  return true;
}

static struct entry *add(struct binary *binary, const void *host, const char *name) {
  pthread_mutex_lock(&lock);
  struct entry *entry = find_locked(host);
  if (entry == NULL && (2 * (table_count + 1) <= table_room || grow_locked()) &&
      (entry = calloc(1, sizeof *entry)) != NULL) {
    size_t slot = slot_of(host, table_room);
    while (table[slot] != NULL) slot = (slot + 1) & (table_room - 1);
    table[slot] = entry;
    table_count++;
  }
  if (entry != NULL) *entry = (struct entry){.host = host, .name = name, .binary = binary};
  pthread_mutex_unlock(&lock);
  return entry;
}

/* Loads the binary; gives the program the addresses of its managed variables. */
static cudaError_t load_locked(struct binary *binary) {
  if (binary->library != NULL) return cudaSuccess;
  cudaError_t error = rt_driver.cuLibraryLoadData(&binary->library, binary->image, NULL,
                                                  NULL, 0, NULL, NULL, 0);
  if (error != cudaSuccess) return error;
  for (struct entry *v = binary->managed; v != NULL; v = v->next_managed) {
    CUdeviceptr address;
    size_t length;
    error = rt_driver.cuLibraryGetManaged(&address, &length, binary->library, v->name);
    if (error != cudaSuccess) return error;
    *v->managed_address = rt_pointer(address);
  }
  return cudaSuccess;
}

cudaError_t rt_kernel_of(const void *function, CUkernel *out) {
  pthread_mutex_lock(&lock);
  struct entry *entry = find_locked(function);
  cudaError_t error = entry != NULL ? cudaSuccess : cudaErrorInvalidDeviceFunction;
  if (error == cudaSuccess && entry->kernel == NULL) {
    error = load_locked(entry->binary);
    if (error == cudaSuccess)
      error =
          rt_driver.cuLibraryGetKernel(&entry->kernel, entry->binary->library, entry->name);
    if (error == CUDA_ERROR_NOT_FOUND) error = cudaErrorInvalidDeviceFunction;
  }
  if (error == cudaSuccess) *out = entry->kernel;
  pthread_mutex_unlock(&lock);
  return error;
}

void *rt_function_of(CUkernel kernel) {
  void *function = kernel;
  pthread_mutex_lock(&lock);
  for (size_t i = 0; i < table_room; i++)
    if (table[i] != NULL && table[i]->kernel == kernel)
      function = rt_pointer(rt_address(table[i]->host));
  pthread_mutex_unlock(&lock);
  return function;
}

cudaError_t rt_variable_of(const void *variable, CUdeviceptr *out, size_t *length_bytes) {
  size_t length = 0;
  pthread_mutex_lock(&lock);
  struct entry *entry = find_locked(variable);
  cudaError_t error = entry != NULL ? load_locked(entry->binary) : cudaErrorInvalidSymbol;
  if (error == cudaSuccess)
    error = entry->managed_address != NULL
                ? rt_driver.cuLibraryGetManaged(out, &length, entry->binary->library,
                                                entry->name)
                : rt_driver.cuLibraryGetGlobal(out, &length, entry->binary->library,
                                               entry->name);
  pthread_mutex_unlock(&lock);
  if (length_bytes != NULL) *length_bytes = length;
  return error == CUDA_ERROR_NOT_FOUND ? cudaErrorInvalidSymbol : error;
}

RT_FUNCTION(void **, __cudaRegisterFatBinary, (void *image)) {
  struct binary *binary = calloc(1, sizeof *binary);
  if (binary != NULL) binary->image = image;
  return (void **)(void *)binary;
}

RT_FUNCTION(void, __cudaRegisterFatBinaryEnd, (void **handle)) {
  (void)handle;
}

RT_FUNCTION(void, __cudaUnregisterFatBinary, (void **handle)) {
  (void)handle;
}

RT_FUNCTION(void, __cudaRegisterFunction,
            (void **handle, const char *host, char *device_function, const char *name,
             int thread_limit, uint3 *thread, uint3 *block, dim3 *block_dimension,
             dim3 *grid_dimension, int *warp_size)) {
  (void)device_function, (void)thread_limit, (void)thread, (void)block;
  (void)block_dimension, (void)grid_dimension, (void)warp_size;
  if (handle != NULL) add((struct binary *)(void *)handle, host, name);
}

RT_FUNCTION(void, __cudaRegisterVar,
            (void **handle, char *host, char *device_address, const char *name,
             int external, size_t length_bytes, int constant, int global)) {
  (void)device_address, (void)external, (void)length_bytes, (void)constant, (void)global;
  if (handle != NULL) add((struct binary *)(void *)handle, host, name);
}

RT_FUNCTION(void, __cudaRegisterManagedVar,
            (void **handle, void **host, char *device_address, const char *name,
             int external, size_t length_bytes, int constant, int global)) {
  struct binary *binary = (struct binary *)(void *)handle;
  (void)device_address, (void)external, (void)length_bytes, (void)constant, (void)global;
  struct entry *entry = binary != NULL ? add(binary, host, name) : NULL;
  if (entry == NULL) return;
  entry->managed_address = host;
  entry->next_managed = binary->managed;
  binary->managed = entry;
}

/* Called before the program's first use of a managed variable; returns 1 on success. */
RT_FUNCTION(char, __cudaInitModule, (void **handle)) {
  cudaError_t error = handle == NULL ? cudaErrorInvalidValue : rt_enter();
  if (error == cudaSuccess) {
    pthread_mutex_lock(&lock);
    error = load_locked((struct binary *)(void *)handle);
    pthread_mutex_unlock(&lock);
  }
  return rt_keep(error) == cudaSuccess;
}
