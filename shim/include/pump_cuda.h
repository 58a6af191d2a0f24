/* pump_cuda.h - our own declarations of the part of the CUDA driver API that shim and
 * virtual driver use.
 *
 * NVIDIA's cuda.h renames functions by macro (cuMemAlloc becomes cuMemAlloc_v2), so an
 * interposer that includes it exports the wrong names. Also, pump must build without a
 * CUDA toolkit. Names and values follow the public cuda.h 13; tests/abi compares all of
 * them with the real header. Enums are plain ints here. Add types and constants, no
 * function prototypes.
 */
#ifndef PUMP_CUDA_H
#define PUMP_CUDA_H

#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUlib_st *CUlibrary;
typedef struct CUkern_st *CUkernel;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgreenCtx_st *CUgreenCtx;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUmemPoolHandle_st *CUmemoryPool;
typedef struct CUarray_st *CUarray;
typedef struct CUmipmappedArray_st *CUmipmappedArray;
typedef struct CUextMemory_st *CUexternalMemory;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUuserObject_st *CUuserObject;
typedef struct CUgraphEdgeData_st CUgraphEdgeData;         /* pump_cuda_graph.h */
typedef struct CUexecAffinityParam_st CUexecAffinityParam; /* passed through untouched */
typedef struct CUctxCreateParams_st CUctxCreateParams;     /* passed through untouched */
typedef union CUstreamAttrValue_union CUstreamAttrValue;   /* passed through untouched */
typedef struct CUmemPoolPtrExportData_st CUmemPoolPtrExportData;     /* passed through */
typedef struct CUstreamCigCaptureParams_st CUstreamCigCaptureParams; /* passed through */
typedef void (*CUhostFn)(void *user_data);
typedef struct CUmemcpyAttributes_st CUmemcpyAttributes; /* passed through untouched */
typedef uint32_t cuuint32_t;
typedef uint64_t cuuint64_t;

/* Enums of cuda.h by their names there, so that tests can compare signatures. */
typedef int CUdevice_attribute;
typedef int CUsharedconfig;
typedef int CUmoduleLoadingMode;
typedef int CUmem_range_attribute;
typedef int CUmemAllocationGranularity_flags;
typedef int CUmemAccess_flags;
typedef int CUlimit;
typedef int CUfunction_attribute;
typedef int CUfunctionLoadingState;
typedef int CUfunc_cache;
typedef int CUdevice_P2PAttribute;
typedef int CUpointer_attribute;
typedef int CUmem_advise;
typedef int CUmemRangeHandleType;
typedef int CUjit_option;
typedef int CUlibraryOption;
typedef int CUstreamCaptureMode;
typedef int CUstreamCaptureStatus;
typedef int CUdriverProcAddressQueryResult;
typedef int CUmemPool_attribute;
typedef int CUmemAllocationType;
typedef int CUstreamAttrID;
typedef int CUmemAllocationHandleType;
typedef int CUtensorMapDataType;
typedef int CUtensorMapInterleave;
typedef int CUtensorMapSwizzle;
typedef int CUtensorMapL2promotion;
typedef int CUtensorMapFloatOOBfill;
typedef int CUtensorMapIm2ColWideMode;

typedef struct {
  cuuint64_t opaque[16];
} CUtensorMap;

typedef struct {
  char bytes[16];
} CUuuid;

typedef struct {
  int type; /* CU_MEM_LOCATION_TYPE_* */
  int id;
} CUmemLocation;

typedef struct {
  int allocType; /* CU_MEM_ALLOCATION_TYPE_* */
  int handleTypes;
  CUmemLocation location;
  void *win32SecurityAttributes;
  size_t maxSize;
  unsigned short usage;
  unsigned char reserved[54];
} CUmemPoolProps;

/* A part of a sparse array and its memory, as far as pump reads it. */
typedef struct {
  int resourceType;
  void *resource;
  int subresourceType;
  uint64_t subresource[4];
  int memOperationType, memHandleType;
  struct {
    unsigned long long memHandle;
  } memHandle;
  unsigned long long offset;
  unsigned int deviceBitMask, flags, reserved[2];
} CUarrayMapInfo;

