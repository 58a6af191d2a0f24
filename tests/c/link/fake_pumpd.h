/* fake_pumpd.h - a fake pumpd for tests of the link; serves one connection at a time. */
#ifndef FAKE_PUMPD_H
#define FAKE_PUMPD_H

#include "executor_harness.h"

extern struct pumpd {
  int listener, connection;
  char path[100];
  struct pump_shm *shm; /* its own mapping of the current memfd */
  struct pump_hello hello;
  uint32_t abi_version, status;
  int seals;
  uint64_t size;
  uint64_t magic;
  bool no_room;         /* leaves no address space for the client's mapping */
  uint64_t asked_bytes; /* budget that a worker requests before its client has attached */
} pumpd;

void pumpd_start(void);
void pumpd_end(void);
/* Waits for a client, receives its hello and answers as configured. */
void pumpd_accept(void);
/* Accepts, and waits until the client uses the new mapping. */
void pumpd_accept_and_attach(uint64_t attaches);
void pumpd_die(void);
/* Returns the number of the client's socket, the only one >= 900 in its link thread's
 * table. */
int link_socket(void);

#endif
