# libpump.so: the interposer, preloaded into the job. No DT_NEEDED on libcuda.
set(PUMP_OBSERVE_SOURCES
  resolve.c
  resolve_dlsym.c
  resolve_error.c
  observe_start.c
  observe_range.c
  observe_blocks.c
  observe_plain.c
  observe_array.c
  observe_refused.c
  observe_rules.c
  observe_vmm.c
  observe_device.c
  observe_context.c
  observe_memory.c
  observe_pointer.c
  observe_pool.c
  observe_event.c
  observe_function.c
  observe_params.c
  observe_peer.c
  observe_words.c
  observe_tensor.c
  observe_tell.c
  observe_place.c
  observe_launch.c
  observe_images.c
  observe_globals.c
  image/image.c
  image/image_elf.c
  image/image_fatbin.c
  image/image_ptx.c
  image/image_source.c
  observe_copy.c
  observe_copy_nd.c
  observe_graph.c
  observe_graph_memory.c
  observe_graph_read.c
  observe_stream.c)
set(PUMP_POOL_SOURCES
  block_map.c
  pool_blocks.c
  pool_dead.c
  pool_kinds.c
  pool_segments.c
  pool_serve.c
  pool_streams.c)
set(PUMP_ACT_SOURCES
  act_adapt.c
  act_attach.c
  act_context.c
  act_event.c
  act_executor.c
  act_plan.c
  act_host_memory.c
  act_ledger.c
  act_limit.c
  act_link.c
  act_log.c
  act_marker.c
  act_node.c
  act_populate.c
  act_progress.c
  act_share.c
  act_start.c
  act_stream.c
  act_summary.c
  act_summary_file.c
  act_validate.c
  act_verdict.c)

add_library(pump SHARED ${PUMP_OBSERVE_SOURCES} ${PUMP_POOL_SOURCES} ${PUMP_ACT_SOURCES})
target_link_libraries(pump PRIVATE pump_flags Threads::Threads ${CMAKE_DL_LIBS})
target_compile_options(pump PRIVATE -ftls-model=initial-exec)
# Our own references to exported names mean our own functions.
target_link_options(pump PRIVATE -Wl,-Bsymbolic-functions)
set_target_properties(pump PROPERTIES
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/${PUMP_LIB_DIR})
install(TARGETS pump LIBRARY DESTINATION ${PUMP_LIB_DIR})
