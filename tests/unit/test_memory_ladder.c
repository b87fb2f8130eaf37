/* What gives way when memory is short: the ladder and the batches in parts, on a clock of the
 * test's; 1,000 traces of memory that others take and give back. */
#include "base/limits.h"
#include "base/random.h"
#include "pipeline/batch_parts.h"
#include "pipeline/memory_ladder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MS UINT64_C(1000000)

enum { STREAMS = 8, ROWS = 512, TOKENS_MAX = 400, TRACES = 1000 };

/* ---- the ladder ---- */

static struct memory_sign calm_at(uint64_t ms)
{
    return (struct memory_sign){
        .now_ns = ms * MS, .has_stall = true, .free_bytes = 1000, .low_bytes = 100};
}

/* They are events of the cluster's log, which refuses longer ones. */
static void test_words_fit_the_log(void **state)
{
    (void)state;
    for (uint32_t step = 0; step < MEMORY_STEPS; step++)
        assert_in_range(strlen(memory_step_words(step)), 1, LIMIT_CLUSTER_ID_BYTES);
}

static void test_failures_go_down_at_once_to_the_end(void **state)
{
    (void)state;
    struct memory_ladder ladder = {0};
    struct memory_sign sign = calm_at(1);
    sign.failed = true;
    for (uint32_t step = 1; step < MEMORY_STEPS; step++) {
        assert_true(memory_ladder_look(&ladder, &sign));
        assert_int_equal(ladder.step, step);
    }
    assert_false(memory_ladder_look(&ladder, &sign));
    assert_true(memory_ladder_terms(&ladder).refuses);
}

static void test_pressure_alone_refuses_nobody(void **state)
{
    (void)state;
    struct memory_ladder ladder = {0};
    for (uint64_t ms = 1; ms < 20000; ms += 250) {
        struct memory_sign sign = calm_at(ms);
        sign.stall = ms < 10000 ? 0.5 : 0;
        sign.free_bytes = ms < 10000 ? 1000 : 99;
        const uint32_t before = ladder.step;
        memory_ladder_look(&ladder, &sign);
        assert_true(ladder.step - before <= 1);
    }
    assert_int_equal(ladder.step, MEMORY_STEPS_OF_PRESSURE - 1);
    assert_int_equal(memory_ladder_terms(&ladder).form, MEMORY_AS_PLACED);
    assert_false(memory_ladder_terms(&ladder).refuses);
}

/* Under pressure caches that nobody uses are the last that goes, where there are any. */
static void test_pressure_takes_what_nobody_uses(void **state)
{
    (void)state;
    for (int lacks = 0; lacks < 2; lacks++) {
        struct memory_ladder ladder = {.lacks_caches = lacks};
        for (uint64_t ms = 1; ms < 10000; ms += 250) {
            struct memory_sign sign = calm_at(ms);
            sign.stall = 0.5;
            memory_ladder_look(&ladder, &sign);
            assert_true(memory_ladder_terms(&ladder).gives_back == (!lacks && ladder.step == 4));
        }
        assert_int_equal(ladder.step, lacks ? 3 : 4);
    }
}

/* What went to host memory is dropped while that is short, too, and only then. */
static void test_host_memory_is_short_too(void **state)
{
    (void)state;
    struct memory_ladder ladder = {0};
    for (uint64_t ms = 1; ms < 40000; ms += 250) {
        struct memory_sign sign = calm_at(ms);
        sign.stall = ms < 10000 ? 0.5 : 0;
        sign.host_is_short = ms / 1000 % 2;
        memory_ladder_look(&ladder, &sign);
        const struct memory_terms terms = memory_ladder_terms(&ladder);
        assert_true(terms.drops == (terms.gives_back && sign.host_is_short));
    }
    assert_int_equal(ladder.step, 0);
}

