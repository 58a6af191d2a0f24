/* client_other_libc.c - a program with another C library: results of dlsym, threads and
 * forks. With an argument it also looks up and calls cuInit in that library.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void *same(void *argument) {
  return argument;
}

static int answer_of(void *library) {
  void *found = library == NULL ? NULL : dlsym(library, "cuInit");
  int (*init)(unsigned int) = NULL;
  if (found == NULL) return -1;
  memcpy(&init, &found, sizeof init);
  return init(0);
}

int main(int count, char **words) {
  pthread_t thread;
  void *back = NULL;
  int status = -1;
  if (pthread_create(&thread, NULL, same, &thread) == 0) pthread_join(thread, &back);
  pid_t child = fork();
  if (child == 0) _exit(7);
  waitpid(child, &status, 0);
  printf("thread %d fork %d\n", back == &thread, WEXITSTATUS(status));
  printf("default %d ", dlsym(RTLD_DEFAULT, "puts") == (void *)puts);
  printf("next %d ", dlsym(RTLD_NEXT, "malloc") != NULL);
  printf("missing %d\n", dlsym(RTLD_DEFAULT, "no_such_function") != NULL);
  if (count > 1) printf("cuInit %d\n", answer_of(dlopen(words[1], RTLD_NOW)));
  return 0;
}
