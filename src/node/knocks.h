/* A node that is in no cluster asks the members that it finds to let it in: by a code, or by hand,
 * where somebody compares four words on both machines. Made by the first knocks_join(); all others
 * take NULL and do nothing then. On the loop's thread. */
#pragma once

#include "base/error.h"

#include <stdbool.h>

struct daemon;
struct knocks;

struct knock_events {
    void (*compare)(void *self, const char *words, const char *peer_name);
    void (*ended)(void *self, const char *through,
                  const struct error *why); /* why NULL: it is a member now */
    void *self;
};

/* By code (NULL: by hand), at `host` (NULL: at whatever was found). One at a time; NULL events:
 * nobody asks. */
enum error_code knocks_join(struct daemon *daemon, const char *code, const char *host,
                            const struct knock_events *events, struct error *err);
void knocks_answer(struct knocks *knocks, bool agree); /* whether the words were the same */
void knocks_forget(struct knocks *knocks);             /* who asked has gone */
void knocks_step(struct knocks *knocks);               /* now and then, while it waits */
/* Ends all attempts, frees it and calls `closed`. Not NULL. */
void knocks_close(struct knocks *knocks, void (*closed)(struct daemon *daemon));
