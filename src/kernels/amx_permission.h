/* Linux lets a process use AMX's tiles once it has asked: they make what is saved of a thread 8 KiB
 * larger. Any thread. */
#pragma once

#include <stdbool.h>

/* Asks, for all threads of this process and those that it forks. False: the processor has no tiles,
 * or Linux is older than 5.16, or a thread's stack for signals is too small. */
bool amx_permission_ask(void);
