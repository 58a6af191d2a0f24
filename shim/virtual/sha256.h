/* sha256.h - SHA-256 of a text, in lower-case hexadecimal. */
#ifndef PUMP_VIRTUAL_SHA256_H
#define PUMP_VIRTUAL_SHA256_H

#include <stdint.h>

void sha256_hex(const char *text, char hex[65]);

#endif
