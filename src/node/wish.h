/* What somebody asked for when they placed an instance, apart from what was chosen for them:
 * Instance.wished. An instance that is made anew keeps it, but for what is asked for now. It is
 * forgotten when the instance is unloaded. Pure. */
#pragma once

#include "cluster.pb-c.h"
#include "node/daemon_state.h"

/* What is wanted now, and of the rest what was wished before; either may be NULL. Zeros: nobody
 * said. Parts of it are wanted's, or before's. */
void wish_of(const struct place_demand *wanted, const Cluster__Instance *before,
             Cluster__Demand *out);
/* The same of how long it may be idle. One that a request made has no wish. */
uint64_t wish_idle_ms(const struct place_demand *wanted, const Cluster__Instance *before);
/* False: weights of another type that may become smaller still are to be read from the disk, which
 * cannot be (docs/precision.md). */
bool wish_is_sound(const Cluster__Demand *wish);

/* What is kept of before's wish beside what is wanted now, as flags: "--context 8192, --kv q8_0".
 * Empty: nothing. */
enum { WISH_TEXT = 512 };
void wish_kept_text(const struct place_demand *wanted, const Cluster__Instance *before,
                    char out[static WISH_TEXT]);
