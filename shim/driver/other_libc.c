/* other_libc.c - finds functions of a C library other than glibc that our exports hide.
 *
 * Only glibc has dlvsym, which finds functions despite our exports. Other C libraries
 * have no symbol versions and are one object, so we read the object's symbol table.
 */
#include <elf.h>
#include <link.h>
#include <string.h>

#include "resolve.h"
#include "shim/base/base.h"

struct wanted {
  const char *name;
  void *address;
};

static bool contains(const struct dl_phdr_info *info, uintptr_t address) {
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *part = &info->dlpi_phdr[i];
    if (part->p_type == PT_LOAD &&
        address - info->dlpi_addr - part->p_vaddr < part->p_memsz)
      return true;
  }
  return false;
}

static const ElfW(Dyn) * dynamic_of(const struct dl_phdr_info *info) {
  for (int i = 0; i < info->dlpi_phnum; i++)
    if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
      return (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
  return NULL;
}

/* Returns a table's address. The loader may already have added the load address to it. */
static const void *table_at(const struct dl_phdr_info *info, ElfW(Addr) address) {
  return (const void *)(address < info->dlpi_addr ? info->dlpi_addr + address : address);
}

/* Searches one object; returns a value other than 0 once it was the C library. */
static int search_object(struct dl_phdr_info *info, size_t size, void *data) {
  struct wanted *wanted = data;
  const ElfW(Dyn) *entry = dynamic_of(info);
  const ElfW(Sym) *symbols = NULL;
  const ElfW(Word) *hash = NULL;
  const char *names = NULL;
  (void)size;
  if (entry == NULL || !contains(info, (uintptr_t)(void *)dl_iterate_phdr)) return 0;
  for (; entry->d_tag != DT_NULL; entry++) {
    if (entry->d_tag == DT_SYMTAB) symbols = table_at(info, entry->d_un.d_ptr);
    if (entry->d_tag == DT_STRTAB) names = table_at(info, entry->d_un.d_ptr);
    if (entry->d_tag == DT_HASH) hash = table_at(info, entry->d_un.d_ptr);
  }
  if (symbols == NULL || names == NULL || hash == NULL) return 1;
  for (ElfW(Word) i = 0; i < hash[1]; i++) /* its second word is the number of symbols */
    if (symbols[i].st_shndx != SHN_UNDEF &&
        strcmp(names + symbols[i].st_name, wanted->name) == 0)
      wanted->address = (void *)(info->dlpi_addr + symbols[i].st_value);
  return 1;
}

void *pump_other_libc_symbol(const char *name) {
  struct wanted wanted = {.name = name};
  dl_iterate_phdr(search_object, &wanted);
  return wanted.address;
}
