/* device.c - the one device: its name, identity and attributes.
 *
 * Values that change a program's behaviour come from the profile; the rest are an A100's.
 * Attributes not listed are 0: the feature does not exist.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "calls.h"

#define PCI_BUS_ID "0000:01:00.0" /* VD_PCI_BUS */
/* The UUID begins like this on all machines; a real GPU's never does. */
#define UUID "pump-virtual"
#define UUID_BYTES 16

struct attribute {
  int attribute, value;
};

static const struct attribute fixed[] = {
    {1, 1024},                                       /* threads per block */
    {2, 1024},                                       /* block x, y, z */
    {3, 1024},        {4, 64},      {5, 2147483647}, /* grid x, y, z */
    {6, 65535},       {7, 65535},   {9, 65536},      /* constant memory */
    {10, 32},                                        /* warp size */
    {11, 2147483647},                                /* largest pitch */
    {14, 512},                                       /* texture alignment */
    {15, 1},                                         /* copies overlap kernels */
    {19, 1},                                         /* can map host memory */
    {21, 131072},     {22, 131072}, {23, 65536},     {24, 16384},
    {25, 16384},      {26, 16384},  {27, 32768},     {28, 32768},
    {29, 2048},       {30, 512},    {31, 1}, /* concurrent kernels */
    {32, 1},                                 /* ECC */
    {33, 1},                                 /* PCI bus, device, domain: as in PCI_BUS_ID */
    {34, 0},          {50, 0},      {40, 3}, /* copy engines */
    {41, 1},                                 /* unified addressing */
    {42, 32768},      {43, 2048},   {51, 32},        {69, 268435456},
    {78, 1},                                 /* stream priorities */
    {79, 1},          {80, 1},               /* L1 caches global and local memory */
    {83, 1},                                 /* managed memory */
    {87, 2},                                 /* single to double precision */
    {89, 1},                                 /* concurrent managed access */
    {90, 1},                                 /* compute preemption */
    {91, 1},                                 /* host pointer of registered memory */
    {92, 1},          {93, 1},      {94, 1}, /* stream memory operations */
    {95, 1},                                 /* cooperative launch */
    {99, 1},                                 /* host register */
    {106, 32},                               /* blocks per multiprocessor */
    {102, 1},                                /* virtual memory management */
    {111, 1024},                /* shared memory per block, reserved for the system */
    {113, 1},                   /* read-only host register */
    {115, 1},                   /* memory pools */
    {122, 1},         {123, 1}, /* stream memory operations, second version */
    {126, 1},                   /* memory synchronisation domains */
    {130, 0},         {131, -1},    {134, -1}, /* NUMA: has no node */
};

static int from_profile(int attribute, int *value) {
  const struct uvm_profile *p = &vd.profile;
  switch (attribute) {
  case 8:
    *value = (int)p->shared_bytes_per_block;
    return 0;
  case 12:
  case 82:
    *value = (int)p->registers_per_block;
    return 0;
  case 13:
    *value = (int)p->clock_khz;
    return 0;
  case 16:
    *value = (int)p->multiprocessors;
    return 0;
  case 36:
    *value = (int)p->memory_clock_khz;
    return 0;
  case 37:
    *value = (int)p->memory_bus_bits;
    return 0;
  case 38:
    *value = (int)p->l2_cache_bytes;
    return 0;
  case 39:
    *value = (int)p->threads_per_multiprocessor;
    return 0;
  case 75:
    *value = (int)p->compute_major;
    return 0;
  case 76:
    *value = (int)p->compute_minor;
    return 0;
  case 81:
    *value = (int)p->shared_bytes_per_multiprocessor;
    return 0;
  case 97:
    *value = (int)p->shared_bytes_per_block_optin;
    return 0;
  case 108:
    *value = (int)(p->l2_cache_bytes * 3 / 4);
    return 0; /* persisting L2 */
  case 109:
    *value = 134213632;
    return 0; /* access policy window */
  case 120:
    *value = p->compute_major >= 9;
    return 0; /* clusters */
  case 139:
    *value = (int)p->pci_device;
    return 0;
  default:
    return -1;
  }
}

CUresult vd_cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
  if (value == NULL || attribute < 1) return CUDA_ERROR_INVALID_VALUE;
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  if (from_profile(attribute, value) == 0) return CUDA_SUCCESS;
  *value = 0;
  for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
    if (fixed[i].attribute == attribute) *value = fixed[i].value;
  return CUDA_SUCCESS;
}

