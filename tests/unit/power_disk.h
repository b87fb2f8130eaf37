/* A disk in memory whose power can be lost: one folder, "/power", with a write cache that keeps no
 * promise but sync's.
 *
 *     power_reset(seed);
 *     power_lose_at(7);             // the seventh step from now is the last that the disk hears of
 *     ... open, write, sync: every call fails from then on ...
 *     power_on();                   // what reached the platter is all that is there
 *
 * A file has what everybody sees, what is durable, and the writes and truncations since its last
 * sync. A loss keeps any of those, whole, in part or not at all, in any order: each sector (512
 * bytes) of a write is new, old, or noise or zeros where the write was. With `tears_sectors` a
 * sector that was written in part may be destroyed as a whole, with what was durable in it. Names
 * (created, removed, renamed) last only when the folder was synced, and each may survive without
 * the others; a rename is whole.
 * A sync that fails has thrown away what it could not write, as Linux does: later syncs succeed
 * without it, and it can still be read until the power goes.
 * A disk that lies says that it has synced, and has not.
 *
 * Errors are errno's values; 0: done. One disk for the process; one thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define POWER_FOLDER "/power"

struct power_file;

void power_reset(uint64_t seed);         /* an empty folder; all rules are off */
void power_tear_sectors(uint32_t bytes); /* 512 or 4096; 0: a write harms nothing beside it */
void power_lie(uint32_t percent);        /* of the syncs */
void power_lose_at(uint64_t step);       /* from now; 0: never */
/* That step fails, once: ENOSPC (a write: after the first half) or EIO; 0: never. */
void power_fail_at(uint64_t step, int failure);
bool power_failed(void); /* since power_fail_at() */
bool power_is_off(void);
void power_off(void);
void power_on(void); /* also where nothing was lost yet: then it is lost now */
void power_again(
    void); /* in its place: it was not the power, the process was killed, and the cache has all */
uint64_t power_steps(void); /* since power_reset() */
uint64_t power_lies(void);  /* syncs that did nothing, likewise */
uint64_t power_draw(uint64_t below);

/* Names have no folder in them. NULL: no such file. Files stay where they are until the power is
 * lost. */
struct power_file *power_find(const char *name);
int power_create(const char *name, struct power_file **out); /* EEXIST */
int power_unlink(const char *name);
int power_rename(const char *from, const char *to, bool replaces);
int power_sync_folder(void);

int power_write(struct power_file *file, const void *bytes, size_t size, uint64_t at);
size_t power_read(const struct power_file *file, void *bytes, size_t size,
                  uint64_t at); /* how much there was */
int power_truncate(struct power_file *file, uint64_t size);
int power_sync(struct power_file *file);
uint64_t power_size(const struct power_file *file);
