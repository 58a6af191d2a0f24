/* fake_pumpd.c - see fake_pumpd.h. */
#include "fake_pumpd.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct pumpd pumpd;

void pumpd_start(void) {
  pumpd = (struct pumpd){.connection = -1,
                         .abi_version = PUMP_ABI_VERSION,
                         .seals = F_SEAL_SHRINK | F_SEAL_GROW,
                         .size = sizeof(struct pump_shm),
                         .magic = PUMP_ABI_MAGIC};
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  snprintf(pumpd.path, sizeof pumpd.path, "/tmp/pump-act-%d.sock", (int)getpid());
  strcpy(address.sun_path, pumpd.path);
  unlink(pumpd.path);
  pumpd.listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  CHECK(bind(pumpd.listener, (struct sockaddr *)&address, sizeof address) == 0);
  CHECK(listen(pumpd.listener, 8) == 0);
  setenv("PUMP_SOCKET", pumpd.path, 1);
}

void pumpd_end(void) {
  close(pumpd.listener);
  unlink(pumpd.path);
}

static void leave_no_room(void) {
  unsigned long pages;
  FILE *file = fopen("/proc/self/statm", "r");
  CHECK(file != NULL && fscanf(file, "%lu", &pages) == 1);
  fclose(file);
  struct rlimit limit;
  CHECK(getrlimit(RLIMIT_AS, &limit) == 0);
  limit.rlim_cur = pages * 4096 + sizeof(struct pump_shm) / 2;
  CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
}

static int pumpd_memory(void) {
  int memory = memfd_create("pump", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  CHECK(memory >= 0 && ftruncate(memory, (off_t)pumpd.size) == 0);
  if (pumpd.seals != 0) CHECK(fcntl(memory, F_ADD_SEALS, pumpd.seals) == 0);
  struct pump_shm *shm =
      mmap(NULL, pumpd.size, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  CHECK(shm != MAP_FAILED);
  shm->header.abi_version = PUMP_ABI_VERSION;
  shm->header.header_bytes = sizeof(struct pump_header);
  shm->header.shm_bytes = sizeof(struct pump_shm);
  shm->header.magic = pumpd.magic;
  shm->devices[0].asked_budget_bytes = pumpd.asked_bytes;
  pumpd.shm = shm;
  if (pumpd.no_room) leave_no_room();
  return memory;
}

void pumpd_accept(void) {
  struct pollfd ready = {.fd = pumpd.listener, .events = POLLIN};
  CHECK(poll(&ready, 1, 10000) == 1);
  pumpd.connection = accept4(pumpd.listener, NULL, NULL, SOCK_CLOEXEC);
  CHECK(pumpd.connection >= 0);
  CHECK(recv(pumpd.connection, &pumpd.hello, sizeof pumpd.hello, 0) == sizeof pumpd.hello);
  struct pump_welcome welcome = {.magic = PUMP_HELLO_MAGIC,
                                 .abi_version = pumpd.abi_version,
                                 .status = pumpd.status,
                                 .shm_bytes = sizeof(struct pump_shm)};
  struct iovec part = {.iov_base = &welcome, .iov_len = sizeof welcome};
  _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
  int memory = -1;
  if (pumpd.status == PUMP_WELCOME_OK) {
    memory = pumpd_memory();
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(rights), &memory, sizeof memory);
  }
  CHECK(sendmsg(pumpd.connection, &message, MSG_NOSIGNAL) == (ssize_t)sizeof welcome);
  if (memory >= 0) close(memory);
}

void pumpd_accept_and_attach(uint64_t attaches) {
  pumpd_accept();
  EVENTUALLY(PUMP_LOAD(&pumpd.shm->shim_counters.attaches) == attaches);
  EVENTUALLY(PUMP_LOAD(&pump_shm->header.shm_bytes) == sizeof(struct pump_shm));
  uint64_t mark = 1000 + attaches;
  PUMP_STORE(&pumpd.shm->worker_counters.ticks, mark);
  EVENTUALLY(PUMP_LOAD(&pump_shm->worker_counters.ticks) == mark);
  worker_shm = pumpd.shm;
  worker_forget();
}

void pumpd_die(void) {
  close(pumpd.connection);
  pumpd.connection = -1;
}

int link_socket(void) {
  DIR *tasks = opendir("/proc/self/task");
  CHECK(tasks != NULL);
  int found = -1;
  for (const struct dirent *task; (task = readdir(tasks)) != NULL;) {
    char path[320], name[16] = "";
    snprintf(path, sizeof path, "/proc/self/task/%s/comm", task->d_name);
    FILE *file = fopen(path, "r");
    if (file == NULL) continue;
    bool is_link = fscanf(file, "%15s", name) == 1 && strcmp(name, "pump-link") == 0;
    fclose(file);
    for (int i = 900; is_link && i < 1024; i++) {
      snprintf(path, sizeof path, "/proc/self/task/%s/fd/%d", task->d_name, i);
      if (faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0) found = i;
    }
  }
  closedir(tasks);
  return found;
}
