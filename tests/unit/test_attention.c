/* Our attention against its formula in double precision, and its promise: a row's bits depend on
 * nothing beside it. */
#include "base/random.h"
#include "kernels/attention.h"

#include <ggml.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SLOTS = 3, KERNELS_MAX = 3 };

struct world { /* SLOTS sequences of `n` cells, all of whose queries are known */
    struct attention_form form;
    uint32_t n, room; /* cells of a slot that are used, and that there are */
    size_t k_cell, v_cell;
    float *q, *k_values, *v_values, *sinks; /* [slot][n]...; what K and V hold after rounding */
    char *k, *v;
};

static float drawn(uint64_t *draws)
{
    return (float)(random_at(7, (*draws)++) % 20001) / 10000 - 1;
}

/* Rounds n values to the cache's type, in `bytes` and in place; the size. */
static size_t put(enum attention_type type, float *values, size_t n, char *bytes)
{
    static const enum ggml_type types[] = {GGML_TYPE_F16, GGML_TYPE_F32, GGML_TYPE_Q8_0,
                                           GGML_TYPE_Q4_0};
    const struct ggml_type_traits *traits = ggml_get_type_traits(types[type]);
    if (type == ATTENTION_F32) {
        memcpy(bytes, values, n * sizeof *values);
    } else {
        traits->from_float_ref(values, bytes, (int64_t)n);
        traits->to_float(bytes, values, (int64_t)n);
    }
    return ggml_row_size(types[type], (int64_t)n);
}

static void fill(const struct world *w, float *values, char *bytes, size_t cell, size_t n_values,
                 uint64_t *draws)
{
    memset(bytes, 0xff,
           cell * w->room * SLOTS); /* NaN in what belongs to no sequence, of any type */
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        for (uint32_t i = 0; i < w->n; i++, values += n_values) {
            for (size_t d = 0; d < n_values; d++)
                values[d] = drawn(draws);
            assert_int_equal(
                put(w->form.type, values, n_values, bytes + (slot * w->room + i) * cell), cell);
        }
    }
}

static size_t cell_bytes(enum attention_type type, size_t n)
{
    return type == ATTENTION_F16    ? 2 * n
           : type == ATTENTION_F32  ? 4 * n
           : type == ATTENTION_Q8_0 ? n / 32 * 34
                                    : n / 32 * 18;
}

static void world_init(struct world *w, const struct attention_form *form, uint32_t n, bool sinks)
{
    const size_t n_k = (size_t)form->n_head_kv * form->dim_k,
                 n_v = (size_t)form->n_head_kv * form->dim_v;
    uint64_t draws = 0;
    *w = (struct world){.form = *form, .n = n, .room = n + 70};
    w->k_cell = cell_bytes(form->type, n_k), w->v_cell = cell_bytes(form->type, n_v);
    w->q = malloc(sizeof(float) * SLOTS * n * form->n_head * form->dim_k);
    w->k_values = malloc(sizeof(float) * SLOTS * n * n_k),
    w->v_values = malloc(sizeof(float) * SLOTS * n * n_v);
    w->k = malloc(w->k_cell * w->room * SLOTS), w->v = malloc(w->v_cell * w->room * SLOTS);
    assert_true(w->q && w->k && w->v && w->k_values && w->v_values);
    for (size_t i = 0; i < (size_t)SLOTS * n * form->n_head * form->dim_k; i++)
        w->q[i] = 4 * drawn(&draws);
    fill(w, w->k_values, w->k, w->k_cell, n_k, &draws);
    fill(w, w->v_values, w->v, w->v_cell, n_v, &draws);
    w->sinks = sinks ? malloc(sizeof(float) * form->n_head) : NULL;
    for (uint32_t i = 0; sinks && i < form->n_head; i++)
        w->sinks[i] = 5 * drawn(&draws);
}

static void world_deinit(struct world *w)
{
    free(w->q), free(w->k), free(w->v), free(w->k_values), free(w->v_values), free(w->sinks);
}

