/* pump-run, pump and pumpd: starts Python so that the environment variables of the user's
 * program do not affect it.
 *
 * A script cannot do this: PYTHONHOME, for example, stops Python before its first line.
 * A shell could change the environment, which must reach the program unmodified. The
 * first line of pump-start, next to this program, names the Python to start; pip and uv
 * write it (pump/start.py).
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#define START "pump-start"
#define NOT_STARTED 127

static _Noreturn void fail(const char *path, int number) {
  fprintf(stderr, "pump: cannot start %s: %s; reinstall pump\n", path, strerror(number));
  exit(NOT_STARTED);
}

/* Finds this program's file with links resolved: tools such as pipx link to it. */
static void find_self(char *path, size_t size) {
  ssize_t length = readlink("/proc/self/exe", path, size - 1);
  if (length > 0) {
    path[length] = '\0';
    return;
  }
  const char *executed = (const char *)getauxval(AT_EXECFN); // without /proc
  if (executed == NULL || realpath(executed, path) == NULL) fail("Python", errno);
}

/* Takes the interpreter from the first line if the line is a program's path. Otherwise
 * uses the environment's Python next to this program: uv may write lines for sh (long
 * paths, blanks), pipx may add options, and conda writes env. */
static void read_interpreter(const char *start, char *python, size_t size) {
  char line[PATH_MAX + 3] = "";
  FILE *file = fopen(start, "re");
  if (file == NULL) fail(start, errno);
  const char *got = fgets(line, sizeof(line), file);
  fclose(file);
  line[strcspn(line, "\r\n")] = '\0';
  const char *named = line + 2;
  if (got != NULL && strncmp(line, "#!/", 3) == 0 && strcmp(named, "/bin/sh") != 0 &&
      access(named, X_OK) == 0) {
    snprintf(python, size, "%s", named);
  } else {
    snprintf(python, size, "%.*spython", (int)(strlen(start) - strlen(START)), start);
  }
}

int main(int argc, char **argv) {
  char self[PATH_MAX], start[PATH_MAX + sizeof(START)], python[sizeof(start)];
  find_self(self, sizeof(self));
  char *name = strrchr(self, '/') + 1;
  snprintf(start, sizeof(start), "%.*s%s", (int)(name - self), self, START);
  read_interpreter(start, python, sizeof(python));

  char **words = calloc((size_t)argc + 6, sizeof(*words));
  if (words == NULL) fail(python, ENOMEM);
  char *fixed[] = {python, (char[]){"-E"}, (char[]){"-P"}, (char[]){"-S"}, start, name};
  size_t count = sizeof(fixed) / sizeof(*fixed);
  memcpy(words, fixed, sizeof(fixed));
  for (int at = 1; at < argc; at++) words[count++] = argv[at];
  execv(python, words);
  fail(python, errno);
}
