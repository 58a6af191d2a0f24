/* log.c - writes one line per message, to PUMP_LOG_FILE or to stderr.
 *
 * This is not a logging framework: no buffer, no thread, no allocation. Each line is one
 * write, so that it survives _exit and lines of several processes do not mix.
 *
 * DESIGN. The process belongs to the program, which may close descriptor 2 or give its
 * number to a data file. So stderr is used only while descriptor 2 is still the file that
 * it was when this library was loaded (device and inode). The log file is opened for each
 * message, because the program could close and reuse a descriptor that we keep. The link
 * thread has its own descriptor table: another thread writes its lines for stderr
 * (pump_log_write_deferred). Settings are copied at load because programs rewrite their
 * environment.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base.h"
#include "settings.h"
#include "upcalls.h"

#define LINE_BYTES 1024
#define TRIES 8 /* of a call that the program's signals interrupt */

/* Written at load, before any thread exists, and for a rule; kept over fork. */
static int log_level = PUMP_LOG_WARNING;
static char log_file[4096];
static bool quiet; /* only errors go to stderr */
static dev_t stderr_device;
static ino_t stderr_inode;
static bool stderr_known;

/* Lines of the link thread that are still to be written. Only the link thread adds lines
 * (`tail`); the thread that holds `busy` removes them. A forked child starts with none:
 * the parent writes them. */
#define KEPT_MOST 8
static __thread bool keeps;
static struct {
  uint32_t head, tail, busy;
  uint32_t apart; /* 1: a thread has its own descriptor table */
  uint32_t length_bytes[KEPT_MOST];
  char lines[KEPT_MOST][LINE_BYTES];
} kept;

static int level_from(const char *text) {
  static const char *const names[] = {"error", "warning", "info", "debug"};
  for (int i = 0; text != NULL && i < 4; i++)
    if (strcmp(text, names[i]) == 0) return i;
  return PUMP_LOG_WARNING;
}

void pump_log_configure(void) {
  log_level = level_from(pump_setting("PUMP_LOG_LEVEL"));
  const char *file = pump_setting("PUMP_LOG_FILE"), *silent = pump_setting("PUMP_QUIET");
  quiet = silent != NULL && silent[0] != '\0' && strchr("1yt", silent[0]) != NULL;
  if (file != NULL && strlen(file) < sizeof log_file) strcpy(log_file, file);
}

__attribute__((constructor)) static void log_load(void) {
  int saved = errno;
  struct stat st;
  if (fstat(STDERR_FILENO, &st) == 0) {
    stderr_device = st.st_dev;
    stderr_inode = st.st_ino;
    stderr_known = true;
  }
  pump_log_configure();
  errno = saved;
}

/* SIGPIPE: the reader is gone. SIGXFSZ: the file has reached the program's size limit.
 * The kernel sends both to the thread that writes. */
static const int raised_by_writing[] = {SIGPIPE, SIGXFSZ};
#define RAISED (sizeof raised_by_writing / sizeof *raised_by_writing)

bool pump_block_write_signals(struct pump_write_signals *signals) {
  sigset_t raised;
  sigemptyset(&raised);
  for (size_t i = 0; i < RAISED; i++) sigaddset(&raised, raised_by_writing[i]);
  return sigpending(&signals->pending) == 0 &&
         pthread_sigmask(SIG_BLOCK, &raised, &signals->before) == 0;
}

void pump_restore_write_signals(const struct pump_write_signals *signals) {
  int saved = errno;
  sigset_t now, one;
  struct timespec at_once = {0};
  if (sigpending(&now) == 0)
    for (size_t i = 0; i < RAISED; i++) {
      if (!sigismember(&now, raised_by_writing[i]) ||
          sigismember(&signals->pending, raised_by_writing[i]))
        continue;
      sigemptyset(&one);
      sigaddset(&one, raised_by_writing[i]);
      sigtimedwait(&one, NULL, &at_once);
    }
  pthread_sigmask(SIG_SETMASK, &signals->before, NULL);
  errno = saved;
}

/* Writes a line without blocking or raising a signal in the program: the line is lost if
 * the reader is gone or too slow. A line fits into PIPE_BUF, so a pipe that polls
 * writable takes it whole. */
static void write_line(int descriptor, const char *line, size_t length) {
  struct pollfd ready = {.fd = descriptor, .events = POLLOUT};
  int found, tries = 0;
  ssize_t n;
  while ((found = poll(&ready, 1, 0)) < 0 && errno == EINTR && tries < TRIES) tries++;
  if (found != 1 || (ready.revents & POLLOUT) == 0) return;
  struct pump_write_signals signals;
  if (!pump_block_write_signals(&signals)) return;
  while ((n = write(descriptor, line, length)) < 0 && errno == EINTR && tries < TRIES)
    tries++;
  pump_restore_write_signals(&signals);
}

static void to_stderr(const char *line, size_t length) {
  struct stat st;
  if (!stderr_known || fstat(STDERR_FILENO, &st) != 0) return;
  if (st.st_dev != stderr_device || st.st_ino != stderr_inode) return;
  write_line(STDERR_FILENO, line, length);
}

void pump_log_defer(void) {
  keeps = true;
  PUMP_STORE(&kept.apart, 1);
}

bool pump_log_is_deferring(void) {
  return PUMP_LOAD(&kept.apart) != 0;
}

