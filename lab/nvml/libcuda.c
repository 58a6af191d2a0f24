/* libcuda.c - libcuda.so: has nothing of its own, and needs libcuda.so.1 (CMakeLists.txt).
 */
typedef int pump_nothing;
