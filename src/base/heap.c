#include "base/heap.h"

#include <stdlib.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

void heap_return_large(void)
{
#ifdef M_MMAP_THRESHOLD /* once it is set glibc does not raise it any more */
    mallopt(M_MMAP_THRESHOLD, HEAP_LARGE_BYTES);
#endif
}
