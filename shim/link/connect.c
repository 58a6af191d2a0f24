/* connect.c - the connection to pumpd: hello, welcome, loss, retry.
 *
 * One thread, the link thread, does this. It receives the memfd of the memory shared with
 * the worker (pumpd's process for this client), has attach.c map it, and notices when the
 * worker is gone. It handles no ranges or commands. Nothing in the shim waits for an
 * absent daemon.
 *
 * The thread also keeps this process's entry in the ledger (host_claims.c), with or
 * without a pumpd, and its share of the GPU (memory/share.c).
 *
 * While attached, the thread adopts the budgets that the worker asks for. Any datagram
 * from the worker wakes the thread for this, and it checks whenever it is awake.
 *
 * DESIGN. Programs close all descriptors, or reuse the number of a closed one. So the
 * thread first takes a descriptor table of its own. The table has no descriptor of the
 * program: a copy would keep the program's pipes open. In turn the thread must do nothing
 * that needs the program's descriptors: no driver call, no thread start (the thread would
 * share our table), no write to stderr.
 *
 * If the kernel offers no such table (before 5.9, or with a system call filter), the
 * socket has a high number (900 and up) among the program's descriptors. Its device and
 * inode are compared before each use, so a number that the program took over is not used
 * or closed. Only a takeover at that very moment costs the program its descriptor.
 *
 * There are two pauses, both doubling: between unanswered attempts, and after workers
 * that died young. A worker that this client makes crash would otherwise be forked,
 * attached and lost again as fast as pumpd can fork.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "link.h"
#include "shim/base/settings.h"
#include "shim/execute/execute.h"
#include "shim/memory/host.h"

/* close_range() of Linux 5.9: same on all architectures, missing from older headers. */
#define CLOSE_RANGE_CALL 436
#define CLOSE_RANGE_OWN_TABLE 2u

#define PATH_BYTES sizeof(((struct sockaddr_un *)0)->sun_path)
#define ACTIVATOR "/pump/jobs" /* in the runtime folder (pump/base/paths.py) */

/* Why an attempt or a connection ended. */
enum end {
  NOT_ENDED,
  NO_LISTENER,
  NO_ANSWER,
  STRANGER,
  WRONG_VERSION,
  REFUSED,
  BAD_MEMORY,
  NO_ADDRESS_SPACE,
  WORKER_GONE,
  STOPPED
};

/* Written by the link thread, except `stop`. */
static struct {
  uint32_t stop; /* futex */
  uint32_t losses;
  uint32_t unheard;  /* nothing listened at the last attempt */
  int error;         /* errno of the last attempt; 0: there was no answer */
  int socket_number; /* -1: none */
  dev_t device;
  ino_t inode;
  char path[PATH_BYTES];
  char activator[PATH_BYTES]; /* where to ask for a pumpd; "": PUMP_SOCKET names it */
  bool started;
} link_state = {.socket_number = -1};

uint32_t pump_link_losses(void) {
  return PUMP_LOAD(&link_state.losses);
}

bool pump_link_unheard(void) {
  return link_state.path[0] == '\0' || PUMP_LOAD(&link_state.unheard) != 0;
}

/* Asks for executors on each device with a bit in `active`. A budget may make a dormant
 * device active: outbound threads are needed at once, not at its next operation. */
static void ask_for_executors(uint32_t active) {
  for (uint32_t device = 0; active != 0; device++, active >>= 1)
    if (active & 1) pump_executors_request(device);
}

static void keep_ledger(void) {
  bool fresh = pump_claims_keep();
  pump_limit_refresh(fresh);
  ask_for_executors(pump_share_refresh(fresh));
}

/* ---- the descriptor --------------------------------------------------------- */

/* The thread's first action. Descriptors that the call would close are not copied. */
static void take_own_table(void) {
  if (syscall(CLOSE_RANGE_CALL, 0u, ~0u, CLOSE_RANGE_OWN_TABLE) != 0) return;
  pump_log_defer();
  /* A sanitizer or the C library may write to descriptor 2, whatever it is. */
  for (int i = 0; i < 3 && open("/dev/null", O_RDWR | O_CLOEXEC) == i; i++) continue;
}

/* Returns our socket's number while it still is our socket, else -1. */
static int own_socket(void) {
  int number = __atomic_load_n(&link_state.socket_number, __ATOMIC_ACQUIRE);
  struct stat st;
  if (number < 0 || fstat(number, &st) != 0) return -1;
  return st.st_dev == link_state.device && st.st_ino == link_state.inode ? number : -1;
}

