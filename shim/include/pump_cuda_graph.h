/* pump_cuda_graph.h - our own declarations of the types of CUDA graphs, by the rules of
 * pump_cuda.h. An older version of a structure is a prefix of the newer one, so one type
 * serves both if only the prefix is read.
 */
#ifndef PUMP_CUDA_GRAPH_H
#define PUMP_CUDA_GRAPH_H

#include "pump_cuda.h"

typedef struct CUgraphEdgeData_st {
  unsigned char from_port, to_port, type, reserved[5];
} CUgraphEdgeData;

/* The fields of CUDA 10, up to `extra`. */
typedef struct CUDA_KERNEL_NODE_PARAMS_st {
  CUfunction func;
  unsigned int gridDimX, gridDimY, gridDimZ;
  unsigned int blockDimX, blockDimY, blockDimZ;
  unsigned int sharedMemBytes;
  void **kernelParams;
  void **extra;
} CUDA_KERNEL_NODE_PARAMS_v1;
typedef struct CUDA_KERNEL_NODE_PARAMS_v2_st {
  CUfunction func;
  unsigned int gridDimX, gridDimY, gridDimZ;
  unsigned int blockDimX, blockDimY, blockDimZ;
  unsigned int sharedMemBytes;
  void **kernelParams;
  void **extra;
  CUkernel kern; /* used if func is NULL */
  CUcontext ctx;
} CUDA_KERNEL_NODE_PARAMS_v2;

typedef struct CUDA_MEMSET_NODE_PARAMS_st {
  CUdeviceptr dst;
  size_t pitch;
  unsigned int value;
  unsigned int elementSize;
  size_t width, height;
} CUDA_MEMSET_NODE_PARAMS_v1;

typedef struct CUDA_HOST_NODE_PARAMS_st {
  CUhostFn fn;
  void *userData;
} CUDA_HOST_NODE_PARAMS_v1;

typedef struct CUDA_MEMCPY_NODE_PARAMS_st {
  int flags, reserved;
  CUcontext copyCtx;
  CUDA_MEMCPY3D copyParams;
} CUDA_MEMCPY_NODE_PARAMS;

typedef struct CUDA_MEM_ALLOC_NODE_PARAMS_st {
  CUmemPoolProps poolProps;
  const CUmemAccessDesc *accessDescs;
  size_t accessDescCount;
  size_t bytesize;
  CUdeviceptr dptr; /* output */
} CUDA_MEM_ALLOC_NODE_PARAMS;

typedef struct CUgraphNodeParams_st {
  int type; /* CU_GRAPH_NODE_TYPE_* */
  int reserved0[3];
  union {
    long long reserved1[29];
    CUDA_KERNEL_NODE_PARAMS_v2 kernel;
    CUDA_MEMCPY_NODE_PARAMS memcpy;
    CUDA_MEMSET_NODE_PARAMS_v1 memset; /* a context follows */
    CUDA_HOST_NODE_PARAMS_v1 host;
    CUgraph graph; /* of a child node; its ownership follows */
    CUevent event; /* of a record or wait node */
    CUDA_MEM_ALLOC_NODE_PARAMS alloc;
    CUdeviceptr free; /* of a free node: the freed address */
  };
  long long reserved2;
} CUgraphNodeParams;

typedef int CUgraphRecaptureStatus;
typedef CUresult (*CUgraphRecaptureCallback)(void *data, CUgraphNode node,
                                             const CUgraphNodeParams *original,
                                             const CUgraphNodeParams *recaptured,
                                             CUgraphRecaptureStatus status);

typedef struct {
  uint64_t flags;
  CUstream hUploadStream;
  CUgraphNode hErrNode_out;
  int result_out;
} CUDA_GRAPH_INSTANTIATE_PARAMS;

typedef struct CUgraphExecUpdateResultInfo_st {
  int result; /* CU_GRAPH_EXEC_UPDATE_* */
  CUgraphNode errorNode, errorFromNode;
} CUgraphExecUpdateResultInfo;

typedef CUstreamAttrID CUkernelNodeAttrID;
typedef CUstreamAttrValue CUkernelNodeAttrValue; /* passed through untouched */
typedef int CUgraphNodeType;
typedef int CUgraphExecUpdateResult;
typedef int CUgraphMem_attribute;

enum {
  CU_GRAPH_NODE_TYPE_KERNEL = 0,
  CU_GRAPH_NODE_TYPE_MEMCPY = 1,
  CU_GRAPH_NODE_TYPE_MEMSET = 2,
  CU_GRAPH_NODE_TYPE_HOST = 3,
  CU_GRAPH_NODE_TYPE_GRAPH = 4,
  CU_GRAPH_NODE_TYPE_EMPTY = 5,
  CU_GRAPH_NODE_TYPE_WAIT_EVENT = 6,
  CU_GRAPH_NODE_TYPE_EVENT_RECORD = 7,
  CU_GRAPH_NODE_TYPE_MEM_ALLOC = 10,
  CU_GRAPH_NODE_TYPE_MEM_FREE = 11,
  CU_GRAPH_NODE_TYPE_CONDITIONAL = 13
};
enum {
  CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT = 0,
  CU_GRAPH_MEM_ATTR_USED_MEM_HIGH = 1,
  CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT = 2,
  CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH = 3
};
enum { CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC = 1 };
enum {
  CU_GRAPH_EXEC_UPDATE_SUCCESS = 0,
  CU_GRAPH_EXEC_UPDATE_ERROR = 1,
  CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED = 2,
  CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED = 3,
  CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED = 5,
  CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED = 6
};

#endif
