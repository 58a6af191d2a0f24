/* capture.c - stream capture: records work from begin to end. timeline/capture_rules.c
 * has the calls that captures forbid.
 *
 * Each capturing stream has a tail: the nodes that its next node depends on. An event
 * recorded in a capture copies the tail; a stream that waits for the event adds that to
 * its own tail. */
#include <stdlib.h>
#include <string.h>

#include "graph.h"

/* -- tails -- */

/* Adds nodes to a tail; false: out of memory, or not nodes of that graph. */
static bool add(struct vd_nodes *set, const struct vd_graph *graph,
                struct vd_node *const *nodes, size_t count) {
  if (count == 0) return true;
  size_t room = set->count + count;
  struct vd_node **grown = realloc(set->nodes, room * sizeof *grown);
  if (grown == NULL) return false;
  set->nodes = grown;
  free(set->edges);
  set->edges = calloc(room, sizeof *set->edges);
  if (set->edges == NULL) return false;
  for (size_t i = 0; i < count; i++) {
    if (!vd_is(nodes[i], VD_NODE) || nodes[i]->graph != graph) return false;
    bool known = false;
    for (size_t k = 0; k < set->count; k++) known |= grown[k] == nodes[i];
    if (!known) grown[set->count++] = nodes[i];
  }
  return true;
}

