/* send_metadata.c - sends the worker a launch's metadata once: the function's name, grid,
 * block and parameters.
 *
 * DESIGN. A table remembers sent metadata, with one word per signature. A set of the
 * table is one cache line. The word is made of four values: the signature, the worker's
 * requests to send everything again (`resend`), the number of the mapping, and the number
 * of unloads. So a change of any value invalidates the word. Words are read and written
 * relaxed, and a full set evicts one word, because sending something twice is harmless. A
 * word is written only after its event is in the ring. If the ring is full, the metadata
 * counts as not sent.
 *
 * A function's name precedes its first parameters. So if a launch's metadata was sent
 * before, one look-up is enough.
 */
#include <string.h>

#include "record.h"

#define SET_WORDS 8u
/* Holds as many signatures as the worker, which forgets the least recently used one
 * [derived: pump_extents_new]. */
#define SETS 2048u
#define NAME_SALT 0x6e616d65u

static uint64_t sent[SETS][SET_WORDS] __attribute__((aligned(64)));
/* Incremented with each mapping, because a new mapping has received nothing. */
static uint32_t mappings;

void pump_metadata_void(void) {
  PUMP_ADD(&mappings, 1);
}

/* Returns the current word of `what`; never 0. */
static uint64_t word_for(uint64_t what) {
  uint64_t since = (uint64_t)PUMP_LOAD(&pump_shm->header.resend) << 32 ^
                   (uint64_t)PUMP_LOAD(&mappings) << 48 ^ pump_params_epoch();
  return (what ^ since * 0xd6e8feb86659fd93u) | 1;
}

uint64_t pump_metadata_state(void) {
  return word_for(0);
}

static uint64_t *set_for(uint64_t what) {
  return sent[(what >> 32) % SETS]; /* both kinds of `what` are hashes */
}

static bool was_sent(uint64_t what, uint64_t word) {
  const uint64_t *set = set_for(what);
  bool found = false;
  for (uint32_t i = 0; i < SET_WORDS; i++) found |= PUMP_LOAD(&set[i]) == word;
  return found;
}

static void note_sent(uint64_t what, uint64_t word) {
  uint64_t *set = set_for(what);
  uint32_t bucket = (uint32_t)(pump_mix(word) % SET_WORDS);
  for (uint32_t i = 0; i < SET_WORDS; i++)
    if (PUMP_LOAD(&set[i]) == 0) bucket = i;
  PUMP_STORE(&set[bucket], word);
}

/* Sends a function's name. Returns false if the ring is full. */
static bool send_name(CUfunction function) {
  uint64_t what = pump_mix((uint64_t)(uintptr_t)function ^ NAME_SALT),
           word = word_for(what);
  if (was_sent(what, word)) return true;
  const char *name = NULL;
  if (pump_function_name(function, &name) == CUDA_SUCCESS && name != NULL) {
    struct pump_event head = {.function = (uint64_t)(uintptr_t)function,
                              .kind = PUMP_EVENT_NAME};
    if (!pump_event_payload(&head, name, strlen(name))) return false;
  }
  note_sent(what, word);
  return true;
}

static __attribute__((noinline)) bool send_params(const struct pump_launch *launch,
                                                  uint64_t signature, uint32_t identity) {
  struct {
    struct pump_params params;
    char buffer[PUMP_MAX_PAYLOAD_BYTES - sizeof(struct pump_params)];
  } payload;
  size_t bytes = pump_params_copy(launch, payload.buffer, sizeof payload.buffer);
  payload.params =
      (struct pump_params){.parameter_bytes = (uint32_t)bytes, .identity = identity};
  memcpy(payload.params.grid, launch->grid, sizeof launch->grid);
  memcpy(payload.params.block, launch->block, sizeof launch->block);
  struct pump_event head = {.function = (uint64_t)(uintptr_t)launch->function,
                            .kind = PUMP_EVENT_PARAMS,
                            .signature = signature};
  if (!pump_event_payload(&head, &payload, sizeof payload.params + bytes)) return false;
  PUMP_ADD(&pump_shm->shim_counters.signatures, 1);
  return true;
}

bool pump_send_metadata(const struct pump_launch *launch, uint64_t signature,
                        uint32_t identity) {
  uint64_t word = word_for(signature);
  if (PUMP_LIKELY(was_sent(signature, word))) return true;
  if (!send_name(launch->function) || !send_params(launch, signature, identity))
    return false;
  note_sent(signature, word);
  return true;
}
