/* trust.c - connects to a socket, and decides whether to trust its server.
 *
 * Only root and this process's own user are trusted: a server learns the job's addresses,
 * provides the memory that the shim maps, and may hold launches. The kernel reports which
 * user called listen (SO_PEERCRED, unix(7)); data from the peer is not evidence. Same for
 * Python clients: pump/wire/server.py. See docs/decisions/0032-who-serves.md.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "link.h"

/* Reads up to three numbers of a file in /proc; returns how many. */
static int read_numbers(const char *path, unsigned numbers[3]) {
  char text[64];
  int file = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t length = file < 0 ? -1 : read(file, text, sizeof text - 1);
  if (file >= 0) close(file);
  if (length <= 0) return 0;
  text[length] = '\0';
  return sscanf(text, "%u %u %u", &numbers[0], &numbers[1], &numbers[2]);
}

/* Returns whether `user` is the overflow user, which represents all users that this user
 * namespace does not map (user_namespaces(7)). */
static bool is_overflow_user(uid_t user) {
  unsigned map[3], overflow[3];
  bool maps_all = read_numbers("/proc/self/uid_map", map) == 3 && map[0] == 0 &&
                  map[1] == 0 && map[2] == UINT32_MAX;
  if (maps_all) return false;
  return user == (read_numbers("/proc/sys/kernel/overflowuid", overflow) == 1 ? overflow[0]
                                                                              : 65534);
}

/* Returns whether only this user can have put a socket there. The kernel opens a folder
 * with O_NOATIME only for its owner, by the user id outside of user namespaces. */
static bool in_own_closed_folder(const char *path) {
  char folder[sizeof((struct sockaddr_un *)0)->sun_path];
  snprintf(folder, sizeof folder, "%s", path);
  char *slash = strrchr(folder, '/');
  if (slash == NULL) return false;
  *slash = '\0';
  struct stat st;
  int number = open(folder, O_RDONLY | O_DIRECTORY | O_NOATIME | O_CLOEXEC);
  bool own = number >= 0 && fstat(number, &st) == 0 && (st.st_mode & 077) == 0;
  if (number >= 0) close(number);
  return own;
}

int pump_link_connect(const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  strcpy(address.sun_path, path);
  int number = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (number < 0) return -1;
  if (connect(number, (struct sockaddr *)&address, sizeof address) == 0) return number;
  int error = errno;
  close(number);
  errno = error;
  return -1;
}

bool pump_link_trusts(int number, const char *path) {
  struct ucred peer;
  socklen_t length = sizeof peer;
  if (getsockopt(number, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return false;
  if (peer.uid == 0) return true;
  return peer.uid == geteuid() &&
         (!is_overflow_user(peer.uid) || in_own_closed_folder(path));
}
