/* touch.h - how a stand-in reports which memory a launch touches (lab/driver/code/touch.c).
 */
#ifndef PUMP_TOUCH_H
#define PUMP_TOUCH_H

#include <stdint.h>

struct touch {
  uint64_t address, length_bytes;
};
#define TOUCH_READ (1ull << 63) /* in a length: the kernel only reads */
#define TOUCH_WIDE (1ull << 62) /* and reaches blocks all over the part at once */

#endif
