/* A wall clock that jumps, for one process: preloaded, it adds to CLOCK_REALTIME what a file says.
 *
 *     LD_PRELOAD=…/libchaosclock.so CHAOS_CLOCK=FILE medley up
 *
 * FILE holds one int64_t, nanoseconds; whoever writes it lets the clock jump at once. A namespace
 * cannot do this: a time namespace has its own monotonic clock, but no wall clock. The monotonic
 * clocks are left alone. */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static _Atomic int64_t none;
static _Atomic(_Atomic int64_t *) jump;

static int64_t jump_ns(void)
{
    _Atomic int64_t *found = atomic_load(&jump);
    if (!found) {
        const char *path = getenv("CHAOS_CLOCK");
        const int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
        void *map = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof none, PROT_READ, MAP_SHARED, fd, 0);
        found = map == MAP_FAILED ? &none : map;
        if (fd >= 0)
            close(fd);
        atomic_store(&jump, found);
    }
    return atomic_load(found);
}

int clock_gettime(clockid_t clock, struct timespec *out)
{
    const long result = syscall(SYS_clock_gettime, clock, out);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        const int64_t billion = 1000000000, now = out->tv_sec * billion + out->tv_nsec + jump_ns();
        *out = (struct timespec){now / billion, now % billion};
    }
    return (int)result;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone)
{
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now))
        return -1;
    *out = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
    return 0;
}

time_t time(time_t *out)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out)
        *out = now.tv_sec;
    return now.tv_sec;
}
