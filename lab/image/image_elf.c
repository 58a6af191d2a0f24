/* image_elf.c - reads kernels and globals of a cubin (ELF of the CUDA architecture).
 *
 * Kernels are symbols of type FUNC with 0x10 in st_other. Section .nv.info.<kernel> has
 * one record per parameter, attribute 0x17 {u32 index; u16 ordinal; u16 offset; u32
 * word}, length = word >> 18 & 0x3fff. Every offset is checked against the image before
 * use. Sections are found by name in a sorted table, and kernels by symbol number,
 * because an image may hold many of both.
 */
#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "image.h"
#include "image_source.h"
#include "pump_cuda.h"

#define MACHINE_CUDA 190
#define KERNEL_FLAG 0x10
#define MANAGED_FLAG 0x04
#define MAX_PARAMETERS 4096
#define NAME_MOST_BYTES 65536u /* longest name that is read, with its terminator */

enum { FORMAT_BYTES = 4 }; /* .nv.info format: a length, then that many bytes */
enum {
  INFO_MAX_THREADS = 0x05,
  INFO_REQUIRED_THREADS = 0x10,
  INFO_FRAME = 0x11,
  INFO_PARAMETER = 0x17,
  INFO_PARAMETER_BYTES = 0x19,
  INFO_REGISTERS = 0x2f
};

/* An image may be at any address, and its tables at any offset. */
typedef Elf64_Ehdr any_header __attribute__((aligned(1)));
typedef Elf64_Shdr any_section __attribute__((aligned(1)));
typedef Elf64_Sym any_symbol __attribute__((aligned(1)));

struct named {
  const char *name;
  const any_section *section;
};

struct elf {
  struct named *by_name; /* owned */
  const uint8_t *bytes;
  size_t length;
  const any_section *sections;
  uint16_t section_count;
  const char *names;
  size_t names_length;
  const any_symbol *symbols;
  size_t symbol_count;
  const char *strings;
  size_t strings_length;
};

static bool inside(const struct elf *elf, uint64_t offset, uint64_t length) {
  return offset <= elf->length && length <= elf->length - offset;
}

static const char *text_at(const char *table, size_t length, uint32_t offset) {
  if (offset >= length) return NULL;
  size_t left = length - offset < NAME_MOST_BYTES ? length - offset : NAME_MOST_BYTES;
  return memchr(table + offset, 0, left) == NULL ? NULL : table + offset;
}

static const char *section_name(const struct elf *elf, const any_section *section) {
  const char *name = text_at(elf->names, elf->names_length, section->sh_name);
  return name ? name : "";
}

/* Compares names; sections of the same name stay in file order. */
static int compare_named(const void *a, const void *b) {
  const struct named *one = a, *other = b;
  int differs = strcmp(one->name, other->name);
  if (differs != 0) return differs;
  return (one->section > other->section) - (one->section < other->section);
}

static bool sort_sections(struct elf *elf) {
  elf->by_name = calloc(elf->section_count, sizeof *elf->by_name);
  if (elf->by_name == NULL) return false;
  for (uint16_t i = 0; i < elf->section_count; i++)
    elf->by_name[i] =
        (struct named){section_name(elf, &elf->sections[i]), &elf->sections[i]};
  qsort(elf->by_name, elf->section_count, sizeof *elf->by_name, compare_named);
  return true;
}

static int compare(const struct named *own, const char *prefix, const char *name) {
  size_t length = strlen(prefix);
  int differs = strncmp(own->name, prefix, length);
  return differs != 0 ? differs : strcmp(own->name + length, name);
}

/* Returns the first section named `prefix` followed by `name`, or NULL. */
static const any_section *find(const struct elf *elf, const char *prefix,
                               const char *name) {
  uint32_t low = 0, high = elf->section_count;
  while (low < high) {
    uint32_t middle = (low + high) / 2;
    if (compare(&elf->by_name[middle], prefix, name) < 0)
      low = middle + 1;
    else
      high = middle;
  }
  bool found = low < elf->section_count && compare(&elf->by_name[low], prefix, name) == 0;
  return found ? elf->by_name[low].section : NULL;
}

/* Returns whether the section has bytes in the image; only then was its offset checked. */
static bool has_bytes(const any_section *section) {
  return section->sh_type != SHT_NOBITS && section->sh_type != SHT_NULL;
}

static bool is_cubin(const any_header *header) {
  return header->e_ident[EI_CLASS] == ELFCLASS64 && header->e_machine == MACHINE_CUDA &&
         header->e_shentsize == sizeof(Elf64_Shdr) && header->e_shnum != 0;
}

static uint64_t later(uint64_t end, uint64_t offset, uint64_t length) {
  if (offset > IMAGE_MOST_BYTES || length > IMAGE_MOST_BYTES) return UINT64_MAX;
  return offset + length > end ? offset + length : end;
}

