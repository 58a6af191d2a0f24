/* libcuda.c - libcuda.so: empty, and linked to libcuda.so.1 (CMakeLists.txt). */
typedef int pump_nothing;