CUresult vd_cuDeviceGet(CUdevice *device, int ordinal) {
  if (device == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (ordinal != 0) return CUDA_ERROR_INVALID_DEVICE;
  *device = 0;
  return CUDA_SUCCESS;
}

/* Fills the UUID with the GPU's number: all processes of a job have the number that
 * pump-run passes; processes that share a GPU derive it from its name. */
static void copy_uuid(uint8_t uuid[UUID_BYTES]) {
  uint32_t number = vd.card_number;
  if (vd_card_wanted()) {
    number = 2166136261u; /* FNV-1a */
    for (const char *c = vd_card_name(); *c != 0; c++)
      number = (number ^ (uint8_t)*c) * 16777619u;
  }
  memcpy(uuid, UUID, sizeof UUID - 1);
  for (size_t i = sizeof UUID - 1; i < UUID_BYTES; i++, number <<= 8)
    uuid[i] = (uint8_t)(number >> 24);
}

void vd_uuid_text(char *text, size_t bytes) {
  uint8_t u[UUID_BYTES];
  copy_uuid(u);
  int at = snprintf(text, bytes, "GPU-");
  for (size_t i = 0; i < UUID_BYTES; i++)
    at += snprintf(text + at, bytes - (size_t)at, "%s%02x",
                   i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", u[i]);
}

/* Returns whether CUDA_VISIBLE_DEVICES shows the one device, as with a real one. */
bool vd_device_visible(void) {
  const char *text = getenv("CUDA_VISIBLE_DEVICES");
  char uuid[64];
  if (text == NULL) return true;
  size_t length = strcspn(text, ",");
  if (length == 1 && *text == '0') return true;
  vd_uuid_text(uuid, sizeof uuid);
  return length >= 4 && strncasecmp(text, uuid, length) == 0;
}

CUresult vd_cuDeviceGetCount(int *count) {
  if (count == NULL) return CUDA_ERROR_INVALID_VALUE;
  *count = 1;
  return CUDA_SUCCESS;
}

CUresult vd_cuDeviceGetName(char *name, int length, CUdevice device) {
  if (name == NULL || length <= 0) return CUDA_ERROR_INVALID_VALUE;
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  snprintf(name, (size_t)length, "%s", vd.profile.device_name);
  return CUDA_SUCCESS;
}

CUresult vd_cuDeviceGetUuid(CUuuid *uuid, CUdevice device) {
  if (uuid == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  copy_uuid((uint8_t *)uuid->bytes);
  return CUDA_SUCCESS;
}

CUresult vd_cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
  return vd_cuDeviceGetUuid(uuid, device);
}

CUresult vd_cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
  if (bytes == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  *bytes = vd.profile.memory_bytes;
  return CUDA_SUCCESS;
}

CUresult vd_cuDeviceComputeCapability(int *major, int *minor, CUdevice device) {
  if (major == NULL || minor == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  *major = (int)vd.profile.compute_major;
  *minor = (int)vd.profile.compute_minor;
  return CUDA_SUCCESS;
}

CUresult vd_cuDeviceGetPCIBusId(char *text, int length, CUdevice device) {
  if (text == NULL || length < (int)sizeof PCI_BUS_ID) return CUDA_ERROR_INVALID_VALUE;
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  memcpy(text, PCI_BUS_ID, sizeof PCI_BUS_ID);
  return CUDA_SUCCESS;
}

CUresult vd_cuDeviceGetByPCIBusId(CUdevice *device, const char *text) {
  if (device == NULL || text == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (strcmp(text, PCI_BUS_ID) != 0) return CUDA_ERROR_INVALID_DEVICE;
  *device = 0;
  return CUDA_SUCCESS;
}

CUresult vd_cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
  if (can == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (device != 0 || peer != 0) return CUDA_ERROR_INVALID_DEVICE;
  *can = 0;
  return CUDA_SUCCESS;
}

CUresult vd_cuDeviceGetP2PAttribute(int *value, int attribute, CUdevice source,
                                    CUdevice destination) {
  (void)attribute;
  if (value == NULL) return CUDA_ERROR_INVALID_VALUE;
  (void)source, (void)destination;
  return CUDA_ERROR_INVALID_DEVICE; /* there is only one device */
}