/* An attribute of CUlaunchConfig, as far as pump reads it; the value has 64 bytes. */
typedef struct {
  int id; /* CU_LAUNCH_ATTRIBUTE_* */
  union {
    int cooperative;
    int programmaticStreamSerializationAllowed;
    uint64_t bytes[8];
  } value;
} CUlaunchAttribute;

enum {
  CU_LAUNCH_ATTRIBUTE_COOPERATIVE = 2,
  CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6,
  CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT = 7,
  CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT = 12
};

typedef struct {
  unsigned int gridDimX, gridDimY, gridDimZ;
  unsigned int blockDimX, blockDimY, blockDimZ;
  unsigned int sharedMemBytes;
  CUstream hStream;
  void *attrs; /* CUlaunchAttribute array, passed on untouched */
  unsigned int numAttrs;
} CUlaunchConfig;

typedef struct {
  size_t srcXInBytes, srcY;
  int srcMemoryType;
  const void *srcHost;
  CUdeviceptr srcDevice;
  CUarray srcArray;
  size_t srcPitch;
  size_t dstXInBytes, dstY;
  int dstMemoryType;
  void *dstHost;
  CUdeviceptr dstDevice;
  CUarray dstArray;
  size_t dstPitch;
  size_t WidthInBytes, Height;
} CUDA_MEMCPY2D;

typedef struct {
  size_t srcXInBytes, srcY, srcZ, srcLOD;
  int srcMemoryType;
  const void *srcHost;
  CUdeviceptr srcDevice;
  CUarray srcArray;
  void *reserved0;
  size_t srcPitch, srcHeight;
  size_t dstXInBytes, dstY, dstZ, dstLOD;
  int dstMemoryType;
  void *dstHost;
  CUdeviceptr dstDevice;
  CUarray dstArray;
  void *reserved1;
  size_t dstPitch, dstHeight;
  size_t WidthInBytes, Height, Depth;
} CUDA_MEMCPY3D;

typedef struct {
  size_t srcXInBytes, srcY, srcZ, srcLOD;
  int srcMemoryType;
  const void *srcHost;
  CUdeviceptr srcDevice;
  CUarray srcArray;
  CUcontext srcContext;
  size_t srcPitch, srcHeight;
  size_t dstXInBytes, dstY, dstZ, dstLOD;
  int dstMemoryType;
  void *dstHost;
  CUdeviceptr dstDevice;
  CUarray dstArray;
  CUcontext dstContext;
  size_t dstPitch, dstHeight;
  size_t WidthInBytes, Height, Depth;
} CUDA_MEMCPY3D_PEER;

/* One end of a copy of cuMemcpy3DBatchAsync. */
typedef struct {
  int type; /* CU_MEMCPY_OPERAND_TYPE_* */
  union {
    struct {
      CUdeviceptr ptr;
      size_t rowLength, layerHeight; /* elements */
      CUmemLocation locHint;
    } ptr;
    struct {
      CUarray array;
      struct {
        size_t x, y, z;
      } offset; /* elements */
    } array;
  } op;
} CUmemcpy3DOperand;

typedef struct {
  CUmemcpy3DOperand src, dst;
  struct {
    size_t width, height, depth;
  } extent; /* elements: of the array, else bytes */
  int srcAccessOrder;
  unsigned int flags;
} CUDA_MEMCPY3D_BATCH_OP;

/* One element of cuStreamBatchMemOp: a union of 48 bytes in cuda.h; wait and
 * write share this layout. */
typedef union {
  int operation;
  struct {
    int operation;
    CUdeviceptr address;
    uint64_t value; /* 32-bit operations use the low half */
    unsigned int flags;
    CUdeviceptr alias;
  } value_op;
  uint64_t pad[6];
} CUstreamBatchMemOpParams;

typedef struct {
  CUmemLocation location;
  int flags;
} CUmemAccessDesc;

typedef struct {
  CUfunction function;
  unsigned int gridDimX, gridDimY, gridDimZ;
  unsigned int blockDimX, blockDimY, blockDimZ;
  unsigned int sharedMemBytes;
  CUstream hStream;
  void **kernelParams;
} CUDA_LAUNCH_PARAMS;

