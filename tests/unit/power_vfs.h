/* SQLite on power_disk.h: a VFS that keeps what SQLite's own for Unix promises, and no more. A
 * folder is synced with the first sync of a journal or write-ahead log that was made, and when a
 * removal asks for it; a sector has 4096 bytes; a write harms nothing beside it unless
 * SQLITE_FCNTL_POWERSAFE_OVERWRITE was cleared. No locks, no shared memory. Paths are in
 * POWER_FOLDER. */
#pragma once

void power_vfs_register(void); /* as the default */
void power_vfs_unregister(void);
