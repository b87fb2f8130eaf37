/* The choice of types under a budget: against all choices that there are; the copy that is tried;
 * and the list of types as a file. */
#include "base/random.h"
#include "model/weight_type.h"
#include "precision/fit.h"
#include "precision/trial_file.h"
#include "precision/type_list.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ggml.h>

#include <cmocka.h>

static struct model *golden(const char *name)
{
    char path[1024];
    struct model *model;
    struct error err;
    snprintf(path, sizeof path, "%s/models/%s.gguf", getenv("MEDLEY_GOLDEN"), name);
    if (model_open(path, &model, &err))
        fail_msg("%s", err.text);
    return model;
}

/* ---- the budget ------------------------------------------------------------------------------ */

enum { GROUPS = 5, OPTIONS = 4 };

/* The least loss of all choices within the bytes; below 0: none. */
static double best_of_all(const struct budget_group *groups, uint64_t bytes_max)
{
    double best = -1;
    for (uint32_t code = 0; code < 1024; code++) { /* OPTIONS to the power of GROUPS */
        uint64_t bytes = 0;
        double loss = 0;
        for (uint32_t g = 0, rest = code; g < GROUPS; g++, rest /= OPTIONS) {
            bytes += groups[g].options[rest % OPTIONS].bytes;
            loss += groups[g].options[rest % OPTIONS].loss;
        }
        if (bytes <= bytes_max && (best < 0 || loss < best))
            best = loss;
    }
    return best;
}

static void draw_groups(struct budget_group groups[GROUPS], uint64_t seed)
{
    for (uint32_t g = 0; g < GROUPS; g++) {
        groups[g] = (struct budget_group){.n_options = OPTIONS};
        for (uint32_t o = 0; o < OPTIONS; o++)
            groups[g].options[o] = (struct budget_option){
                .bytes = 10 + (uint64_t)(90 * random_unit_at(seed, 2 * (g * OPTIONS + o))),
                .loss = o ? random_unit_at(seed, 2 * (g * OPTIONS + o) + 1) : 0,
            };
    }
}

static void test_budget_is_near_the_best_of_all(void **state)
{
    (void)state;
    uint32_t n_feasible = 0, n_exact = 0;
    for (uint64_t seed = 0; seed < 2000; seed++) {
        struct budget_group groups[GROUPS];
        struct error err;
        draw_groups(groups, seed);
        const uint64_t bytes_max = 80 + seed % 300;
        const double best = best_of_all(groups, bytes_max);
        const enum error_code code = budget_choose(groups, GROUPS, bytes_max, &err);
        if (best < 0) {
            assert_int_equal(code, ERROR_INVALID);
            assert_non_null(strstr(err.text, "give that or more"));
            continue;
        }
        assert_int_equal(code, ERROR_NONE);
        assert_true(budget_bytes(groups, GROUPS) <= bytes_max);
        const double loss = budget_loss(groups, GROUPS);
        assert_true(loss >= best - 1e-12);
        assert_true(loss <= best + 1); /* one group's step: no loss drawn is above 1 */
        n_feasible++;
        n_exact += loss <= best + 1e-12;
    }
    assert_true(n_feasible > 1000);
    assert_true(n_exact * 2 > n_feasible);
}

/* ---- types by layer -------------------------------------------------------------------------- */

/* A made-up loss: the second layer's feed-forward is a thousand times as dear as all else. */
static enum error_code made_up_loss(void *arg, const uint32_t *groups, uint32_t group,
                                    const int *types, uint32_t done, uint32_t total, double *loss,
                                    struct error *err)
{
    (void)err;
    const struct model *model = arg;
    *loss = 0;
    assert_true(done < total);
    for (uint64_t i = 0; i < gguf_file_tensor_count(model_file(model)); i++) {
        const struct gguf_tensor *tensor = gguf_file_tensor(model_file(model), i);
        if (groups[i] != group)
            continue;
        const double bits =
            8.0 * (double)weight_type_row_bytes(types[i], tensor->ne[0]) / (double)tensor->ne[0];
        *loss += (strncmp(tensor->name, "blk.1.ffn", 9) == 0 ? 1000 : 1) / (bits * bits);
    }
    return ERROR_NONE;
}

static void test_what_is_dear_keeps_its_bits(void **state)
{
    (void)state;
    struct model *model = golden("llama");
    struct weight_choice choice;
    struct fit_result result;
    struct error err;
    double losses[64] = {0};
    assert_int_equal(weight_choice_init(&choice, model, &err), ERROR_NONE);
    const uint64_t whole = weight_choice_bytes(&choice, model);
    struct fit fit = {.bytes_max = whole / 4, .measure = made_up_loss, .arg = model};
    if (fit_choose(&fit, model, &choice, losses, &result, &err))
        fail_msg("%s", err.text);
    assert_true(weight_choice_bytes(&choice, model) <= whole / 4);
    assert_int_equal(result.n_groups, 16);
    uint64_t dear = 0, cheap = 0;
    for (uint64_t i = 0; i < choice.n_tensors; i++) {
        const char *name = gguf_file_tensor(model_file(model), i)->name;
        const uint64_t row = weight_type_row_bytes(choice.types[i], 32);
        if (strcmp(name, "blk.1.ffn_up.weight") == 0)
            dear = row;
        if (strcmp(name, "blk.0.ffn_up.weight") == 0)
            cheap = row;
        if (strstr(name, "norm"))
            assert_int_equal(choice.types[i], GGML_TYPE_F32);
    }
    assert_true(dear > cheap && cheap > 0);
    weight_choice_deinit(&choice);
    assert_int_equal(weight_choice_init(&choice, model, &err), ERROR_NONE);
    fit.bytes_max = whole / 20;
    assert_int_equal(fit_choose(&fit, model, &choice, losses, &result, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "the least is"));
    weight_choice_deinit(&choice);
    model_close(model);
}

