/* amount.h - parses an amount of memory that pump-run passes to the shim: "" for none,
 * bytes in decimal, a percentage ("80%") or a multiple ("1.5x"). The variable decides
 * what percentages and multiples refer to.
 */
#ifndef PUMP_AMOUNT_H
#define PUMP_AMOUNT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum pump_amount_kind {
  PUMP_AMOUNT_NONE,
  PUMP_AMOUNT_BYTES,
  PUMP_AMOUNT_PERCENT,
  PUMP_AMOUNT_TIMES, /* value in thousandths */
};

struct pump_amount {
  enum pump_amount_kind kind;
  uint64_t value;
};

/* Reads digits into `value`. Returns the rest, or NULL without digits or above 2^62. */
static inline const char *pump_amount_digits(const char *text, uint64_t *value) {
  const char *at = text;
  *value = 0;
  for (; *at >= '0' && *at <= '9'; at++) {
    if (*value > (UINT64_C(1) << 62) / 10) return NULL;
    *value = *value * 10 + (uint64_t)(*at - '0');
  }
  return at == text ? NULL : at;
}

/* Parses "", "123", "80%" or "1.5x" (at most three decimals). Returns false, and sets
 * `amount` to none, for any other text. */
static inline bool pump_amount_parse(const char *text, struct pump_amount *amount) {
  *amount = (struct pump_amount){PUMP_AMOUNT_NONE, 0};
  if (text == NULL || *text == '\0') return true;
  uint64_t whole, thousandths = 0;
  const char *at = pump_amount_digits(text, &whole);
  if (at == NULL) return false;
  if (*at == '\0') {
    *amount = (struct pump_amount){PUMP_AMOUNT_BYTES, whole};
    return true;
  }
  if (strcmp(at, "%") == 0) {
    if (whole < 1 || whole > 100) return false;
    *amount = (struct pump_amount){PUMP_AMOUNT_PERCENT, whole};
    return true;
  }
  if (*at == '.') {
    int scale = 100;
    for (at++; *at >= '0' && *at <= '9' && scale > 0; at++, scale /= 10)
      thousandths += (uint64_t)((*at - '0') * scale);
    if (at[-1] == '.') return false;
  }
  if (strcmp(at, "x") != 0 || whole > 1000 || whole + thousandths == 0) return false;
  *amount = (struct pump_amount){PUMP_AMOUNT_TIMES, whole * 1000 + thousandths};
  return true;
}

/* Converts to bytes: percentages of `whole_bytes`, multiples of `unit_bytes`. Returns
 * UINT64_MAX for none, for a percentage of UINT64_MAX, and for too large a multiple. */
static inline uint64_t pump_amount_bytes(struct pump_amount amount, uint64_t whole_bytes,
                                         uint64_t unit_bytes) {
  switch (amount.kind) {
  case PUMP_AMOUNT_BYTES:
    return amount.value;
  case PUMP_AMOUNT_PERCENT:
    if (whole_bytes == UINT64_MAX) return UINT64_MAX;
    return whole_bytes / 100 * amount.value + whole_bytes % 100 * amount.value / 100;
  case PUMP_AMOUNT_TIMES:
    if (unit_bytes / 1000 > UINT64_MAX / 2 / amount.value) return UINT64_MAX;
    return unit_bytes / 1000 * amount.value + unit_bytes % 1000 * amount.value / 1000;
  case PUMP_AMOUNT_NONE:
    break;
  }
  return UINT64_MAX;
}

#endif
