/* card_state.h - the file of a virtual GPU that several processes share. Internal to
 * card*.c.
 *
 * Each name has one file: /dev/shm/pump-card-UID-NAME (or in the folder
 * PUMP_VIRTUAL_CARDS). It begins with this struct, in its own page; the model's state
 * follows. */
#ifndef PUMP_VIRTUAL_CARD_STATE_H
#define PUMP_VIRTUAL_CARD_STATE_H

#include <sys/types.h>

#include "card.h"

#define CARD_MAGIC 0x6472616370756d70ull /* "pumpcard" */
#define CARD_VERSION 1u
#define CARD_STATE_OFFSET 4096u
#define CARD_NAME_BYTES 49 /* including the closing zero */

/* One process and its program: an exec changes the start of the stack. */
struct card_process {
  int32_t pid; /* 0: none */
  uint32_t reserved;
  uint64_t started;   /* in ticks since boot */
  uint64_t stack_top; /* 0 if the kernel does not report it */
};

struct card {
  uint64_t magic; /* written last */
  uint32_t version;
  uint32_t capacity_hash; /* hash of all that must match: see shape() */
  uint64_t bytes;
  uint64_t pid_namespace;
  char profile_name[UVM_PROFILE_NAME_BYTES];
  char profile_hash[16];
  pthread_mutex_t lock; /* robust; guards the fields below and the model's state */
  struct card_process processes[GPU_MAX_OWNERS]; /* indexed by owner */
  uint64_t joined;
  uint64_t died;       /* processes that ended without leaving */
  uint64_t peak_bytes; /* plain and resident bytes of all processes */
};
_Static_assert(sizeof(struct card) <= CARD_STATE_OFFSET, "the state begins behind it");

/* card.c */
/* Returns the shared GPU that this process has joined, or NULL. */
const struct card *card_of_process(void);

/* card_process.c */
void card_process_self(struct card_process *out);
bool card_process_is_alive(const struct card_process *process);
uint64_t card_pid_namespace(void);

/* card_file.c */
/* Builds the path of the shared GPU's file; returns -1 after an error message. */
int card_path(const char *name, char *path, size_t bytes);
/* Opens and locks the file at `path`, and creates it if necessary. Returns -1 after an
 * error message. Until card_close(), no process can join or leave. */
int card_open(const char *path);
/* Opens and locks an existing file; returns -1 if there is none, or it stays locked. */
int card_open_existing(const char *path);
void card_close(int file);
/* Removes this user's shared GPU files that no process uses, in the folder of `path`. */
void card_remove_stale(const char *path);

#endif
