#include "cli/vectors.h"

#include "base/mem.h"
#include "model/model.h"
#include "request/text_vector.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- texts ---- */

void texts_deinit(struct texts *texts)
{
    for (uint32_t i = 0; i < texts->count; i++)
        mem_free(texts->items[i]);
    mem_free(texts->items);
    *texts = (struct texts){0};
}

enum error_code texts_add(struct texts *texts, const char *text, struct error *err)
{
    if (texts->count == texts->capacity) {
        const uint32_t capacity = texts->capacity ? 2 * texts->capacity : 64;
        char **items = mem_resize(texts->items, capacity, sizeof *items);
        if (!items)
            return error_set(err, ERROR_NO_MEMORY, "not enough memory for the texts");
        texts->items = items;
        texts->capacity = capacity;
    }
    char *copy = mem_copy_text(text, strlen(text));
    if (!copy)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the texts");
    texts->items[texts->count++] = copy;
    return ERROR_NONE;
}

enum error_code texts_read(struct texts *texts, const char *path, struct error *err)
{
    const bool is_input = strcmp(path, "-") == 0;
    FILE *file = is_input ? stdin : fopen(path, "r");
    if (!file)
        return error_set(err, ERROR_IO, "%s: %s", path, strerror(errno));
    char *line = NULL;
    size_t room = 0;
    enum error_code code = ERROR_NONE;
    for (ssize_t size; !code && (size = getline(&line, &room, file)) >= 0;) {
        line[strcspn(line, "\r\n")] = '\0';
        if (*line)
            code = texts_add(texts, line, err);
    }
    if (!code && ferror(file))
        code = error_set(err, ERROR_IO, "%s: %s", path, strerror(errno));
    free(line);
    if (!is_input)
        fclose(file);
    return code;
}

/* ---- vectors ---- */

struct vectors_run { /* some requests at once */
    pthread_mutex_t lock;
    pthread_cond_t ended;
    uint32_t n_running;
    struct error error; /* the first */
};

struct vectors_one {
    struct vectors_run *run;
    float *sum;
    uint32_t n_embd, first, last;
};

static bool vectors_on_token(void *arg, const struct token_event *event)
{
    (void)arg;
    (void)event;
    return false;
}

static void vectors_on_row(void *arg, uint32_t position, const float *values, uint32_t n_values)
{
    struct vectors_one *one = arg;
    if (position < one->first || position > one->last)
        return;
    for (uint32_t i = 0; i < n_values && i < one->n_embd; i++)
        one->sum[i] += values[i];
}

static void vectors_on_done(void *arg, enum finish_reason reason, const struct request_usage *usage,
                            const struct error *err)
{
    (void)usage;
    struct vectors_run *run = ((struct vectors_one *)arg)->run;
    pthread_mutex_lock(&run->lock);
    if (reason == FINISH_ERROR && !run->error.code)
        run->error = *err;
    else if (reason == FINISH_CANCELLED && !run->error.code)
        error_set(&run->error, ERROR_CANCELLED, "the text was given up");
    run->n_running--;
    pthread_cond_signal(&run->ended);
    pthread_mutex_unlock(&run->lock);
}

static enum error_code vectors_submit(const struct session *session, struct vectors_run *run,
                                      const struct token_list *prompt, struct vectors_one *one,
                                      struct error *err)
{
    const struct request request = {
        .prompt = prompt->ids,
        .n_prompt = (uint32_t)prompt->count,
        .sampler = sampler_off(),
        .embeddings = true,
        .n_embd = one->n_embd,
        .handlers = {.token = vectors_on_token, .row = vectors_on_row, .done = vectors_on_done},
        .arg = one};
    pthread_mutex_lock(&run->lock);
    run->n_running++;
    pthread_mutex_unlock(&run->lock);
    const enum error_code code = generator_submit(session->generator, &request, NULL, err);
    if (code) {
        pthread_mutex_lock(&run->lock);
        run->n_running--;
        pthread_mutex_unlock(&run->lock);
    }
    return code;
}

static void vectors_wait(struct vectors_run *run)
{
    pthread_mutex_lock(&run->lock);
    while (run->n_running)
        pthread_cond_wait(&run->ended, &run->lock);
    pthread_mutex_unlock(&run->lock);
}

enum error_code vectors_compute(const struct session *session, const struct token_list *prompts,
                                uint32_t n, float *out, struct error *err)
{
    const struct hyperparameters *h = model_hyperparameters(session->model);
    const uint32_t at_once = driver_options(session->driver)->n_slots;
    struct vectors_run run = {.n_running = 0};
    struct vectors_one *all = mem_new_array(at_once, sizeof *all);
    enum error_code code = ERROR_NONE;
    if (!all)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for %u texts", n);
    pthread_mutex_init(&run.lock, NULL);
    pthread_cond_init(&run.ended, NULL);
    for (uint32_t at = 0; at < n && !code; at += at_once) {
        for (uint32_t i = 0; i < at_once && at + i < n && !code; i++) {
            all[i] = (struct vectors_one){
                .run = &run, .sum = out + (size_t)(at + i) * h->n_embd, .n_embd = h->n_embd};
            text_vector_rows(h, (uint32_t)prompts[at + i].count, &all[i].first, &all[i].last);
            code = vectors_submit(session, &run, &prompts[at + i], &all[i], err);
            if (code)
                error_wrap(err, "text %u", at + i + 1);
        }
        vectors_wait(&run);
        if (!code && run.error.code)
            code = error_set(err, run.error.code, "%s", run.error.text);
    }
    pthread_cond_destroy(&run.ended);
    pthread_mutex_destroy(&run.lock);
    mem_free(all);
    return code;
}
