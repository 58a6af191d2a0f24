/* host_kernels.h - what kernels.cu needs to compile as C.
 *
 * A kernel becomes a static function that runs as a grid of one thread, so its
 * grid-stride loops pass through all of its work items. host_build.py appends
 * the entry point of each kernel, which the virtual GPU's compute mode calls:
 *
 *   void pump_host_<kernel>(void **params, const unsigned grid[3],
 *                           const unsigned block[3]);
 *
 * params[i] points to the value of the kernel's i-th argument, as in
 * cuLaunchKernel. Grid and block are not looked at: see DESIGN in kernels.cu.
 * host_touches.c tells the virtual GPU which memory a kernel touches, where that is
 * not all that its pointers reach.
 */
#ifndef HOST_KERNELS_H
#define HOST_KERNELS_H

#include <math.h>
#include <stddef.h>

#define KERNEL static
#define DEVICE static inline
#define TILE 256 /* 8 rows of sums fill 8 KiB: half of a small L1 cache at most */
#define TILE_WIDTH(left) ((left) < TILE ? (left) : TILE)
#define LANES 16

struct host_index {
  unsigned x;
};
static const struct host_index blockIdx = {0}, threadIdx = {0}, gridDim = {1},
                               blockDim = {1};

#endif
