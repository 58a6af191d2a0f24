/* sim_wakes.c - when a waiting thread continues: at once while it spins, otherwise late.
 *
 * Simulated threads spin at the start of each wait. Real threads spin only if their last
 * wait was short (pump_spin_ns), which makes almost no difference
 * (docs/decisions/0048-wake-ups.md).
 */
#include "lab/gpu/random.h"
#include "sim_state.h"

static bool make_sense(const struct pump_sim_delays *delays) {
  uint32_t last = delays->count - 1;
  if (last >= PUMP_SIM_QUANTILES || !(delays->ns[0] >= 0)) return false;
  for (uint32_t i = 0; i < last; i++)
    if (!(delays->shares[i] < delays->shares[i + 1]) ||
        !(delays->ns[i] <= delays->ns[i + 1]))
      return false;
  return last == 0 || (delays->shares[0] == 0 && delays->shares[last] == 1);
}

bool sim_waits_init(struct pump_sim *sim) {
  uint64_t seed = 3 * sim->settings.wake_seed; /* three sequences for each seed */
  sim->wait.random = seed;
  for (uint32_t direction = 0; direction < PUMP_DIRECTIONS; direction++)
    sim->directions[direction].wait.random = seed + 1 + direction;
  return make_sense(&sim->settings.worker_wake) && make_sense(&sim->settings.mover_wake);
}

uint64_t pump_sim_delay_ns(const struct pump_sim_delays *delays, uint64_t *random) {
  if (delays->count == 1) return (uint64_t)delays->ns[0];
  double share = gpu_random(random);
  uint32_t i = 0;
  while (share >= delays->shares[i + 1]) i++;
  double within = (share - delays->shares[i]) / (delays->shares[i + 1] - delays->shares[i]);
  return (uint64_t)(delays->ns[i] + within * (delays->ns[i + 1] - delays->ns[i]));
}

uint64_t sim_wait_end_ns(struct sim_wait *wait, const struct pump_sim_delays *delays,
                         uint64_t since_ns, uint64_t visible_ns) {
  wait->end_ns = visible_ns;
  if (visible_ns - since_ns > PUMP_SPIN_NS)
    wait->end_ns += pump_sim_delay_ns(delays, &wait->random);
  return wait->end_ns;
}
