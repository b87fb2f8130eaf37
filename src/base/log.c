#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *const names[] = {"error", "warn", "info", "debug"};
static atomic_int chosen = -1; /* -1: not read from the environment yet */

enum log_level log_level(void)
{
    int level = atomic_load(&chosen);
    if (level >= 0)
        return (enum log_level)level;
    const char *text = getenv("MEDLEY_LOG");
    level = LOG_WARN;
    for (int i = 0; text && i < 4; i++) {
        if (strcmp(text, names[i]) == 0)
            level = i;
    }
    atomic_store(&chosen, level);
    return (enum log_level)level;
}

void log_set_level(enum log_level level)
{
    atomic_store(&chosen, (int)level);
}

void log_line(enum log_level level, const char *room, const char *format, ...)
{
    if (level > log_level())
        return;
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    struct tm utc;
    gmtime_r(&now.tv_sec, &utc);
    fprintf(stderr, "%02d:%02d:%02d.%03ld %s %s: %s\n", utc.tm_hour, utc.tm_min, utc.tm_sec,
            now.tv_nsec / 1000000, names[level], room, text);
}
