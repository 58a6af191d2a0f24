/* touch.h - how a stand-in reports the memory that a launch touches
 * (lab/driver/code/touch.c). */
#ifndef PUMP_TOUCH_H
#define PUMP_TOUCH_H

#include <stdint.h>

struct touch {
  uint64_t address, length_bytes;
};
#define TOUCH_READ (1ull << 63) /* mark in a length: the kernel only reads the part */
#define TOUCH_WIDE (1ull << 62) /* mark: it reaches blocks all over the part at once */

#endif