static void test_up_again_with_hysteresis(void **state)
{
    (void)state;
    struct memory_ladder ladder = {.step = MEMORY_STEPS - 1, .changed_ns = MS, .looked_ns = MS};
    for (uint64_t ms = 250; ms < 20000; ms += 250) { /* between short and calm: nothing */
        struct memory_sign sign = calm_at(ms);
        sign.free_bytes = 150;
        assert_false(memory_ladder_look(&ladder, &sign));
    }
    uint64_t top_ms = 0;
    for (uint64_t ms = 20000; ms < 50000 && !top_ms; ms += 250) {
        const struct memory_sign sign = calm_at(ms);
        memory_ladder_look(&ladder, &sign);
        top_ms = ladder.step ? 0 : ms;
    }
    assert_true(top_ms - 20000 >= 23000 && top_ms - 20000 <= 24000);
}

static void test_who_was_not_looked_at_begins_at_the_top(void **state)
{
    (void)state;
    struct memory_ladder ladder = {.step = MEMORY_STEPS - 1, .changed_ns = MS, .looked_ns = MS};
    struct memory_sign sign = calm_at(29000);
    assert_false(memory_ladder_look(&ladder, &sign));
    sign = calm_at(60000);
    assert_true(memory_ladder_look(&ladder, &sign));
    assert_int_equal(ladder.step, 0);
}

/* Steps of forms that there are not are passed over, down and up; the last keeps the smallest. */
static void test_what_is_lacking_is_passed_over(void **state)
{
    (void)state;
    for (uint32_t lacks = 0; lacks < 64; lacks++) {
        struct memory_ladder ladder = {.lacks_caches = lacks & 32};
        enum memory_form smallest = MEMORY_AS_PLACED, last = MEMORY_AS_PLACED;
        for (uint32_t form = 1; form < MEMORY_FORMS; form++) {
            ladder.lacks[form] = lacks >> (form - 1) & 1;
            smallest = ladder.lacks[form] ? smallest : (enum memory_form)form;
        }
        struct memory_sign sign = calm_at(1);
        sign.failed = true;
        while (memory_ladder_look(&ladder, &sign)) {
            const struct memory_terms terms = memory_ladder_terms(&ladder);
            assert_false(ladder.lacks[terms.form]);
            assert_true(terms.form >= last); /* in order */
            assert_false(ladder.lacks_caches && terms.gives_back && !terms.form && !terms.refuses);
            last = terms.form;
        }
        assert_true(memory_ladder_terms(&ladder).refuses);
        assert_int_equal(last, smallest);
        for (uint64_t ms = 250; ladder.step; ms += 250) {
            sign = calm_at(ms);
            memory_ladder_look(&ladder, &sign);
            const struct memory_terms terms = memory_ladder_terms(&ladder);
            assert_false(ladder.lacks[terms.form]);
            assert_true(terms.form <= last && ms < 30000);
            last = terms.form;
        }
    }
}

static void test_forms_change_one_at_a_time(void **state)
{
    (void)state;
    struct memory_ladder ladder = {.step = 6};
    struct memory_sign sign = calm_at(1);
    sign.failed = sign.is_changing = true;
    assert_false(memory_ladder_look(&ladder, &sign)); /* it is not there yet */
    sign.is_changing = false;
    assert_true(memory_ladder_look(&ladder, &sign));
    assert_int_equal(memory_ladder_terms(&ladder).form, MEMORY_STREAMED);
    for (uint64_t ms = 250; ms < 60000; ms += 250) { /* a larger form needs its room */
        sign = calm_at(ms);
        sign.more_bytes = 801; /* of 1000 that are free, 200 stay */
        assert_false(memory_ladder_look(&ladder, &sign));
    }
    sign = calm_at(60000);
    sign.more_bytes = 800;
    assert_true(memory_ladder_look(&ladder, &sign));
}

