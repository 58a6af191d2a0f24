/* nvml.h - NVML types that libnvidia-ml.so.1 of the virtual GPU uses: names, layouts and
 * values of NVIDIA's public header. tests/virtual compares the layouts with
 * nvidia-ml-py's. */
#ifndef PUMP_VIRTUAL_NVML_H
#define PUMP_VIRTUAL_NVML_H

#include "lab/driver/calls/driver_card.h"

typedef int nvmlReturn_t;
typedef struct nvml_device *nvmlDevice_t;

enum {
  NVML_SUCCESS = 0,
  NVML_ERROR_UNINITIALIZED = 1,
  NVML_ERROR_INVALID_ARGUMENT = 2,
  NVML_ERROR_NOT_SUPPORTED = 3,
  NVML_ERROR_NOT_FOUND = 6,
  NVML_ERROR_INSUFFICIENT_SIZE = 7,
  NVML_ERROR_DRIVER_NOT_LOADED = 9,
  NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
};

typedef struct {
  char busIdLegacy[16];
  unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
  char busId[32];
} nvmlPciInfo_t;

typedef struct {
  char busId[16];
  unsigned domain, bus, device, pciDeviceId, pciSubSystemId, reserved[4];
} nvmlPciInfo_v2_t;

typedef struct {
  unsigned long long total, free, used;
} nvmlMemory_t;

typedef struct {
  unsigned version;
  unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;
#define NVML_MEMORY_V2 (sizeof(nvmlMemory_v2_t) | 2u << 24)

typedef struct {
  unsigned pid;
  unsigned long long usedGpuMemory;
} nvmlProcessInfo_v1_t;

typedef struct {
  unsigned pid;
  unsigned long long usedGpuMemory;
  unsigned gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_t;

#define NVML_EXPORT __attribute__((visibility("default")))
/* Declares and defines an exported function, because NVIDIA's header is not used. */
#define NVML(name, ...)                                                                    \
  NVML_EXPORT nvmlReturn_t name(__VA_ARGS__);                                              \
  nvmlReturn_t name(__VA_ARGS__)

/* nvml.c: reads the GPU's current state; returns the error if that is not possible. */
nvmlReturn_t nvml_ask(nvmlDevice_t device, const void *answer, struct pump_card *out);

#endif
