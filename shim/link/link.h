/* link.h - the connection to pumpd, and the mapping of its memory over the region. */
#ifndef PUMP_LINK_H
#define PUMP_LINK_H

#include "shim/base/base.h"

/* Maps `memory`, a memfd of pumpd, over the region and carries the state over. Returns
 * false if it is not as agreed or cannot be mapped; the caller closes it. */
bool pump_attach(int memory);

/* Returns a socket that is connected to `path` and never blocks, or -1 with errno. */
int pump_link_connect(const char *path);

/* Returns whether root or this process's own user serves the socket `number`, which is
 * connected to `path` (trust.c). */
bool pump_link_trusts(int number, const char *path);

/* Starts the link thread once, if PUMP_SOCKET names a socket, PUMP_LEDGER names a folder,
 * or a rule has made this process a job (the thread then asks for a pumpd). */
void pump_link_start(void);

/* Writes $XDG_RUNTIME_DIR, or else the default, to `path`; false if it is too long. */
bool pump_link_runtime_folder(char *path, size_t capacity);
/* Returns whether this user's manager listens for requests for a pumpd (pump enable).
 * Does not wait. */
bool pump_link_activates(void);

/* Returns how often the worker was lost, for the summary. */
uint32_t pump_link_losses(void);
/* Returns whether there is no socket to connect to, or nothing listened at the last
 * attempt. pump-run's pumpd listens before the program starts. */
bool pump_link_unheard(void);
/* Requests the end of the link thread without waiting for it. The connection ends with
 * the process. Only the link thread touches the descriptor, so it cannot be closed
 * between another thread's check and use. */
void pump_link_stop(void);
void pump_link_fork_child(void);

#endif
