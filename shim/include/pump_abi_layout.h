/* pump_abi_layout.h - asserts the position of everything in the contract. A field that
 * moves makes another version of the contract (pump_abi.h, which includes this file). */
#ifndef PUMP_ABI_LAYOUT_H
#define PUMP_ABI_LAYOUT_H

#define PUMP_ASSERT_SIZE(type, bytes)                                                      \
  _Static_assert(sizeof(struct type) == (bytes), #type " has an unexpected size")
#define PUMP_ASSERT_OFFSET(type, field, bytes)                                             \
  _Static_assert(offsetof(struct type, field) == (bytes), #type "." #field " moved")

PUMP_ASSERT_SIZE(pump_hello, 64);
PUMP_ASSERT_OFFSET(pump_hello, abi_version, 8);
PUMP_ASSERT_OFFSET(pump_hello, client_pid, 12);
PUMP_ASSERT_OFFSET(pump_hello, shm_bytes, 16);
PUMP_ASSERT_OFFSET(pump_hello, reserved, 24);

PUMP_ASSERT_SIZE(pump_welcome, 64);
PUMP_ASSERT_OFFSET(pump_welcome, abi_version, 8);
PUMP_ASSERT_OFFSET(pump_welcome, status, 12);
PUMP_ASSERT_OFFSET(pump_welcome, shm_bytes, 16);
PUMP_ASSERT_OFFSET(pump_welcome, reserved, 24);

PUMP_ASSERT_SIZE(pump_header, 448);
PUMP_ASSERT_OFFSET(pump_header, abi_version, 8);
PUMP_ASSERT_OFFSET(pump_header, header_bytes, 12);
PUMP_ASSERT_OFFSET(pump_header, shm_bytes, 16);
PUMP_ASSERT_OFFSET(pump_header, client_pid, 24);
PUMP_ASSERT_OFFSET(pump_header, worker_pid, 28);
PUMP_ASSERT_OFFSET(pump_header, client_state, 32);
PUMP_ASSERT_OFFSET(pump_header, device_count, 36);
PUMP_ASSERT_OFFSET(pump_header, range_version, 40);
PUMP_ASSERT_OFFSET(pump_header, range_high, 48);
PUMP_ASSERT_OFFSET(pump_header, worker_heartbeat_ns, 56);
PUMP_ASSERT_OFFSET(pump_header, activity, 64);
PUMP_ASSERT_OFFSET(pump_header, recording, 72);
PUMP_ASSERT_OFFSET(pump_header, stops, 76);
PUMP_ASSERT_OFFSET(pump_header, stop_began_ns, 80);
PUMP_ASSERT_OFFSET(pump_header, stop_ended_ns, 96);
PUMP_ASSERT_OFFSET(pump_header, issuers, 112);
PUMP_ASSERT_OFFSET(pump_header, next_seq, 128);
PUMP_ASSERT_OFFSET(pump_header, event_tail, 192);
PUMP_ASSERT_OFFSET(pump_header, event_free_end, 200);
PUMP_ASSERT_OFFSET(pump_header, event_head, 256);
PUMP_ASSERT_OFFSET(pump_header, worker_asleep, 320);
PUMP_ASSERT_OFFSET(pump_header, worker_wakes, 324);
PUMP_ASSERT_OFFSET(pump_header, resend, 328);
PUMP_ASSERT_OFFSET(pump_header, armed, 384); /* a cache line of its own */
PUMP_ASSERT_OFFSET(pump_header, valid_seq, 392);

PUMP_ASSERT_SIZE(pump_device, 128);
PUMP_ASSERT_OFFSET(pump_device, uuid, 0);
PUMP_ASSERT_OFFSET(pump_device, total_bytes, 16);
PUMP_ASSERT_OFFSET(pump_device, free_at_start_bytes, 24);
PUMP_ASSERT_OFFSET(pump_device, budget_bytes, 32);
PUMP_ASSERT_OFFSET(pump_device, allocated_bytes, 40);
PUMP_ASSERT_OFFSET(pump_device, plain_bytes, 48);
PUMP_ASSERT_OFFSET(pump_device, device_state, 56);
PUMP_ASSERT_OFFSET(pump_device, emulated, 60);
PUMP_ASSERT_OFFSET(pump_device, asked_budget_bytes, 64); /* a cache line of its own */
PUMP_ASSERT_OFFSET(pump_device, adopted_budget_bytes, 72);
PUMP_ASSERT_OFFSET(pump_device, neighbours, 80);
PUMP_ASSERT_OFFSET(pump_device, held_threads, 84);
PUMP_ASSERT_OFFSET(pump_device, held_until_ns, 88);
PUMP_ASSERT_OFFSET(pump_device, yield_until_ns, 96);
PUMP_ASSERT_OFFSET(pump_device, ready_seq, 104);
PUMP_ASSERT_OFFSET(pump_device, reserved, 112);

PUMP_ASSERT_SIZE(pump_progress, 64);
PUMP_ASSERT_OFFSET(pump_progress, issued_seq, 0);
PUMP_ASSERT_OFFSET(pump_progress, executed_seq, 8);
PUMP_ASSERT_OFFSET(pump_progress, device, 16);
PUMP_ASSERT_OFFSET(pump_progress, live, 20);
PUMP_ASSERT_OFFSET(pump_progress, reserved, 24);

PUMP_ASSERT_SIZE(pump_range, 128);
PUMP_ASSERT_OFFSET(pump_range, version, 0);
PUMP_ASSERT_OFFSET(pump_range, generation, 8);
PUMP_ASSERT_OFFSET(pump_range, range_kind, 12);
PUMP_ASSERT_OFFSET(pump_range, base, 16);
PUMP_ASSERT_OFFSET(pump_range, length_bytes, 24);
PUMP_ASSERT_OFFSET(pump_range, device, 32);
PUMP_ASSERT_OFFSET(pump_range, reserved0, 36);
PUMP_ASSERT_OFFSET(pump_range, alloc_seq, 40);
PUMP_ASSERT_OFFSET(pump_range, reserved, 48);
PUMP_ASSERT_OFFSET(pump_range, last_use_seq, 64); /* a cache line of its own */

PUMP_ASSERT_SIZE(pump_extent, 24);
PUMP_ASSERT_OFFSET(pump_extent, slot, 0);
PUMP_ASSERT_OFFSET(pump_extent, generation, 4);
PUMP_ASSERT_OFFSET(pump_extent, offset_bytes, 8);
PUMP_ASSERT_OFFSET(pump_extent, length_access, 16);

PUMP_ASSERT_SIZE(pump_params, 32);
PUMP_ASSERT_OFFSET(pump_params, block, 12);
PUMP_ASSERT_OFFSET(pump_params, parameter_bytes, 24);
PUMP_ASSERT_OFFSET(pump_params, identity, 28);

PUMP_ASSERT_SIZE(pump_event, 128);
PUMP_ASSERT_OFFSET(pump_event, sequence, 0);
PUMP_ASSERT_OFFSET(pump_event, seq, 8);
PUMP_ASSERT_OFFSET(pump_event, time_ns, 16);
PUMP_ASSERT_OFFSET(pump_event, function, 24);
PUMP_ASSERT_OFFSET(pump_event, kind, 32);
PUMP_ASSERT_OFFSET(pump_event, extent_count, 34);
PUMP_ASSERT_OFFSET(pump_event, stream, 36);
PUMP_ASSERT_OFFSET(pump_event, device, 40);
PUMP_ASSERT_OFFSET(pump_event, extents_dropped, 42);
PUMP_ASSERT_OFFSET(pump_event, payload_bytes, 44);
PUMP_ASSERT_OFFSET(pump_event, signature, 48);
PUMP_ASSERT_OFFSET(pump_event, extents, 56);

PUMP_ASSERT_SIZE(pump_command, 56);
PUMP_ASSERT_OFFSET(pump_command, ticket, 0);
PUMP_ASSERT_OFFSET(pump_command, slot, 8);
PUMP_ASSERT_OFFSET(pump_command, generation, 12);
PUMP_ASSERT_OFFSET(pump_command, offset_bytes, 16);
PUMP_ASSERT_OFFSET(pump_command, length_bytes, 24);
PUMP_ASSERT_OFFSET(pump_command, observed_seq, 32);
PUMP_ASSERT_OFFSET(pump_command, needed_by_seq, 40);
PUMP_ASSERT_OFFSET(pump_command, stream, 48);
PUMP_ASSERT_OFFSET(pump_command, advice, 52);

PUMP_ASSERT_SIZE(pump_executors_sleep, 64);
PUMP_ASSERT_OFFSET(pump_executors_sleep, asleep, 0);
PUMP_ASSERT_OFFSET(pump_executors_sleep, wakes, 4);

PUMP_ASSERT_SIZE(pump_entry, 88);
PUMP_ASSERT_OFFSET(pump_entry, after_seq, 56);
PUMP_ASSERT_OFFSET(pump_entry, left_bytes, 64);
PUMP_ASSERT_OFFSET(pump_entry, ended_bytes, 72);
PUMP_ASSERT_OFFSET(pump_entry, after_stream, 80);
PUMP_ASSERT_OFFSET(pump_entry, duplicates, 84);

PUMP_ASSERT_SIZE(pump_schedule, 45248);
PUMP_ASSERT_OFFSET(pump_schedule, cursor, 0);
PUMP_ASSERT_OFFSET(pump_schedule, count, 8);
PUMP_ASSERT_OFFSET(pump_schedule, made_ns, 16);
PUMP_ASSERT_OFFSET(pump_schedule, left_bytes, 64);   /* a cache line of its own */
PUMP_ASSERT_OFFSET(pump_schedule, ended_bytes, 128); /* another */
PUMP_ASSERT_OFFSET(pump_schedule, entries, 192);

PUMP_ASSERT_SIZE(pump_entry_end, 48);
PUMP_ASSERT_OFFSET(pump_entry_end, ticket, 0);
PUMP_ASSERT_OFFSET(pump_entry_end, result, 8);
PUMP_ASSERT_OFFSET(pump_entry_end, duration_us, 12);
PUMP_ASSERT_OFFSET(pump_entry_end, ended_ns, 16);
PUMP_ASSERT_OFFSET(pump_entry_end, waited_us, 24);
PUMP_ASSERT_OFFSET(pump_entry_end, link_us, 36);
PUMP_ASSERT_OFFSET(pump_entry_end, kept, 40);
PUMP_ASSERT_OFFSET(pump_entry_end, reserved, 44);

PUMP_ASSERT_SIZE(pump_prediction, 16);
PUMP_ASSERT_OFFSET(pump_prediction, signature, 0);
PUMP_ASSERT_OFFSET(pump_prediction, shape, 8);

PUMP_ASSERT_SIZE(pump_shim_counters, 320);
PUMP_ASSERT_OFFSET(pump_shim_counters, events_dropped, 0);
PUMP_ASSERT_OFFSET(pump_shim_counters, extents_dropped, 8);
PUMP_ASSERT_OFFSET(pump_shim_counters, ranges_untracked, 16);
PUMP_ASSERT_OFFSET(pump_shim_counters, converted_bytes_peak, 24);
PUMP_ASSERT_OFFSET(pump_shim_counters, moved_to_gpu_bytes, 32);
PUMP_ASSERT_OFFSET(pump_shim_counters, moved_to_host_bytes, 40);
PUMP_ASSERT_OFFSET(pump_shim_counters, commands_stale, 48);
PUMP_ASSERT_OFFSET(pump_shim_counters, commands_late, 56);
PUMP_ASSERT_OFFSET(pump_shim_counters, commands_dead, 64);
PUMP_ASSERT_OFFSET(pump_shim_counters, commands_invalid, 72);
PUMP_ASSERT_OFFSET(pump_shim_counters, commands_failed, 80);
PUMP_ASSERT_OFFSET(pump_shim_counters, markers, 88);
PUMP_ASSERT_OFFSET(pump_shim_counters, populate_bytes, 96);
PUMP_ASSERT_OFFSET(pump_shim_counters, attaches, 104);
PUMP_ASSERT_OFFSET(pump_shim_counters, signatures, 112);
PUMP_ASSERT_OFFSET(pump_shim_counters, graph_launches, 120);
PUMP_ASSERT_OFFSET(pump_shim_counters, graph_operations, 128);
PUMP_ASSERT_OFFSET(pump_shim_counters, graphs_unknown, 136);
PUMP_ASSERT_OFFSET(pump_shim_counters, discarded_bytes, 144);
PUMP_ASSERT_OFFSET(pump_shim_counters, block_events, 152);
PUMP_ASSERT_OFFSET(pump_shim_counters, block_dead_bytes, 160);
PUMP_ASSERT_OFFSET(pump_shim_counters, scheduled_bytes, 168);
PUMP_ASSERT_OFFSET(pump_shim_counters, schedules_dropped, 176);
PUMP_ASSERT_OFFSET(pump_shim_counters, own_contexts, 184);
PUMP_ASSERT_OFFSET(pump_shim_counters, gates, 192);
PUMP_ASSERT_OFFSET(pump_shim_counters, gates_forced, 200);
PUMP_ASSERT_OFFSET(pump_shim_counters, held_ns, 208);
PUMP_ASSERT_OFFSET(pump_shim_counters, gates_large, 216);
PUMP_ASSERT_OFFSET(pump_shim_counters, reserved, 224);
PUMP_ASSERT_OFFSET(pump_shim_counters, operations, 256);

PUMP_ASSERT_SIZE(pump_worker_counters, 256);
PUMP_ASSERT_OFFSET(pump_worker_counters, operations, 0);
PUMP_ASSERT_OFFSET(pump_worker_counters, operations_hit, 8);
PUMP_ASSERT_OFFSET(pump_worker_counters, blocks_used, 16);
PUMP_ASSERT_OFFSET(pump_worker_counters, blocks_hit, 24);
PUMP_ASSERT_OFFSET(pump_worker_counters, miss_late, 32);
PUMP_ASSERT_OFFSET(pump_worker_counters, miss_unseen, 40);
PUMP_ASSERT_OFFSET(pump_worker_counters, miss_no_room, 48);
PUMP_ASSERT_OFFSET(pump_worker_counters, miss_policy, 56);
PUMP_ASSERT_OFFSET(pump_worker_counters, resyncs, 64);
PUMP_ASSERT_OFFSET(pump_worker_counters, overshoot_bytes_peak, 72);
PUMP_ASSERT_OFFSET(pump_worker_counters, ticks, 80);
PUMP_ASSERT_OFFSET(pump_worker_counters, schedules, 88);
PUMP_ASSERT_OFFSET(pump_worker_counters, catch_ups, 96);
PUMP_ASSERT_OFFSET(pump_worker_counters, ops_larger, 104);
PUMP_ASSERT_OFFSET(pump_worker_counters, recorded_file, 112);
PUMP_ASSERT_OFFSET(pump_worker_counters, recording_error, 120);
PUMP_ASSERT_OFFSET(pump_worker_counters, predicted, 128);
PUMP_ASSERT_OFFSET(pump_worker_counters, figures_final, 144);
PUMP_ASSERT_OFFSET(pump_worker_counters, lost_ns, 152);
PUMP_ASSERT_OFFSET(pump_worker_counters, lost_least_ns, 160);
PUMP_ASSERT_OFFSET(pump_worker_counters, lost_most_ns, 168);
PUMP_ASSERT_OFFSET(pump_worker_counters, lost_of_ns, 176);
PUMP_ASSERT_OFFSET(pump_worker_counters, lost_delayed_ns, 184);
PUMP_ASSERT_OFFSET(pump_worker_counters, in_place_bytes_peak, 192);
PUMP_ASSERT_OFFSET(pump_worker_counters, reserved, 200);

PUMP_ASSERT_SIZE(pump_shm, 19783680);
PUMP_ASSERT_OFFSET(pump_shm, header, 0);
PUMP_ASSERT_OFFSET(pump_shm, shim_counters, 448);
PUMP_ASSERT_OFFSET(pump_shm, worker_counters, 768);
PUMP_ASSERT_OFFSET(pump_shm, devices, 1024);
PUMP_ASSERT_OFFSET(pump_shm, progress, 3072);
PUMP_ASSERT_OFFSET(pump_shm, executors, 68608);
PUMP_ASSERT_OFFSET(pump_shm, schedules, 70656);
PUMP_ASSERT_OFFSET(pump_shm, entry_ends, 794624);
PUMP_ASSERT_OFFSET(pump_shm, predicted, 843776);
PUMP_ASSERT_OFFSET(pump_shm, events, 909312);
PUMP_ASSERT_OFFSET(pump_shm, ranges, 3006464);

#endif