/* Keeps a line for another thread to write; drops it if all places are taken. */
static void keep(const char *line, size_t length) {
  uint32_t tail = kept.tail;
  if (tail - PUMP_LOAD_ACQUIRE(&kept.head) >= KEPT_MOST) return;
  memcpy(kept.lines[tail % KEPT_MOST], line, length);
  kept.length_bytes[tail % KEPT_MOST] = (uint32_t)length;
  PUMP_STORE_RELEASE(&kept.tail, tail + 1);
  pump_upcalls.line_kept();
}

void pump_log_write_deferred(void) {
  if (PUMP_LIKELY(PUMP_LOAD(&kept.head) == PUMP_LOAD(&kept.tail)) || keeps) return;
  if (__atomic_exchange_n(&kept.busy, 1, __ATOMIC_ACQUIRE) != 0) return;
  int saved = errno;
  for (uint32_t at = kept.head; at != PUMP_LOAD_ACQUIRE(&kept.tail); at++) {
    to_stderr(kept.lines[at % KEPT_MOST], kept.length_bytes[at % KEPT_MOST]);
    PUMP_STORE_RELEASE(&kept.head, at + 1);
  }
  PUMP_STORE_RELEASE(&kept.busy, 0);
  errno = saved;
}

void pump_log_fork_child(void) {
  kept.head = kept.tail = kept.busy = kept.apart = 0;
}

static bool to_file(const char *line, size_t length) {
  if (log_file[0] == '\0') return false;
  int file = open(log_file,
                  O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0644);
  if (file < 0) return false;
  write_line(file, line, length);
  close(file);
  return true;
}

const char *pump_quoted(char text[PUMP_QUOTED_BYTES], const char *name) {
  static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                              "0123456789%+,-./:=@_";
  size_t length = strlen(name), used = 0;
  if (length != 0 && length < PUMP_QUOTED_BYTES && strspn(name, plain) == length)
    return strcpy(text, name);
  text[used++] = '\'';
  for (; *name != '\0'; name++) {
    unsigned char c = (unsigned char)*name;
    if (used + sizeof "\\x00...'" > PUMP_QUOTED_BYTES) {
      used += (size_t)snprintf(text + used, PUMP_QUOTED_BYTES - used, "...");
      break;
    }
    bool c1 = c == 0xc2 && (unsigned char)name[1] >= 0x80 && (unsigned char)name[1] < 0xa0;
    if (c < ' ' || c == 0x7f || c == '\'' || c1)
      used += (size_t)snprintf(text + used, PUMP_QUOTED_BYTES - used, "\\x%02x", c);
    else {
      if (c == '\\') text[used++] = '\\';
      text[used++] = (char)c;
    }
  }
  text[used++] = '\'';
  text[used] = '\0';
  return text;
}

/* Formats into `line`, with "pump: " and a newline; returns the length. */
static size_t format_line(char line[LINE_BYTES], const char *format, va_list arguments) {
  static const char prefix[] = "pump: ";
  memcpy(line, prefix, sizeof prefix - 1);
  size_t used = sizeof prefix - 1, capacity = LINE_BYTES - used - 1;
  int n = vsnprintf(line + used, capacity, format, arguments);
  if (n > 0) used += (size_t)n < capacity ? (size_t)n : capacity - 1;
  for (size_t i = 0; i < used; i++)
    if ((unsigned char)line[i] < ' ' || line[i] == 0x7f) line[i] = ' ';
  line[used++] = '\n';
  return used;
}

/* When a line goes to stderr: only if there is no log file, always, or unless the user
 * wants to see only errors there. */
enum stderr_too { WITHOUT_FILE, ALWAYS, UNLESS_QUIET };

static void say(int level, enum stderr_too too, const char *format, va_list arguments) {
  if (level > log_level) return;
  int saved = errno;
  char line[LINE_BYTES];
  size_t length = format_line(line, format, arguments);
  pump_log_write_deferred();
  bool filed = to_file(line, length);
  bool error = level == PUMP_LOG_ERROR && too != UNLESS_QUIET;
  if ((!filed || too != WITHOUT_FILE) && (error || !quiet))
    (keeps ? keep : to_stderr)(line, length);
  errno = saved;
}

void pump_log(int level, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  say(level, WITHOUT_FILE, format, arguments);
  va_end(arguments);
}

bool pump_log_once(uint32_t *said, int level, const char *format, ...) {
  if (__atomic_exchange_n(said, 1, __ATOMIC_RELAXED) != 0) return false;
  va_list arguments;
  va_start(arguments, format);
  say(level, WITHOUT_FILE, format, arguments);
  va_end(arguments);
  return true;
}

void pump_say(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  say(PUMP_LOG_ERROR, ALWAYS, format, arguments);
  va_end(arguments);
}

static void say_result(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  say(PUMP_LOG_ERROR, UNLESS_QUIET, format, arguments);
  va_end(arguments);
}

void pump_say_result(const char *text) {
  const char *name = pump_setting("PUMP_NAME");
  if (name == NULL || name[0] == '\0')
    say_result("%s", text);
  else
    say_result("[%s] %s", name, text);
}

size_t pump_bytes_text(char *text, size_t capacity, uint64_t bytes) {
  unsigned long long count = bytes;
  int n = bytes < 1024             ? snprintf(text, capacity, "%llu bytes", count)
          : bytes < 1u << 20       ? snprintf(text, capacity, "%llu KiB", count >> 10)
          : bytes < 10240ull << 20 ? snprintf(text, capacity, "%llu MiB", count >> 20)
                                   : snprintf(text, capacity, "%llu.%llu GiB", count >> 30,
                                              (count & ((1u << 30) - 1)) * 10 >> 30);
  return n < 0 ? 0 : (size_t)n;
}