/* Rows `first` to first + n - 1 of `slot`, behind `others` rows of the slots before, on
 * `n_threads`, to out[row]... */
struct ask {
    uint32_t slot, first, n, others, n_threads;
};

static void compute(const struct attention_kernel *kernel, const struct world *w, struct ask ask,
                    float *out)
{
    const struct attention_form *f = &w->form;
    const size_t q_row = (size_t)f->n_head * f->dim_k, o_row = (size_t)f->n_head * f->dim_v;
    const uint32_t t = ask.n + ask.slot * ask.others;
    float *q = malloc(sizeof(float) * t * q_row), *o = malloc(sizeof(float) * t * o_row);
    int64_t *cells = malloc(sizeof *cells * t);
    int32_t *positions = malloc(sizeof *positions * t);
    void *scratch = malloc(attention_scratch_bytes(f));
    assert_true(q && o && cells && positions && scratch);
    for (uint32_t i = 0; i < t; i++) {
        const bool other = i < ask.slot * ask.others;
        const uint32_t slot = other ? i / ask.others : ask.slot;
        const uint32_t position =
            other ? w->n - ask.others + i % ask.others : ask.first + i - ask.slot * ask.others;
        positions[i] = (int32_t)position;
        cells[i] = (int64_t)slot * w->room + position;
        memcpy(q + i * q_row, w->q + ((size_t)slot * w->n + position) * q_row,
               q_row * sizeof(float));
    }
    const struct attention_batch batch = {.q = q,
                                          .q_row = q_row,
                                          .q_head = f->dim_k,
                                          .k = w->k,
                                          .v = w->v,
                                          .k_cell = w->k_cell,
                                          .v_cell = w->v_cell,
                                          .cells = cells,
                                          .positions = positions,
                                          .sinks = w->sinks,
                                          .out = o,
                                          .n_rows = t};
    for (uint32_t i = 0; i < ask.n_threads; i++) {
        memset(scratch, 0xff, attention_scratch_bytes(f));
        attention_compute(kernel, f, &batch, scratch, i, ask.n_threads);
    }
    memcpy(out, o + ask.slot * ask.others * o_row, sizeof(float) * ask.n * o_row);
    free(q), free(o), free(cells), free(positions), free(scratch);
}

/* The formula, for one query. */
static void reference(const struct world *w, uint32_t slot, uint32_t position, uint32_t head,
                      double *out)
{
    const struct attention_form *f = &w->form;
    const uint32_t kv = head / (f->n_head / f->n_head_kv), end = position + 1;
    const uint32_t start = f->window && end > f->window ? end - f->window : 0;
    const float *q = w->q + (((size_t)slot * w->n + position) * f->n_head + head) * f->dim_k;
    double weight = w->sinks ? exp(w->sinks[head]) : 0;
    memset(out, 0, f->dim_v * sizeof *out);
    for (uint32_t c = start; c < end; c++) {
        const float *k = w->k_values + (((size_t)slot * w->n + c) * f->n_head_kv + kv) * f->dim_k;
        const float *v = w->v_values + (((size_t)slot * w->n + c) * f->n_head_kv + kv) * f->dim_v;
        double s = 0;
        for (uint32_t d = 0; d < f->dim_k; d++)
            s += (double)q[d] * k[d];
        s *= f->scale;
        s = exp(f->softcap != 0 ? f->softcap * tanh(s / f->softcap) : s);
        weight += s;
        for (uint32_t d = 0; d < f->dim_v; d++)
            out[d] += s * v[d];
    }
    for (uint32_t d = 0; d < f->dim_v; d++)
        out[d] /= weight;
}

struct example {
    struct attention_form form;
    bool sinks;
};

