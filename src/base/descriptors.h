/* How many descriptors (files, sockets, pipes) this process may have open. */
#pragma once

#include <stdint.h>

/* Raises the soft limit to the hard one, but not beyond LIMIT_DESCRIPTORS; returns what holds
 * then. For a program that serves: 1,024, the usual soft limit, is there for programs that call
 * select(). */
uint32_t descriptors_raise(void);
uint32_t descriptors_limit(void);
