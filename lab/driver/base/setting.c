/* setting.c - attributes of streams and kernel nodes: which exist, and their valid
 * values. They are returned on request; none changes which memory the work touches. */
#include <string.h>

#include "driver.h"

int vd_priority_of(int priority) {
  if (priority > 0) return 0;
  return priority < VD_GREATEST_PRIORITY ? VD_GREATEST_PRIORITY : priority;
}

/* Returns the error for an attribute that is not listed here. Real nodes have attributes
 * that this driver lacks. */
static CUresult unknown(bool of_node, int attribute) {
  bool lacking = attribute == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION ||
                 attribute == CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE ||
                 attribute == CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION ||
                 attribute == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE;
  return of_node && lacking ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
}

static bool is_of(bool of_node, int attribute) {
  if (attribute == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) return of_node;
  return attribute != CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY || !of_node;
}

CUresult vd_setting_get(const struct vd_settings *settings, bool of_node, int attribute,
                        CUstreamAttrValue *out) {
  CUstreamAttrValue value = {{0}};
  if (!is_of(of_node, attribute)) return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
  case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    value.accessPolicyWindow = settings->window;
    break;
  case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
    value.cooperative = settings->cooperative;
    break;
  case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
    value.syncPolicy =
        settings->synchronization ? settings->synchronization : CU_SYNC_POLICY_AUTO;
    break;
  case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    value.priority = settings->priority;
    break;
  case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    value.memSyncDomainMap.default_ = settings->domain_map[0];
    value.memSyncDomainMap.remote = settings->domain_map_set ? settings->domain_map[1] : 1;
    break;
  case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    value.memSyncDomain = settings->memory_domain;
    break;
  default:
    return unknown(of_node, attribute);
  }
  memcpy(out, &value, sizeof value);
  return CUDA_SUCCESS;
}

CUresult vd_setting_set(struct vd_settings *settings, bool of_node, int attribute,
                        const CUstreamAttrValue *value) {
  if (!is_of(of_node, attribute)) return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
  case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    if (!(value->accessPolicyWindow.hitRatio >= 0 &&
          value->accessPolicyWindow.hitRatio <= 1))
      return CUDA_ERROR_INVALID_VALUE;
    settings->window = value->accessPolicyWindow;
    return CUDA_SUCCESS;
  case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
    settings->cooperative = value->cooperative != 0;
    return CUDA_SUCCESS;
  case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
    if (value->syncPolicy < CU_SYNC_POLICY_AUTO ||
        value->syncPolicy > CU_SYNC_POLICY_BLOCKING_SYNC)
      return CUDA_ERROR_INVALID_VALUE;
    settings->synchronization = value->syncPolicy;
    return CUDA_SUCCESS;
  case CU_LAUNCH_ATTRIBUTE_PRIORITY: /* a stream keeps its work queue */
    settings->priority = vd_priority_of(value->priority);
    return CUDA_SUCCESS;
  case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    settings->domain_map[0] = value->memSyncDomainMap.default_;
    settings->domain_map[1] = value->memSyncDomainMap.remote;
    settings->domain_map_set = true;
    return CUDA_SUCCESS;
  case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    if (value->memSyncDomain < 0 || value->memSyncDomain > 1)
      return CUDA_ERROR_INVALID_VALUE;
    settings->memory_domain = value->memSyncDomain;
    return CUDA_SUCCESS;
  default:
    return unknown(of_node, attribute);
  }
}
