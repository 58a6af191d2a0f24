/* images.c - parameter layouts of kernels, read from loaded code if the driver does not
 * report them (before CUDA 12.4).
 *
 * DESIGN. An image is read when the program loads it. The parsers in shim/driver do not
 * trust its bytes, and only layouts are stored. A handle gets its layout, a copy that
 * outlives the image, when the program looks the function up by name. A handle reused for
 * another function gets the new layout. Launches use demand paging if the image is for
 * another GPU, has an unknown format, or does not fit into the tables (launch_params.c).
 *
 * Libraries that decompress images (LZ4, zstd) are found by the process's search path.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "record.h"
#include "shim/base/key_table.h"
#include "shim/driver/image.h"
#include "shim/driver/image_source.h"
#include "shim/driver/resolve.h"

#define DRIVER_TELLS 12040
#define COMPUTE_MAJOR ((CUdevice_attribute)75)
#define COMPUTE_MINOR ((CUdevice_attribute)76)

struct loaded {
  uint64_t handle;  /* the key: module or library */
  uint64_t library; /* for a library's module: the library, which has the image; else 0 */
  struct image *image;
};

struct known {
  uint64_t handle; /* the key: function or kernel */
  struct image_parameter *parameters;
  uint32_t count;
};

/* All change under images_lock, except `pump_images_wanted`, which is set at the start. */
bool pump_images_wanted;
static struct loaded loaded_places[1u << 14];
static struct known known_places[1u << 16];
static struct pump_table loadeds = PUMP_TABLE(loaded_places);
static struct pump_table knowns = PUMP_TABLE(known_places);
static pthread_mutex_t images_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- images --------------------------------------------------------------- */

static void forget(uint64_t handle) {
  pthread_mutex_lock(&images_lock);
  struct loaded *loaded = pump_table_find(&loadeds, handle);
  if (loaded != NULL) {
    image_free(loaded->image);
    pump_table_take_out(&loadeds, loaded);
  }
  pthread_mutex_unlock(&images_lock);
}

/* Stores an image (may be NULL), or a reference to a library's image, by the handle. */
void pump_image_keep(uint64_t handle, uint64_t library, struct image *image) {
  forget(handle); /* an earlier owner of the handle ended with its context */
  pthread_mutex_lock(&images_lock);
  struct loaded *loaded = pump_table_add(&loadeds, handle);
  if (loaded != NULL) *loaded = (struct loaded){handle, library, image};
  pthread_mutex_unlock(&images_lock);
  if (loaded == NULL) image_free(image);
}

/* Returns the GPU's compute capability. Without a context, uses the first device. */
static int compute_capability(void) {
  CUdevice device = 0;
  int major = 0, minor = 0;
  if (PUMP_HAS(cuCtxGetDevice) && pump_real.cuCtxGetDevice(&device) != CUDA_SUCCESS)
    device = 0;
  if (!PUMP_HAS(cuDeviceGetAttribute)) return 0;
  pump_real.cuDeviceGetAttribute(&major, COMPUTE_MAJOR, device);
  pump_real.cuDeviceGetAttribute(&minor, COMPUTE_MINOR, device);
  return 10 * major + minor;
}

void pump_image_read(uint64_t handle, const void *bytes, size_t length_bytes) {
  struct image *image = NULL;
  char error[160] = "";
  int saved = errno;
  pump_enter();
  char *pending = pump_dl_begin(); /* it may load a decompression library */
  int result =
      image_parse(bytes, length_bytes, compute_capability(), &image, error, sizeof error);
  pump_dl_end(pending);
  pump_leave();
  if (result == CUDA_SUCCESS)
    pump_image_keep(handle, 0, image);
  else
    pump_log(PUMP_LOG_INFO, "the launches of a module run on demand paging: %s", error);
  errno = saved;
}

