/* fake.h - shared by the two files of the fake driver; see fake_driver.c. */
#ifndef FAKE_H
#define FAKE_H

#include "pump_cuda.h"

#define EXPORT __attribute__((visibility("default")))

enum {
  FAKE_FIRST_CODE = 10000,
#define PUMP_HOOK(name, pfn, parameters, arguments) code_##name,
#define PUMP_CALL(name, pfn, parameters) code_##name,
#include "shim/driver/hooks.h"
#define EXTRA(name, pfn) code_##name,
#include "fake_extra.h"
};

/* Returns the default answer of function `name`; logs it in FAKE_MODE=work. */
CUresult fake_answer(const char *name, int code);
void fake_log(const char *format, ...);

#endif