static void drop_socket(void) {
  int number = own_socket();
  __atomic_store_n(&link_state.socket_number, -1, __ATOMIC_RELEASE);
  if (number >= 0) close(number);
}

static bool keep_socket(int number) {
  int high = fcntl(number, F_DUPFD_CLOEXEC, PUMP_HIGH_DESCRIPTOR);
  if (high >= 0) {
    close(number);
    number = high;
  }
  struct stat st;
  if (fstat(number, &st) != 0) return false;
  link_state.device = st.st_dev;
  link_state.inode = st.st_ino;
  __atomic_store_n(&link_state.socket_number, number, __ATOMIC_RELEASE);
  return true;
}

static bool stopped(void) {
  return PUMP_LOAD_ACQUIRE(&link_state.stop) != 0;
}

/* ---- hello and welcome ------------------------------------------------------- */

/* Connects to the socket at `path` if its server is trusted; then own_socket() has it. */
static enum end connect_to(const char *path) {
  int number = pump_link_connect(path);
  link_state.error = number < 0 ? errno : 0;
  if (number < 0) return NO_LISTENER;
  bool trusted = pump_link_trusts(number, path);
  if (trusted && keep_socket(number)) return NOT_ENDED;
  close(number);
  return trusted ? NO_LISTENER : STRANGER;
}

static enum end connect_to_pumpd(void) {
  enum end end = connect_to(link_state.path);
  int error = link_state.error;
  bool refused = end == NO_LISTENER && (error == ENOENT || error == ECONNREFUSED);
  PUMP_STORE(&link_state.unheard, end == STRANGER || refused);
  return end;
}

static bool send_hello(void) {
  struct pump_hello hello = {.magic = PUMP_HELLO_MAGIC,
                             .abi_version = PUMP_ABI_VERSION,
                             .client_pid = (uint32_t)getpid(),
                             .shm_bytes = sizeof(struct pump_shm)};
  int number = own_socket();
  return number >= 0 &&
         send(number, &hello, sizeof hello, MSG_NOSIGNAL) == (ssize_t)sizeof hello;
}

/* Takes the descriptors of a message: keeps the first one, closes the others. */
static int take_descriptor(struct msghdr *message) {
  int kept = -1;
  for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c != NULL; c = CMSG_NXTHDR(message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; i++) {
      int one;
      memcpy(&one, CMSG_DATA(c) + i * sizeof one, sizeof one);
      if (kept < 0)
        kept = one;
      else
        close(one);
    }
  }
  return kept;
}

/* Waits until the socket has something to read; returns false after the timeout. */
static bool wait_readable(int timeout_ms) {
  struct pollfd ready = {.fd = own_socket(), .events = POLLIN};
  return ready.fd >= 0 && poll(&ready, 1, timeout_ms) == 1;
}

static bool receive_welcome(struct pump_welcome *welcome, int *memory) {
  _Alignas(struct cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))];
  struct iovec part = {.iov_base = welcome, .iov_len = sizeof *welcome};
  struct msghdr message = {.msg_iov = &part,
                           .msg_iovlen = 1,
                           .msg_control = control,
                           .msg_controllen = sizeof control};
  *memory = -1;
  int number = own_socket();
  if (number < 0) return false;
  ssize_t n = recvmsg(number, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (n < 0) return false;
  *memory = take_descriptor(&message);
  return n == (ssize_t)sizeof *welcome && welcome->magic == PUMP_HELLO_MAGIC;
}

/* ---- asking for a pumpd ------------------------------------------------------- */

bool pump_link_runtime_folder(char *path, size_t capacity) {
  const char *session = getenv("XDG_RUNTIME_DIR");
  int length = session != NULL && session[0] == '/'
                   ? snprintf(path, capacity, "%s", session)
                   : snprintf(path, capacity, "/run/user/%u", (unsigned)geteuid());
  return length > 0 && (size_t)length < capacity;
}

static bool find_activator(char path[PATH_BYTES]) {
  if (!pump_link_runtime_folder(path, PATH_BYTES - strlen(ACTIVATOR))) return false;
  strcat(path, ACTIVATOR);
  return true;
}

