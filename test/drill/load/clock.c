// Preloaded with LD_PRELOAD: shifts the time of day by the milliseconds in the file that DRILL_CLOCK names. The file is
// mapped, so that writing to it sets the clock. Monotonic clocks are unchanged.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *ahead_ms;

__attribute__((constructor)) static void open_clock(void) {
  const char *path = getenv("DRILL_CLOCK");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  void *mapped = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *ahead_ms, PROT_READ, MAP_SHARED, file, 0);
  if (mapped == MAP_FAILED) {
    perror("DRILL_CLOCK");
    abort();
  }
  close(file);
  ahead_ms = mapped;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
  int failed = syscall(SYS_clock_gettime, clock, at);
  if (failed || !ahead_ms || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return failed;
  int64_t ms = *ahead_ms;
  at->tv_sec += ms / 1000;
  at->tv_nsec += ms % 1000 * 1000000;
  if (at->tv_nsec < 0) {
    at->tv_nsec += 1000000000;
    at->tv_sec -= 1;
  } else if (at->tv_nsec >= 1000000000) {
    at->tv_nsec -= 1000000000;
    at->tv_sec += 1;
  }
  return 0;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
  (void)zone;
  struct timespec now;
  if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
  at->tv_sec = now.tv_sec;
  at->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *at) {
  struct timespec now;
  if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
  if (at) *at = now.tv_sec;
  return now.tv_sec;
}
