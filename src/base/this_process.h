/* What the system calls this process: its program, its open files, its parent. Any thread. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

/* A path by which this very program can be started, even when its file was replaced meanwhile. */
const char *this_program(void);

/* Where its file lies; false, with errno set: the system does not say. */
bool this_program_path(char path[static PATH_MAX]);

/* A path that opens what `fd` has open once more: with flags of its own, or by a library that takes
 * nothing but paths. */
enum { DESCRIPTOR_PATH_BYTES = 40 };
void descriptor_path(char path[static DESCRIPTOR_PATH_BYTES], int fd);

/* The kernel ends this process when the thread that started it ends. Does not return when the
 * parent, whose id was `parent`, is gone already. */
void this_process_dies_with(pid_t parent);
