"""Asks a real GPU the questions on which pump's design rests; JSON out. Not a benchmark of pump.

It needs cuda-bindings (with NVRTC for the kernels) and the standard library, nothing of pump's.
docs/uvm.md says which claim each question settles and how to read the answer.

DESIGN
- One question, one child process (the same program, with --question). A hang meets the watchdog,
  a sticky CUDA error dies with its child, and what a child has noted so far is kept. The parent
  never calls the driver.
- cuda-bindings sets the stage: init, context, attributes, NVRTC, modules, error names. Every
  call that is timed, or whose ABI must be exact (prefetch has two), goes straight to libcuda
  through ctypes: the binding's overhead would drown microseconds, and its flavour of a call
  changes between versions. `call_cost` publishes what an empty ctypes call costs.
- Managed memory stays within --max-managed (at most 4 GiB) and below 90 % of what the card has
  free at that moment: managed memory beyond the free memory can hang a machine. Nothing here
  oversubscribes, changes a setting or resets anything. What only oversubscription could tell is
  listed as not asked.
- Times are wall-clock nanoseconds around calls (perf_counter) or CUDA event times for kernels;
  every figure is a summary of repeats: n, median, p10, p90, p99, min, max.
"""