bool pump_link_activates(void) {
  char path[PATH_BYTES];
  int number = find_activator(path) ? pump_link_connect(path) : -1;
  if (number < 0) return false;
  bool trusted = pump_link_trusts(number, path);
  close(number);
  return trusted;
}

static bool send_settings(void) {
  static char text[PUMP_ACTIVATION_BYTES]; /* one thread only */
  size_t used = 0;
  for (const char *const *line = pump_settings_of_rule(); line != NULL && *line; line++) {
    int n = snprintf(text + used, sizeof text - used, "%s\n", *line);
    if (n < 0 || (size_t)n >= sizeof text - used) return false;
    used += (size_t)n;
  }
  int number = own_socket();
  return number >= 0 && send(number, text, used, MSG_NOSIGNAL) == (ssize_t)used;
}

/* Has a pumpd started for this process; stores its socket's path in link_state.path. */
static enum end activate_pumpd(void) {
  char path[PATH_BYTES];
  enum end end = connect_to(link_state.activator);
  if (end != NOT_ENDED) return end;
  int number;
  ssize_t length = -1;
  if (send_settings() && wait_readable(PUMP_ACTIVATION_MS) && (number = own_socket()) >= 0)
    length = recv(number, path, sizeof path - 1, MSG_DONTWAIT);
  drop_socket();
  if (length <= 0 || path[0] != '/') return NO_LISTENER;
  path[length] = '\0';
  strcpy(link_state.path, path);
  return NOT_ENDED;
}

/* ---- one connection ----------------------------------------------------------- */

static enum end attach_to_worker(void) {
  bool asks = link_state.activator[0] != '\0' &&
              (link_state.path[0] == '\0' || PUMP_LOAD(&link_state.unheard) != 0);
  enum end end = asks ? activate_pumpd() : NOT_ENDED;
  if (end == NOT_ENDED) end = connect_to_pumpd();
  if (end != NOT_ENDED) return end;
  struct pump_welcome welcome;
  int memory = -1;
  if (!send_hello() || !wait_readable(PUMP_ANSWER_MS) ||
      !receive_welcome(&welcome, &memory)) {
    if (memory >= 0) close(memory);
    return stopped() ? STOPPED : NO_ANSWER;
  }
  end = WORKER_GONE; /* means attached; the caller waits for that end */
  if (welcome.status == PUMP_WELCOME_VERSION || welcome.abi_version != PUMP_ABI_VERSION) {
    static uint32_t said;
    pump_log_once(&said, PUMP_LOG_WARNING,
                  "libpump.so has protocol version %d, pumpd has %u: the job runs without "
                  "prefetching. Install pump-run and pumpd from one release",
                  PUMP_ABI_VERSION, welcome.abi_version);
    end = WRONG_VERSION;
  } else if (welcome.status != PUMP_WELCOME_OK) {
    end = REFUSED;
  } else if (memory < 0) {
    end = BAD_MEMORY;
  } else if (!pump_attach(memory)) {
    link_state.error = errno;
    end = errno == EPROTO ? BAD_MEMORY : NO_ADDRESS_SPACE;
  }
  if (memory >= 0) close(memory);
  return end;
}

/* Notes a stop: SIGSTOP, a debugger or a frozen cgroup also stops the link thread, so its
 * poll returns too late. The stop began at some time during the poll's timeout. */
static bool notice_stop(uint64_t polled_ns, int timeout_ms) {
  struct pump_header *header = &pump_shm->header;
  uint64_t now_ns = pump_now_ns(), asleep_ns = (uint64_t)timeout_ms * 1000000u;
  if (now_ns - polled_ns < asleep_ns + PUMP_STOP_LEAST_NS) return false;
  uint32_t number = PUMP_LOAD(&header->stops) + 1;
  PUMP_STORE(&header->stop_began_ns[number % 2], polled_ns + asleep_ns / 2);
  PUMP_STORE(&header->stop_ended_ns[number % 2], now_ns);
  PUMP_STORE_RELEASE(&header->stops, number);
  return true;
}