/* Appends a node that depends on the whole tail, and makes it the tail. Consumes `work`. */
static CUresult append(struct vd_stream *stream, struct vd_work *work) {
  struct vd_graph *graph = stream->capture->graph;
  struct vd_node *node;
  CUresult result =
      vd_node_new_locked(graph, work, stream->tail.nodes, NULL, stream->tail.count, &node);
  if (result != CUDA_SUCCESS) {
    vd_work_free_locked(work);
    return result;
  }
  node->settings.priority = stream->settings.priority;
  vd_tail_empty(&stream->tail);
  return add(&stream->tail, graph, &node, 1) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult vd_capture_take_locked(struct vd_stream *stream, const struct vd_work *work,
                                bool *captured) {
  const struct vd_capture *capture = stream->capture;
  if (capture == NULL) return vd_capture_implicit_locked(stream);
  if (capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  struct vd_work own;
  CUresult result = vd_work_copy_locked(work, &own);
  if (result == CUDA_SUCCESS) result = append(stream, &own);
  *captured = result == CUDA_SUCCESS;
  return result;
}

static CUresult record_event(struct vd_stream *stream, struct vd_event *event,
                             bool external, bool *captured) {
  struct vd_capture *capture = stream->capture;
  if (capture == NULL) return vd_capture_implicit_locked(stream);
  if (capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  *captured = true;
  if (external) {
    struct vd_work work = {.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD,
                           .event = (CUevent)(void *)event};
    return append(stream, &work);
  }
  vd_tail_empty(&event->tail);
  if (!add(&event->tail, capture->graph, stream->tail.nodes, stream->tail.count))
    return CUDA_ERROR_OUT_OF_MEMORY;
  event->capture = capture;
  return CUDA_SUCCESS;
}

static CUresult wait_event(struct vd_stream *stream, struct vd_event *event, bool external,
                           bool *captured) {
  struct vd_capture *capture = event->capture;
  if (external && stream->capture != NULL) {
    struct vd_work work = {.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT,
                           .event = (CUevent)(void *)event};
    *captured = true;
    return append(stream, &work);
  }
  if (capture == NULL) {
    if (stream->capture == NULL) return vd_capture_implicit_locked(stream);
    if (!event->recorded) {
      *captured = true;
      return CUDA_SUCCESS;
    }
    vd_capture_invalidate(stream->capture, "a wait for an event from outside");
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  bool live = false;
  for (struct vd_capture *c = vd_captures; c != NULL; c = c->next) live |= c == capture;
  if (!live) return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  if (stream->capture != NULL && stream->capture != capture) {
    vd_capture_invalidate(capture, "a merge with another capture");
    vd_capture_invalidate(stream->capture, "a merge with another capture");
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  if (stream == &vd_streams.legacy) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  stream->capture = capture;
  if (!add(&stream->tail, capture->graph, event->tail.nodes, event->tail.count))
    return CUDA_ERROR_OUT_OF_MEMORY;
  *captured = true;
  return CUDA_SUCCESS;
}

/* -- calls that a stream executes, or its capture records -- */

CUresult vd_capture_kernel_locked(struct vd_stream *stream,
                                  const struct vd_kernel_call *call,
                                  const CUlaunchConfig *config, bool *captured) {
  struct vd_work work = {.type = CU_GRAPH_NODE_TYPE_KERNEL, .kernel = *call};
  CUresult result = vd_capture_take_locked(stream, &work, captured);
  if (result == CUDA_SUCCESS && *captured)
    vd_node_attributes_locked(stream->tail.nodes[0], config);
  return result;
}

CUresult vd_capture_copy_locked(struct vd_stream *stream, const struct vd_copy *copy,
                                bool *captured) {
  struct vd_work work = {.type = CU_GRAPH_NODE_TYPE_MEMCPY, .copy = *copy};
  return vd_capture_take_locked(stream, &work, captured);
}

CUresult vd_capture_set_locked(struct vd_stream *stream, const struct vd_set *set,
                               bool *captured) {
  struct vd_work work = {.type = CU_GRAPH_NODE_TYPE_MEMSET, .set = *set};
  return vd_capture_take_locked(stream, &work, captured);
}

CUresult vd_cuLaunchHostFunc(CUstream handle, CUhostFn function, void *user_data) {
  if (function == NULL) return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  struct vd_stream *stream = vd_stream_of_locked(handle);
  bool captured = false;
  struct vd_work work = {.type = CU_GRAPH_NODE_TYPE_HOST, .host = {function, user_data}};
  CUresult result = stream == NULL ? CUDA_ERROR_INVALID_HANDLE
                                   : vd_capture_take_locked(stream, &work, &captured);
  if (result == CUDA_SUCCESS && !captured)
    result = vd_host_submit_locked(stream, &work.host);
  vd_unlock();
  return result;
}

/* Modes select how the GPU waits for the host; here both take the same time. */
CUresult vd_cuLaunchHostFunc_v2(CUstream handle, CUhostFn function, void *user_data,
                                unsigned int sync_mode) {
  if (sync_mode > 1) return CUDA_ERROR_INVALID_VALUE;
  return vd_cuLaunchHostFunc(handle, function, user_data);
}

/* Records the call in the stream's capture, or submits it to the stream. Flag 1: the
 * capture makes it a node of its own. */
static CUresult enqueue(CUstream stream_handle, CUevent handle, unsigned int flags,
                        CUresult (*capture)(struct vd_stream *, struct vd_event *, bool,
                                            bool *),
                        CUresult (*submit)(struct vd_stream *, CUevent)) {
  if (flags > 1) return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  struct vd_event *event = vd_event_of(handle);
  struct vd_stream *stream = vd_stream_of_locked(stream_handle);
  CUresult result =
      event == NULL || stream == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
  bool captured = false;
  if (result == CUDA_SUCCESS) result = capture(stream, event, flags == 1, &captured);
  if (result == CUDA_SUCCESS && !captured) result = submit(stream, handle);
  vd_unlock();
  return result;
}

CUresult vd_cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags) {
  return enqueue(stream, event, flags, record_event, vd_event_record_locked);
}

CUresult vd_cuEventRecord(CUevent event, CUstream stream) {
  return vd_cuEventRecordWithFlags(event, stream, 0);
}

CUresult vd_cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags) {
  return enqueue(stream, event, flags, wait_event, vd_event_wait_locked);
}

/* -- begin and end -- */

/* Begins a capture into `graph`, or into a new one if NULL. Consumes nothing. */
static CUresult begin(struct vd_stream *stream, struct vd_graph *graph, int mode) {
  struct vd_capture *capture = calloc(1, sizeof *capture);
  bool borrowed = graph != NULL;
  if (graph == NULL) graph = vd_graph_new(VD_GRAPH);
  if (capture == NULL || graph == NULL) {
    free(capture);
    if (graph != NULL && !borrowed) vd_graph_free_locked(graph);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *capture = (struct vd_capture){.origin = stream,
                                 .graph = graph,
                                 .thread = pthread_self(),
                                 .id = vd.next_id++,
                                 .mode = mode,
                                 .borrowed = borrowed,
                                 .next = vd_captures};
  vd_captures = capture;
  stream->capture = capture;
  vd_tail_empty(&stream->tail);
  return CUDA_SUCCESS;
}

static CUresult begin_on(CUstream handle, CUgraph graph_handle,
                         const CUgraphNode *dependencies, size_t count, int mode) {
  if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED ||
      (count > 0 && dependencies == NULL))
    return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  struct vd_stream *stream = vd_stream_of_locked(handle);
  struct vd_graph *graph = vd_graph_of(graph_handle, VD_GRAPH);
  CUresult result = CUDA_SUCCESS;
  if (stream == NULL)
    result = CUDA_ERROR_INVALID_HANDLE;
  else if (stream == &vd_streams.legacy)
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  else if (stream->capture != NULL)
    result = CUDA_ERROR_ILLEGAL_STATE;
  struct vd_nodes tail = {0};
  if (result == CUDA_SUCCESS &&
      !add(&tail, graph, (struct vd_node *const *)dependencies, count))
    result = CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) result = begin(stream, graph, mode);
  if (result == CUDA_SUCCESS)
    stream->tail = tail;
  else
    vd_tail_empty(&tail);
  vd_unlock();
  return result;
}

CUresult vd_cuStreamBeginCapture_v2(CUstream stream, int mode) {
  return begin_on(stream, NULL, NULL, 0, mode);
}

CUresult vd_cuStreamBeginCapture(CUstream stream) {
  return vd_cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult vd_cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph,
                                        const CUgraphNode *dependencies,
                                        const CUgraphEdgeData *edges, size_t count,
                                        int mode) {
  (void)edges; /* edges name a part of a node to wait for; here it is the whole node */
  if (!vd_is((void *)graph, VD_GRAPH)) return CUDA_ERROR_INVALID_VALUE;
  return begin_on(stream, graph, dependencies, count, mode);
}

/* Marks the nodes and all their dependencies. */
static void mark(const struct vd_nodes *tail, struct vd_graph *graph) {
  for (size_t i = 0; i < graph->count; i++) graph->nodes[i]->colour = 0;
  for (size_t i = 0; i < tail->count; i++) tail->nodes[i]->colour = 1;
  /* A dependency may be newer than its dependent: repeat until nothing changes. */
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = graph->count; i-- > 0;) {
      const struct vd_node *node = graph->nodes[i];
      for (uint32_t k = 0; node->colour == 1 && k < node->count; k++) {
        if (node->dependencies[k]->colour == 1) continue;
        node->dependencies[k]->colour = 1;
        changed |= node->dependencies[k]->index > i;
      }
    }
  }
}

