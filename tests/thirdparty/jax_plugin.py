"""A pytest plugin for the suites: JAX looks for /dev/nvidia0, which the virtual GPU lacks."""

from jax._src import hardware_utils

hardware_utils.has_visible_nvidia_gpu = lambda: True