typedef struct {
  size_t Width, Height;
  int Format; /* CU_AD_FORMAT_* */
  unsigned int NumChannels;
} CUDA_ARRAY_DESCRIPTOR;

typedef struct {
  size_t Width, Height, Depth;
  int Format;
  unsigned int NumChannels;
  unsigned int Flags; /* CUDA_ARRAY3D_* */
} CUDA_ARRAY3D_DESCRIPTOR;

/* The resource of a texture or surface object. */
typedef struct {
  int resType; /* CU_RESOURCE_TYPE_* */
  union {
    struct {
      CUarray hArray;
    } array;
    struct {
      CUmipmappedArray hMipmappedArray;
    } mipmap;
    struct {
      CUdeviceptr devPtr;
      int format;
      unsigned int numChannels;
      size_t sizeInBytes;
    } linear;
    struct {
      CUdeviceptr devPtr;
      int format;
      unsigned int numChannels;
      size_t width, height, pitchInBytes;
    } pitch2D;
    int reserved[32];
  } res;
  unsigned int flags;
} CUDA_RESOURCE_DESC;
typedef struct {
  int addressMode[3], filterMode;
  unsigned int flags, maxAnisotropy;
  int mipmapFilterMode;
  float mipmapLevelBias, minMipmapLevelClamp, maxMipmapLevelClamp, borderColor[4];
  int reserved[12];
} CUDA_TEXTURE_DESC;
typedef struct {
  int format; /* CU_RES_VIEW_FORMAT_* */
  size_t width, height, depth;
  unsigned int firstMipmapLevel, lastMipmapLevel, firstLayer, lastLayer, reserved[16];
} CUDA_RESOURCE_VIEW_DESC;
typedef unsigned long long CUtexObject, CUsurfObject;

#define CUDA_ARRAY3D_LAYERED 0x01
#define CUDA_ARRAY3D_SPARSE 0x40
#define CUDA_ARRAY3D_DEFERRED_MAPPING 0x80

typedef struct {
  int type; /* CU_EXTERNAL_MEMORY_HANDLE_TYPE_* */
  union {
    int fd;
    struct {
      void *handle;
      const void *name;
    } win32;
    const void *nvSciBufObject;
  } handle;
  unsigned long long size;
  unsigned int flags;
  unsigned int reserved[16];
} CUDA_EXTERNAL_MEMORY_HANDLE_DESC;

typedef struct {
  size_t srcNumBytes, dstNumBytes;
  cuuint32_t *dstActBytes;
  const void *src;
  void *dst;
  int algo;
  unsigned char padding[20];
} CUmemDecompressParams;

typedef struct {
  char reserved[64];
} CUipcMemHandle;

typedef struct {
  char reserved[64];
} CUipcEventHandle;

typedef unsigned long long CUmemGenericAllocationHandle;

typedef struct {
  int type; /* CU_MEM_ALLOCATION_TYPE_* */
  int requestedHandleTypes;
  CUmemLocation location;
  void *win32HandleMetaData;
  struct {
    unsigned char compressionType, gpuDirectRDMACapable;
    unsigned short usage;
    unsigned char reserved[4];
  } allocFlags;
} CUmemAllocationProp;

enum {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NOT_INITIALIZED = 3,
  CUDA_ERROR_DEINITIALIZED = 4,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_INVALID_DEVICE = 101,
  CUDA_ERROR_INVALID_IMAGE = 200,
  CUDA_ERROR_INVALID_CONTEXT = 201,
  CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
  CUDA_ERROR_INVALID_PTX = 218,
  CUDA_ERROR_FILE_NOT_FOUND = 301,
  CUDA_ERROR_INVALID_HANDLE = 400,
  CUDA_ERROR_NOT_FOUND = 500,
  CUDA_ERROR_NOT_READY = 600,
  CUDA_ERROR_ILLEGAL_ADDRESS = 700,
  CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
  CUDA_ERROR_LAUNCH_FAILED = 719,
  CUDA_ERROR_NOT_PERMITTED = 800,
  CUDA_ERROR_NOT_SUPPORTED = 801,
  CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
  CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
  CUDA_ERROR_UNKNOWN = 999,
};

