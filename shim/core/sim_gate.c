/* sim_gate.c - gates as the shim sets them (act_gate.c): a wait in front of a launch whose
 * blocks are all there or in flight.
 *
 * Known by the commands alone: a mover has one in flight that was made for this very launch
 * before it was issued, and that says that nothing else is missing.
 */
#include "sim_state.h"

#define GATE_NS 5000000u /* PUMP_GATE_NS of act_gate.c: it opens by then */

static bool serves(const struct pump_command *command, uint64_t seq, uint32_t stream) {
  return command->needed_by_seq == seq && command->stream == stream;
}

enum { NOT_IN_FLIGHT, IN_FLIGHT, COMPLETE };

/* What the movers have in flight for a launch; COMPLETE: one says that it lacks no more. */
static int in_flight(const struct pump_sim *sim, uint64_t seq, uint32_t stream,
                     uint64_t function) {
  int found = NOT_IN_FLIGHT;
  for (uint32_t i = 0; i < SIM_MOVERS; i++) {
    const struct sim_mover *mover = &sim->directions[PUMP_TO_GPU].movers[i];
    for (uint32_t n = 0; n < mover->in_flight; n++) {
      uint32_t at = (mover->oldest + n) % sim->settings.lanes[PUMP_TO_GPU];
      const struct sim_lane *lane = &mover->lanes[at];
      const struct pump_command *command = &lane->job.command;
      if (lane->job.populates || !serves(command, seq, stream)) continue;
      if (command->function == function) return COMPLETE;
      found = IN_FLIGHT;
    }
  }
  return found;
}

void sim_gate_before(struct pump_sim *sim, const struct pump_sim_step *step) {
  if (sim->settings.gate == PUMP_SIM_GATE_NEVER || sim->model == NULL) return;
  if (step->kind != GPU_KERNEL || step->signature == 0) return;
  if (sim->gate_count == SIM_GATES || sim->gated_step == sim->step + 1) return;
  if (in_flight(sim, step->seq, step->stream + 1, step->signature) != COMPLETE) return;
  struct gpu_operation wait = {.kind = GPU_HOST, .cookie = SIM_GATE_COOKIE};
  struct gpu_submitted submitted;
  if (gpu_submit(sim->engine, sim->now_ns, &sim->hooks, sim->streams[step->stream].number,
                 &wait, &submitted) != GPU_OK)
    return;
  sim->gated_step = sim->step + 1;
  sim->gates[sim->gate_count++] = (struct sim_gate){.ticket = submitted.ticket,
                                                    .seq = step->seq,
                                                    .stream = step->stream + 1,
                                                    .until_ns = sim->now_ns + GATE_NS};
  sim->result.gates++;
}

void sim_gates_finished(struct pump_sim *sim, const struct pump_command *command) {
  if (sim->settings.gate != PUMP_SIM_GATE) return;
  for (uint32_t i = 0; i < sim->gate_count; i++) {
    struct sim_gate *gate = &sim->gates[i];
    if (serves(command, gate->seq, gate->stream) &&
        in_flight(sim, gate->seq, gate->stream, 0) == NOT_IN_FLIGHT)
      gate->open = true;
  }
}

void sim_gates_go(struct pump_sim *sim) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < sim->gate_count; i++) {
    struct sim_gate gate = sim->gates[i];
    if (!gate.open && gate.until_ns <= sim->now_ns) {
      gate.open = true;
      sim->result.gates_late++;
    }
    /* GPU_INVALID: the stream has not come to it yet. */
    if (!gate.open ||
        gpu_complete(sim->engine, sim->now_ns, &sim->hooks, gate.ticket) != GPU_OK)
      sim->gates[kept++] = gate;
  }
  sim->gate_count = kept;
}

uint64_t sim_gates_next_ns(const struct pump_sim *sim) {
  uint64_t next = GPU_NEVER;
  for (uint32_t i = 0; i < sim->gate_count; i++)
    if (!sim->gates[i].open) next = sim_least(next, sim->gates[i].until_ns);
  return next;
}
