#include "engine/sampler_select.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdbool.h>

/* Work goes by blocks of a fixed size with LANES independent accumulators: the compiler may not
 * reorder float sums by itself, and this is the shape it turns into vector code at -O2. */
enum { LANES = 16, BLOCK = 64 };

/* Above this a heap of k keys costs more than sorting everything by radix. */
enum { HEAP_MAX = 4096 };

static inline float exp_negative(float x)
{
    /* Cody and Waite: x = n ln 2 + r with |r| <= ln 2 / 2, ln 2 in two parts; then a Taylor
     * polynomial of exp(r). */
    float clamped = x < -87.0f ? -87.0f : x;
    float shifted =
        clamped * 0x1.715476p+0f + 0x1.8p23f; /* rounds to nearest: the low bits now hold n */
    float n = shifted - 0x1.8p23f;
    float r = clamped - n * 0x1.62e400p-1f - n * 0x1.7f7d1cp-20f;
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    /* 2^n as bits, or 0.0 below the range: masked, because a branch would keep loops scalar. */
    uint32_t power = ((uint32_t)((int32_t)n + 127) << 23) & -(uint32_t)(x >= -87.0f);
    float scale;
    memcpy(&scale, &power, sizeof scale);
    return p * scale;
}

float select_exp(float x)
{
    return exp_negative(x);
}

static float block_max(const float *x)
{
    float lane[LANES];
    for (int j = 0; j < LANES; j++)
        lane[j] = -INFINITY;
    for (int i = 0; i < BLOCK; i += LANES) {
        for (int j = 0; j < LANES; j++)
            lane[j] = x[i + j] > lane[j] ? x[i + j] : lane[j];
    }
    float max = lane[0];
    for (int j = 1; j < LANES; j++)
        max = lane[j] > max ? lane[j] : max;
    return max;
}

static float short_max(const float *x, uint32_t n)
{
    float max = -INFINITY;
    for (uint32_t i = 0; i < n; i++)
        max = x[i] > max ? x[i] : max;
    return max;
}

static float span_max(const float *x, uint32_t n)
{
    return n == BLOCK ? block_max(x) : short_max(x, n);
}

static double span_exp_sum(const float *x, uint32_t n, float max, float scale)
{
    float lane[LANES] = {0};
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int j = 0; j < LANES; j++)
            lane[j] += exp_negative((x[i + (uint32_t)j] - max) * scale);
    }
    for (; i < n; i++)
        lane[0] += exp_negative((x[i] - max) * scale);
    double sum = 0;
    for (int j = 0; j < LANES; j++)
        sum += (double)lane[j];
    return sum;
}

static uint32_t span_at(uint32_t start, uint32_t n)
{
    return n - start < BLOCK ? n - start : BLOCK;
}

uint32_t select_argmax(const float *x, uint32_t n)
{
    float best = -INFINITY;
    uint32_t at = 0;
    for (uint32_t i = 0; i < n; i += BLOCK) {
        float max = span_max(x + i, span_at(i, n));
        if (max > best) {
            best = max;
            at = i;
        }
    }
    if (best == -INFINITY)
        return 0;
    while (x[at] != best)
        at++;
    assert(at < n);
    return at;
}

float select_max(const float *x, uint32_t n)
{
    float best = -INFINITY;
    for (uint32_t i = 0; i < n; i += BLOCK) {
        float max = span_max(x + i, span_at(i, n));
        best = max > best ? max : best;
    }
    return best;
}

double select_exp_sum(const float *x, uint32_t n, float max, float scale)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i += BLOCK)
        sum += span_exp_sum(x + i, span_at(i, n), max, scale);
    return sum;
}

uint32_t select_exp_walk(const float *x, uint32_t n, float max, float scale, double target)
{
    double sum = 0, before = 0;
    uint32_t block = 0;
    for (uint32_t i = 0; i < n && sum <= target; i += BLOCK) {
        double whole = span_exp_sum(x + i, span_at(i, n), max, scale);
        if (whole == 0)
            continue;
        block = i;
        before = sum;
        sum += whole;
    }
    uint32_t end = block + span_at(block, n), last = block;
    for (uint32_t i = block; i < end && before <= target; i++) {
        float weight = exp_negative((x[i] - max) * scale);
        last = weight > 0 ? i : last;
        before += (double)weight;
    }
    return last;
}

