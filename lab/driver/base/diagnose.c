/* diagnose.c - log lines, names and sentences of results.
 *
 * PUMP_VIRTUAL_LOG=stderr or a file name turns on the log. vd_error() lines are for the
 * user and go to stderr if there is no log. Nothing goes to stdout.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "driver.h"

/* Set once, before the first line. -1: no log. */
static int log_descriptor = -1;
static pthread_once_t open_once = PTHREAD_ONCE_INIT;

static void open_log(void) {
  const char *name = getenv("PUMP_VIRTUAL_LOG");
  if (name == NULL || *name == 0) return;
  if (strcmp(name, "stderr") == 0) {
    log_descriptor = STDERR_FILENO;
    return;
  }
  log_descriptor = open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
}

/* Returns whether PUMP_VIRTUAL_LOG is set. */
static bool log_enabled(void) {
  pthread_once(&open_once, open_log);
  return log_descriptor >= 0;
}

static void write_line(int descriptor, const char *format, va_list arguments) {
  char line[1024];
  int saved = errno;
  int begin = snprintf(line, sizeof line, "pump virtual GPU [%d]: ", (int)getpid());
  int text = vsnprintf(line + begin, sizeof line - (size_t)begin - 1, format, arguments);
  size_t length = (size_t)begin + (text > 0 ? (size_t)text : 0);
  if (length > sizeof line - 2) length = sizeof line - 2;
  line[length++] = '\n';
  /* one write per line, so that lines of several threads do not mix */
  ssize_t written = write(descriptor, line, length);
  (void)written;
  errno = saved;
}

void vd_log(const char *format, ...) {
  if (!log_enabled()) return;
  va_list arguments;
  va_start(arguments, format);
  write_line(log_descriptor, format, arguments);
  va_end(arguments);
}

void vd_error(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  write_line(log_enabled() ? log_descriptor : STDERR_FILENO, format, arguments);
  va_end(arguments);
}

static FILE *record;
static bool record_opened;

FILE *vd_record(void) {
  if (record_opened) return record;
  record_opened = true;
  const char *name = getenv("PUMP_VIRTUAL_EVENTS");
  if (name == NULL || *name == 0) return NULL;
  record = fopen(name, "wxe"); /* new file, no symbolic link */
  if (record == NULL) vd_error("PUMP_VIRTUAL_EVENTS %s: %s", name, strerror(errno));
  return record;
}

void vd_record_end(void) {
  if (record != NULL && fclose(record) != 0)
    vd_error("PUMP_VIRTUAL_EVENTS: %s", strerror(errno));
  record = NULL;
  record_opened = true;
}

#define RESULTS(R)                                                                         \
  R(CUDA_SUCCESS, "no error")                                                              \
  R(CUDA_ERROR_INVALID_VALUE, "invalid argument")                                          \
  R(CUDA_ERROR_OUT_OF_MEMORY, "out of memory")                                             \
  R(CUDA_ERROR_NOT_INITIALIZED, "initialization error")                                    \
  R(CUDA_ERROR_DEINITIALIZED, "driver shutting down")                                      \
  R(CUDA_ERROR_PROFILER_DISABLED, "profiler disabled")                                     \
  R(CUDA_ERROR_DEVICE_UNAVAILABLE, "device busy or unavailable")                           \
  R(CUDA_ERROR_NO_DEVICE, "no device is detected")                                         \
  R(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal")                                   \
  R(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid")                            \
  R(CUDA_ERROR_INVALID_CONTEXT, "invalid device context")                                  \
  R(CUDA_ERROR_ALREADY_MAPPED, "resource already mapped")                                  \
  R(CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for the device")           \
  R(CUDA_ERROR_UNSUPPORTED_LIMIT, "limit is not supported on this device")                 \
  R(CUDA_ERROR_INVALID_PTX, "a PTX compilation failed")                                    \
  R(CUDA_ERROR_INVALID_SOURCE, "device kernel image is invalid")                           \
  R(CUDA_ERROR_FILE_NOT_FOUND, "file not found")                                           \
  R(CUDA_ERROR_OPERATING_SYSTEM, "operating system call failed")                           \
  R(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle")                                  \
  R(CUDA_ERROR_ILLEGAL_STATE, "operation not permitted in the current state")              \
  R(CUDA_ERROR_NOT_FOUND, "named symbol not found")                                        \
  R(CUDA_ERROR_NOT_READY, "device not ready")                                              \
  R(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered")                \
  R(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch")         \
  R(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE, "the primary context is already active")            \
  R(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed")                               \
  R(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "memory is already registered")             \
  R(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "memory has not been registered")               \
  R(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure")                                \
  R(CUDA_ERROR_NOT_PERMITTED, "operation not permitted")                                   \
  R(CUDA_ERROR_NOT_SUPPORTED, "operation not supported")                                   \
  R(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted while capturing")      \
  R(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "a previous error ended the capture")           \
  R(CUDA_ERROR_STREAM_CAPTURE_MERGE, "captures must not be merged")                        \
  R(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "capture was not begun in this stream")           \
  R(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "capture has work that was not joined")            \
  R(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "dependency crosses the capture's boundary")      \
  R(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "implicit dependency on the legacy stream")        \
  R(CUDA_ERROR_CAPTURED_EVENT, "operation not permitted on a captured event")              \
  R(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "capture was begun by another thread")         \
  R(CUDA_ERROR_UNKNOWN, "unknown error")

static const struct {
  CUresult result;
  const char *name, *sentence;
} results[] = {
#define R(code, text) {code, #code, text},
    RESULTS(R)
#undef R
};

const char *vd_result_name(CUresult result) {
  for (size_t i = 0; i < sizeof results / sizeof *results; i++)
    if (results[i].result == result) return results[i].name;
  return "unknown error code";
}

CUresult vd_cuGetErrorName(CUresult result, const char **name) {
  if (name == NULL) return CUDA_ERROR_INVALID_VALUE;
  *name = NULL;
  for (size_t i = 0; i < sizeof results / sizeof *results; i++)
    if (results[i].result == result) *name = results[i].name;
  return *name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult vd_cuGetErrorString(CUresult result, const char **sentence) {
  if (sentence == NULL) return CUDA_ERROR_INVALID_VALUE;
  *sentence = NULL;
  for (size_t i = 0; i < sizeof results / sizeof *results; i++)
    if (results[i].result == result) *sentence = results[i].sentence;
  return *sentence ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
