/* Sleeping on a word in memory that processes share (futex(2)). */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

/* Until somebody wakes, or `limit_ms` are over; not at all when the word is not `value` any more.
 * May return for nothing. */
void futex_wait(_Atomic uint32_t *word, uint32_t value, uint32_t limit_ms);

/* One of those that wait. */
void futex_wake(_Atomic uint32_t *word);