static const struct example examples[] = {
    {{.n_head = 4,
      .n_head_kv = 2,
      .dim_k = 64,
      .dim_v = 64,
      .scale = 0.125f,
      .type = ATTENTION_F16},
     false},
    {{.n_head = 3, .n_head_kv = 3, .dim_k = 20, .dim_v = 37, .scale = 0.2f, .type = ATTENTION_F32},
     true},
    {{.n_head = 2,
      .n_head_kv = 1,
      .dim_k = 96,
      .dim_v = 32,
      .scale = 0.1f,
      .softcap = 3,
      .type = ATTENTION_Q8_0},
     false},
    {{.n_head = 4,
      .n_head_kv = 2,
      .dim_k = 64,
      .dim_v = 32,
      .scale = 0.125f,
      .type = ATTENTION_Q4_0},
     true},
    {{.n_head = 71,
      .n_head_kv = 1,
      .dim_k = 16,
      .dim_v = 16,
      .window = 100,
      .scale = 0.3f,
      .type = ATTENTION_F16},
     true},
    {{.n_head = 8,
      .n_head_kv = 1,
      .dim_k = 256,
      .dim_v = 256,
      .window = 600,
      .scale = 0.06f,
      .type = ATTENTION_F16},
     false},
};
enum { EXAMPLES = sizeof examples / sizeof examples[0] };

/* exp() of what lies between -86 and 0 is off by 1.2e-7, the sums of some hundred values of 1 by
 * less than 1e-5. */
static void test_is_the_formula(void **state)
{
    (void)state;
    const struct attention_kernel *kernel;
    for (uint32_t e = 0; e < EXAMPLES; e++) {
        const struct attention_form *f = &examples[e].form;
        const uint32_t n = 560, o_row = f->n_head * f->dim_v;
        struct world w;
        world_init(&w, f, n, examples[e].sinks);
        float *out = malloc(sizeof(float) * n * o_row);
        double *want = malloc(sizeof(double) * f->dim_v);
        assert_true(out && want);
        for (uint32_t k = 0; (kernel = attention_kernel_at(k)); k++) {
            compute(kernel, &w, (struct ask){.slot = 1, .n = n, .n_threads = 1}, out);
            for (uint32_t position = 0; position < n; position += 1 + position / 4) {
                for (uint32_t head = 0; head < f->n_head; head += 7) {
                    reference(&w, 1, position, head, want);
                    for (uint32_t d = 0; d < f->dim_v; d++)
                        if (!(fabs(want[d] - (double)out[position * o_row + head * f->dim_v + d]) <
                              1e-5))
                            fail_msg("%s, example %u: position %u, head %u, %u: %.8g, not %.8g",
                                     attention_kernel_name(kernel), e, position, head, d,
                                     (double)out[position * o_row + head * f->dim_v + d], want[d]);
                }
            }
        }
        free(out), free(want);
        world_deinit(&w);
    }
}

/* Chunks of `step` rows, from `first` on, have the bits of `whole`. */
static void expect_same(const struct attention_kernel *kernel, const struct world *w,
                        struct ask how, uint32_t step, uint32_t first, const float *whole)
{
    const size_t o_row = (size_t)w->form.n_head * w->form.dim_v;
    float *out = malloc(sizeof(float) * step * o_row);
    assert_non_null(out);
    for (how.first = first; how.first < w->n; how.first += step) {
        how.n = w->n - how.first < step ? w->n - how.first : step;
        compute(kernel, w, how, out);
        if (memcmp(out, whole + how.first * o_row, how.n * o_row * sizeof(float)) != 0)
            fail_msg(
                "%s: rows from %u on, in chunks of %u, beside %u, on %u threads, have other bits",
                attention_kernel_name(kernel), how.first, step, how.others, how.n_threads);
    }
    free(out);
}

