/* image_ptx.c - reads the declarations of a PTX text; its instructions are skipped.
 *
 * Keeps entries with their parameter layout, thread limit and static shared memory. Also
 * keeps global, constant and managed variables with numeric initial values. A parameter
 * starts at the next multiple of its alignment, as in the ABI.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "image.h"
#include "pump_cuda.h"

struct token {
  const char *text;
  size_t length;
};

struct parser {
  const char *at, *end;
  struct token token; /* length 0 at the end */
  struct image *image;
  int compute, ptx_version, target;
  bool no_memory;
};

static bool name_character(char c) {
  return isalnum((unsigned char)c) || strchr("_$%.", c);
}

static void skip_blanks(struct parser *p) {
  while (p->at < p->end) {
    if (isspace((unsigned char)*p->at)) {
      p->at++;
    } else if (p->end - p->at > 1 && p->at[0] == '/' && p->at[1] == '/') {
      while (p->at < p->end && *p->at != '\n') p->at++;
    } else if (p->end - p->at > 1 && p->at[0] == '/' && p->at[1] == '*') {
      p->at += 2;
      while (p->end - p->at > 1 && !(p->at[0] == '*' && p->at[1] == '/')) p->at++;
      p->at = p->end - p->at > 1 ? p->at + 2 : p->end;
    } else {
      return;
    }
  }
}

static void next(struct parser *p) {
  skip_blanks(p);
  const char *start = p->at;
  if (p->at == p->end) {
    p->token = (struct token){p->at, 0};
    return;
  }
  if (*p->at == '"') {
    p->at++;
    while (p->at < p->end && *p->at != '"') p->at++;
    if (p->at < p->end) p->at++;
  } else if (*p->at && name_character(*p->at)) {
    while (p->at < p->end && *p->at && name_character(*p->at)) p->at++;
  } else {
    p->at++;
  }
  p->token = (struct token){start, (size_t)(p->at - start)};
}

static bool is(const struct parser *p, const char *text) {
  size_t length = strlen(text);
  return p->token.length == length && memcmp(p->token.text, text, length) == 0;
}

static bool ended(const struct parser *p) {
  return p->token.length == 0;
}

static uint64_t number(const struct parser *p) {
  char text[40];
  size_t length = p->token.length < sizeof text - 1 ? p->token.length : sizeof text - 1;
  memcpy(text, p->token.text, length);
  text[length] = 0;
  /* 0fXXXXXXXX and 0dXXXXXXXXXXXXXXXX are floating-point bits in hexadecimal */
  if (length > 2 && text[0] == '0' && strchr("fFdD", text[1]))
    return strtoull(text + 2, NULL, 16);
  return strtoull(text, NULL, 0);
}

/* Returns the decimal number at `from`; reads nothing beyond the end of the image. */
static int decimal(const struct parser *p, const char *from) {
  int value = 0;
  for (; from < p->end && isdigit((unsigned char)*from) && value < 100000; from++)
    value = 10 * value + (*from - '0');
  return value;
}

/* Returns the size of ".u32" and similar types; 0 for anything else. */
static uint32_t type_bytes(const struct parser *p) {
  const char *t = p->token.text;
  size_t n = p->token.length;
  if (n < 3 || n > 6 || t[0] != '.' || !strchr("bsuf", t[1])) return 0;
  switch (decimal(p, t + 2)) {
  case 8:
    return 1;
  case 16:
    return 2;
  case 32:
    return 4;
  case 64:
    return 8;
  case 128:
    return 16;
  default:
    return 0;
  }
}

/* A declaration after its state space: [.align n] [.attribute(...)] [.vN] type name ["["
 * n "]"]. Parsing ends at the token after the declaration. */
struct declaration {
  struct token name;
  uint64_t length_bytes;
  uint32_t alignment, element_bytes;
  bool managed;
};

