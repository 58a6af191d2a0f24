# libpump.so: the interposer, preloaded into the job. No DT_NEEDED on libcuda.
set(PUMP_OBSERVE_SOURCES
  resolve.c
  resolve_dlsym.c
  observe_start.c
  observe_range.c
  observe_plain.c
  observe_device.c
  observe_context.c
  observe_memory.c
  observe_pointer.c
  observe_event.c
  observe_params.c
  observe_words.c
  observe_tell.c
  observe_place.c
  observe_launch.c
  observe_copy.c
  observe_stream.c)
set(PUMP_ACT_SOURCES
  act_adapt.c
  act_attach.c
  act_context.c
  act_executor.c
  act_host_memory.c
  act_limit.c
  act_link.c
  act_log.c
  act_marker.c
  act_populate.c
  act_progress.c
  act_start.c
  act_summary.c
  act_validate.c)

add_library(pump SHARED ${PUMP_OBSERVE_SOURCES} ${PUMP_ACT_SOURCES})
target_link_libraries(pump PRIVATE pump_flags Threads::Threads ${CMAKE_DL_LIBS})
target_compile_options(pump PRIVATE -ftls-model=initial-exec)
# Our own references to exported names mean our own functions.
target_link_options(pump PRIVATE -Wl,-Bsymbolic-functions)
set_target_properties(pump PROPERTIES
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/${PUMP_LIB_DIR})
install(TARGETS pump LIBRARY DESTINATION ${PUMP_LIB_DIR})
