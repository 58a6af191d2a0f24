/* fuzz_input.h - reads the input of a C target from the front. */
#ifndef FUZZ_INPUT_H
#define FUZZ_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct input {
  const uint8_t *at;
  size_t left;
};

/* Copies the available bytes and fills the rest with zeros. */
static inline void take(struct input *input, void *to, size_t bytes) {
  size_t there = bytes < input->left ? bytes : input->left;
  memset(to, 0, bytes);
  memcpy(to, input->at, there);
  input->at += there;
  input->left -= there;
}

#define must(holds)                                                                        \
  do {                                                                                     \
    if (holds) break;                                                                      \
    fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #holds);             \
    abort();                                                                               \
  } while (0)

#endif