enum { CU_MEM_ATTACH_GLOBAL = 1 };
enum { CU_MEM_ALLOCATION_TYPE_PINNED = 1 };
enum {
  CU_MEM_ACCESS_FLAGS_PROT_NONE = 0,
  CU_MEM_ACCESS_FLAGS_PROT_READ = 1,
  CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3
};
enum { CU_MEM_HANDLE_TYPE_NONE = 0 };
enum { CU_MEM_LOCATION_TYPE_DEVICE = 1, CU_MEM_LOCATION_TYPE_HOST = 2 };
enum { CU_DEVICE_CPU = -1 };
enum { CU_STREAM_DEFAULT = 0, CU_STREAM_NON_BLOCKING = 1 };
enum { CU_CTX_SCHED_BLOCKING_SYNC = 4 };
enum { CU_EVENT_DEFAULT = 0, CU_EVENT_BLOCKING_SYNC = 1, CU_EVENT_DISABLE_TIMING = 2 };
enum {
  CU_STREAM_CAPTURE_MODE_GLOBAL = 0,
  CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
  CU_STREAM_CAPTURE_MODE_RELAXED = 2
};
enum { CU_STREAM_CAPTURE_STATUS_NONE = 0, CU_STREAM_CAPTURE_STATUS_ACTIVE = 1 };
enum {
  CU_MEMORYTYPE_HOST = 1,
  CU_MEMORYTYPE_DEVICE = 2,
  CU_MEMORYTYPE_ARRAY = 3,
  CU_MEMORYTYPE_UNIFIED = 4
};
enum { CU_MEMCPY_OPERAND_TYPE_POINTER = 1, CU_MEMCPY_OPERAND_TYPE_ARRAY = 2 };
enum {
  CU_STREAM_MEM_OP_WAIT_VALUE_32 = 1,
  CU_STREAM_MEM_OP_WRITE_VALUE_32 = 2,
  CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES = 3,
  CU_STREAM_MEM_OP_WAIT_VALUE_64 = 4,
  CU_STREAM_MEM_OP_WRITE_VALUE_64 = 5,
  CU_STREAM_MEM_OP_BARRIER = 6
};
enum {
  CU_GET_PROC_ADDRESS_DEFAULT = 0,
  CU_GET_PROC_ADDRESS_LEGACY_STREAM = 1,
  CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM = 2
};

enum {
  CU_POINTER_ATTRIBUTE_CONTEXT = 1,
  CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
  CU_POINTER_ATTRIBUTE_DEVICE_POINTER = 3,
  CU_POINTER_ATTRIBUTE_HOST_POINTER = 4,
  CU_POINTER_ATTRIBUTE_SYNC_MEMOPS = 6,
  CU_POINTER_ATTRIBUTE_IS_MANAGED = 8,
  CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
  CU_POINTER_ATTRIBUTE_RANGE_START_ADDR = 11,
  CU_POINTER_ATTRIBUTE_RANGE_SIZE = 12,
  CU_POINTER_ATTRIBUTE_MAPPED = 13,
  CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES = 14,
  CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE = 17,
};

enum {
  CU_MEMPOOL_ATTR_RELEASE_THRESHOLD = 4,
  CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT = 5,
  CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH = 6,
  CU_MEMPOOL_ATTR_USED_MEM_CURRENT = 7,
  CU_MEMPOOL_ATTR_USED_MEM_HIGH = 8
};

/* Launch parameters passed as one buffer ("extra"). */
#define CU_LAUNCH_PARAM_END ((void *)0)
#define CU_LAUNCH_PARAM_BUFFER_POINTER ((void *)1)
#define CU_LAUNCH_PARAM_BUFFER_SIZE ((void *)2)

/* Special stream handles. */
#define CU_STREAM_LEGACY ((CUstream)0x1)
#define CU_STREAM_PER_THREAD ((CUstream)0x2)

#endif
