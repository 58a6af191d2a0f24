/* inject.c - runs a command and makes the n-th system call of one of its processes fail.
 *
 * inject CONTROL CALL[,CALL...] COMMAND...
 *
 * This is a test tool. It is not a part of pump and not a sandbox. It exits with the
 * command's status when the command and all its descendants have exited.
 *
 * Before each named call of these processes the kernel asks inject
 * (SECCOMP_RET_USER_NOTIF). So inject counts exactly, in every thread and process,
 * without tracing, stopping or preloading. /proc gives the name of a task, such as
 * "pumpd-worker".
 *
 * CONTROL is the descriptor of a socket. Each line on it gets one line as its answer:
 *   arm NAME CALL FIRST MANY ERRNO
 *       Resets the counts. Call number FIRST of tasks NAME and the MANY - 1 calls after it
 *       fail with ERRNO. A NAME has no blanks; "*" means all tasks or all calls.
 *   counts
 *       Returns "NAME CALL COUNT ..." since `arm` or `counts` ("." if empty), then
 *       "failed N".
 * If getpriority is a named call, counting starts with its first call: a program signals
 * that it is loaded. Inject reads the first line before it starts the command. It writes
 * the counts unasked after the last process has exited. When the socket closes, no call
 * fails.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* The kernel's names. Some functions of the C library make a call of another name. */
#define CALL(name) {#name, SYS_##name}
static const struct {
  const char *name;
  int number;
} calls[] = {
    CALL(accept),
    CALL(accept4),
    CALL(bind),
    CALL(chmod),
    CALL(clone),
    CALL(clone3),
    CALL(close),
    CALL(connect),
    CALL(dup2),
    CALL(dup3),
    CALL(epoll_create1),
    CALL(epoll_ctl),
    CALL(epoll_wait),
    CALL(eventfd2),
    CALL(execve),
    CALL(fchmod),
    CALL(fcntl),
    CALL(fdatasync),
    CALL(flock),
    CALL(fork),
    CALL(fstat),
    CALL(fsync),
    CALL(ftruncate),
    CALL(futex),
    CALL(getdents64),
    CALL(getpriority),
    CALL(getrandom),
    CALL(getsockname),
    CALL(getsockopt),
    CALL(ioctl),
    CALL(kill),
    CALL(link),
    CALL(listen),
    CALL(lseek),
    CALL(madvise),
    CALL(memfd_create),
    CALL(mkdir),
    CALL(mmap),
    CALL(mprotect),
    CALL(mremap),
    CALL(munmap),
    CALL(newfstatat),
    CALL(open),
    CALL(openat),
    CALL(pidfd_open),
    CALL(pipe2),
    CALL(poll),
    CALL(ppoll),
    CALL(prctl),
    CALL(pread64),
    CALL(pwrite64),
    CALL(read),
    CALL(readlink),
    CALL(recvfrom),
    CALL(recvmsg),
    CALL(rename),
    CALL(rmdir),
    CALL(rt_sigaction),
    CALL(rt_sigprocmask),
    CALL(sched_yield),
    CALL(sendmsg),
    CALL(sendto),
    CALL(setsockopt),
    CALL(shutdown),
    CALL(socket),
    CALL(socketpair),
    CALL(stat),
    CALL(statx),
    CALL(unlink),
    CALL(unlinkat),
    CALL(unshare),
    CALL(vfork),
    CALL(wait4),
    CALL(write),
    CALL(writev),
    {"close_range", 436}, /* kernel 5.9; the headers may be older */
    /* @resources of systemd.exec(5) */
    CALL(ioprio_set),
    CALL(mbind),
    CALL(migrate_pages),
    CALL(move_pages),
    CALL(prlimit64),
    CALL(sched_setattr),
    CALL(sched_setparam),
    CALL(set_mempolicy),
    CALL(setpgid),
    CALL(setpriority),
    CALL(setrlimit),
    CALL(sched_setaffinity),
    CALL(sched_setscheduler),
};
#define CALL_COUNT ((int)(sizeof calls / sizeof *calls))
#define NAME_BYTES 32
#define TASKS_MOST 64
#define FILTER_MOST 120

#define FAIL(...) (fprintf(stderr, "inject: " __VA_ARGS__), fputc('\n', stderr), exit(125))

struct task_counts {
  char name[NAME_BYTES];
  unsigned calls[CALL_COUNT];
};

static struct task_counts counts[TASKS_MOST]; /* the list ends at an empty name */
#define ALL_CALLS CALL_COUNT                  /* a value of `armed.call` */
static struct {
  char name[NAME_BYTES];
  int call, error;
  unsigned first, many, failed, calls;
} armed = {.call = -1};
static bool filtered[CALL_COUNT], begun;
static char **command;
static FILE *control;
static int listener = -1;
static pid_t command_pid;

static int call_named(const char *name) {
  for (int i = 0; i < CALL_COUNT; i++)
    if (strcmp(calls[i].name, name) == 0) return i;
  FAIL("no such call: %s", name);
}

static int make_filter(void) {
  struct sock_filter code[FILTER_MOST + 8];
  unsigned short length = 0;
  const struct sock_filter load = {BPF_LD | BPF_W | BPF_ABS, 0, 0,
                                   offsetof(struct seccomp_data, nr)};
  const struct sock_filter ask = {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_USER_NOTIF};
  const struct sock_filter allow = {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW};
  code[length++] = load;
  for (int i = 0; i < CALL_COUNT; i++) {
    if (!filtered[i]) continue;
    const struct sock_filter differs = {BPF_JMP | BPF_JEQ | BPF_K, 0, 1,
                                        (uint32_t)calls[i].number};
    code[length++] = differs;
    code[length++] = ask;
    if (length > FILTER_MOST) FAIL("too many calls at once");
  }
  code[length++] = allow;
  struct sock_fprog program = {.len = length, .filter = code};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
    FAIL("no_new_privs: %s", strerror(errno));
  return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                      SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
}