float select_mass_floor(const float *x, uint32_t n, float max, double part, double *total)
{
    enum {
        PER_UNIT = 4,
        BUCKETS = 256
    }; /* of the distance below max; the last holds all that is farther */
    double mass[BUCKETS] = {0};
    float weight[BLOCK];
    for (uint32_t i = 0; i < n; i += BLOCK) {
        uint32_t span = span_at(i, n);
        for (uint32_t j = 0; j < BLOCK && span == BLOCK; j++)
            weight[j] = exp_negative(x[i + j] - max);
        for (uint32_t j = 0; j < span && span < BLOCK; j++)
            weight[j] = exp_negative(x[i + j] - max);
        for (uint32_t j = 0; j < span; j++) {
            float depth = (max - x[i + j]) * (float)PER_UNIT;
            mass[(int)(depth < (float)(BUCKETS - 1) ? depth : (float)(BUCKETS - 1))] +=
                (double)weight[j];
        }
    }
    *total = 0;
    for (int b = 0; b < BUCKETS; b++)
        *total += mass[b];
    double sum = 0;
    for (int b = 0; b < BUCKETS - 2; b++) {
        sum += mass[b];
        if (sum >= part * *total)
            return max - (float)(b + 2) /
                             (float)PER_UNIT; /* one bucket to spare: the subtractions round */
    }
    return -FLT_MAX;
}

size_t select_from(const float *x, uint32_t n, float low, uint64_t *keys)
{
    size_t count = 0;
    for (uint32_t i = 0; i < n; i += BLOCK) {
        uint32_t span = span_at(i, n);
        if (span_max(x + i, span) < low)
            continue;
        for (uint32_t j = i; j < i + span; j++) {
            keys[count] = key_of(x[j], j); /* written always: a branch here would be a coin toss */
            count += x[j] >= low;
        }
    }
    return count;
}

static uint32_t key_rank(uint64_t key)
{
    return (uint32_t)(key >> 32);
}

static void insertion_sort(uint64_t *keys, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        uint64_t key = keys[i];
        size_t at = i;
        for (; at > 0 && key_rank(keys[at - 1]) > key_rank(key); at--)
            keys[at] = keys[at - 1];
        keys[at] = key;
    }
}

enum { DIGIT_BITS = 11, DIGITS = 1 << DIGIT_BITS };

/* One pass of a least-significant-digit radix sort; false when all keys have that digit in
 * common. */
static bool radix_pass(const uint64_t *from, uint64_t *to, size_t n, unsigned shift)
{
    uint32_t start[DIGITS] = {0};
    for (size_t i = 0; i < n; i++)
        start[(key_rank(from[i]) >> shift) % DIGITS]++;
    if (start[(key_rank(from[0]) >> shift) % DIGITS] == n)
        return false;
    uint32_t sum = 0;
    for (int digit = 0; digit < DIGITS; digit++) {
        uint32_t count = start[digit];
        start[digit] = sum;
        sum += count;
    }
    for (size_t i = 0; i < n; i++)
        to[start[(key_rank(from[i]) >> shift) % DIGITS]++] = from[i];
    return true;
}

void select_sort(uint64_t *keys, uint64_t *scratch, size_t n)
{
    if (n <= 64) {
        insertion_sort(keys, n);
        return;
    }
    uint64_t *from = keys, *to = scratch;
    for (unsigned shift = 0; shift < 32; shift += DIGIT_BITS) {
        if (radix_pass(from, to, n, shift)) {
            uint64_t *swap = from;
            from = to;
            to = swap;
        }
    }
    if (from != keys)
        memcpy(keys, from, n * sizeof *keys);
}

static void heap_sink(uint64_t *heap, size_t n, size_t at)
{
    uint64_t key = heap[at];
    for (size_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && heap[child + 1] > heap[child])
            child++;
        if (heap[child] <= key)
            break;
        heap[at] = heap[child];
    }
    heap[at] = key;
}

/* A heap of the k best so far, the worst of them at its root; a block without anything better than
 * that is passed over.
 */
static size_t top_by_heap(const float *x, uint32_t n, uint32_t k, uint64_t *heap)
{
    size_t size = 0;
    float worst = -INFINITY;
    for (uint32_t i = 0; i < n; i += BLOCK) {
        uint32_t span = span_at(i, n);
        if (!(span_max(x + i, span) > worst))
            continue;
        for (uint32_t j = i; j < i + span; j++) {
            if (!(x[j] > worst))
                continue;
            if (size < k) {
                heap[size++] = key_of(x[j], j);
                for (size_t root = size / 2; size == k && root-- > 0;)
                    heap_sink(heap, size, root);
            } else {
                heap[0] = key_of(x[j], j);
                heap_sink(heap, size, 0);
            }
            worst = size == k ? key_value(heap[0]) : -INFINITY;
        }
    }
    return size;
}

static void heap_sort(uint64_t *heap, size_t n)
{
    for (size_t root = n / 2; root-- > 0;)
        heap_sink(heap, n, root);
    for (size_t end = n; end-- > 1;) {
        uint64_t worst = heap[0];
        heap[0] = heap[end];
        heap[end] = worst;
        heap_sink(heap, end, 0);
    }
}

size_t select_top(const float *x, uint32_t n, uint32_t k, uint64_t *keys, uint64_t *scratch)
{
    if (k == 0)
        return 0;
    if (k <= HEAP_MAX) {
        size_t size = top_by_heap(x, n, k, keys);
        heap_sort(keys, size);
        return size;
    }
    size_t size = select_from(x, n, -FLT_MAX, keys);
    select_sort(keys, scratch, size);
    return size < k ? size : k;
}
