/* Measures this node's devices in their own processes while nothing computes on them
 * (node/measuring.h says when), keeps what was found, and tells the cluster. On the loop's
 * thread. */
#pragma once

struct daemon;
struct daemon_measure;

struct daemon_measure *daemon_measure_new(void); /* NULL: no memory */
/* After daemon_measure_forget(). NULL is fine. */
void daemon_measure_free(struct daemon_measure *measure);

void daemon_measure_tick(struct daemon *daemon);   /* begins, and takes what has come */
void daemon_measure_forget(struct daemon *daemon); /* nothing comes any more */
