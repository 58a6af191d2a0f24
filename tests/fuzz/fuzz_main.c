/* fuzz_main.c - main() of the C targets.
 *
 *   TARGET FILE...            runs each file once (plain, or to repeat findings)
 *   TARGET -options CORPUS    with -DGUIDED: libFuzzer, guided by the executed code
 *
 * LibFuzzer expects clang's counters. Gcc instead calls a function at each edge of the
 * program (-fsanitize-coverage=trace-pc, with -Wl,--wrap=__sanitizer_cov_trace_pc). This
 * function increments the counter of its return address for libFuzzer.
 *
 * An input that takes more than SECONDS of CPU time is a failure. Too large allocations
 * are failures too, by options from fuzz_targets.py.
 */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#define SECONDS 2

static void too_slow(int number) {
  static const char words[] = "fuzz_main.c: more than 2 s for one input\n";
  (void)number;
  if (write(STDERR_FILENO, words, sizeof words - 1) < 0) _exit(3);
  abort();
}

static int one_input(const uint8_t *data, size_t bytes) {
  const struct itimerval most = {.it_value = {.tv_sec = SECONDS}}, none = {0};
  signal(SIGPROF, too_slow);
  setitimer(ITIMER_PROF, &most, NULL);
  int result = LLVMFuzzerTestOneInput(data, bytes);
  setitimer(ITIMER_PROF, &none, NULL);
  return result;
}

#ifdef GUIDED

#define COUNTERS 65536

int LLVMFuzzerRunDriver(int *count, char ***words,
                        int (*target)(const uint8_t *data, size_t bytes));
void __sanitizer_cov_8bit_counters_init(uint8_t *begin, uint8_t *end);
void __wrap___sanitizer_cov_trace_pc(void);
void __sanitizer_cov_trace_cmpf(float a, float b);
void __sanitizer_cov_trace_cmpd(double a, double b);

static uint8_t counters[COUNTERS];

void __wrap___sanitizer_cov_trace_pc(void) {
  uintptr_t edge = (uintptr_t)__builtin_return_address(0);
  counters[(edge ^ edge >> 16) % COUNTERS]++;
}

/* libFuzzer does not need these. */
void __sanitizer_cov_trace_cmpf(float a, float b) {
  (void)a, (void)b;
}

void __sanitizer_cov_trace_cmpd(double a, double b) {
  (void)a, (void)b;
}

int main(int count, char **words) {
  __sanitizer_cov_8bit_counters_init(counters, counters + COUNTERS);
  return LLVMFuzzerRunDriver(&count, &words, one_input);
}

#else

int main(int count, char **words) {
  for (int i = 1; i < count; i++) {
    FILE *file = fopen(words[i], "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0) return 2;
    long bytes = ftell(file);
    uint8_t *data = malloc(bytes > 0 ? (size_t)bytes : 1); /* exact size, for ASan */
    rewind(file);
    if (bytes < 0 || data == NULL || fread(data, 1, (size_t)bytes, file) != (size_t)bytes)
      return 2;
    one_input(data, (size_t)bytes);
    free(data);
    fclose(file);
  }
  return 0;
}

#endif
