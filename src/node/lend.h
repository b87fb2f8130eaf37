/* What this machine's owner lends (lending/lending.h), at work: kept in STATE/lend, looked at every
 * tick, told to the others (NOW), changed by `medley lend`. On the loop's thread. */
#pragma once

#include "base/error.h"

#include "node.pb-c.h"

struct daemon;
struct lend;

/* Reads STATE/lend, then takes the daemon's options, which are kept likewise. ERROR_INVALID: the
 * file is none, or an option is wrong. */
enum error_code lend_open(struct daemon *daemon, struct lend **out, struct error *err);
void lend_free(struct lend *lend);                 /* NULL is fine */
const char *lend_devices(const struct lend *lend); /* ids with commas; "": all */

void lend_tick(struct daemon *daemon); /* tells the others when something has changed */
/* Into now->devices, which are there, and beside them. The texts are the lend's. */
void lend_tell(struct daemon *daemon, Node__Now *now);
