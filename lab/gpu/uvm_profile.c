/* uvm_profile.c - reads a flattened device profile; times of kernels and fills.
 *
 * lab/pump_lab/profiles/keys.def lists the keys; the package pump_lab.profiles reads it
 * too. */
#include "uvm_profile.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum kind { KIND_NAME, KIND_U32, KIND_U64, KIND_DOUBLE, KIND_HOST, KIND_VERSION };

struct key {
  const char *name;
  enum kind kind;
  size_t offset;
  double minimum;
  double maximum;
};

static const struct key keys[] = {
#define PROFILE_KEY(name, kind, member, minimum, maximum)                                  \
  {name, KIND_##kind, offsetof(struct uvm_profile, member), minimum, maximum},
#define KERNEL_KEY(name, kind, member, minimum, maximum)
#include "lab/pump_lab/profiles/keys.def"
#undef PROFILE_KEY
#undef KERNEL_KEY
};
#define KEYS (sizeof(keys) / sizeof(keys[0]))

/* Offsets in struct uvm_kernel_timing. */
static const struct key kernel_keys[] = {
#define PROFILE_KEY(name, kind, member, minimum, maximum)
#define KERNEL_KEY(name, kind, member, minimum, maximum)                                   \
  {name, KIND_##kind, offsetof(struct uvm_kernel_timing, member), minimum, maximum},
#include "lab/pump_lab/profiles/keys.def"
#undef PROFILE_KEY
#undef KERNEL_KEY
};
#define KERNEL_KEYS (sizeof(kernel_keys) / sizeof(kernel_keys[0]))

struct parser {
  struct uvm_profile *out;
  char *error;
  size_t error_bytes;
  bool seen[KEYS];
};

static int fail(struct parser *parser, const char *what, const char *key, int key_length) {
  if (parser->error_bytes > 0)
    (void)snprintf(parser->error, parser->error_bytes, "device profile: %s '%.*s'", what,
                   key_length, key);
  return -1;
}

static const struct key *find(const struct key *table, size_t count, const char *name,
                              size_t length) {
  for (size_t i = 0; i < count; i++)
    if (strlen(table[i].name) == length && memcmp(table[i].name, name, length) == 0)
      return &table[i];
  return NULL;
}

/* Parses plain decimals with an optional exponent, as Python's repr writes them. strtod
 * depends on the locale; a profile must not. */
static bool read_number(const char *text, size_t length, double *out) {
  double value = 0, scale = 1;
  size_t i = 0, digits = 0;
  for (; i < length && text[i] >= '0' && text[i] <= '9'; i++, digits++)
    value = value * 10 + (text[i] - '0');
  if (i < length && text[i] == '.')
    for (i++; i < length && text[i] >= '0' && text[i] <= '9'; i++, digits++) {
      value = value * 10 + (text[i] - '0');
      scale *= 10;
    }
  if (digits == 0) return false;
  int exponent = 0;
  if (i < length && (text[i] == 'e' || text[i] == 'E')) {
    int sign = 1;
    i++;
    if (i < length && (text[i] == '+' || text[i] == '-')) sign = text[i++] == '-' ? -1 : 1;
    if (i == length) return false;
    for (; i < length && text[i] >= '0' && text[i] <= '9' && exponent < 400; i++)
      exponent = exponent * 10 + (text[i] - '0');
    exponent *= sign;
  }
  if (i != length) return false;
  value /= scale;
  for (; exponent > 0; exponent--) value *= 10;
  for (; exponent < 0; exponent++) value /= 10;
  *out = value;
  return true;
}

/* Returns whether the value is an integer. Values within bounds fit into one. */
static bool is_whole(double value) {
  return value == (double)(uint64_t)value;
}

static bool copy_name(char *out, const char *text, size_t length) {
  if (length == 0 || length >= UVM_PROFILE_NAME_BYTES) return false;
  memcpy(out, text, length);
  out[length] = 0;
  return true;
}

static bool read_version(const char *text, size_t length, uint32_t *major_minor) {
  const char *dot = memchr(text, '.', length);
  double major, minor;
  if (!dot || !read_number(text, (size_t)(dot - text), &major) ||
      !read_number(dot + 1, length - (size_t)(dot - text) - 1, &minor))
    return false;
  if (major > 99 || minor > 9 || !is_whole(major) || !is_whole(minor)) return false;
  major_minor[0] = (uint32_t)major;
  major_minor[1] = (uint32_t)minor;
  return true;
}

/* Returns false if the text is not a value of that kind, or out of the key's bounds. */
static bool store(void *out, const struct key *key, const char *text, size_t length) {
  char *field = (char *)out + key->offset;
  if (key->kind == KIND_NAME) return copy_name(field, text, length);
  if (key->kind == KIND_VERSION)
    return read_version(text, length, (uint32_t *)(void *)field);
  double value;
  if (!read_number(text, length, &value)) return false;
  if (!(value >= key->minimum && value <= key->maximum)) return false;
  if (key->kind == KIND_DOUBLE || key->kind == KIND_HOST) {
    memcpy(field, &value, sizeof value);
    return true;
  }
  if (!is_whole(value)) return false;
  if (key->kind == KIND_U64) {
    uint64_t whole = (uint64_t)value;
    memcpy(field, &whole, sizeof whole);
  } else {
    uint32_t whole = (uint32_t)value;
    memcpy(field, &whole, sizeof whole);
  }
  return true;
}

/* Stores kernel.NAME.gbps or kernel.NAME.min_us; NAME may contain dots. */
static int store_kernel(struct parser *parser, const char *key, size_t key_length,
                        const char *value, size_t value_length) {
  static const char prefix[] = "kernel.";
  const char *name = key + sizeof(prefix) - 1;
  const char *dot = NULL;
  for (const char *c = name; c < key + key_length; c++)
    if (*c == '.') dot = c;
  if (!dot) return fail(parser, "unknown key", key, (int)key_length);
  size_t suffix_length = key_length - (size_t)(dot + 1 - key);
  const struct key *rule = find(kernel_keys, KERNEL_KEYS, dot + 1, suffix_length);
  char kernel[UVM_PROFILE_NAME_BYTES];
  if (!rule || !copy_name(kernel, name, (size_t)(dot - name)))
    return fail(parser, "unknown key", key, (int)key_length);

  struct uvm_profile *out = parser->out;
  uint32_t i = 0;
  while (i < out->kernel_count && strcmp(out->kernels[i].name, kernel) != 0) i++;
  if (i == UVM_PROFILE_MAX_KERNELS)
    return fail(parser, "too many kernels, no space for", key, (int)key_length);
  struct uvm_kernel_timing *timing = &out->kernels[i];
  if (i == out->kernel_count) {
    memcpy(timing->name, kernel, sizeof kernel);
    timing->gbps = timing->min_us = -1; /* use the default, filled in at the end */
    out->kernel_count++;
  }
  if (*(double *)(void *)((char *)timing + rule->offset) >= 0)
    return fail(parser, "key given twice:", key, (int)key_length);
  if (!store(timing, rule, value, value_length))
    return fail(parser, "bad value of key", key, (int)key_length);
  return 0;
}

static int store_entry(struct parser *parser, const char *entry, size_t length) {
  const char *equals = memchr(entry, '=', length);
  if (!equals) return fail(parser, "missing '=' in", entry, (int)length);
  size_t key_length = (size_t)(equals - entry);
  const char *value = equals + 1;
  size_t value_length = length - key_length - 1;
  if (key_length > 7 && memcmp(entry, "kernel.", 7) == 0)
    return store_kernel(parser, entry, key_length, value, value_length);
  const struct key *rule = find(keys, KEYS, entry, key_length);
  if (!rule) return fail(parser, "unknown key", entry, (int)key_length);
  bool *seen = &parser->seen[rule - keys];
  if (*seen) return fail(parser, "key given twice:", entry, (int)key_length);
  *seen = true;
  if (!store(parser->out, rule, value, value_length))
    return fail(parser, "bad value of key", entry, (int)key_length);
  return 0;
}

int uvm_profile_parse(const char *text, struct uvm_profile *out, char *error,
                      size_t error_bytes) {
  struct parser parser = {.out = out, .error = error, .error_bytes = error_bytes};
  if (error_bytes > 0) error[0] = 0;
  memset(out, 0, sizeof *out);
  while (*text) {
    size_t length = strcspn(text, ";");
    if (length > 0 && store_entry(&parser, text, length) != 0) return -1;
    text += length;
    if (*text == ';') text++;
  }
  for (size_t i = 0; i < KEYS; i++)
    if (!parser.seen[i])
      return fail(&parser, "missing key", keys[i].name, (int)strlen(keys[i].name));
  for (size_t i = 0; i < KEYS; i++)
    if (keys[i].kind == KIND_HOST)
      *(double *)(void *)((char *)out + keys[i].offset) *= out->host_factor;
  if (out->remote_gbps == 0) out->remote_gbps = out->copy_h2d_gbps;
  for (uint32_t i = 0; i < out->kernel_count; i++) {
    if (out->kernels[i].gbps < 0) out->kernels[i].gbps = out->kernel_gbps;
    if (out->kernels[i].min_us < 0) out->kernels[i].min_us = out->kernel_min_us;
  }
  return 0;
}

uint64_t uvm_profile_kernel_ns(const struct uvm_profile *profile, const char *name,
                               uint64_t touched_bytes) {
  double gbps = profile->kernel_gbps, min_us = profile->kernel_min_us;
  for (uint32_t i = 0; i < profile->kernel_count; i++)
    if (strcmp(profile->kernels[i].name, name) == 0) {
      gbps = profile->kernels[i].gbps;
      min_us = profile->kernels[i].min_us;
    }
  double time_ns = (double)touched_bytes / gbps;
  if (time_ns < min_us * 1000) time_ns = min_us * 1000;
  return (uint64_t)(time_ns + 0.5);
}

uint64_t uvm_profile_fill_ns(const struct uvm_profile *profile, uint64_t length_bytes) {
  double time_ns = (double)length_bytes / profile->populate_gbps;
  if (time_ns < profile->kernel_min_us * 1000) time_ns = profile->kernel_min_us * 1000;
  return (uint64_t)(time_ns + 0.5);
}

/* Parts of kernel names of PyTorch, JAX, CuPy, cuBLAS and CUTLASS. */
static const char *const WIDE_KERNELS[] = {"gather",      "scatter",   "index_",
                                           "indexSelect", "embedding", "Embedding"};

uint32_t uvm_wide_uses(const char *name) {
  for (size_t i = 0; i < sizeof WIDE_KERNELS / sizeof *WIDE_KERNELS; i++)
    if (strstr(name, WIDE_KERNELS[i]) != NULL) return UVM_WIDE_ALL;
  return strstr(name, "gemm") != NULL ? 1u << 1 : 0;
}

bool uvm_wide_use(uint32_t wide, uint32_t use) {
  return (wide >> (use < UVM_WIDE_USES ? use : UVM_WIDE_USES - 1)) & 1;
}
