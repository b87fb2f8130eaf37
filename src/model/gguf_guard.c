#include "model/gguf_guard.h"

#include "base/limits.h"

#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

/* Read by the handler: without a lock. `size` is set last and cleared first. */
static struct guarded {
    _Atomic uintptr_t base;
    _Atomic size_t size; /* 0: free */
    _Atomic bool is_cut;
} guarded[LIMIT_GUARDED_FILES];
static pthread_mutex_t guard_lock = PTHREAD_MUTEX_INITIALIZER; /* of adding */
static struct sigaction guard_before;
static uintptr_t guard_page_bytes;

static struct guarded *guard_find(uintptr_t address)
{
    for (uint32_t i = 0; i < LIMIT_GUARDED_FILES; i++) {
        const uintptr_t base = atomic_load(&guarded[i].base);
        if (address >= base && address - base < atomic_load(&guarded[i].size))
            return &guarded[i];
    }
    return NULL;
}

/* What lies behind an unreadable page is behind the file's end, too, or of a broken disk. */
static bool guard_patch(struct guarded *file, uintptr_t address)
{
    const uintptr_t page = address & ~(guard_page_bytes - 1);
    const size_t size = atomic_load(&file->base) + atomic_load(&file->size) - page;
    atomic_store(&file->is_cut, true);
    return mmap((void *)page, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
           MAP_FAILED;
}

static void guard_on_bus_error(int number, siginfo_t *info, void *context)
{
    struct guarded *file = guard_find((uintptr_t)info->si_addr);
    if (file && guard_patch(file, (uintptr_t)info->si_addr))
        return;
    if ((guard_before.sa_flags & SA_SIGINFO) && guard_before.sa_sigaction)
        guard_before.sa_sigaction(number, info, context);
    else
        sigaction(SIGBUS, &guard_before, NULL); /* the read comes again, and is what it was */
}

/* With the lock. With each file, for somebody (a driver, a test's frame) may have put a handler of
 * its own in the place of this one. */
static void guard_install(void)
{
    struct sigaction action = {.sa_sigaction = guard_on_bus_error, .sa_flags = SA_SIGINFO}, now;
    if (sigaction(SIGBUS, NULL, &now) || now.sa_sigaction == guard_on_bus_error)
        return;
    guard_before = now;
    guard_page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}

uint32_t gguf_guard_add(const void *bytes, size_t size)
{
    uint32_t i = 0;
    assert(bytes && size);
    pthread_mutex_lock(&guard_lock);
    guard_install();
    while (i < LIMIT_GUARDED_FILES && atomic_load(&guarded[i].size))
        i++;
    if (i < LIMIT_GUARDED_FILES) {
        atomic_store(&guarded[i].is_cut, false);
        atomic_store(&guarded[i].base, (uintptr_t)bytes);
        atomic_store(&guarded[i].size, size);
    }
    pthread_mutex_unlock(&guard_lock);
    return i < LIMIT_GUARDED_FILES ? i : GGUF_GUARD_NONE;
}

void gguf_guard_remove(uint32_t guard)
{
    if (guard == GGUF_GUARD_NONE)
        return;
    assert(guard < LIMIT_GUARDED_FILES && atomic_load(&guarded[guard].size));
    atomic_store(&guarded[guard].size, 0);
}

bool gguf_guard_is_cut(uint32_t guard)
{
    return guard != GGUF_GUARD_NONE && atomic_load(&guarded[guard].is_cut);
}
