/* A line on the terminal while something takes longer than a second; it goes away when it is done.
 * Nothing is written where stderr is no terminal. */
#pragma once

#include <pthread.h>
#include <stdbool.h>

struct notice {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    pthread_t thread;
    bool running, done, shown;
    char text[256];
};

void notice_begin(struct notice *notice, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void notice_end(struct notice *notice);