uint64_t image_elf_bytes(struct image_source *source) {
  Elf64_Ehdr header;
  uint8_t *owned;
  if (image_source_copy(source, 0, &header, sizeof header) < sizeof header) return 0;
  if (!is_cubin(&header)) return 0;
  uint64_t table_bytes = (uint64_t)header.e_shnum * sizeof(Elf64_Shdr);
  const any_section *sections = (const any_section *)(const void *)image_source_take(
      source, header.e_shoff, table_bytes, &owned);
  if (sections == NULL) return 0;
  uint64_t end = later(sizeof header, header.e_shoff, table_bytes);
  for (uint16_t i = 0; i < header.e_shnum; i++)
    if (has_bytes(&sections[i]))
      end = later(end, sections[i].sh_offset, sections[i].sh_size);
  free(owned);
  return end <= IMAGE_MOST_BYTES ? end : 0;
}

static bool open_elf(struct elf *elf, const uint8_t *bytes, size_t length) {
  const any_header *header = (const any_header *)(const void *)bytes;
  if (length < sizeof *header || !is_cubin(header)) return false;
  elf->bytes = bytes;
  elf->length = length;
  if (!inside(elf, header->e_shoff, (uint64_t)header->e_shnum * sizeof(Elf64_Shdr)) ||
      header->e_shstrndx >= header->e_shnum)
    return false;
  elf->sections = (const any_section *)(const void *)(bytes + header->e_shoff);
  elf->section_count = header->e_shnum;
  for (uint16_t i = 0; i < elf->section_count; i++) {
    const any_section *s = &elf->sections[i];
    if (!has_bytes(s)) continue;
    if (!inside(elf, s->sh_offset, s->sh_size)) return false;
  }
  const any_section *names = &elf->sections[header->e_shstrndx];
  if (names->sh_type != SHT_STRTAB) return false;
  elf->names = (const char *)bytes + names->sh_offset;
  elf->names_length = names->sh_size;
  if (!sort_sections(elf)) return false;
  const any_section *table = find(elf, ".symtab", "");
  if (table == NULL || table->sh_type != SHT_SYMTAB || table->sh_link >= header->e_shnum)
    return false;
  const any_section *strings = &elf->sections[table->sh_link];
  if (strings->sh_type != SHT_STRTAB) return false;
  elf->symbols = (const any_symbol *)(const void *)(bytes + table->sh_offset);
  elf->symbol_count = table->sh_size / sizeof(Elf64_Sym);
  elf->strings = (const char *)bytes + strings->sh_offset;
  elf->strings_length = strings->sh_size;
  return true;
}

/* A record of an .nv.info section. */
struct record {
  uint8_t attribute;
  uint16_t value; /* for formats without bytes */
  const uint8_t *bytes;
  uint16_t length;
};

static bool next_record(const uint8_t **at, const uint8_t *end, struct record *record) {
  const uint8_t *p = *at;
  if (end - p < 4) return false;
  memset(record, 0, sizeof *record);
  record->attribute = p[1];
  memcpy(&record->value, p + 2, 2);
  p += 4;
  if (*at[0] == FORMAT_BYTES) {
    if (end - p < record->value) return false;
    record->bytes = p;
    record->length = record->value;
    p += record->value;
  }
  *at = p;
  return true;
}

static uint32_t word_at(const struct record *record, uint32_t index) {
  uint32_t word = 0;
  if (4 * (index + 1) <= record->length) memcpy(&word, record->bytes + 4 * index, 4);
  return word;
}

static bool put_parameter(struct image_kernel *kernel, const struct record *record) {
  uint16_t ordinal, offset;
  if (record->length < 12) return false;
  memcpy(&ordinal, record->bytes + 4, 2);
  memcpy(&offset, record->bytes + 6, 2);
  uint32_t length = word_at(record, 2) >> 18 & 0x3fff;
  if (ordinal >= MAX_PARAMETERS) return false;
  while (kernel->parameter_count <= ordinal)
    if (!image_add_parameter(kernel, 0, 0)) return false;
  kernel->parameters[ordinal] = (struct image_parameter){offset, length};
  if (offset + length > kernel->parameter_bytes) kernel->parameter_bytes = offset + length;
  return true;
}

static bool read_kernel_info(const struct elf *elf, struct image_kernel *kernel) {
  const any_section *section = find(elf, ".nv.info.", kernel->name);
  if (section == NULL || !has_bytes(section)) return true; /* nothing to read */
  const uint8_t *at = elf->bytes + section->sh_offset, *end = at + section->sh_size;
  struct record record;
  while (next_record(&at, end, &record)) {
    if (record.attribute == INFO_PARAMETER && !put_parameter(kernel, &record)) return false;
    if (record.attribute == INFO_PARAMETER_BYTES && record.value > kernel->parameter_bytes)
      kernel->parameter_bytes = record.value;
    if (record.attribute == INFO_MAX_THREADS || record.attribute == INFO_REQUIRED_THREADS)
      kernel->max_threads = word_at(&record, 0) * word_at(&record, 1) * word_at(&record, 2);
  }
  if (kernel->max_threads > 1024) kernel->max_threads = 1024;
  const any_section *shared = find(elf, ".nv.shared.", kernel->name);
  if (shared != NULL) kernel->shared_bytes = (uint32_t)shared->sh_size;
  return true;
}

