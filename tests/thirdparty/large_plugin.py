"""A pytest plugin for the suites: small allocations of cuda-python's tests get 2 MiB.

Pump converts memory from this size.
"""

from cuda import cuda, cudart

LEAST_BYTES = 2 << 20


def larger(call):
    return lambda size, *rest: call(max(int(size), LEAST_BYTES), *rest)


for name in ("cuMemAlloc", "cuMemAllocAsync", "cuMemAllocFromPoolAsync"):
    setattr(cuda, name, larger(getattr(cuda, name)))
for name in ("cudaMalloc", "cudaMallocAsync", "cudaMallocFromPoolAsync"):
    setattr(cudart, name, larger(getattr(cudart, name)))
