/* code.h - modules, libraries, functions and their launches. */
#ifndef PUMP_VIRTUAL_CODE_H
#define PUMP_VIRTUAL_CODE_H

#include "lab/driver/memory/memory.h"
#include "lab/image/image.h"

#define VD_FUNCTION_ATTRIBUTES 16

/* Memory that a launch touches, as its host library reports (touch.c). */
struct vd_touch {
  uint64_t address, length_bytes;
};
typedef unsigned (*vd_touch_fn)(void **params, const unsigned grid[3],
                                const unsigned block[3], struct vd_touch *out,
                                unsigned most);
typedef int (*vd_touch_any_fn)(const char *kernel, const void *parameters,
                               unsigned parameter_bytes, const unsigned grid[3],
                               const unsigned block[3], struct vd_touch *out,
                               unsigned most);
typedef double (*vd_cycles_fn)(void **params, const unsigned grid[3],
                               const unsigned block[3]);

/* A CUfunction or a CUkernel. */
struct vd_function {
  uint32_t magic;
  bool is_kernel; /* true: belongs to `library`; false: to `module` */
  struct vd_module *module;
  struct vd_library *library;
  const struct image_kernel *kernel;
  int attributes[VD_FUNCTION_ATTRIBUTES];
  uint64_t set_attributes; /* one bit for each attribute that the program has set */
  void (*host)(void **params, const unsigned grid[3], const unsigned block[3]);
  vd_touch_fn touches; /* NULL: touches everything that its pointers reach */
  vd_cycles_fn cycles; /* NULL: takes the time of its bytes */
  uint64_t *count;     /* counts launches of all kernels of this name */
  bool loaded;         /* launched before */
};

struct vd_kernel_count {
  struct vd_kernel_count *next;
  uint64_t launches;
  char name[];
};
extern struct vd_kernel_count *vd_kernel_counts;

/* A loaded image (code.c). */
struct vd_code {
  struct image *image;
  struct vd_function **functions; /* one for each kernel of the image */
};

struct vd_module {
  uint32_t magic;
  struct vd_code code;
  struct vd_library *library;     /* owner of the image if not NULL */
  struct vd_context *context;     /* the module ends with it; NULL for a library's */
  struct vd_module *next, **link; /* list of all modules without a library */
  struct vd_memory **globals;     /* one for each global; created on first use */
};

struct vd_library {
  uint32_t magic;
  struct vd_code code;
  struct vd_module *module; /* created on first use */
};

struct vd_kernel_call {
  struct vd_function *function;
  unsigned grid[3], block[3], shared_bytes;
  size_t parameter_bytes;
  uint8_t *parameters; /* the parameter buffer */
};

_Static_assert(sizeof(struct vd_kernel_call) <= VD_ACTION_BYTES, "it is an action's");

/* launch.c */
/* Checks a launch and copies its parameters into a buffer that the caller must free. */
CUresult vd_kernel_call_new(CUfunction function, const unsigned grid[3],
                            const unsigned block[3], unsigned shared_bytes,
                            void **parameters, void **extra, struct vd_kernel_call *out);
CUresult vd_kernel_submit_locked(struct vd_stream *stream,
                                 const struct vd_kernel_call *call);

/* function.c */
struct vd_function *vd_function_new(const struct image_kernel *kernel,
                                    struct vd_module *module, struct vd_library *library);
void vd_host_kernels_open(void);
extern vd_touch_any_fn vd_touch_any; /* from the first library that has it, or NULL */

/* touch.c */
struct vd_touched {
  struct vd_touch *parts; /* NULL: not reported */
  uint32_t count;
  uint64_t least_ns; /* least computing time; 0: not reported */
};
void vd_touches_ask(const struct vd_function *function, const unsigned grid[3],
                    const unsigned block[3], uint8_t *buffer, struct vd_touched *out);
struct gpu_use *vd_touches_uses_locked(const struct vd_touched *touched, uint32_t *count,
                                       uint64_t *length_bytes);

/* code.c: `out` points to a CUfunction or CUkernel. code NULL:
 * CUDA_ERROR_INVALID_HANDLE. */
bool vd_code_open(struct vd_code *code, struct image *image, struct vd_module *module,
                  struct vd_library *library); /* false: out of memory; close in any case */
void vd_code_close(struct vd_code *code);
CUresult vd_code_find(const struct vd_code *code, const char *name, void *out);
CUresult vd_code_count(const struct vd_code *code, unsigned int *count);
CUresult vd_code_enumerate(const struct vd_code *code, void *out, unsigned int count);

/* module.c */
CUresult vd_image_load(const void *image, size_t length_bytes, struct image **out);
CUresult vd_image_load_file(const char *path, struct image **out);
CUresult vd_module_from(struct image *image, struct vd_library *library,
                        struct vd_module **out);
void vd_module_free_locked(struct vd_module *module);
void vd_modules_drop_context_locked(const struct vd_context *context);
CUresult vd_module_global_locked(struct vd_module *module, const char *name, bool managed,
                                 CUdeviceptr *address, size_t *length_bytes);

/* Functions and modules are objects (base/object.c). */
_Static_assert(sizeof(struct vd_function) <= VD_OBJECT_BYTES, "function");
_Static_assert(sizeof(struct vd_module) <= VD_OBJECT_BYTES, "module");

#endif
