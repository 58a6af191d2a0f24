/* graphs.c - launches of graphs: operations of their nodes, in their state at the launch.
 *
 * Built like operations.c, with graphs that the driver describes. Usage: graphs SCENARIO
 */
#include <string.h>

#include "graph_driver.h"

static void a_launch_is_an_operation_for_every_node_that_touches_memory(void) {
  struct pump_range_info a = range(A, 4), b = range(B, 2);
  instantiate(EXEC, GRAPH(kernel(A, B), other(CU_GRAPH_NODE_TYPE_HOST), copy(B, A, 64),
                          set(A, 4 * BLOCK / 4), set(0x1000, 4), kernel(0, 0)));
  CHECK(!next_of_any_kind());
  uint64_t seq = launch_graph(4);
  CHECK(seq == 1 && driver.newest_at_call == 0);
  next_is(PUMP_EVENT_KERNEL, 1, 2);
  CHECK(uses_at(0, &a, 0) && uses_at(1, &b, 8));
  CHECK(head.function == (uint64_t)(uintptr_t)KERNEL);
  next_is(PUMP_EVENT_COPY, 2, 2);
  CHECK(extent_is(0, &a, 0, 64, PUMP_ACCESS_READ));
  CHECK(extent_is(1, &b, 0, 64, PUMP_ACCESS_WRITE) && head.function == 0);
  next_is(PUMP_EVENT_MEMSET, 3, 1);
  CHECK(extent_is(0, &a, 0, 4 * BLOCK, PUMP_ACCESS_OVERWRITE));
  next_is(PUMP_EVENT_KERNEL, 4, 0);
  CHECK(!next_event());
  /* One marker after the whole graph counts all of them. */
  CHECK(told.issues == 1 && told.issued_seq == 4 && told.issued_many == 3);
  CHECK(told.touched_bytes == 10 * BLOCK + 128 && told.issued_stream == STREAM);
  CHECK(pump_shm->shim_counters.operations == 4);
  CHECK(pump_shm->shim_counters.graph_operations == 4);
  CHECK(pump_shm->shim_counters.graph_launches == 1);
  CHECK(pump_shm->shim_counters.graphs_unknown == 0);
  CHECK(launch_graph(4) == 5);
}

static void a_node_comes_after_all_that_it_depends_on(void) {
  struct pump_range_info a = range(A, 1), b = range(B, 1);
  struct node *last = kernel(A, 0), *first = set(A, 4), *middle = child(NULL);
  struct node *inside = copy(B, A, 4), *before = kernel(B, 0);
  middle->child = GRAPH(inside, before);
  edge(middle->child, before, inside);
  struct graph *graph = GRAPH(last, middle, first);
  edge(graph, middle, last);
  edge(graph, first, middle);
  instantiate(EXEC, graph);
  launch_graph(4);
  next_is(PUMP_EVENT_MEMSET, 1, 1);
  next_is(PUMP_EVENT_KERNEL, 2, 1);
  CHECK(uses_at(0, &b, 0));
  next_is(PUMP_EVENT_COPY, 3, 2);
  next_is(PUMP_EVENT_KERNEL, 4, 1);
  CHECK(uses_at(0, &a, 0));
}

static void a_kernel_in_a_graph_has_the_signature_that_it_has_outside(void) {
  range(A, 1);
  struct node *node = kernel(A, 77);
  instantiate(EXEC, GRAPH(node));
  launch_graph(1);
  next_is(PUMP_EVENT_KERNEL, 1, 1);
  uint64_t signature = head.signature;
  CHECK(launch(node->params, NULL) == CUDA_SUCCESS && next_event());
  CHECK(signature != 0 && head.signature == signature);
}

static void what_a_kernel_has_besides_is_told_once_and_again_when_asked(void) {
  range(A, 1);
  instantiate(EXEC, GRAPH(kernel(A, 1), kernel(A, 2)));
  for (int i = 0; i < 3; i++) {
    if (i == 2) pump_shm->header.resend++;
    CHECK(cuGraphLaunch(EXEC, STREAM) == CUDA_SUCCESS);
    int told_once = 0;
    while (next_of_any_kind()) told_once += head.kind == PUMP_EVENT_PARAMS;
    CHECK(told_once == (i == 1 ? 0 : 2));
  }
}