/* Reads the file. A mapping would fault if another process truncated the file. */
void pump_image_file(uint64_t handle, const char *path) {
  struct stat status;
  int saved = errno;
  int file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (file >= 0 && fstat(file, &status) == 0 && S_ISREG(status.st_mode) &&
      status.st_size > 0 && (uint64_t)status.st_size <= IMAGE_MOST_BYTES) {
    size_t bytes = (size_t)status.st_size, got = 0;
    uint8_t *content = malloc(bytes);
    ssize_t part = 1;
    while (content != NULL && got < bytes && part > 0) {
      part = read(file, content + got, bytes - got);
      got += part > 0 ? (size_t)part : 0;
    }
    if (got == bytes) pump_image_read(handle, content, bytes);
    free(content);
  }
  if (file >= 0) close(file);
  errno = saved;
}

/* ---- functions ------------------------------------------------------------ */

/* Stores a function's layout. Takes ownership of `parameters`. */
static void know(uint64_t handle, struct image_parameter *parameters, uint32_t count) {
  struct known *known = pump_table_find(&knowns, handle);
  if (known != NULL)
    free(known->parameters);
  else
    known = pump_table_add(&knowns, handle);
  if (known == NULL) {
    free(parameters);
    return;
  }
  known->parameters = parameters;
  known->count = count;
}

static struct image_parameter *copy_of(const struct image_parameter *from, uint32_t count) {
  size_t bytes = count * sizeof *from;
  struct image_parameter *copy = malloc(bytes == 0 ? 1 : bytes);
  if (copy != NULL && bytes != 0) memcpy(copy, from, bytes);
  return copy;
}

static const struct image *image_of(uint64_t handle) {
  const struct loaded *loaded = pump_table_find(&loadeds, handle);
  if (loaded != NULL && loaded->library != 0)
    loaded = pump_table_find(&loadeds, loaded->library);
  return loaded == NULL ? NULL : loaded->image;
}

void pump_image_remember_parameters(uint64_t function, uint64_t module, const char *name) {
  pthread_mutex_lock(&images_lock);
  const struct image *image = image_of(module);
  for (size_t i = 0; image != NULL && i < image->kernel_count; i++) {
    const struct image_kernel *kernel = &image->kernels[i];
    if (strcmp(kernel->name, name) != 0) continue;
    struct image_parameter *copy = copy_of(kernel->parameters, kernel->parameter_count);
    if (copy != NULL) know(function, copy, kernel->parameter_count);
    break;
  }
  pthread_mutex_unlock(&images_lock);
}

void pump_image_same(uint64_t function, uint64_t kernel) {
  pthread_mutex_lock(&images_lock);
  const struct known *from = pump_table_find(&knowns, kernel);
  struct image_parameter *copy =
      from == NULL || function == kernel ? NULL : copy_of(from->parameters, from->count);
  if (copy != NULL) know(function, copy, from->count);
  pthread_mutex_unlock(&images_lock);
}

CUresult pump_image_parameter(CUfunction function, size_t index, size_t *offset,
                              size_t *bytes) {
  CUresult result = CUDA_ERROR_NOT_FOUND;
  if (!pump_images_wanted) return result;
  pthread_mutex_lock(&images_lock);
  const struct known *known = pump_table_find(&knowns, pump_image_key(function));
  if (known != NULL && index < known->count) {
    *offset = known->parameters[index].offset_bytes;
    *bytes = known->parameters[index].length_bytes;
    result = CUDA_SUCCESS;
  } else if (known != NULL) {
    result = CUDA_ERROR_INVALID_VALUE; /* as the driver answers after the last parameter */
  }
  pthread_mutex_unlock(&images_lock);
  return result;
}

void pump_image_forget(const void *handle) {
  if (pump_images_wanted) forget(pump_image_key(handle));
}

void pump_images_reset(void) {
  int version = 0;
  pthread_mutex_init(&images_lock, NULL);
  pump_table_reset(&loadeds); /* entries from before a fork stay allocated */
  pump_table_reset(&knowns);
  if (PUMP_HAS(cuDriverGetVersion)) pump_real.cuDriverGetVersion(&version);
  pump_images_wanted = version < DRIVER_TELLS || !PUMP_HAS(cuFuncGetParamInfo);
}
