/* Heap memory that can be made to fail.
 *
 * All of Medley allocates through these, so that a test can fail the Nth allocation and
 * see that nothing leaks and nothing crashes, and so that work on behalf of others can be bounded
 * (work_limit.h). Memory comes zeroed. Any thread. */
#pragma once

#include <stddef.h>

void *mem_new(size_t size);                     /* NULL when there is none */
void *mem_new_array(size_t count, size_t size); /* NULL also when the product overflows */
void *mem_resize(
    void *old, size_t count,
    size_t size); /* like reallocarray: `old` stays valid on NULL; new bytes are not zeroed */
char *mem_copy_text(const char *text, size_t length); /* length bytes and a NUL */
void mem_free(void *memory);                          /* NULL is fine */

/* Makes the `nth` allocation from now fail once (1 = the next); 0 switches it off. For tests. */
void mem_fail_nth(unsigned nth);
