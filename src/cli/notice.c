#include "cli/notice.h"

#include "base/clock.h"
#include "base/timed_wait.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

static void *wait_and_show(void *arg)
{
    struct notice *notice = arg;
    const uint64_t until_ns = clock_now_ns() + 1000000000;
    pthread_mutex_lock(&notice->lock);
    while (!notice->done && timed_wait(&notice->ended, &notice->lock, until_ns)) {
    }
    if (!notice->done) {
        fputs(notice->text, stderr);
        fflush(stderr);
        notice->shown = true;
    }
    pthread_mutex_unlock(&notice->lock);
    return NULL;
}

void notice_begin(struct notice *notice, const char *format, ...)
{
    *notice = (struct notice){0};
    if (!isatty(STDERR_FILENO))
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(notice->text, sizeof notice->text, format, args);
    va_end(args);
    pthread_mutex_init(&notice->lock, NULL);
    timed_wait_init(&notice->ended);
    notice->running = pthread_create(&notice->thread, NULL, wait_and_show, notice) == 0;
}

void notice_end(struct notice *notice)
{
    if (!notice->running)
        return;
    pthread_mutex_lock(&notice->lock);
    notice->done = true;
    pthread_cond_signal(&notice->ended);
    pthread_mutex_unlock(&notice->lock);
    pthread_join(notice->thread, NULL);
    if (notice->shown)
        fputs("\r\033[K", stderr);
    pthread_cond_destroy(&notice->ended);
    pthread_mutex_destroy(&notice->lock);
}
