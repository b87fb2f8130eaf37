/* A descriptor with which a thread that waits in poll() is woken by any other. */
#pragma once

/* poll() finds it readable once somebody rang. -1, with errno set: no descriptor is left. Close it
 * with close(). */
int wakeup_open(void);

/* Never blocks. */
void wakeup_ring(int fd);

/* Takes back what was rung so far: poll() waits again. Never blocks. */
void wakeup_heed(int fd);
