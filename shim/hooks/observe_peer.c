/* observe_peer.c - hook of the call by which one GPU of the process may reach another's
 * memory (memory/peer.c).
 */
#include <errno.h>

#include "shim/memory/memory.h"

/* A context that no hook has seen yet may be any device's. */
CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
  CUresult result = pump_real.cuCtxEnablePeerAccess(peer, flags);
  if (result != CUDA_SUCCESS || pump_inert()) return result;
  int saved = errno, device = pump_context_device(peer, NULL);
  for (uint32_t d = 0; d < PUMP_MAX_DEVICES; d++)
    if (device < 0 || (int)d == device) pump_peer_reach(d);
  errno = saved;
  return result;
}