/* Returns whether the origin stream does not wait for some of these nodes; see mark(). */
static bool has_node_unknown_to_origin(const struct vd_nodes *tail) {
  bool any = false;
  for (size_t i = 0; i < tail->count; i++) any |= tail->nodes[i]->colour == 0;
  return any;
}

/* Removes the capture from all its streams; returns true if one had unjoined work. */
static bool detach(struct vd_capture *capture) {
  bool unjoined = false;
  for (size_t i = 0; i < capture->graph->count; i++)
    capture->graph->nodes[i]->index = (uint32_t)i;
  mark(&capture->origin->tail, capture->graph);
  for (struct vd_stream *s = vd_streams.first; s != NULL; s = s->next) {
    if (s->capture != capture) continue;
    unjoined |= has_node_unknown_to_origin(&s->tail);
    s->capture = NULL;
    vd_tail_empty(&s->tail);
  }
  unjoined |= has_node_unknown_to_origin(&capture->left);
  struct vd_capture **link = &vd_captures;
  while (*link != capture) link = &(*link)->next;
  *link = capture->next;
  return unjoined;
}

static void free_capture(struct vd_capture *capture, bool with_graph) {
  if (with_graph && !capture->borrowed) vd_graph_free_locked(capture->graph);
  vd_tail_empty(&capture->left);
  free(capture);
}

CUresult vd_cuStreamEndCapture(CUstream handle, CUgraph *out) {
  if (out == NULL) return CUDA_ERROR_INVALID_VALUE;
  *out = NULL;
  vd_lock();
  struct vd_stream *stream = vd_stream_of_locked(handle);
  struct vd_capture *capture = stream ? stream->capture : NULL;
  CUresult result = CUDA_SUCCESS;
  if (stream == NULL)
    result = CUDA_ERROR_INVALID_HANDLE;
  else if (capture == NULL)
    result = CUDA_ERROR_ILLEGAL_STATE;
  else if (capture->origin != stream)
    result = CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  else if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
           !pthread_equal(capture->thread, pthread_self()))
    result = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  if (result == CUDA_SUCCESS) {
    bool unjoined = detach(capture);
    if (capture->invalid)
      result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (unjoined)
      result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    if (result == CUDA_SUCCESS) *out = (CUgraph)(void *)capture->graph;
    free_capture(capture, result != CUDA_SUCCESS);
  }
  vd_unlock();
  return result;
}