/* Reads registers and stack sizes of all kernels, listed by symbol number. kernel_of: per
 * symbol, the number of its kernel plus 1; 0 if it is not a kernel. */
static void read_common_info(const struct elf *elf, struct image *image,
                             const uint32_t *kernel_of) {
  const any_section *section = find(elf, ".nv.info", "");
  if (section == NULL || !has_bytes(section)) return;
  const uint8_t *at = elf->bytes + section->sh_offset, *end = at + section->sh_size;
  struct record record;
  while (next_record(&at, end, &record)) {
    if (record.length < 8 || word_at(&record, 0) >= elf->symbol_count) continue;
    uint32_t number = kernel_of[word_at(&record, 0)];
    if (number == 0) continue;
    struct image_kernel *kernel = &image->kernels[number - 1];
    if (record.attribute == INFO_REGISTERS) kernel->registers = word_at(&record, 1);
    if (record.attribute == INFO_FRAME) kernel->local_bytes = word_at(&record, 1);
  }
}

static bool read_global(const struct elf *elf, struct image *image,
                        const any_symbol *symbol, const char *name) {
  if (symbol->st_shndx == SHN_UNDEF || symbol->st_shndx >= elf->section_count) return true;
  const any_section *section = &elf->sections[symbol->st_shndx];
  const char *where = section_name(elf, section);
  bool global = strncmp(where, ".nv.global", 10) == 0;
  if ((!global && strcmp(where, ".nv.constant3") != 0) || symbol->st_size == 0) return true;
  if (symbol->st_value > section->sh_size ||
      symbol->st_size > section->sh_size - symbol->st_value)
    return false;
  struct image_global *out = image_add_global(image, name, strlen(name));
  if (out == NULL) return false;
  out->length_bytes = symbol->st_size;
  out->managed = (symbol->st_other & MANAGED_FLAG) != 0;
  if (!has_bytes(section)) return true;
  out->initial = malloc(symbol->st_size);
  if (out->initial == NULL) return false;
  out->initial_bytes = symbol->st_size;
  memcpy(out->initial, elf->bytes + section->sh_offset + symbol->st_value, symbol->st_size);
  return true;
}

static bool read_symbols(const struct elf *elf, struct image *image, int arch,
                         uint32_t *kernel_of) {
  for (size_t i = 0; i < elf->symbol_count; i++) {
    const any_symbol *symbol = &elf->symbols[i];
    const char *name = text_at(elf->strings, elf->strings_length, symbol->st_name);
    if (name == NULL) return false;
    int type = ELF64_ST_TYPE(symbol->st_info);
    if (type == STT_FUNC && (symbol->st_other & KERNEL_FLAG)) {
      struct image_kernel *kernel = image_add_kernel(image, name, strlen(name));
      if (kernel == NULL || !read_kernel_info(elf, kernel)) return false;
      kernel->ptx_version = kernel->binary_version = arch;
      kernel_of[i] = (uint32_t)image->kernel_count;
    } else if (type == STT_OBJECT && !read_global(elf, image, symbol, name)) {
      return false;
    }
  }
  return true;
}

static bool read_all(const struct elf *elf, struct image *image, int arch) {
  uint32_t *kernel_of = calloc(elf->symbol_count + 1, sizeof *kernel_of);
  bool read = kernel_of != NULL && read_symbols(elf, image, arch, kernel_of);
  if (read) read_common_info(elf, image, kernel_of);
  free(kernel_of);
  return read;
}

int image_from_elf(const uint8_t *bytes, size_t length_bytes, int compute,
                   struct image **out, char *error, size_t error_bytes) {
  struct elf elf = {0};
  if (!open_elf(&elf, bytes, length_bytes)) {
    free(elf.by_name);
    return image_fail(error, error_bytes, CUDA_ERROR_INVALID_IMAGE, "damaged cubin");
  }
  const any_header *header = (const any_header *)(const void *)bytes;
  /* ABI version 8 (CUDA 13) stores the architecture one byte higher */
  int arch = header->e_ident[EI_ABIVERSION] >= 8 ? (int)(header->e_flags >> 8 & 0xff)
                                                 : (int)(header->e_flags & 0xff);
  bool ours = arch / 10 == compute / 10 && arch <= compute;
  struct image *image = ours ? image_new() : NULL;
  bool read = image != NULL && read_all(&elf, image, arch);
  free(elf.by_name);
  if (!ours)
    return image_fail(error, error_bytes, CUDA_ERROR_NO_BINARY_FOR_GPU,
                      "cubin is for sm_%d, the device is sm_%d", arch, compute);
  if (image == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  if (!read) {
    image_free(image);
    return image_fail(error, error_bytes, CUDA_ERROR_INVALID_IMAGE, "damaged cubin");
  }
  *out = image;
  return CUDA_SUCCESS;
}
