/* nvml.c - libnvidia-ml.so.1 of the virtual GPU: start, errors, and the GPU's identity.
 *
 * It answers the queries of tools and frameworks about the one GPU, from the data of
 * libcuda.so.1. Numbers that the model does not have, such as a temperature, are not
 * invented: every other name of nvml.h returns NVML_ERROR_NOT_SUPPORTED (names.txt).
 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "nvml.h"

struct nvml_device {
  int unused;
};
static struct nvml_device the_card;
static int users; /* calls of nvmlInit without nvmlShutdown */

#define BUS_ID_FORMAT "%08X:%02X:00.0"
#define NVIDIA 0x10deu /* PCI vendor */

/* Called by the stubs that are generated from names.txt. */
void rt_stub(const char *name);
void rt_stub(const char *name) {
  pump_card_lacks(name);
}

/* -- start and end -- */

NVML(nvmlInit_v2, void) {
  struct pump_card card;
  if (pump_card_read(&card) != 0) return NVML_ERROR_DRIVER_NOT_LOADED;
  __atomic_add_fetch(&users, 1, __ATOMIC_SEQ_CST);
  return NVML_SUCCESS;
}

NVML(nvmlInit, void) {
  return nvmlInit_v2();
}

NVML(nvmlInitWithFlags, unsigned flags) {
  (void)flags; /* they only concern missing GPUs */
  return nvmlInit_v2();
}

NVML(nvmlShutdown, void) {
  int now = __atomic_load_n(&users, __ATOMIC_SEQ_CST);
  while (now > 0)
    if (__atomic_compare_exchange_n(&users, &now, now - 1, false, __ATOMIC_SEQ_CST,
                                    __ATOMIC_SEQ_CST))
      return NVML_SUCCESS;
  return NVML_ERROR_UNINITIALIZED;
}