/* Called when a capturing stream is destroyed. The end of the origin stream ends the
 * capture. Work of another stream must be joined before the capture ends, as if the
 * stream still existed. */
void vd_capture_forget_stream_locked(struct vd_stream *stream) {
  struct vd_capture *capture = stream->capture;
  if (capture == NULL) return;
  if (capture->origin == stream) {
    vd_capture_invalidate(capture, "the end of its first stream");
    detach(capture);
    free_capture(capture, true);
  } else if (!add(&capture->left, capture->graph, stream->tail.nodes, stream->tail.count)) {
    vd_capture_invalidate(capture, "out of memory");
  }
  stream->capture = NULL;
  vd_tail_empty(&stream->tail);
}

/* -- queries, and the dependencies of a stream -- */

static CUresult info(CUstream handle, int *status, uint64_t *id, CUgraph *graph,
                     const CUgraphNode **dependencies, const CUgraphEdgeData **edges,
                     size_t *count) {
  if (status == NULL) return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  struct vd_stream *stream = vd_stream_of_locked(handle);
  CUresult result = stream == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
  if (result == CUDA_SUCCESS) {
    const struct vd_capture *capture = stream->capture;
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (capture != NULL)
      *status = capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                 : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    if (capture != NULL && id != NULL) *id = capture->id;
    if (graph != NULL) *graph = capture ? (CUgraph)(void *)capture->graph : NULL;
    if (dependencies != NULL)
      *dependencies = (const CUgraphNode *)(void *)stream->tail.nodes;
    if (edges != NULL) *edges = stream->tail.edges;
    if (count != NULL) *count = stream->tail.count;
  }
  vd_unlock();
  return result;
}

CUresult vd_cuStreamIsCapturing(CUstream stream, int *status) {
  return info(stream, status, NULL, NULL, NULL, NULL, NULL);
}

CUresult vd_cuStreamGetCaptureInfo(CUstream stream, int *status, uint64_t *id) {
  return info(stream, status, id, NULL, NULL, NULL, NULL);
}

CUresult vd_cuStreamGetCaptureInfo_v2(CUstream stream, int *status, uint64_t *id,
                                      CUgraph *graph, const CUgraphNode **dependencies,
                                      size_t *count) {
  return info(stream, status, id, graph, dependencies, NULL, count);
}

CUresult vd_cuStreamGetCaptureInfo_v3(CUstream stream, int *status, uint64_t *id,
                                      CUgraph *graph, const CUgraphNode **dependencies,
                                      const CUgraphEdgeData **edges, size_t *count) {
  return info(stream, status, id, graph, dependencies, edges, count);
}

CUresult vd_cuStreamUpdateCaptureDependencies(CUstream handle, CUgraphNode *dependencies,
                                              size_t count, unsigned int flags) {
  if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES || (count > 0 && dependencies == NULL))
    return CUDA_ERROR_INVALID_VALUE;
  vd_lock();
  struct vd_stream *stream = vd_stream_of_locked(handle);
  CUresult result = CUDA_SUCCESS;
  if (stream == NULL)
    result = CUDA_ERROR_INVALID_HANDLE;
  else if (stream->capture == NULL)
    result = CUDA_ERROR_ILLEGAL_STATE;
  else if (stream->capture->invalid)
    result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  struct vd_nodes tail = {0};
  if (result == CUDA_SUCCESS) {
    const struct vd_graph *graph = stream->capture->graph;
    bool replace = flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES;
    if ((!replace && !add(&tail, graph, stream->tail.nodes, stream->tail.count)) ||
        !add(&tail, graph, (struct vd_node *const *)dependencies, count))
      result = CUDA_ERROR_INVALID_VALUE;
  }
  if (result == CUDA_SUCCESS) {
    vd_tail_empty(&stream->tail);
    stream->tail = tail;
  } else {
    vd_tail_empty(&tail);
  }
  vd_unlock();
  return result;
}

CUresult vd_cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode *dependencies,
                                                 const CUgraphEdgeData *edges, size_t count,
                                                 unsigned int flags) {
  (void)edges;
  return vd_cuStreamUpdateCaptureDependencies(stream, dependencies, count, flags);
}

CUresult vd_cuThreadExchangeStreamCaptureMode(int *mode) {
  if (mode == NULL || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL ||
      *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
    return CUDA_ERROR_INVALID_VALUE;
  int old = vd_thread.capture_mode;
  vd_thread.capture_mode = *mode;
  *mode = old;
  return CUDA_SUCCESS;
}