static void parameters_are_those_of_the_instantiation(void) {
  struct pump_range_info a = range(A, 1);
  range(B, 1);
  struct node *node = kernel(A, 0);
  instantiate(EXEC, GRAPH(node));
  kernel_params(node, B, B);
  memset(&driver.sizes, 0xff, sizeof driver.sizes); /* the layout does not matter either */
  pump_params_forget();
  launch_graph(1);
  next_is(PUMP_EVENT_KERNEL, 1, 1);
  CHECK(uses_at(0, &a, 0));
}

static void a_pointer_means_what_lives_at_its_address_at_the_launch(void) {
  struct pump_range_info a = range(A, 4), gone;
  instantiate(EXEC, GRAPH(kernel(A, B), set(A, 4)));
  launch_graph(2);
  next_is(PUMP_EVENT_KERNEL, 1, 1);
  next_is(PUMP_EVENT_MEMSET, 2, 1);
  CHECK(pump_range_remove(A, &gone) == 0);
  pump_range_release(gone.slot);
  launch_graph(1);
  next_is(PUMP_EVENT_KERNEL, 3, 0);
  struct pump_range_info b = range(B, 1), again = range(A, 2);
  CHECK(again.slot != a.slot || again.generation != a.generation);
  launch_graph(2);
  next_is(PUMP_EVENT_KERNEL, 4, 2);
  CHECK(uses_at(0, &again, 0) && uses_at(1, &b, 8));
  next_is(PUMP_EVENT_MEMSET, 5, 1);
  CHECK(extent_is(0, &again, 0, 16, PUMP_ACCESS_WRITE));
}

static void a_node_may_get_other_parameters(void) {
  struct pump_range_info a = range(A, 1), b = range(B, 1);
  struct node *nodes[] = {kernel(A, 0), copy(A, A, 4), set(A, 4)}, changed;
  instantiate(EXEC, GRAPH(nodes[0], nodes[1], nodes[2]));
  launch_graph(3);
  while (next_event());
  kernel_params(&changed, B, 0);
  CUDA_KERNEL_NODE_PARAMS_v2 params;
  get_kernel(handle(&changed), &params);
  CHECK(cuGraphExecKernelNodeSetParams_v2(EXEC, handle(nodes[0]), &params) == 0);
  CUDA_MEMCPY3D copied = copy(B, B, 8)->copy;
  CHECK(cuGraphExecMemcpyNodeSetParams(EXEC, handle(nodes[1]), &copied, NULL) == 0);
  CUDA_MEMSET_NODE_PARAMS_v1 filled = set(B, 8)->set;
  CHECK(cuGraphExecMemsetNodeSetParams(EXEC, handle(nodes[2]), &filled, NULL) == 0);
  launch_graph(3);
  next_is(PUMP_EVENT_KERNEL, 4, 1);
  CHECK(uses_at(0, &b, 0));
  next_is(PUMP_EVENT_COPY, 5, 2);
  CHECK(extent_is(0, &b, 0, 8, PUMP_ACCESS_READ));
  next_is(PUMP_EVENT_MEMSET, 6, 1);
  CHECK(extent_is(0, &b, 0, 32, PUMP_ACCESS_WRITE));
  CUgraphNodeParams any = {.type = CU_GRAPH_NODE_TYPE_MEMSET, .memset = nodes[2]->set};
  CHECK(cuGraphExecNodeSetParams(EXEC, handle(nodes[2]), &any) == 0);
  driver.answer = CUDA_ERROR_INVALID_VALUE; /* this call changes nothing */
  CHECK(cuGraphExecMemsetNodeSetParams(EXEC, handle(nodes[2]), &filled, NULL) != 0);
  driver.answer = CUDA_SUCCESS;
  launch_graph(3);
  next_is(PUMP_EVENT_KERNEL, 7, 1);
  next_is(PUMP_EVENT_COPY, 8, 2);
  next_is(PUMP_EVENT_MEMSET, 9, 1);
  CHECK(extent_is(0, &a, 0, 16, PUMP_ACCESS_WRITE));
}

