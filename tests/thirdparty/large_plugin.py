"""A plugin for pytest inside the suites: cuda-python's tests ask for some bytes, and get 2 MiB.

From that size on pump converts memory.
"""

from cuda import cuda, cudart

LEAST_BYTES = 2 << 20


def larger(call):
    return lambda size, *rest: call(max(int(size), LEAST_BYTES), *rest)


for name in ("cuMemAlloc", "cuMemAllocAsync", "cuMemAllocFromPoolAsync"):
    setattr(cuda, name, larger(getattr(cuda, name)))
for name in ("cudaMalloc", "cudaMallocAsync", "cudaMallocFromPoolAsync"):
    setattr(cudart, name, larger(getattr(cudart, name)))
