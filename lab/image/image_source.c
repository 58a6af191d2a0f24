/* image_source.c - copies the bytes of an image; see image_source.h. */
#include "image_source.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE_BYTES 4096u
#define PIECE_BYTES (16u * PAGE_BYTES) /* capacity of a pipe */
#define FIRST_BYTES (16u * PAGE_BYTES) /* initial size of a copy */

void image_source_open(struct image_source *source, const void *at, size_t length_bytes) {
  *source = (struct image_source){at, length_bytes, {-1, -1}};
}

void image_source_close(struct image_source *source) {
  for (int i = 0; i < 2; i++)
    if (source->pipe[i] >= 0) close(source->pipe[i]);
  source->pipe[0] = source->pipe[1] = -1;
}

void image_source_move(struct image_source *source, const void *at) {
  source->at = at;
}

/* Copies through the pipe, which is empty before and after: never blocks. Makes the
 * system call itself, because an interposed write(), as of a sanitizer, may read the
 * bytes. */
static size_t copy_piece(const struct image_source *source, const uint8_t *from, void *to,
                         size_t bytes) {
  long written = syscall(SYS_write, source->pipe[1], from, bytes);
  size_t got = 0;
  while (written > 0 && got < (size_t)written) {
    ssize_t read_bytes = read(source->pipe[0], (uint8_t *)to + got, (size_t)written - got);
    if (read_bytes <= 0) return 0;
    got += (size_t)read_bytes;
  }
  return got;
}

static size_t copy_program(struct image_source *source, const uint8_t *from, uint8_t *to,
                           size_t bytes) {
  if (source->pipe[0] < 0 && pipe2(source->pipe, O_CLOEXEC | O_NONBLOCK) != 0) return 0;
  size_t done = 0;
  while (done < bytes) {
    size_t piece = PAGE_BYTES - (uintptr_t)(from + done) % PAGE_BYTES;
    if (piece == PAGE_BYTES) piece = PIECE_BYTES;
    if (piece > bytes - done) piece = bytes - done;
    size_t got = copy_piece(source, from + done, to + done, piece);
    if (got == 0) break;
    done += got;
  }
  return done;
}

size_t image_source_copy(struct image_source *source, uint64_t offset, void *to,
                         size_t bytes) {
  if (source->length_bytes == SIZE_MAX) {
    if (offset > UINTPTR_MAX - (uintptr_t)source->at) return 0;
    return copy_program(source, (const uint8_t *)((uintptr_t)source->at + offset), to,
                        bytes);
  }
  if (offset >= source->length_bytes) return 0;
  if (bytes > source->length_bytes - offset) bytes = source->length_bytes - offset;
  memcpy(to, source->at + offset, bytes);
  return bytes;
}

/* Copies `most` bytes, or a text of at most that length, and appends a zero. Sets *bytes
 * to the length. Memory grows with the existing bytes, not with a stated length. Returns
 * NULL if bytes are missing, or without memory. */
static uint8_t *copy_of(struct image_source *source, uint64_t offset, size_t most,
                        bool text, size_t *bytes) {
  uint8_t *copy = NULL;
  size_t there = 0;
  for (size_t room = FIRST_BYTES;; room *= 2) {
    if (room > most) room = most;
    uint8_t *grown = realloc(copy, room + 1);
    if (grown == NULL) break;
    copy = grown;
    size_t got = image_source_copy(source, offset + there, copy + there, room - there);
    const uint8_t *zero = text ? memchr(copy + there, 0, got) : NULL;
    there += got;
    bool whole = zero != NULL || (!text && there == most);
    if (whole) {
      *bytes = zero != NULL ? (size_t)(zero - copy) : most;
      copy[*bytes] = 0;
      return copy;
    }
    if (there < room || room == most) break;
  }
  free(copy);
  return NULL;
}

const uint8_t *image_source_take(struct image_source *source, uint64_t offset,
                                 uint64_t bytes, uint8_t **owned) {
  *owned = NULL;
  if (bytes > IMAGE_MOST_BYTES) return NULL;
  if (source->length_bytes != SIZE_MAX) {
    bool there = offset <= source->length_bytes && bytes <= source->length_bytes - offset;
    return there ? source->at + offset : NULL;
  }
  size_t copied;
  return *owned = copy_of(source, offset, bytes, false, &copied);
}

const uint8_t *image_source_text(struct image_source *source, size_t *bytes,
                                 uint8_t **owned) {
  *owned = NULL;
  if (source->length_bytes != SIZE_MAX) {
    *bytes = strnlen((const char *)source->at, source->length_bytes);
    return source->at;
  }
  return *owned = copy_of(source, 0, IMAGE_MOST_BYTES, true, bytes);
}