static void memory_of_its_own_counts_as_device_memory(void) {
  range(A, 1);
  struct node *node = kernel(A, 0);
  instantiate(EXEC, GRAPH(node));
  launch_graph(1);
  CHECK(asked == 0);
  instantiate(EXEC, GRAPH(other(CU_GRAPH_NODE_TYPE_MEM_ALLOC), node));
  reserved_bytes = 5 * BLOCK;
  pump_reporting = 0; /* dormant programs are counted too */
  for (int i = 0; i < 3; i++) CHECK(cuGraphLaunch(EXEC, STREAM) == CUDA_SUCCESS);
  CHECK(told.plain_bytes == 5 * (int64_t)BLOCK && asked == 1);
  pump_reporting = 1;
  reserved_bytes = 2 * BLOCK; /* what the driver keeps */
  CHECK(cuGraphExecDestroy(EXEC) == CUDA_SUCCESS);
  CHECK(told.plain_bytes == 2 * (int64_t)BLOCK && asked == 2);
  CHECK(cuDeviceGraphMemTrim(3) == CUDA_SUCCESS && told.plain_bytes == 0);
}

static void an_event_that_a_graph_records_is_believed_no_more(void) {
  range(A, 1);
  struct node *node = other(CU_GRAPH_NODE_TYPE_EVENT_RECORD);
  node->words[0] = 5 * 64;
  pump_reporting = 0; /* dormant for a while */
  instantiate(EXEC, GRAPH(kernel(A, 0), child(GRAPH(node))));
  CHECK(told.event_distrusted == (CUevent)(5 * 64));
  CUevent second = (CUevent)(6 * 64), third = (CUevent)(7 * 64);
  CHECK(cuGraphExecEventRecordNodeSetEvent(EXEC, handle(node), second) == CUDA_SUCCESS);
  CHECK(told.event_distrusted == second);
  CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD, .event = third};
  CHECK(cuGraphExecNodeSetParams(EXEC, handle(node), &params) == CUDA_SUCCESS);
  CHECK(told.event_distrusted == third);
}

static void each_graph_is_counted_when_it_first_takes_its_memory(void) {
  CUgraphExec second = (CUgraphExec)((uintptr_t)EXEC + 64);
  range(A, 1);
  instantiate(EXEC, GRAPH(other(CU_GRAPH_NODE_TYPE_MEM_ALLOC), kernel(A, 0)));
  instantiate(second, GRAPH(other(CU_GRAPH_NODE_TYPE_MEM_ALLOC), kernel(A, 0)));
  reserved_bytes = 3 * BLOCK;
  CHECK(cuGraphUpload(EXEC, STREAM) == CUDA_SUCCESS && asked == 1);
  CHECK(told.plain_bytes == 3 * (int64_t)BLOCK);
  reserved_bytes = 5 * BLOCK;
  CHECK(cuGraphLaunch(EXEC, STREAM) == CUDA_SUCCESS && asked == 2);
  CHECK(told.plain_bytes == 5 * (int64_t)BLOCK);
  reserved_bytes = 12 * BLOCK;
  CHECK(cuGraphLaunch(second, STREAM) == CUDA_SUCCESS && asked == 3);
  CHECK(told.plain_bytes == 12 * (int64_t)BLOCK);
  CHECK(cuDeviceGraphMemTrim(3) == CUDA_SUCCESS && told.plain_bytes == 0 && asked == 4);
  reserved_bytes = 7 * BLOCK; /* the graph takes memory again */
  for (int i = 0; i < 3; i++) CHECK(cuGraphLaunch(second, STREAM) == CUDA_SUCCESS);
  CHECK(told.plain_bytes == 7 * (int64_t)BLOCK && asked == 5);
  CHECK(cuGraphExecDestroy(EXEC) == CUDA_SUCCESS && asked == 6);
  CHECK(cuGraphExecDestroy(second) == CUDA_SUCCESS && asked == 7);
  instantiate(EXEC, GRAPH(kernel(A, 0))); /* a graph without memory */
  CHECK(cuGraphUpload_ptsz(EXEC, STREAM) == CUDA_SUCCESS);
  CHECK(cuGraphLaunch(EXEC, STREAM) == CUDA_SUCCESS && asked == 7);
}

