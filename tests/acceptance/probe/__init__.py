"""Asks a real GPU the questions on which pump's design depends, and writes JSON.

The probe does not benchmark pump. It needs only cuda-bindings (with NVRTC for the kernels) and the
standard library. The page docs/uvm.md lists what each question settles and how to read its answer.

DESIGN
- Each question runs in its own child process (the same program with --question). The watchdog ends
  a hanging child, a sticky CUDA error dies with its child, and the child's notes up to then are
  kept. The parent never calls the driver.
- cuda-bindings does the setup: init, context, attributes, NVRTC, modules, error names. Timed calls,
  and calls whose ABI must be exact (prefetch has two), go straight to libcuda through ctypes. The
  binding's overhead would hide microseconds, and its version of a call changes between releases.
  `call_cost` reports the cost of an empty ctypes call.
- Managed memory stays within --max-managed (at most 4 GiB) and 90 % of the free GPU memory. More
  could hang a machine. The probe never oversubscribes, changes a setting or resets anything.
  Questions that need oversubscription are listed as not asked.
- Times are wall-clock nanoseconds around calls (perf_counter) or CUDA event times for kernels.
  Every number is a summary of repeats: n, median, p10, p90, p99, min, max.
"""
