/* image_source.h - where an image's bytes come from: a buffer of a known length, or the
 * program's memory from an address on, whose end is not known.
 *
 * DESIGN. A program gives the driver a bare address. What the bytes there say of their own
 * length may be wrong, and the mapping may end before: reading on would kill a job that the
 * driver refuses, or takes, without harm. So nothing is read there by our own instructions.
 * The kernel copies: write() into a pipe of ours stops with EFAULT where memory ends, in
 * every container, under every seccomp profile and ptrace scope, which process_vm_readv
 * does not (docs/decisions/0035-images.md). Pieces end where pages end: what a piece cannot
 * read is not readable at all. The pipe lives as long as one image is read.
 */
#ifndef PUMP_IMAGE_SOURCE_H
#define PUMP_IMAGE_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define IMAGE_MOST_BYTES (1ull << 30) /* of one image, and of an unpacked one */

struct image_source {
  const uint8_t *at;
  size_t length_bytes; /* SIZE_MAX: not known */
  int pipe[2];         /* -1: not open */
};

void image_source_open(struct image_source *source, const void *at, size_t length_bytes);
void image_source_close(struct image_source *source);
/* The program names another address, whose end is not known either. */
void image_source_move(struct image_source *source, const void *at);
/* How many of these bytes there are; they are in `to`. */
size_t image_source_copy(struct image_source *source, uint64_t offset, void *to,
                         size_t bytes);
/* These bytes, in place where the length is known, else in *owned, which the caller frees.
 * NULL: they are not there, or there is no memory. A zero follows the bytes of a copy. */
const uint8_t *image_source_take(struct image_source *source, uint64_t offset,
                                 uint64_t bytes, uint8_t **owned);
/* The text from the beginning on, to a zero or the known end; as above. */
const uint8_t *image_source_text(struct image_source *source, size_t *bytes,
                                 uint8_t **owned);

#endif
