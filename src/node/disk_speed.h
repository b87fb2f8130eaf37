/* How fast this node's disk reads weights: measured once, on the file of the largest model that is
 * whole on it, as soon as the cluster knows a model that is larger than any of this node's devices;
 * before that nobody asks. Less than half a second, beside the loop. On the loop's thread. */
#pragma once

#include <stdint.h>

struct daemon;
struct disk_speed;

struct disk_speed *disk_speed_new(struct daemon *daemon); /* NULL: no memory */
void disk_speed_free(struct disk_speed *speed); /* a measurement under way ends by itself; NULL is
                                                   fine */
void disk_speed_step(struct disk_speed *speed); /* now and then */
uint64_t disk_speed_bytes_per_s(const struct disk_speed *speed); /* 0: not measured; NULL is fine */