/* Serves an attached worker; returns when it is gone or the thread must end. */
static enum end watch_worker(uint64_t attached_ns) {
  while (!stopped()) {
    ask_for_executors(pump_device_adopt_budgets());
    pump_gates_adopt();
    keep_ledger();
    struct pollfd ready = {.fd = own_socket(), .events = POLLIN};
    if (ready.fd < 0) return WORKER_GONE; /* the program closed our descriptor */
    int timeout_ms = pump_drain_lasts() ? PUMP_DRAIN_POLL_MS : PUMP_LINK_POLL_MS;
    uint64_t polled_ns = pump_now_ns();
    int found = poll(&ready, 1, timeout_ms);
    /* The worker may have been stopped as well: give it time for its next heartbeat. */
    if (notice_stop(polled_ns, timeout_ms)) attached_ns = pump_now_ns();
    if (found == 1) {
      char byte;
      int number = own_socket();
      if (number < 0 || (ready.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0)
        return stopped() ? STOPPED : WORKER_GONE;
      ssize_t n = recv(number, &byte, 1, MSG_DONTWAIT);
      if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return WORKER_GONE;
    }
    uint64_t beat_ns = PUMP_LOAD(&pump_shm->header.worker_heartbeat_ns);
    uint64_t now_ns = pump_now_ns();
    /* Before its first heartbeat the worker is being forked; if that fails, the socket
     * reports it. A request for another worker would only delay its start. */
    uint64_t timeout_ns = beat_ns == 0 ? PUMP_FIRST_BEAT_NS : PUMP_HEARTBEAT_NS;
    if (beat_ns < attached_ns || beat_ns > now_ns) beat_ns = attached_ns;
    if (now_ns - beat_ns > timeout_ns) return WORKER_GONE;
  }
  return STOPPED;
}

static void say_unreachable(void) {
  static uint32_t said;
  const char *path = link_state.path[0] ? link_state.path : link_state.activator;
  int error = link_state.error;
  if (error == 0 || error == ENOENT || error == ECONNREFUSED)
    pump_log_once(&said, PUMP_LOG_WARNING,
                  "no pumpd answers at %s: the job runs on demand paging until one does",
                  PUMP_QUOTED(path));
  else
    pump_log_once(&said, PUMP_LOG_WARNING,
                  "cannot reach pumpd at %s: %s; this process runs on demand paging",
                  PUMP_QUOTED(path), strerror(error));
}

/* Logs why a connection ended. waited_ns: least time without an answer. */
static void say_end(enum end end, uint64_t waited_ns) {
  static uint32_t said[STOPPED + 1];
  switch (end) {
  case NO_LISTENER:
  case NO_ANSWER:
    if (PUMP_LOAD(&link_state.losses) != 0) break; /* logged before */
    if (waited_ns < PUMP_SILENCE_NS) break;        /* it may just be starting */
    say_unreachable();
    break;
  case STRANGER:
    pump_log_once(&said[STRANGER], PUMP_LOG_WARNING,
                  "%s is not served by this user or root: the job runs on demand paging. "
                  "Start it again with pump-run",
                  PUMP_QUOTED(link_state.path[0] ? link_state.path : link_state.activator));
    break;
  case REFUSED:
    if (waited_ns < PUMP_SILENCE_NS) break; /* it may only be full at the moment */
    pump_log_once(&said[REFUSED], PUMP_LOG_WARNING,
                  "pumpd refused this process, which runs on demand paging (the reason is "
                  "in pumpd's log: pump-run --log-file FILE)");
    break;
  case BAD_MEMORY:
    pump_log_once(&said[BAD_MEMORY], PUMP_LOG_WARNING,
                  "pumpd sent unusable shared memory (install pump again): the job runs on "
                  "demand paging");
    break;
  case NO_ADDRESS_SPACE:
    pump_log_once(&said[NO_ADDRESS_SPACE], PUMP_LOG_WARNING,
                  "cannot map pumpd's shared memory (%zu MiB): %s; the job runs on demand "
                  "paging. Raise ulimit -v or the process's memory limit",
                  sizeof(struct pump_shm) >> 20, strerror(link_state.error));
    break;
  case WORKER_GONE:
    PUMP_ADD(&link_state.losses, 1);
    pump_log_once(&said[WORKER_GONE], PUMP_LOG_INFO,
                  "lost the worker of pumpd: demand paging until it returns");
    break;
  case NOT_ENDED:
  case WRONG_VERSION:
  case STOPPED:
    break;
  }
}

static void pause_before_retry(uint64_t pause_ns) {
  uint64_t until_ns = pump_now_ns() + pause_ns, now_ns;
  while (!stopped() && (now_ns = pump_now_ns()) < until_ns) {
    uint64_t left_ns = until_ns - now_ns;
    pump_futex_sleep(&link_state.stop, 0,
                     left_ns < PUMP_LINK_POLL_NS ? left_ns : PUMP_LINK_POLL_NS);
    keep_ledger();
  }
}

static uint64_t doubled(uint64_t pause_ns, uint64_t most_ns) {
  return pause_ns * 2 < most_ns ? pause_ns * 2 : most_ns;
}

/* Returns the pause after an attached worker that served for `served_ns`. */
static uint64_t pause_after_worker(uint64_t *young_ns, uint64_t served_ns) {
  static uint32_t said;
  if (served_ns >= PUMP_YOUNG_NS) *young_ns = PUMP_BACKOFF_MIN_NS;
  uint64_t pause_ns = *young_ns;
  *young_ns = doubled(pause_ns, PUMP_YOUNG_BACKOFF_MAX_NS);
  if (pause_ns == PUMP_YOUNG_BACKOFF_MAX_NS)
    pump_log_once(&said, PUMP_LOG_WARNING,
                  "pumpd's workers for this process keep crashing, so it mostly runs on "
                  "demand paging (see pumpd's log: pump-run --log-file FILE)");
  return pause_ns;
}

static void *link_thread(void *nothing) {
  (void)nothing;
  pump_thread_begin();
  take_own_table();
  uint64_t backoff_ns = PUMP_BACKOFF_MIN_NS, young_ns = PUMP_BACKOFF_MIN_NS;
  keep_ledger();
  bool alone = link_state.path[0] == '\0' && link_state.activator[0] == '\0';
  while (!stopped() && alone) pause_before_retry(PUMP_LINK_POLL_NS);
  while (!stopped()) {
    uint64_t begin_ns = pump_now_ns();
    enum end end = attach_to_worker();
    uint64_t waited_ns = backoff_ns + (pump_now_ns() - begin_ns);
    uint64_t pause_ns = end == WRONG_VERSION ? PUMP_BACKOFF_VERSION_NS : backoff_ns;
    if (end == WORKER_GONE) {
      pump_log(PUMP_LOG_DEBUG, "attached to a worker");
      uint64_t attached_ns = pump_now_ns();
      end = watch_worker(attached_ns);
      pause_ns = pause_after_worker(&young_ns, pump_now_ns() - attached_ns);
      backoff_ns = PUMP_BACKOFF_MIN_NS;
    }
    drop_socket();
    if (end == STOPPED || stopped()) break;
    say_end(end, waited_ns);
    pause_before_retry(pause_ns);
    if (end != WORKER_GONE) backoff_ns = doubled(backoff_ns, PUMP_BACKOFF_MAX_NS);
  }
  drop_socket();
  return NULL;
}

/* ---- life ---------------------------------------------------------------------- */

void pump_link_start(void) {
  bool by_rule = pump_settings_of_rule() != NULL;
  const char *path = by_rule ? NULL : getenv("PUMP_SOCKET");
  if (link_state.started) return;
  link_state.started = true;
  if (path != NULL && strlen(path) >= sizeof link_state.path) {
    pump_log(PUMP_LOG_WARNING,
             "PUMP_SOCKET=%s exceeds the %zu bytes of a socket's path: the job runs on "
             "demand paging. Let pumpd listen at a shorter path",
             PUMP_QUOTED(path), sizeof link_state.path - 1);
    path = NULL;
  }
  if (path != NULL) strcpy(link_state.path, path);
  if (by_rule && !find_activator(link_state.activator)) link_state.activator[0] = '\0';
  pump_share_start();
  bool ledger = pump_claims_start();
  if (link_state.path[0] == '\0' && link_state.activator[0] == '\0' && !ledger) return;
  int error = pump_thread_start("pump-link", link_thread, NULL);
  if (error != 0)
    pump_log(PUMP_LOG_WARNING,
             "cannot start thread pump-link: %s; the job runs on demand paging",
             strerror(-error));
}

void pump_link_stop(void) {
  PUMP_STORE_RELEASE(&link_state.stop, 1);
  pump_futex_wake(&link_state.stop); /* a poll ends by itself or with the process */
}

void pump_link_fork_child(void) {
  /* The child's copy of the socket would keep the worker from noticing our end. */
  if (!pump_log_is_deferring()) drop_socket();
  memset(&link_state, 0, sizeof link_state);
  link_state.socket_number = -1;
}