static bool declare(struct parser *p, struct declaration *d) {
  uint32_t vector = 1;
  memset(d, 0, sizeof *d);
  for (; !ended(p) && p->token.text[0] == '.'; next(p)) {
    if (is(p, ".align")) {
      next(p);
      d->alignment = (uint32_t)number(p);
    } else if (is(p, ".attribute")) {
      while (!ended(p) && !is(p, ")")) {
        if (is(p, ".managed")) d->managed = true;
        next(p);
      }
    } else if (is(p, ".v2") || is(p, ".v4")) {
      vector = is(p, ".v2") ? 2 : 4;
    } else if (type_bytes(p) != 0) {
      d->element_bytes = type_bytes(p);
    } else if (is(p, ".ptr")) {
      /* .ptr .space .align n: attributes of a pointer, not of the parameter */
      uint32_t own = d->alignment;
      for (next(p); is(p, ".global") || is(p, ".shared") || is(p, ".const") ||
                    is(p, ".local") || is(p, ".align");
           next(p))
        if (is(p, ".align")) next(p);
      d->alignment = own;
      break;
    }
  }
  if (ended(p) || d->element_bytes == 0) return false;
  d->name = p->token;
  d->length_bytes = (uint64_t)d->element_bytes * vector;
  if (d->alignment == 0) d->alignment = d->element_bytes * vector;
  next(p);
  while (is(p, "[")) {
    next(p);
    if (!is(p, "]")) {
      d->length_bytes *= number(p);
      next(p);
    }
    if (!is(p, "]")) return false;
    next(p);
  }
  return (d->alignment & (d->alignment - 1)) == 0;
}

static bool parameters(struct parser *p, struct image_kernel *kernel) {
  while (!ended(p) && !is(p, ")")) {
    struct declaration d;
    if (!is(p, ".param")) return false;
    next(p);
    if (!declare(p, &d) || d.length_bytes > UINT32_MAX / 2) return false;
    uint32_t offset = (kernel->parameter_bytes + d.alignment - 1) & ~(d.alignment - 1);
    if (!image_add_parameter(kernel, offset, (uint32_t)d.length_bytes)) {
      p->no_memory = true;
      return false;
    }
    if (is(p, ",")) next(p);
  }
  next(p);
  return true;
}

/* Skips "{ ... }" and adds up the shared variables declared in it. */
static void body(struct parser *p, struct image_kernel *kernel) {
  int depth = 0;
  do {
    if (is(p, "{")) depth++;
    if (is(p, "}")) depth--;
    if (kernel != NULL && is(p, ".shared")) {
      struct declaration d;
      next(p);
      if (declare(p, &d) && d.length_bytes > 0)
        kernel->shared_bytes =
            ((kernel->shared_bytes + d.alignment - 1) & ~(d.alignment - 1)) +
            (uint32_t)d.length_bytes;
      continue;
    }
    next(p);
  } while (!ended(p) && depth > 0);
}

static bool entry(struct parser *p) {
  next(p);
  struct image_kernel *kernel = image_add_kernel(p->image, p->token.text, p->token.length);
  if (kernel == NULL) {
    p->no_memory = true;
    return false;
  }
  kernel->ptx_version = p->ptx_version;
  kernel->binary_version = p->compute;
  kernel->registers = 32; /* a guess: the assembler chooses, PTX has no count */
  next(p);
  if (is(p, "(")) {
    next(p);
    if (!parameters(p, kernel)) return false;
  }
  while (!ended(p) && !is(p, "{") && !is(p, ";")) {
    if (is(p, ".maxntid") || is(p, ".reqntid")) {
      uint64_t threads = 1;
      do {
        next(p);
        threads *= number(p);
        next(p);
      } while (is(p, ","));
      kernel->max_threads = threads <= 1024 ? (uint32_t)threads : 1024;
      continue;
    }
    next(p);
  }
  if (is(p, "{")) body(p, kernel);
  return !ended(p) || p->token.text == p->end;
}

/* Appends an initial value if the variable has space for it; false without memory. */
static bool append(struct image_global *global, uint64_t value, uint32_t element_bytes) {
  uint64_t at = global->initial_bytes, end = at + element_bytes;
  if (end > global->length_bytes) return true;
  if ((at & (at - 1)) == 0 || at < element_bytes) { /* double it at powers of two */
    uint8_t *grown = realloc(global->initial, 2 * end);
    if (grown == NULL) return false;
    global->initial = grown;
  }
  memset(global->initial + at, 0, element_bytes);
  memcpy(global->initial + at, &value, element_bytes < 8 ? element_bytes : 8);
  global->initial_bytes = end;
  return true;
}