/* Starts the command in a thread with the filter. A filter applies to the thread that
 * sets it and to its descendants, so the main thread, which answers, stays free. */
static void *start_command(void *nothing) {
  (void)nothing;
  int made = make_filter();
  if (made < 0) FAIL("no user notification by seccomp here: %s", strerror(errno));
  __atomic_store_n(&listener, made, __ATOMIC_RELEASE);
  command_pid = vfork();
  if (command_pid == 0) {
    execvp(command[0], command);
    _exit(127);
  }
  return NULL;
}

static struct task_counts *counts_of(uint32_t task) {
  char path[64], name[NAME_BYTES] = "";
  snprintf(path, sizeof path, "/proc/%u/comm", task);
  int file = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t n = file < 0 ? 0 : read(file, name, sizeof name - 1);
  if (file >= 0) close(file);
  if (n <= 1) return NULL; /* the task has exited */
  name[n - 1] = '\0';
  for (int i = 0; i < TASKS_MOST; i++) {
    if (counts[i].name[0] == '\0') strcpy(counts[i].name, name);
    if (strcmp(counts[i].name, name) == 0) return &counts[i];
  }
  return NULL;
}

/* Returns the errno with which this call must fail; 0 for none. */
static int judge(const struct seccomp_notif *asked) {
  struct task_counts *task = counts_of(asked->pid);
  int call = 0;
  while (call < CALL_COUNT && calls[call].number != asked->data.nr) call++;
  if (task == NULL || call == CALL_COUNT) return 0;
  unsigned operation = asked->data.args[1] & FUTEX_CMD_MASK; /* only waits fail */
  if (asked->data.nr == SYS_futex && operation != FUTEX_WAIT &&
      operation != FUTEX_WAIT_BITSET)
    return 0;
  begun = begun || calls[call].number == SYS_getpriority ||
          !filtered[call_named("getpriority")];
  if (!begun) return 0;
  unsigned nth = ++task->calls[call];
  if (armed.call != call && armed.call != ALL_CALLS) return 0;
  if (armed.name[0] == '*')
    nth = ++armed.calls;
  else if (strcmp(task->name, armed.name) != 0)
    return 0;
  if (nth < armed.first || nth - armed.first >= armed.many) return 0;
  armed.failed++;
  return armed.error;
}

static void answer(void) {
  struct seccomp_notif asked = {0};
  if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &asked) != 0) return; /* the task is gone */
  int error = judge(&asked);
  struct seccomp_notif_resp said = {.id = asked.id};
  if (error != 0)
    said.error = -error;
  else
    said.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
  ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &said); /* fails if the task is gone */
}

static void say_counts(void) {
  bool any = false;
  for (int t = 0; t < TASKS_MOST && counts[t].name[0] != '\0'; t++)
    for (int c = 0; c < CALL_COUNT; c++)
      if (counts[t].calls[c] != 0) {
        fprintf(control, "%s %s %u ", counts[t].name, calls[c].name, counts[t].calls[c]);
        any = true;
      }
  fprintf(control, "%sfailed %u\n", any ? "" : ". ", armed.failed);
  fflush(control);
  memset(counts, 0, sizeof counts);
}

/* Executes one line; returns false at the end of the socket. */
static bool obey(void) {
  char line[128], name[NAME_BYTES], call[NAME_BYTES];
  unsigned first, many;
  int error;
  size_t length = 0;
  while (length < sizeof line - 1 && read(fileno(control), &line[length], 1) == 1)
    if (line[length++] == '\n') break;
  line[length] = '\0';
  if (length == 0) {
    armed.call = -1;
    return false;
  }
  if (sscanf(line, "arm %31s %31s %u %u %d", name, call, &first, &many, &error) == 5) {
    strcpy(armed.name, name);
    armed.call = call[0] == '*' ? ALL_CALLS : call_named(call);
    armed.error = error;
    armed.first = first;
    armed.many = many;
    armed.failed = armed.calls = 0;
    memset(counts, 0, sizeof counts);
    fputs("armed\n", control);
    fflush(control);
  } else {
    say_counts();
  }
  return true;
}

int main(int count, char **words) {
  if (count < 4) FAIL("inject CONTROL CALL[,CALL...] COMMAND...");
  for (char *name = strtok(words[2], ","); name != NULL; name = strtok(NULL, ","))
    filtered[call_named(name)] = true;
  int number = atoi(words[1]);
  control = fdopen(number, "w");
  if (control == NULL || fcntl(number, F_SETFD, FD_CLOEXEC) != 0)
    FAIL("descriptor %d: %s", number, strerror(errno));
  command = words + 3;
  bool told = obey();
  pthread_t thread;
  if (pthread_create(&thread, NULL, start_command, NULL) != 0) FAIL("cannot start");
  while (__atomic_load_n(&listener, __ATOMIC_ACQUIRE) < 0) sched_yield();
  for (bool there = true; there;) {
    struct pollfd on[2] = {{.fd = listener, .events = POLLIN},
                           {.fd = told ? number : -1, .events = POLLIN}};
    if (poll(on, 2, -1) < 0) continue;
    if (on[0].revents & POLLIN)
      answer();
    else if (on[0].revents & POLLHUP)
      there = false;
    if (told && on[1].revents != 0) told = obey();
  }
  pthread_join(thread, NULL);
  if (told) say_counts();
  int status = 0;
  waitpid(command_pid, &status, 0);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
