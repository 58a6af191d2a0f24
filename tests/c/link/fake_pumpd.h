/* fake_pumpd.h - pumpd as the tests of the link play it: it serves one connection at a
 * time.
 */
#ifndef FAKE_PUMPD_H
#define FAKE_PUMPD_H

#include "executor_harness.h"

extern struct pumpd {
  int listener, connection;
  char path[100];
  struct pump_shm *shm; /* its own mapping of the present memfd */
  struct pump_hello hello;
  uint32_t abi_version, status;
  int seals;
  uint64_t size;
  uint64_t magic;
  bool no_room;         /* leaves the process no address space for the client's mapping */
  uint64_t asked_bytes; /* budget that a worker asks for before its client has attached */
} pumpd;

void pumpd_start(void);
void pumpd_end(void);
/* Waits for a client, takes its hello and answers as configured. */
void pumpd_accept(void);
/* Accepts, and waits until the client works in the new mapping. */
void pumpd_accept_and_attach(uint64_t attaches);
void pumpd_die(void);
/* Number of the client's socket in the table of its link thread: the only one at 900 or
 * above. */
int link_socket(void);

#endif