static nvmlReturn_t started(const void *answer) {
  if (__atomic_load_n(&users, __ATOMIC_SEQ_CST) == 0) return NVML_ERROR_UNINITIALIZED;
  return answer != NULL ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvml_ask(nvmlDevice_t device, const void *answer, struct pump_card *out) {
  nvmlReturn_t result = started(answer);
  if (result != NVML_SUCCESS) return result;
  if (device != &the_card) return NVML_ERROR_INVALID_ARGUMENT;
  return pump_card_read(out) == 0 ? NVML_SUCCESS : NVML_ERROR_DRIVER_NOT_LOADED;
}

NVML_EXPORT const char *nvmlErrorString(nvmlReturn_t result);
const char *nvmlErrorString(nvmlReturn_t result) {
  switch (result) {
  case NVML_SUCCESS:
    return "Success";
  case NVML_ERROR_UNINITIALIZED:
    return "Uninitialized";
  case NVML_ERROR_INVALID_ARGUMENT:
    return "Invalid Argument";
  case NVML_ERROR_NOT_SUPPORTED:
    return "Not Supported";
  case NVML_ERROR_NOT_FOUND:
    return "Not Found";
  case NVML_ERROR_INSUFFICIENT_SIZE:
    return "Insufficient Size";
  case NVML_ERROR_DRIVER_NOT_LOADED:
    return "Driver Not Loaded";
  case NVML_ERROR_ARGUMENT_VERSION_MISMATCH:
    return "Argument version mismatch";
  default:
    return "Unknown Error";
  }
}

/* -- the system -- */

static nvmlReturn_t put(char *text, unsigned bytes, const char *value) {
  if (strlen(value) >= bytes) return NVML_ERROR_INSUFFICIENT_SIZE;
  strcpy(text, value);
  return NVML_SUCCESS;
}

/* NVIDIA's driver is absent, so there is no version number. */
NVML(nvmlSystemGetDriverVersion, char *version, unsigned length) {
  nvmlReturn_t result = started(version);
  return result == NVML_SUCCESS ? put(version, length, "pump-virtual") : result;
}

NVML(nvmlSystemGetCudaDriverVersion_v2, int *version) {
  struct pump_card card;
  nvmlReturn_t result = nvml_ask(&the_card, version, &card);
  if (result == NVML_SUCCESS) *version = card.cuda_version;
  return result;
}

NVML(nvmlSystemGetCudaDriverVersion, int *version) {
  return nvmlSystemGetCudaDriverVersion_v2(version);
}

/* -- the GPU -- */

NVML(nvmlDeviceGetCount_v2, unsigned *count) {
  nvmlReturn_t result = started(count);
  if (result == NVML_SUCCESS) *count = 1;
  return result;
}

NVML(nvmlDeviceGetCount, unsigned *count) {
  return nvmlDeviceGetCount_v2(count);
}

NVML(nvmlDeviceGetHandleByIndex_v2, unsigned index, nvmlDevice_t *device) {
  nvmlReturn_t result = started(device);
  if (result != NVML_SUCCESS) return result;
  if (index != 0) return NVML_ERROR_INVALID_ARGUMENT;
  *device = &the_card;
  return NVML_SUCCESS;
}

NVML(nvmlDeviceGetHandleByIndex, unsigned index, nvmlDevice_t *device) {
  return nvmlDeviceGetHandleByIndex_v2(index, device);
}

NVML(nvmlDeviceGetHandleByUUID, const char *uuid, nvmlDevice_t *device) {
  struct pump_card card;
  nvmlReturn_t result = nvml_ask(&the_card, device, &card);
  if (result != NVML_SUCCESS) return result;
  if (uuid == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  if (strcasecmp(uuid, card.uuid) != 0) return NVML_ERROR_NOT_FOUND;
  *device = &the_card;
  return NVML_SUCCESS;
}

NVML(nvmlDeviceGetHandleByPciBusId_v2, const char *id, nvmlDevice_t *device) {
  struct pump_card card;
  unsigned domain, bus, number, function = 0;
  nvmlReturn_t result = nvml_ask(&the_card, device, &card);
  if (result != NVML_SUCCESS) return result;
  if (id == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  if (sscanf(id, "%8x:%2x:%2x.%1x", &domain, &bus, &number, &function) < 3) {
    domain = 0;
    if (sscanf(id, "%2x:%2x.%1x", &bus, &number, &function) < 2)
      return NVML_ERROR_INVALID_ARGUMENT;
  }
  if (domain != 0 || bus != card.bus || number != 0 || function != 0)
    return NVML_ERROR_NOT_FOUND;
  *device = &the_card;
  return NVML_SUCCESS;
}

NVML(nvmlDeviceGetHandleByPciBusId, const char *id, nvmlDevice_t *device) {
  return nvmlDeviceGetHandleByPciBusId_v2(id, device);
}

NVML(nvmlDeviceGetIndex, nvmlDevice_t device, unsigned *index) {
  struct pump_card card;
  nvmlReturn_t result = nvml_ask(device, index, &card);
  if (result == NVML_SUCCESS) *index = 0;
  return result;
}

NVML(nvmlDeviceGetName, nvmlDevice_t device, char *name, unsigned length) {
  struct pump_card card;
  nvmlReturn_t result = nvml_ask(device, name, &card);
  return result == NVML_SUCCESS ? put(name, length, card.name) : result;
}

NVML(nvmlDeviceGetUUID, nvmlDevice_t device, char *uuid, unsigned length) {
  struct pump_card card;
  nvmlReturn_t result = nvml_ask(device, uuid, &card);
  return result == NVML_SUCCESS ? put(uuid, length, card.uuid) : result;
}

NVML(nvmlDeviceGetCudaComputeCapability, nvmlDevice_t device, int *major, int *minor) {
  struct pump_card card;
  nvmlReturn_t result = nvml_ask(device, minor == NULL ? NULL : major, &card);
  if (result != NVML_SUCCESS) return result;
  *major = card.compute_major;
  *minor = card.compute_minor;
  return NVML_SUCCESS;
}

NVML(nvmlDeviceGetPciInfo_v3, nvmlDevice_t device, nvmlPciInfo_t *pci) {
  struct pump_card card;
  nvmlReturn_t result = nvml_ask(device, pci, &card);
  if (result != NVML_SUCCESS) return result;
  *pci = (nvmlPciInfo_t){.bus = card.bus, .pciDeviceId = card.pci_device << 16 | NVIDIA};
  snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:00.0", 0u,
           card.bus & 0xff);
  snprintf(pci->busId, sizeof pci->busId, BUS_ID_FORMAT, 0u, card.bus & 0xff);
  return NVML_SUCCESS;
}

NVML(nvmlDeviceGetPciInfo_v2, nvmlDevice_t device, nvmlPciInfo_v2_t *pci) {
  nvmlPciInfo_t whole;
  if (pci == NULL) return NVML_ERROR_INVALID_ARGUMENT;
  nvmlReturn_t result = nvmlDeviceGetPciInfo_v3(device, &whole);
  if (result != NVML_SUCCESS) return result;
  *pci = (nvmlPciInfo_v2_t){.bus = whole.bus, .pciDeviceId = whole.pciDeviceId};
  memcpy(pci->busId, whole.busIdLegacy, sizeof pci->busId);
  return NVML_SUCCESS;
}

NVML(nvmlDeviceGetPciInfo, nvmlDevice_t device, nvmlPciInfo_v2_t *pci) {
  return nvmlDeviceGetPciInfo_v2(device, pci);
}
