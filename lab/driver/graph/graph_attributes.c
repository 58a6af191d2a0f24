/* graph_attributes.c - attributes of kernel nodes: read, set, copied. A node keeps them
 * when its parameters change. */
#include "graph.h"

static struct vd_node *kernel_node(CUgraphNode handle) {
  struct vd_node *node = vd_node_of(handle);
  return node != NULL && node->work.type == CU_GRAPH_NODE_TYPE_KERNEL ? node : NULL;
}

CUresult vd_cuGraphKernelNodeGetAttribute(CUgraphNode handle, int attribute,
                                          CUkernelNodeAttrValue *out) {
  if (out == NULL) return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  const struct vd_node *node = kernel_node(handle);
  CUresult result = node == NULL ? CUDA_ERROR_INVALID_VALUE
                                 : vd_setting_get(&node->settings, true, attribute, out);
  vd_unlock();
  return result;
}

CUresult vd_cuGraphKernelNodeSetAttribute(CUgraphNode handle, int attribute,
                                          const CUkernelNodeAttrValue *value) {
  if (value == NULL) return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  struct vd_node *node = kernel_node(handle);
  CUresult result = node == NULL ? CUDA_ERROR_INVALID_VALUE
                                 : vd_setting_set(&node->settings, true, attribute, value);
  vd_unlock();
  return result;
}

CUresult vd_cuGraphKernelNodeCopyAttributes(CUgraphNode to_handle,
                                            CUgraphNode from_handle) {
  vd_lock();
  struct vd_node *to = kernel_node(to_handle);
  const struct vd_node *from = kernel_node(from_handle);
  bool known = to != NULL && from != NULL;
  if (known) to->settings = from->settings;
  vd_unlock();
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Stores launch attributes, except those unknown to nodes, such as programmatic
 * launches. */
void vd_node_attributes_locked(struct vd_node *node, const CUlaunchConfig *config) {
  const CUlaunchAttribute *attributes = config->attrs;
  for (unsigned i = 0; attributes != NULL && i < config->numAttrs; i++)
    vd_setting_set(&node->settings, true, attributes[i].id,
                   (const void *)&attributes[i].value);
}
