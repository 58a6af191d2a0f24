/* peer.c - hook of the call that lets one GPU of the process access another's memory
 * (memory/peer_access.c).
 */
#include <errno.h>

#include "shim/memory/memory.h"

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
  CUresult result = pump_real.cuCtxEnablePeerAccess(peer, flags);
  if (result != CUDA_SUCCESS || pump_inert()) return result;
  int saved = errno;
  pump_peer_note_context(peer);
  errno = saved;
  return result;
}