static void test_a_row_has_the_same_bits_whatever_is_beside_it(void **state)
{
    (void)state;
    const struct attention_kernel *kernel;
    for (uint32_t e = 0; e < EXAMPLES; e++) {
        const struct attention_form *f = &examples[e].form;
        struct world w;
        world_init(&w, f, 640, examples[e].sinks);
        float *whole = malloc(sizeof(float) * w.n * f->n_head * f->dim_v);
        assert_non_null(whole);
        for (uint32_t k = 0; (kernel = attention_kernel_at(k)); k++) {
            compute(kernel, &w, (struct ask){.slot = 1, .n = w.n, .n_threads = 1}, whole);
            expect_same(kernel, &w, (struct ask){.slot = 1, .n_threads = 3}, w.n, 0, whole);
            expect_same(kernel, &w, (struct ask){.slot = 1, .n_threads = 2}, 100, 0, whole);
            expect_same(kernel, &w, (struct ask){.slot = 1, .n_threads = 1}, 64, 440, whole);
            expect_same(kernel, &w, (struct ask){.slot = 1, .others = 5, .n_threads = 3}, 7, 590,
                        whole);
            expect_same(kernel, &w, (struct ask){.slot = 1, .others = 1, .n_threads = 1}, 1, 620,
                        whole);
            expect_same(kernel, &w, (struct ask){.slot = 1, .n_threads = 2}, 1, 620, whole);
        }
        free(whole);
        world_deinit(&w);
    }
}

/* The same sequence in another slot. */
static void test_a_slot_is_like_another(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, &examples[0].form, 200, false);
    const size_t q = (size_t)4 * 64 * w.n, row = (size_t)4 * 64;
    memcpy(w.q + 2 * q, w.q, q * sizeof(float));
    memcpy(w.k + 2 * w.room * w.k_cell, w.k, w.n * w.k_cell);
    memcpy(w.v + 2 * w.room * w.v_cell, w.v, w.n * w.v_cell);
    float *here = malloc(sizeof(float) * w.n * row), *there = malloc(sizeof(float) * w.n * row);
    assert_true(here && there);
    compute(attention_kernel_best(), &w, (struct ask){.slot = 0, .n = w.n, .n_threads = 1}, here);
    compute(attention_kernel_best(), &w,
            (struct ask){.slot = 2, .n = w.n, .others = 9, .n_threads = 2}, there);
    assert_memory_equal(here, there, w.n * row * sizeof(float));
    free(here), free(there);
    world_deinit(&w);
}

/* The same sequence in extents that stand in no order. */
static void test_extents_are_like_rows_side_by_side(void **state)
{
    (void)state;
    enum { N = 640, EXTENTS = 4, ORDER = 3 };
    static const uint32_t extents[2][ORDER] = {{9, 9, 9}, {2, 0, 3}};
    int32_t ones[N], positions[N];
    for (uint32_t i = 0; i < N; i++)
        ones[i] = 1, positions[i] = (int32_t)i;
    const struct attention_extents where = {&extents[0][0], ORDER, ones};
    for (uint32_t e = 0; e < EXAMPLES; e++) {
        const struct attention_form *f = &examples[e].form;
        const size_t size = sizeof(float) * N * f->n_head * f->dim_v;
        struct world w;
        world_init(&w, f, N, examples[e].sinks);
        char *k = malloc(w.k_cell * EXTENTS * ATTENTION_EXTENT),
             *v = malloc(w.v_cell * EXTENTS * ATTENTION_EXTENT);
        float *want = malloc(size), *got = malloc(size);
        void *scratch = malloc(attention_scratch_bytes(f));
        assert_true(k && v && want && got && scratch);
        for (uint32_t i = 0; i < N; i++) {
            const size_t cell =
                extents[1][i / ATTENTION_EXTENT] * ATTENTION_EXTENT + i % ATTENTION_EXTENT;
            memcpy(k + cell * w.k_cell, w.k + i * w.k_cell, w.k_cell);
            memcpy(v + cell * w.v_cell, w.v + i * w.v_cell, w.v_cell);
        }
        const struct attention_batch batch = {.q = w.q,
                                              .q_row = (size_t)f->n_head * f->dim_k,
                                              .q_head = f->dim_k,
                                              .k = k,
                                              .v = v,
                                              .k_cell = w.k_cell,
                                              .v_cell = w.v_cell,
                                              .extents = &where,
                                              .positions = positions,
                                              .sinks = w.sinks,
                                              .out = got,
                                              .n_rows = N};
        compute(attention_kernel_best(), &w, (struct ask){.n = N, .n_threads = 1}, want);
        for (uint32_t i = 0; i < 3; i++)
            attention_compute(attention_kernel_best(), f, &batch, scratch, i, 3);
        assert_memory_equal(got, want, size);
        free(k), free(v), free(want), free(got), free(scratch);
        world_deinit(&w);
    }
}

