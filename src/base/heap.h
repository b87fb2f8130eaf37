/* What the process's heap does with memory that was freed. */
#pragma once

enum { HEAP_LARGE_BYTES = 256 << 10 };

/* From now on a block of HEAP_LARGE_BYTES or more goes back to the system when it is freed. glibc
 * does that only until the first such block was freed; then ever larger ones stay in the heap of
 * the thread that had asked for them, and a process that loads models for days keeps what each of
 * its threads once needed. Any thread; best at the start. */
void heap_return_large(void);