/* ---- the copy that is tried ------------------------------------------------------------------ */

/* One tensor at a time is of another type; all others are the original's bytes. */
static void test_a_trial_changes_one_group(void **state)
{
    (void)state;
    char beside[] = "/tmp/medley-trial-never-written";
    struct model *model = golden("llama"), *tried;
    const struct gguf_file *file = model_file(model);
    struct trial_file trial;
    struct error err;
    uint32_t groups[64];
    int types[64];
    if (trial_file_open(&trial, file, beside, &err))
        fail_msg("%s", err.text);
    const uint64_t n = gguf_file_tensor_count(file);
    assert_true(n <= 64);
    for (uint64_t i = 0; i < n; i++)
        groups[i] = (uint32_t)i;
    for (uint64_t i = 0; i < n; i++)
        types[i] = gguf_file_tensor(file, i)->n_dims == 2 ? GGML_TYPE_Q8_0 : GGML_TYPE_F32;
    for (uint64_t t = 0; t < n; t++) {
        if (trial_file_set(&trial, groups, (uint32_t)t, types, &err) ||
            model_open(trial.path, &tried, &err))
            fail_msg("%s", err.text);
        for (uint64_t i = 0; i < n; i++) {
            const struct gguf_tensor *a = gguf_file_tensor(file, i),
                                     *b = gguf_file_tensor(model_file(tried), i);
            assert_int_equal(b->type, i == t ? types[i] : a->type);
            if (b->type == a->type)
                assert_memory_equal(gguf_file_bytes(file) + a->offset,
                                    gguf_file_bytes(model_file(tried)) + b->offset, a->size);
        }
        model_close(tried);
    }
    trial_file_close(&trial);
    model_close(model);
}

/* ---- the list as a file ---------------------------------------------------------------------- */

static enum error_code read_list(const char *text, const struct model *model,
                                 struct weight_choice *choice, struct error *err)
{
    struct buffer bytes = {0};
    buffer_text(&bytes, text);
    const enum error_code code = type_list_read(&bytes, model, choice, err);
    buffer_deinit(&bytes);
    return code;
}

static void test_a_list_is_read_as_it_was_written(void **state)
{
    (void)state;
    struct model *model = golden("llama"), *other = golden("gemma2");
    struct weight_choice choice, again;
    struct buffer text = {0};
    struct error err;
    const double losses[64] = {0.5};
    assert_int_equal(weight_choice_init(&choice, model, &err), ERROR_NONE);
    assert_int_equal(weight_choice_init(&again, model, &err), ERROR_NONE);
    weight_choice_all(&choice, model, GGML_TYPE_Q4_0, false);
    type_list_write(&choice, model, losses, "one line\nand another\n", &text);
    assert_false(text.failed);
    assert_non_null(strstr(text.data, "# and another\n"));
    assert_int_equal(type_list_read(&text, model, &again, &err), ERROR_NONE);
    assert_memory_equal(choice.types, again.types, choice.n_tensors * sizeof *choice.types);
    assert_int_equal(type_list_read(&text, other, &again, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "line 2: the list was made for another model"));

    char head[128], list[256];
    snprintf(head, sizeof head, "%.*s",
             (int)(strchr(strchr(text.data, '\n') + 1, '\n') - text.data + 1), text.data);
    static const char *const wrong[][2] = {
        {"output.weight\n", "line 3: a line is"},
        {"output.weight q8_0 q8_0\n", "line 3: a line is"},
        {"# nothing\noutput.wait q8_0\n", "line 4: the model has no tensor output.wait"},
        {"output.weight q4_k\n", "take q5_0"},
        {"output.weight iq2_xs\n", "importance matrix"},
        {"output_norm.weight q8_0\n", "stays as it is"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        snprintf(list, sizeof list, "%s%s", head, wrong[i][0]);
        assert_true(read_list(list, model, &again, &err) != ERROR_NONE);
        if (!strstr(err.text, wrong[i][1]))
            fail_msg("'%s' does not say '%s'", err.text, wrong[i][1]);
    }
    assert_int_equal(read_list("", model, &again, &err), ERROR_INVALID);
    assert_int_equal(read_list("medley types 2\n", model, &again, &err), ERROR_INVALID);
    buffer_deinit(&text);
    weight_choice_deinit(&choice);
    weight_choice_deinit(&again);
    model_close(model);
    model_close(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_budget_is_near_the_best_of_all),
        cmocka_unit_test(test_what_is_dear_keeps_its_bits),
        cmocka_unit_test(test_a_trial_changes_one_group),
        cmocka_unit_test(test_a_list_is_read_as_it_was_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
