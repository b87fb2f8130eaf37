/* membw: how fast this machine's memory can be read, the physical limit of decoding.
 *
 *   membw [--threads 2] [--mib 512] [--seconds 1]
 *
 * Each thread reads a buffer of its own, far larger than the caches, in 64-byte vectors (AVX-512,
 * AVX2 or what the processor has), without and with software prefetches some distance ahead, the
 * way a kernel can ask for the next rows of weights. Prints GB/s (10^9 bytes) for each distance,
 * then the best. */
#include "base/clock.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { MAX_THREADS = 256, VECTORS_A_BLOCK = 8 };

typedef uint64_t vector
    __attribute__((vector_size(64))); /* the one typedef: gcc's vector types need it */

struct reader {
    pthread_t thread;
    const struct plan *plan;
    char *data;
    uint64_t bytes_read;
    uint64_t checksum;
};

struct plan {
    size_t size;     /* bytes of a buffer */
    size_t distance; /* bytes to prefetch ahead; 0: none */
    uint64_t nanoseconds;
    pthread_barrier_t *start;
};

#if defined(__x86_64__)
__attribute__((target_clones("avx512f", "avx2", "default")))
#endif
static uint64_t
read_once(const char *data, size_t size, size_t distance)
{
    vector sums[VECTORS_A_BLOCK] = {0};
    for (size_t at = 0; at < size; at += sizeof sums) {
        const vector *block = (const vector *)(const void *)(data + at);
        for (size_t i = 0; i < VECTORS_A_BLOCK; i++) {
            if (distance)
                __builtin_prefetch(data + at + distance + i * sizeof(vector), 0, 3);
            sums[i] += block[i];
        }
    }
    uint64_t sum = 0;
    for (size_t i = 0; i < VECTORS_A_BLOCK; i++) {
        for (size_t lane = 0; lane < sizeof(vector) / sizeof(uint64_t); lane++)
            sum += sums[i][lane];
    }
    return sum;
}

static void *read_for_a_while(void *arg)
{
    struct reader *reader = arg;
    const struct plan *plan = reader->plan;
    pthread_barrier_wait(plan->start);
    const uint64_t until = clock_now_ns() + plan->nanoseconds;
    reader->bytes_read = 0;
    while (clock_now_ns() < until) {
        reader->checksum += read_once(reader->data, plan->size, plan->distance);
        reader->bytes_read += plan->size;
    }
    return NULL;
}

/* All threads together, in 10^9 bytes a second. */
static double measure(struct reader *readers, unsigned threads, struct plan plan)
{
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, threads + 1);
    plan.start = &start;
    for (unsigned i = 0; i < threads; i++) {
        readers[i].plan = &plan;
        if (pthread_create(&readers[i].thread, NULL, read_for_a_while, &readers[i]) != 0)
            abort();
    }
    pthread_barrier_wait(&start);
    const uint64_t begin = clock_now_ns();
    uint64_t bytes = 0;
    for (unsigned i = 0; i < threads; i++) {
        pthread_join(readers[i].thread, NULL);
        bytes += readers[i].bytes_read;
    }
    const uint64_t took_ns = clock_now_ns() - begin;
    pthread_barrier_destroy(&start);
    return (double)bytes / (double)took_ns;
}

static char *buffer_of(size_t size, size_t slack)
{
    char *data =
        mmap(NULL, size + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
        perror("membw");
        exit(1);
    }
    madvise(data, size, MADV_HUGEPAGE);
    memset(data, 1, size + slack);
    return data;
}

static unsigned long option(int argc, char **argv, const char *name, unsigned long value)
{
    for (int i = 1; i + 1 < argc; i++) {
        if (strcmp(argv[i], name) == 0)
            value = strtoul(argv[i + 1], NULL, 10);
    }
    return value;
}

int main(int argc, char **argv)
{
    static struct reader readers[MAX_THREADS];
    static const size_t distances[] = {0, 512, 1024, 2048, 4096, 8192, 16384};
    const unsigned threads = (unsigned)option(argc, argv, "--threads", 2);
    const size_t size = option(argc, argv, "--mib", 512) << 20;
    const uint64_t seconds = option(argc, argv, "--seconds", 1);
    if (threads == 0 || threads > MAX_THREADS || size == 0) {
        fprintf(stderr, "usage: membw [--threads 2] [--mib 512] [--seconds 1]\n");
        return 2;
    }
    for (unsigned i = 0; i < threads; i++)
        readers[i].data = buffer_of(size, 1u << 16);

    double best = 0;
    for (size_t i = 0; i < sizeof distances / sizeof *distances; i++) {
        const struct plan plan = {
            .size = size, .distance = distances[i], .nanoseconds = seconds * 1000000000u};
        const double speed = measure(readers, threads, plan);
        printf("prefetch %5zu bytes ahead: %6.1f GB/s\n", distances[i], speed);
        best = speed > best ? speed : best;
    }
    printf("best, %u threads: %.1f GB/s\n", threads, best);
    return 0;
}
