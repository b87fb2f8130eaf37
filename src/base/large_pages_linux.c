/* Sources, in Linux 6.18: mm/filemap.c (do_sync_mmap_readahead: a mapping with MADV_HUGEPAGE is
 * read in pages of 2 MiB, whatever the disk's readahead is; __filemap_get_folio: a write makes
 * pages of its own size, at natural places), fs/proc/task_mmu.c (PAGE_IS_HUGE: mapped by one
 * entry). */
#include "base/large_pages.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

enum {
    LOOKED_PLACES_MAX = 64,
    /* Writes from here on come in any order; smaller ones one behind the other, from a network. */
    LARGE_WRITE_BYTES = 256 << 10,
};

/* Local file systems whose pages can be large (linux/magic.h, and XFS' own header). */
static bool large_pages_has_local(int fd)
{
    struct statfs system;
    if (fstatfs(fd, &system))
        return false;
    return system.f_type == 0xEF53 || system.f_type == 0x58465342 || system.f_type == 0x9123683E;
}

void large_pages_advise(const void *bytes, uint64_t size)
{
#ifdef MADV_HUGEPAGE
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t first = ((uintptr_t)bytes + page - 1) / page * page,
                    end = ((uintptr_t)bytes + (uintptr_t)size) / page * page;
    if (first < end)
        madvise((void *)first, end - first, MADV_HUGEPAGE);
#else
    (void)bytes, (void)size;
#endif
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Reading a hole through a mapping brings zeros, in a page as large as the mapping asks for. */
static void large_page_bring(int fd, uint64_t at)
{
#ifdef MADV_POPULATE_READ
    void *page = mmap(NULL, LARGE_PAGE_BYTES, PROT_READ, MAP_SHARED, fd, (off_t)at);
    if (page == MAP_FAILED)
        return;
    large_pages_advise(page, LARGE_PAGE_BYTES);
    madvise(page, (size_t)sysconf(_SC_PAGESIZE), MADV_POPULATE_READ);
    munmap(page, LARGE_PAGE_BYTES);
#else
    (void)fd, (void)at;
#endif
}

/* Of the large page at `at` a write fills only a part. One that fills all of it needs no help. */
static bool large_page_is_begun(uint64_t at, uint64_t from, uint64_t size)
{
    const bool is_filled = from <= at && from + size >= at + LARGE_PAGE_BYTES;
    return !is_filled && (size >= LARGE_WRITE_BYTES || from <= at);
}

void large_pages_expect(int fd, uint64_t at, uint64_t size)
{
    const uint64_t first = at / LARGE_PAGE_BYTES * LARGE_PAGE_BYTES;
    const uint64_t last = size ? (at + size - 1) / LARGE_PAGE_BYTES * LARGE_PAGE_BYTES : first;
    const bool begins = size && large_page_is_begun(first, at, size);
    const bool ends = size && last != first && large_page_is_begun(last, at, size);
    struct stat file;
    if ((!begins && !ends) || fstat(fd, &file) || !large_pages_has_local(fd))
        return;
    if (begins && first + LARGE_PAGE_BYTES <= (uint64_t)file.st_size)
        large_page_bring(fd, first);
    if (ends && last + LARGE_PAGE_BYTES <= (uint64_t)file.st_size)
        large_page_bring(fd, last);
}

/* ---- looking --------------------------------------------------------------------------------- */

/* Where a large page could be mapped. NULL: no room. */
static uint8_t *large_page_reserve(void)
{
    uint8_t *room = mmap(NULL, 2 * LARGE_PAGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return room == MAP_FAILED ? NULL : room;
}

static bool large_page_is_mapped(int pagemap, const uint8_t *page)
{
#ifdef PAGEMAP_SCAN
    struct page_region region;
    struct pm_scan_arg wanted = {.size = sizeof wanted,
                                 .start = (uintptr_t)page,
                                 .end = (uintptr_t)page + LARGE_PAGE_BYTES,
                                 .vec = (uintptr_t)&region,
                                 .vec_len = 1,
                                 .category_mask = PAGE_IS_HUGE,
                                 .return_mask = PAGE_IS_HUGE};
    return ioctl(pagemap, PAGEMAP_SCAN, &wanted) == 1;
#else
    (void)pagemap, (void)page;
    return false;
#endif
}

/* The page in the middle stands for all: the kernel maps a large page whole, whichever is used. */
static void large_page_look(int fd, int pagemap, uint64_t at, uint8_t *where,
                            struct large_pages_seen *seen)
{
#ifdef MADV_POPULATE_READ
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char is_here = 0;
    if (mmap(where, LARGE_PAGE_BYTES, PROT_READ, MAP_SHARED | MAP_FIXED, fd, (off_t)at) ==
        MAP_FAILED)
        return;
    uint8_t *const middle = where + LARGE_PAGE_BYTES / 2;
    if (mincore(middle, page, &is_here) == 0 && (is_here & 1) &&
        madvise(middle, page, MADV_POPULATE_READ) == 0) {
        seen->n_places++;
        seen->n_large += large_page_is_mapped(pagemap, where);
    }
#else
    (void)fd, (void)pagemap, (void)at, (void)where, (void)seen;
#endif
}

/* mincore() says of another user's file that all of it is in memory: mm/mincore.c. */
static bool large_pages_may_look(int fd, uint64_t *n_pages)
{
    struct stat file;
    if (fstat(fd, &file) || !S_ISREG(file.st_mode))
        return false;
    *n_pages = (uint64_t)file.st_size / LARGE_PAGE_BYTES;
    return *n_pages && (geteuid() == 0 || file.st_uid == geteuid());
}

struct large_pages_seen large_pages_look(int fd)
{
    struct large_pages_seen seen = {0};
    uint64_t n_pages;
    if (!large_pages_may_look(fd, &n_pages))
        return seen;
    const int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    uint8_t *room = pagemap >= 0 ? large_page_reserve() : NULL;
    if (room) {
        const uint64_t n = n_pages < LOOKED_PLACES_MAX ? n_pages : LOOKED_PLACES_MAX;
        uint8_t *where = room + LARGE_PAGE_BYTES - (uintptr_t)room % LARGE_PAGE_BYTES;
        for (uint64_t i = 0; i < n; i++)
            large_page_look(fd, pagemap, n_pages * i / n * LARGE_PAGE_BYTES, where, &seen);
        munmap(room, 2 * LARGE_PAGE_BYTES);
    }
    if (pagemap >= 0)
        close(pagemap);
    return seen;
}

bool large_pages_possible(const char *folder)
{
    const int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    const bool has_length = ftruncate(fd, (off_t)LARGE_PAGE_BYTES) == 0;
    if (has_length)
        large_pages_expect(fd, 0, 1);
    const bool is_possible = has_length && large_pages_look(fd).n_large == 1;
    close(fd);
    return is_possible;
}