/* All weights go to memory at the top, after five seconds of calm; pressure takes them last. */
static void test_what_was_short_at_first_grows_and_shrinks(void **state)
{
    (void)state;
    struct memory_ladder ladder = {.can_grow = true, .lacks_caches = true};
    uint64_t grown_ms = 0, shrunk_ms = 0, again_ms = 0;
    for (uint64_t ms = 250; ms < 60000; ms += 250) {
        struct memory_sign sign = calm_at(ms);
        sign.can_hold = ms >= 2000;
        sign.stall = ms >= 20000 && ms < 23000 ? 0.5 : 0;
        memory_ladder_look(&ladder, &sign);
        const bool is_grown = memory_ladder_terms(&ladder).is_grown;
        if (is_grown && !grown_ms)
            grown_ms = ms;
        if (!is_grown && grown_ms && !shrunk_ms)
            shrunk_ms = ms;
        if (is_grown && shrunk_ms && !again_ms)
            again_ms = ms;
        assert_true(is_grown || memory_ladder_terms(&ladder).form == MEMORY_AS_PLACED);
    }
    assert_int_equal(grown_ms, 5250);
    assert_int_equal(shrunk_ms, 21500); /* at 20000, 20500 and 21000 it went down to step 3 */
    assert_true(again_ms >= shrunk_ms + 20000 && again_ms <= shrunk_ms + 21000);
    ladder = (struct memory_ladder){.can_grow = true, .is_grown = true};
    struct memory_sign sign = calm_at(1);
    sign.failed = true;
    while (memory_ladder_terms(&ladder).form == MEMORY_AS_PLACED && ladder.is_grown)
        memory_ladder_look(&ladder, &sign);
    assert_false(ladder.is_grown);
    assert_int_equal(memory_ladder_terms(&ladder).form, MEMORY_AS_PLACED); /* first of all */
}

/* ---- streams while others take memory ---- */

struct stream {
    uint32_t n_prompt, n_all;
    uint32_t n_known;  /* prompt and what was generated */
    uint32_t n_cached; /* on the device */
    float tokens[TOKENS_MAX];
};

struct machine {
    uint64_t seed, now_ns, until_ns; /* others are at work until then */
    uint32_t n_waits;
    bool failed, in_parts;
    struct stream streams[STREAMS];
    uint32_t n_batches, n_short;
    enum memory_form form; /* of the stages */
    uint32_t n_forms;      /* changes of it */
};

/* Rows for which there is memory: others come and go, by periods of 200 ms; now and then there is
 * no room for a single one. */
static uint32_t rows_that_fit(const struct machine *machine)
{
    if (machine->now_ns >= machine->until_ns)
        return UINT32_MAX;
    const uint64_t drawn = random_at(machine->seed, machine->now_ns / (200 * MS));
    static const uint32_t fits[] = {UINT32_MAX, 512, 300, 64, 20, 7, 1, 0};
    /* for a while there is no room for as much as a form takes, however few the rows */
    const uint64_t taken = random_at(~machine->seed, machine->now_ns / (3000 * MS)) % 6;
    return machine->form < taken && taken < MEMORY_FORMS ? 0 : fits[drawn % 8];
}

static float token_after(uint32_t stream, uint32_t position)
{
    return (float)(random_at(stream, position) % 30000);
}

static enum error_code machine_forward(void *arg, const struct batch *batch, const float *in,
                                       float *out, struct error *err)
{
    struct machine *machine = arg;
    (void)in;
    machine->now_ns += MS + batch->n_rows * MS / 20;
    if (batch->n_rows > rows_that_fit(machine))
        return error_set(err, ERROR_NO_MEMORY, "no memory for %u rows", batch->n_rows);
    for (uint32_t i = 0; i < batch->n_rows; i++) {
        const struct batch_row *row = &batch->rows[i];
        struct stream *stream = &machine->streams[row->slot];
        assert_int_equal(row->position, stream->n_cached); /* none twice, none left out */
        stream->n_cached++;
        if (row->output)
            *out++ = token_after(row->slot, row->position);
    }
    return ERROR_NONE;
}

static bool machine_wait(void *arg)
{
    struct machine *machine = arg;
    machine->now_ns += 50 * MS;
    return ++machine->n_waits % 20 != 0;
}

static uint32_t form_batch(const struct machine *machine, uint32_t rows_max, struct batch_row *rows)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < STREAMS; i++) {
        const struct stream *stream = &machine->streams[i];
        const uint32_t waiting = stream->n_known - stream->n_cached;
        const uint32_t share = rows_max > n ? rows_max - n : 0;
        for (uint32_t k = 0; stream->n_known < stream->n_all && k < waiting && k < share; k++)
            rows[n++] = (struct batch_row){
                .slot = i, .position = stream->n_cached + k, .output = k + 1 == waiting};
    }
    return n;
}