/* Reads "= 5" or "= {1, 2, 3}"; a value that is not a number (an address) stays zero.
 * Memory grows with the written values, not with the declared size; the rest is zero. */
static void initial_value(struct parser *p, struct image_global *global,
                          uint32_t element_bytes) {
  bool negative = false;
  for (next(p); !ended(p) && !is(p, ";"); next(p)) {
    if (is(p, "-")) negative = true;
    if (is(p, "{") || is(p, "}") || is(p, ",") || is(p, "-")) continue;
    uint64_t value = number(p);
    if (negative) value = 0 - value;
    negative = false;
    p->no_memory |= !append(global, value, element_bytes);
  }
}

static bool variable(struct parser *p, bool external) {
  struct declaration d;
  next(p);
  if (is(p, "[")) /* .const[bank] */
    while (!ended(p) && !is(p, ".align") && type_bytes(p) == 0) next(p);
  if (!declare(p, &d)) { /* texture and sampler references have no memory */
    while (!ended(p) && !is(p, ";")) next(p);
    return true;
  }
  if (!external && d.length_bytes > 0) {
    struct image_global *global = image_add_global(p->image, d.name.text, d.name.length);
    if (global == NULL) {
      p->no_memory = true;
      return false;
    }
    global->length_bytes = d.length_bytes;
    global->managed = d.managed;
    if (is(p, "=")) initial_value(p, global, d.element_bytes);
  }
  while (!ended(p) && !is(p, ";")) next(p);
  return !p->no_memory;
}

static bool module(struct parser *p) {
  bool external = false;
  while (!ended(p)) {
    if (is(p, ".version")) {
      next(p);
      int major = decimal(p, p->token.text);
      const char *dot = memchr(p->token.text, '.', p->token.length);
      p->ptx_version = 10 * major + (dot ? decimal(p, dot + 1) : 0);
    } else if (is(p, ".target")) {
      next(p);
      if (p->token.length > 3 && memcmp(p->token.text, "sm_", 3) == 0)
        p->target = decimal(p, p->token.text + 3);
    } else if (is(p, ".extern")) {
      external = true;
    } else if (is(p, ".entry")) {
      if (!entry(p)) return false;
    } else if (is(p, ".func")) {
      while (!ended(p) && !is(p, "{") && !is(p, ";")) next(p);
      if (is(p, "{")) body(p, NULL);
      external = false;
      if (!is(p, ";")) continue; /* the token after the body is already current */
    } else if (is(p, ".global") || is(p, ".const")) {
      if (!variable(p, external)) return false;
    }
    if (is(p, ";")) external = false;
    if (is(p, ".entry") || is(p, ".global") || is(p, ".const") || is(p, ".func") ||
        is(p, ".extern")) {
      if (!is(p, ".extern")) continue; /* body() stopped at a new declaration */
    }
    next(p);
  }
  return true;
}

int image_from_ptx(const char *text, size_t length_bytes, int compute, struct image **out,
                   char *error, size_t error_bytes) {
  struct parser p = {.at = text, .compute = compute, .image = image_new()};
  if (p.image == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  p.end = text + strnlen(text, length_bytes);
  next(&p);
  bool good = module(&p);
  int result = CUDA_SUCCESS;
  if (p.no_memory)
    result = image_fail(error, error_bytes, CUDA_ERROR_OUT_OF_MEMORY, "out of memory");
  else if (p.ptx_version == 0 || p.target == 0)
    result = image_fail(error, error_bytes, CUDA_ERROR_INVALID_PTX,
                        "PTX has no .version and .target");
  else if (!good)
    result = image_fail(
        error, error_bytes, CUDA_ERROR_INVALID_PTX, "cannot parse PTX near \"%.*s\"",
        p.end - p.token.text < 32 ? (int)(p.end - p.token.text) : 32, p.token.text);
  else if (p.target > compute)
    result = image_fail(error, error_bytes, CUDA_ERROR_NO_BINARY_FOR_GPU,
                        "PTX is for sm_%d, the device is sm_%d", p.target, compute);
  if (result == CUDA_SUCCESS)
    *out = p.image;
  else
    image_free(p.image);
  return result;
}