static void a_node_that_is_switched_off_is_no_operation(void) {
  range(A, 1);
  struct node *off = kernel(A, 0);
  instantiate(EXEC, GRAPH(off, set(A, 4)));
  CHECK(cuGraphNodeSetEnabled(EXEC, handle(off), 0) == CUDA_SUCCESS);
  launch_graph(1);
  next_is(PUMP_EVENT_MEMSET, 1, 1);
  CHECK(cuGraphNodeSetEnabled(EXEC, handle(off), 1) == CUDA_SUCCESS);
  launch_graph(2);
}

static void an_update_takes_the_place_of_all_and_keeps_names_and_switches(void) {
  struct pump_range_info a = range(A, 1), b = range(B, 1);
  struct node *first = kernel(A, 0), *second = set(A, 4);
  instantiate(EXEC, GRAPH(first, second));
  cuGraphNodeSetEnabled(EXEC, handle(second), 0);
  struct graph *graph = GRAPH(kernel(B, A), set(B, 4));
  CUgraphExecUpdateResultInfo info;
  CHECK(cuGraphExecUpdate_v2(EXEC, (CUgraph)(void *)graph, &info) == CUDA_SUCCESS);
  launch_graph(1);
  next_is(PUMP_EVENT_KERNEL, 1, 2);
  CHECK(uses_at(0, &b, 0) && uses_at(1, &a, 8));
  cuGraphNodeSetEnabled(EXEC, handle(second), 1);
  launch_graph(2);
  next_is(PUMP_EVENT_KERNEL, 2, 2);
  next_is(PUMP_EVENT_MEMSET, 3, 1);
  CHECK(extent_is(0, &b, 0, 16, PUMP_ACCESS_WRITE));
}

static void a_child_takes_the_place_of_another(void) {
  struct pump_range_info b = range(B, 1);
  range(A, 1);
  struct node *inside = kernel(A, 0), *outside = set(A, 4);
  struct node *both = child(GRAPH(set(A, 4), child(GRAPH(inside))));
  instantiate(EXEC, GRAPH(outside, both));
  struct graph *graph = GRAPH(set(B, 8), child(GRAPH(kernel(B, 0))));
  CUgraph given = (CUgraph)(void *)graph;
  CHECK(cuGraphExecChildGraphNodeSetParams(EXEC, handle(both), given) == CUDA_SUCCESS);
  launch_graph(3);
  next_is(PUMP_EVENT_MEMSET, 1, 1);
  next_is(PUMP_EVENT_MEMSET, 2, 1);
  CHECK(extent_is(0, &b, 0, 32, PUMP_ACCESS_WRITE));
  next_is(PUMP_EVENT_KERNEL, 3, 1);
  CHECK(uses_at(0, &b, 0));
  cuGraphNodeSetEnabled(EXEC, handle(inside), 0); /* by its earlier name */
  launch_graph(2);
}

static void a_graph_that_was_made_ready_to_launch_while_all_fitted_is_known_later(void) {
  struct pump_range_info a = range(A, 1);
  pump_reporting = 0;
  instantiate(EXEC, GRAPH(kernel(A, 0)));
  CHECK(cuGraphLaunch(EXEC, STREAM) == CUDA_SUCCESS && !next_of_any_kind());
  CHECK(pump_shm->shim_counters.graphs_unknown == 0);
  pump_reporting = 1;
  launch_graph(1);
  next_is(PUMP_EVENT_KERNEL, 1, 1);
  CHECK(uses_at(0, &a, 0));
}

static void a_launch_into_a_capture_is_no_operation(void) {
  range(A, 1);
  instantiate(EXEC, GRAPH(kernel(A, 0)));
  pump_captures = 1;
  driver.capturing = true; /* stream 0x42 */
  CHECK(cuGraphLaunch(EXEC, (CUstream)0x42) == CUDA_SUCCESS && !next_of_any_kind());
  launch_graph(1);
  CHECK(told.issues == 1);
}