static void deliver(struct machine *machine, const struct batch *batch, const float *out)
{
    for (uint32_t i = 0; i < batch->n_rows; i++) {
        struct stream *stream = &machine->streams[batch->rows[i].slot];
        if (batch->rows[i].output)
            stream->tokens[stream->n_known++] = *out++;
    }
}

static void look(struct machine *machine, struct memory_ladder *ladder)
{
    const uint32_t fit = rows_that_fit(machine), before = ladder->step;
    const uint64_t changed_ns = ladder->changed_ns;
    const struct memory_sign sign = {.now_ns = machine->now_ns,
                                     .failed = machine->failed,
                                     .in_parts = machine->in_parts,
                                     .free_bytes = fit,
                                     .low_bytes = 16};
    machine->failed = machine->in_parts = false;
    memory_ladder_look(ladder, &sign);
    const enum memory_form form = memory_ladder_terms(ladder).form;
    for (uint32_t i = 0; i < STREAMS && form != machine->form; i++)
        machine->streams[i].n_cached = 0; /* they begin again with their tokens */
    machine->n_forms += form != machine->form;
    machine->form = form;
    if (ladder->step < before && ladder->step) /* never in haste */
        assert_true(machine->now_ns - changed_ns >= 2000 * MS);
}

static void run_batch(struct machine *machine, const struct memory_ladder *ladder)
{
    struct batch_row rows[ROWS];
    float out[ROWS];
    struct error err = {0};
    const struct batch_parts parts = {.forward = machine_forward,
                                      .wait = machine_wait,
                                      .arg = machine,
                                      .out_width = 1,
                                      .outputs_only = true};
    const uint32_t n = form_batch(machine, ROWS / memory_ladder_terms(ladder).divisor, rows);
    const struct batch batch = {.rows = rows, .n_rows = n};
    assert_true(n > 0);
    bool was_short = false;
    const enum error_code code = batch_parts_run(&parts, &batch, NULL, out, &was_short, &err);
    machine->n_batches++;
    machine->n_short += was_short;
    machine->failed = code == ERROR_NO_MEMORY;
    machine->in_parts = was_short;
    if (!code)
        deliver(machine, &batch, out);
    for (uint32_t i = 0; code && i < n; i++) /* they start over, as the driver's do */
        machine->streams[rows[i].slot].n_cached = 0;
}

static bool all_done(const struct machine *machine)
{
    for (uint32_t i = 0; i < STREAMS; i++) {
        if (machine->streams[i].n_known < machine->streams[i].n_all)
            return false;
    }
    return true;
}

static uint32_t run_trace(uint64_t seed, uint32_t *n_forms)
{
    static struct machine machine;
    struct memory_ladder ladder = {.lacks_caches = seed % 2};
    machine = (struct machine){.seed = seed, .now_ns = MS, .until_ns = 20000 * MS};
    for (uint32_t i = 0; i < STREAMS; i++) {
        struct stream *stream = &machine.streams[i];
        stream->n_known = stream->n_prompt = 1 + (uint32_t)(random_at(seed, 100 + i) % 300);
        stream->n_all = stream->n_prompt + 1 + (uint32_t)(random_at(seed, 200 + i) % 99);
    }
    while (!all_done(&machine)) {
        look(&machine, &ladder);
        run_batch(&machine, &ladder);
        assert_true(machine.now_ns < 600000 * MS);
    }
    for (uint32_t i = 0; i < STREAMS; i++) {
        const struct stream *stream = &machine.streams[i];
        for (uint32_t k = stream->n_prompt; k < stream->n_all; k++)
            assert_true(stream->tokens[k] == token_after(i, k - 1));
    }
    if (machine.now_ns < machine.until_ns)
        machine.now_ns = machine.until_ns;
    for (const uint64_t free_ns = machine.now_ns; ladder.step; machine.now_ns += 250 * MS) {
        look(&machine, &ladder);
        assert_true(machine.now_ns - free_ns <= 30000 * MS);
    }
    *n_forms += machine.n_forms;
    return machine.n_short;
}

