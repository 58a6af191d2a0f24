/* client_table.c - asks libcuda.so.1 for addresses, without cuda-python in between.
 *
 * Prints one line per question: "KEY VALUE". An address is printed as the symbol that
 * dladdr() finds there, and its library. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef int (*get_v1)(const char *, void **, int, uint64_t);
typedef int (*get_v2)(const char *, void **, int, uint64_t, int *);

static void question(get_v2 get, const char *name, int version, uint64_t flags) {
  void *address = (void *)1;
  int status = -1;
  int result = get(name, &address, version, flags, &status);
  Dl_info found = {0};
  const char *library = "-", *symbol = "-";
  if (result == 0 && dladdr(address, &found) && found.dli_sname != NULL) {
    library =
        strrchr(found.dli_fname, '/') ? strrchr(found.dli_fname, '/') + 1 : found.dli_fname;
    symbol = found.dli_sname;
  }
  printf("%s/%d/%d %d %d %s %s\n", *name ? name : "(empty)", version, (int)flags, result,
         status, symbol, library);
}

int main(int count, char **arguments) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == NULL) {
    puts(dlerror());
    return 1;
  }
  get_v2 get;
  get_v1 old;
  *(void **)&get = dlsym(library, "cuGetProcAddress_v2");
  *(void **)&old = dlsym(library, "cuGetProcAddress");
  for (int i = 1; i + 2 < count; i += 3) {
    int version, flags;
    if (sscanf(arguments[i + 1], "%d", &version) != 1) return 2;
    if (sscanf(arguments[i + 2], "%d", &flags) != 1) return 2;
    question(get, arguments[i], version, (uint64_t)flags);
  }
  void *address = NULL;
  int result = old("cuMemFree", &address, 12000, 0);
  printf("v1 %d %d\n", result, address == dlsym(library, "cuMemFree_v2"));
  int (*table)(const void **, const void *);
  *(void **)&table = dlsym(library, "cuGetExportTable");
  const void *out = &out;
  char id[16] = {0};
  result = table(&out, id);
  printf("export_table %d %d\n", result, out == NULL);
  int (*init)(unsigned), (*lacking)(void *);
  *(void **)&init = dlsym(library, "cuInit");
  *(void **)&lacking = dlsym(library, "cuLinkDestroy");
  result = lacking(NULL);
  printf("lacking %d %d\n", result, init(0) == 0 ? lacking(NULL) : -1);
  return 0;
}
