#include "sampler_reference.h"

#include <math.h>
#include <stdlib.h>

int candidate_better(const void *a, const void *b)
{
    const struct candidate *l = a, *r = b;
    if (l->x != r->x)
        return l->x > r->x ? -1 : 1;
    return l->id - r->id;
}

static int nearer(const void *a, const void *b)
{
    const struct candidate *l = a, *r = b;
    if (l->distance != r->distance)
        return l->distance < r->distance ? -1 : 1;
    return l->id - r->id;
}

static void softmax(struct candidate *list, size_t n, double temperature)
{
    double max = -INFINITY, sum = 0;
    for (size_t i = 0; i < n; i++)
        max = fmax(max, list[i].x);
    for (size_t i = 0; i < n; i++)
        sum += list[i].p = exp((list[i].x - max) / temperature);
    for (size_t i = 0; i < n; i++)
        list[i].p /= sum;
}

static size_t reference_typical(struct candidate *list, size_t n, double typical_p)
{
    double entropy = 0, sum = 0;
    for (size_t i = 0; i < n; i++)
        entropy -= list[i].p > 0 ? list[i].p * log(list[i].p) : 0;
    for (size_t i = 0; i < n; i++)
        list[i].distance = fabs(-log(list[i].p) - entropy);
    qsort(list, n, sizeof *list, nearer);
    size_t kept = 0;
    while (kept < n && (kept == 0 || sum < typical_p))
        sum += list[kept++].p;
    qsort(list, kept, sizeof *list, candidate_better);
    return kept;
}

static size_t reference_top_p(const struct candidate *list, size_t n, double top_p)
{
    double sum = 0;
    size_t kept = 0;
    while (kept < n && (kept == 0 || sum < top_p))
        sum += list[kept++].p;
    return kept;
}

static size_t reference_min_p(const struct candidate *list, size_t n, double min_p)
{
    size_t kept = 0;
    while (kept < n && list[kept].p >= min_p * list[0].p)
        kept++;
    return kept;
}

size_t sampler_reference(const float *logits, uint32_t n_vocab, const struct sampler_params *params,
                         struct candidate *list)
{
    size_t n = 0;
    for (uint32_t i = 0; i < n_vocab; i++) {
        if (logits[i] > -INFINITY)
            list[n++] = (struct candidate){.id = (int32_t)i, .x = (double)logits[i]};
    }
    qsort(list, n, sizeof *list, candidate_better);
    if (params->top_k && params->top_k < n)
        n = params->top_k;
    softmax(list, n, 1);
    if (params->typical_p < 1)
        n = reference_typical(list, n, (double)params->typical_p);
    softmax(list, n, 1);
    n = params->top_p < 1 ? reference_top_p(list, n, (double)params->top_p) : n;
    softmax(list, n, 1);
    n = params->min_p > 0 ? reference_min_p(list, n, (double)params->min_p) : n;
    softmax(list, n, (double)params->temperature);
    return n;
}