static void test_no_token_is_lost_whatever_others_take(void **state)
{
    (void)state;
    uint32_t n_short = 0, n_forms = 0;
    for (uint64_t seed = 0; seed < TRACES; seed++)
        n_short += run_trace(seed, &n_forms);
    print_message("# %u batches were short of memory, stages changed their form %u times\n",
                  n_short, n_forms);
    assert_true(n_forms > TRACES / 2);
    assert_true(n_short > TRACES);
}

/* ---- texts that are read at once ---- */

struct whole_machine {
    uint32_t rows_max;
    uint32_t n_calls, sizes[16];
};

static enum error_code whole_forward(void *arg, const struct batch *batch, const float *in,
                                     float *out, struct error *err)
{
    struct whole_machine *machine = arg;
    (void)in;
    if (batch->n_rows > machine->rows_max)
        return error_set(err, ERROR_NO_MEMORY, "%u rows", batch->n_rows);
    assert_int_equal(batch->rows[0].position, 0); /* no rest of a text */
    machine->sizes[machine->n_calls++] = batch->n_rows;
    for (uint32_t i = 0; i < batch->n_rows; i++)
        out[i] = (float)(100 * batch->rows[i].slot + batch->rows[i].position);
    return ERROR_NONE;
}

static bool whole_wait(void *arg)
{
    (void)arg;
    return false;
}

static enum error_code run_whole(struct whole_machine *machine, const uint32_t *texts, uint32_t n,
                                 float *out)
{
    struct batch_row rows[64];
    struct batch batch = {.rows = rows, .embeddings = true};
    struct error err = {0};
    bool was_short = false;
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < texts[i]; k++)
            rows[batch.n_rows++] = (struct batch_row){i, k, 0, true};
    }
    const struct batch_parts parts = {.forward = whole_forward,
                                      .wait = whole_wait,
                                      .arg = machine,
                                      .out_width = 1,
                                      .whole = true,
                                      .outputs_only = true};
    const enum error_code code = batch_parts_run(&parts, &batch, NULL, out, &was_short, &err);
    for (uint32_t i = 0; !code && i < batch.n_rows; i++)
        assert_true(out[i] == (float)(100 * rows[i].slot + rows[i].position));
    return code;
}

static void test_texts_are_not_cut(void **state)
{
    (void)state;
    static const uint32_t texts[] = {10, 3, 20, 1, 1, 15};
    float out[64];
    struct whole_machine machine = {.rows_max = 20};
    assert_int_equal(run_whole(&machine, texts, 6, out), ERROR_NONE);
    assert_true(machine.n_calls >= 3);
    machine = (struct whole_machine){.rows_max = 50};
    assert_int_equal(run_whole(&machine, texts, 6, out), ERROR_NONE);
    assert_int_equal(machine.n_calls, 1);
    machine = (struct whole_machine){.rows_max = 19}; /* the longest fits nowhere */
    assert_int_equal(run_whole(&machine, texts, 6, out), ERROR_NO_MEMORY);
    static const uint32_t one = 30;
    machine = (struct whole_machine){.rows_max = 29};
    assert_int_equal(run_whole(&machine, &one, 1, out), ERROR_NO_MEMORY);
    assert_int_equal(machine.n_calls, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words_fit_the_log),
        cmocka_unit_test(test_failures_go_down_at_once_to_the_end),
        cmocka_unit_test(test_pressure_alone_refuses_nobody),
        cmocka_unit_test(test_pressure_takes_what_nobody_uses),
        cmocka_unit_test(test_host_memory_is_short_too),
        cmocka_unit_test(test_up_again_with_hysteresis),
        cmocka_unit_test(test_who_was_not_looked_at_begins_at_the_top),
        cmocka_unit_test(test_what_is_lacking_is_passed_over),
        cmocka_unit_test(test_forms_change_one_at_a_time),
        cmocka_unit_test(test_what_was_short_at_first_grows_and_shrinks),
        cmocka_unit_test(test_no_token_is_lost_whatever_others_take),
        cmocka_unit_test(test_texts_are_not_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