/* Processors that fuse multiplications and additions agree, however wide their vectors are. */
static void test_widths_agree(void **state)
{
    (void)state;
    const struct attention_kernel *fused[KERNELS_MAX], *kernel;
    uint32_t n_fused = 0;
    for (uint32_t k = 0; (kernel = attention_kernel_at(k)); k++)
        if (strncmp(attention_kernel_name(kernel), "avx", 3) == 0)
            fused[n_fused++] = kernel;
    if (n_fused < 2)
        skip();
    for (uint32_t e = 0; e < EXAMPLES; e++) {
        const struct attention_form *f = &examples[e].form;
        const size_t size = sizeof(float) * 530 * f->n_head * f->dim_v;
        struct world w;
        world_init(&w, f, 530, examples[e].sinks);
        float *a = malloc(size), *b = malloc(size);
        assert_true(a && b);
        compute(fused[0], &w, (struct ask){.slot = 1, .n = 530, .n_threads = 1}, a);
        compute(fused[1], &w, (struct ask){.slot = 1, .n = 530, .n_threads = 1}, b);
        assert_memory_equal(a, b, size);
        free(a), free(b);
        world_deinit(&w);
    }
}

/* A sequence of one cell gives back its V: every finite F16 there is, exactly. */
static void test_every_half_is_converted_exactly(void **state)
{
    (void)state;
    enum { DIM = 64, N = 65536 / DIM };
    const struct attention_form form = {
        .n_head = 1, .n_head_kv = 1, .dim_k = DIM, .dim_v = DIM, .scale = 1, .type = ATTENTION_F16};
    const struct attention_kernel *kernel;
    uint16_t *v = malloc(65536 * sizeof *v);
    float q[DIM] = {0}, out[DIM];
    int64_t cell;
    const int32_t position = 0;
    void *scratch = malloc(attention_scratch_bytes(&form));
    assert_true(v && scratch);
    for (uint32_t i = 0; i < 65536; i++)
        v[i] = (uint16_t)i;
    for (uint32_t k = 0; (kernel = attention_kernel_at(k)); k++) {
        for (cell = 0; cell < N; cell++) {
            const struct attention_batch batch = {.q = q,
                                                  .q_row = DIM,
                                                  .q_head = DIM,
                                                  .k = v,
                                                  .v = v,
                                                  .k_cell = 0,
                                                  /* all zeros */ .v_cell = 2 * DIM,
                                                  .cells = &cell,
                                                  .positions = &position,
                                                  .out = out,
                                                  .n_rows = 1};
            attention_compute(kernel, &form, &batch, scratch, 0, 1);
            for (uint32_t d = 0; d < DIM; d++) {
                const float want = ggml_fp16_to_fp32(v[cell * DIM + d]);
                if (isfinite(want) && want != out[d])
                    fail_msg("%s: half %x is %g", attention_kernel_name(kernel), v[cell * DIM + d],
                             (double)out[d]);
            }
        }
    }
    free(v), free(scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_is_the_formula),
        cmocka_unit_test(test_a_row_has_the_same_bits_whatever_is_beside_it),
        cmocka_unit_test(test_a_slot_is_like_another),
        cmocka_unit_test(test_extents_are_like_rows_side_by_side),
        cmocka_unit_test(test_widths_agree),
        cmocka_unit_test(test_every_half_is_converted_exactly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