static void a_failed_launch_is_no_operation(void) {
  range(A, 1);
  instantiate(EXEC, GRAPH(kernel(A, 0)));
  driver.answer = CUDA_ERROR_LAUNCH_FAILED;
  CHECK(cuGraphLaunch(EXEC, STREAM) == CUDA_ERROR_LAUNCH_FAILED && !next_of_any_kind());
}

static void a_graph_of_which_not_all_is_told_is_counted(void) {
  range(A, 1);
  CHECK(launch_graph(0) == 0 && pump_shm->shim_counters.graphs_unknown == 1);
  instantiate(EXEC, GRAPH(set(A, 4), other(CU_GRAPH_NODE_TYPE_CONDITIONAL)));
  launch_graph(1);
  next_is(PUMP_EVENT_MEMSET, 1, 1);
  CHECK(pump_shm->shim_counters.graphs_unknown == 2);
  silent = true;
  instantiate(EXEC, GRAPH(kernel(A, 0), set(A, 4)));
  launch_graph(1);
  next_is(PUMP_EVENT_MEMSET, 2, 1);
  CHECK(pump_shm->shim_counters.graphs_unknown == 3);
  silent = false;
  instantiate(EXEC, GRAPH(kernel(A, 0)));
  CHECK(cuGraphExecDestroy(EXEC) == CUDA_SUCCESS);
  CHECK(launch_graph(0) == 0 && pump_shm->shim_counters.graphs_unknown == 4);
}

static void more_parameters_than_the_bound_are_not_kept(void) {
  static uint64_t table[4096];
  tell_graphs();
  driver.sizes[0] = sizeof table, driver.parameters = 1;
  range(A, 1);
  uint32_t kept = 0;
  for (uintptr_t i = 0; i < 10000; i++) {
    struct node *node = kernel(0, 0);
    table[0] = A;
    node->params[0] = table;
    instantiate((CUgraphExec)(0x10000 + 8 * i), GRAPH(node));
    CHECK(cuGraphLaunch((CUgraphExec)(0x10000 + 8 * i), STREAM) == CUDA_SUCCESS);
    bool reported = false;
    while (next_of_any_kind()) reported |= head.kind == PUMP_EVENT_KERNEL;
    CHECK(reported ? kept == i : true); /* once full, it stays full */
    kept += reported;
  }
  CHECK(kept > 7000 && kept < 8192); /* of 32 KiB each, within 256 MiB */
  CHECK(pump_shm->shim_counters.graphs_unknown == 10000 - kept);
  CHECK(cuGraphExecDestroy((CUgraphExec)0x10000) == CUDA_SUCCESS);
  instantiate(EXEC, GRAPH(set(A, 4))); /* returned memory is available again */
  launch_graph(1);
}

int main(int argc, char **argv) {
  static const struct scenario scenarios[] = {
      SCENARIO(a_launch_is_an_operation_for_every_node_that_touches_memory),
      SCENARIO(a_node_comes_after_all_that_it_depends_on),
      SCENARIO(a_kernel_in_a_graph_has_the_signature_that_it_has_outside),
      SCENARIO(what_a_kernel_has_besides_is_told_once_and_again_when_asked),
      SCENARIO(parameters_are_those_of_the_instantiation),
      SCENARIO(a_pointer_means_what_lives_at_its_address_at_the_launch),
      SCENARIO(a_node_may_get_other_parameters),
      SCENARIO(memory_of_its_own_counts_as_device_memory),
      SCENARIO(an_event_that_a_graph_records_is_believed_no_more),
      SCENARIO(each_graph_is_counted_when_it_first_takes_its_memory),
      SCENARIO(a_node_that_is_switched_off_is_no_operation),
      SCENARIO(an_update_takes_the_place_of_all_and_keeps_names_and_switches),
      SCENARIO(a_child_takes_the_place_of_another),
      SCENARIO(a_graph_that_was_made_ready_to_launch_while_all_fitted_is_known_later),
      SCENARIO(a_launch_into_a_capture_is_no_operation),
      SCENARIO(a_failed_launch_is_no_operation),
      SCENARIO(a_graph_of_which_not_all_is_told_is_counted),
      SCENARIO(more_parameters_than_the_bound_are_not_kept),
  };
  return run_scenario(scenarios, sizeof scenarios / sizeof scenarios[0], argc, argv);
}
