/* card_state.h - a virtual GPU that several processes share: its file. Internal to card*.c.
 *
 * One file for a name: /dev/shm/pump-card-UID-NAME (or in the folder PUMP_VIRTUAL_CARDS).
 * First this struct, in a page of its own, then the model's state.
 */
#ifndef PUMP_VIRTUAL_CARD_STATE_H
#define PUMP_VIRTUAL_CARD_STATE_H

#include <sys/types.h>

#include "card.h"

#define CARD_MAGIC 0x6472616370756d70ull /* "pumpcard" */
#define CARD_VERSION 1u
#define CARD_STATE_OFFSET 4096u
#define CARD_NAME_BYTES 49 /* with the closing zero */

/* One process, and the program in it: an exec changes where its stack starts. */
struct card_process {
  int32_t pid; /* 0: none */
  uint32_t reserved;
  uint64_t started;   /* in ticks since boot */
  uint64_t stack_top; /* 0 where the kernel does not tell */
};

struct card {
  uint64_t magic; /* written last */
  uint32_t version;
  uint32_t capacity_hash; /* of what else has to agree: see shape() */
  uint64_t bytes;
  uint64_t pid_namespace;
  char profile_name[UVM_PROFILE_NAME_BYTES];
  char profile_hash[16];
  pthread_mutex_t lock; /* robust; guards the rest and the model's state */
  struct card_process processes[GPU_MAX_OWNERS]; /* by owner */
  uint64_t joined;
  uint64_t died;       /* without leaving */
  uint64_t peak_bytes; /* plain and resident, of all */
};
_Static_assert(sizeof(struct card) <= CARD_STATE_OFFSET, "the state begins behind it");

/* card.c */
const struct card *card_of_process(void); /* NULL: none was joined */

/* card_process.c */
void card_process_self(struct card_process *out);
bool card_process_lives(const struct card_process *process);
uint64_t card_pid_namespace(void);

/* card_file.c */
/* Path of the card of that name; -1 after an error was told. */
int card_path(const char *name, char *path, size_t bytes);
/* Opens and locks the file of `path`, making it when it is not there. -1 after an error
 * was told. Until card_close() no process comes or goes. */
int card_open(const char *path);
/* The same of a file that is there; -1 when it is not, or not within the time. */
int card_open_existing(const char *path);
void card_close(int file);
/* Removes this user's cards that no process uses, in the folder of `path`. */
void card_remove_stale(const char *path);

#endif
