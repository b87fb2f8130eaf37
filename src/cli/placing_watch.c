#include "cli/placing_watch.h"

#include "cli/stages.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Says what has changed since the last line. */
static enum error_code placing_watch_say(yyjson_val *root, struct buffer *last, struct error *err)
{
    struct answer answer = {0};
    struct buffer line = {0};
    answer_clean(&line, answer_text(&answer, root, "state"));
    if (yyjson_obj_get(root, "stages")) {
        buffer_text(&line, ": ");
        stages_text(&answer, answer_list(&answer, root, "stages"), true, &line);
    }
    enum error_code code = answer_failed(&answer, err);
    const char *text = line.data ? line.data : "";
    if (!code && isatty(STDERR_FILENO) && strcmp(text, last->data ? last->data : "") != 0)
        fprintf(stderr, "%s\n", text);
    buffer_deinit(last);
    *last = line;
    return code;
}

static enum error_code placing_watch_line(yyjson_val *root, struct gather_bar *bar,
                                          struct buffer *last, struct error *err)
{
    const char *why = yyjson_get_str(yyjson_obj_get(root, "pull"));
    if (why)
        return error_set(err, ERROR_UNSUPPORTED, "%s", why);
    if (yyjson_obj_get(root, "gathering"))
        return gather_bar_show(bar, root, err);
    gather_bar_end(bar);
    return placing_watch_say(root, last, err);
}

static enum error_code placing_watch_poll(struct daemon_client *client, bool json, yyjson_doc **out,
                                          struct error *err)
{
    struct buffer last = {0};
    struct gather_bar bar = {.json = json};
    enum error_code code;
    do {
        yyjson_doc *doc;
        code = daemon_client_receive(client, &doc, err);
        if (!code && yyjson_obj_get(yyjson_doc_get_root(doc), "ready"))
            *out = doc;
        else if (!code)
            code = placing_watch_line(yyjson_doc_get_root(doc), &bar, &last, err);
        if (!*out)
            yyjson_doc_free(doc);
    } while (!code && !*out);
    gather_bar_end(&bar);
    buffer_deinit(&last);
    return code;
}

static void placing_watch_put_rope(yyjson_mut_doc *question, const struct rope_stretch *rope)
{
    yyjson_mut_val *object =
        yyjson_mut_obj_add_obj(question, yyjson_mut_doc_get_root(question), "rope");
    if (rope->type)
        yyjson_mut_obj_add_str(question, object, "scaling", rope_choice_name(rope->type));
    if (rope->factor != 0)
        yyjson_mut_obj_add_real(question, object, "scale", (double)rope->factor);
    if (rope->base != 0)
        yyjson_mut_obj_add_real(question, object, "base", (double)rope->base);
    if (rope->n_original)
        yyjson_mut_obj_add_uint(question, object, "original_tokens", rope->n_original);
}

enum error_code placing_watch(const struct placing_request *request, yyjson_doc **out,
                              struct error *err)
{
    struct daemon_client *client;
    *out = NULL;
    enum error_code code = daemon_client_open(&client, err);
    if (code)
        return code;
    yyjson_mut_doc *question = daemon_question("place");
    daemon_question_text(question, "model", request->model);
    daemon_question_count(question, "context", request->context);
    daemon_question_count(question, "streams", request->streams);
    daemon_question_count(question, "cells", request->cells);
    daemon_question_text(question, "goal", request->goal);
    daemon_question_text(question, "kv", request->kv);
    daemon_question_text(question, "speculate", request->speculate);
    daemon_question_text(question, "draft", request->draft);
    daemon_question_text(question, "draft_device", request->draft_device);
    daemon_question_text(question, "precision", request->precision);
    daemon_question_text(question, "allow_precision", request->allow_precision);
    daemon_question_count(question, "idle_s", request->idle_s);
    daemon_question_text(question, "weights_memory", request->weights_memory);
    daemon_question_text(question, "score_weights", request->score_weights);
    daemon_question_count(question, "time_limit_s",
                          request->limit_s ? request->limit_s : UINT32_MAX);
    if (question && rope_stretch_is_set(&request->rope))
        placing_watch_put_rope(question, &request->rope);
    code = daemon_client_send(client, question, err);
    if (!code)
        code = placing_watch_poll(client, request->json, out, err);
    daemon_client_close(client);
    return code;
}
