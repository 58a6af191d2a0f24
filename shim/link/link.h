/* link.h - the connection to pumpd, and its memory put under the region. */
#ifndef PUMP_LINK_H
#define PUMP_LINK_H

#include "shim/base/base.h"

/* Replaces the region's memory by `memory`, a memfd of pumpd's, and carries its
 * state over. False when it is not what was agreed on; the caller closes it. */
bool pump_attach(int memory);

/* A socket connected to `path`, which never blocks; else -1 and errno. */
int pump_link_connect(const char *path);

/* Whether root or this process's own user serves the connected socket `number`, found at
 * `path`: trust.c. */
bool pump_link_trusts(int number, const char *path);

/* Starts the thread where PUMP_SOCKET names a socket, PUMP_LEDGER a folder, or a rule has
 * made this process a job, which then asks for a pumpd; once. */
void pump_link_start(void);

/* $XDG_RUNTIME_DIR, else the session's; false where it is longer than a socket allows. */
bool pump_link_runtime_folder(char *path, size_t room);
/* Whether this user's manager listens where pumpds are asked for (pump enable). Waits for
 * nothing. */
bool pump_link_activates(void);

/* How often the worker was lost, for the summary. */
uint32_t pump_link_losses(void);
/* Whether there is no socket to connect to, or nothing listened when the thread last tried:
 * pump-run's listens before the program starts. */
bool pump_link_unheard(void);
/* The thread shall do nothing more; does not wait for it. The connection ends with
 * the process: only the link thread touches the descriptor, so no thread can be
 * between checking and using it when it is closed. */
void pump_link_stop(void);
void pump_link_fork_child(void);

#endif
