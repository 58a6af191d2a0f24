/* image_source.h - the source of an image's bytes: a buffer of known length, or the
 * program's memory at an address, with unknown end.
 *
 * DESIGN. A program gives the driver a bare address. The length stated in the bytes there
 * may be wrong, and the mapping may end earlier. Reading on would kill a job that the
 * driver refuses, or accepts, without harm. So our own instructions never read there: the
 * kernel copies. A write() into a pipe of ours stops with EFAULT where memory ends. This
 * works in every container, seccomp profile and ptrace scope, unlike process_vm_readv
 * (docs/decisions/0035-images.md). Pieces end at page boundaries: bytes that a piece
 * cannot read are not readable at all. The pipe exists only while one image is read.
 */
#ifndef PUMP_IMAGE_SOURCE_H
#define PUMP_IMAGE_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define IMAGE_MOST_BYTES (1ull << 30) /* bound of one image, compressed or not */

struct image_source {
  const uint8_t *at;
  size_t length_bytes; /* SIZE_MAX: not known */
  int pipe[2];         /* -1: not open */
};

void image_source_open(struct image_source *source, const void *at, size_t length_bytes);
void image_source_close(struct image_source *source);
/* Switches to another address in the program, also with unknown end. */
void image_source_move(struct image_source *source, const void *at);
/* Copies `bytes` bytes at `offset` into `to`; returns how many of them exist. */
size_t image_source_copy(struct image_source *source, uint64_t offset, void *to,
                         size_t bytes);
/* Returns these bytes: in place if the length is known, else a copy in *owned that the
 * caller frees, followed by a zero. NULL: bytes are missing, or there is no memory. */
const uint8_t *image_source_take(struct image_source *source, uint64_t offset,
                                 uint64_t bytes, uint8_t **owned);
/* Returns the text from the beginning to a zero or the known end; `*owned` is as
 * in image_source_take. */
const uint8_t *image_source_text(struct image_source *source, size_t *bytes,
                                 uint8_t **owned);

#endif
