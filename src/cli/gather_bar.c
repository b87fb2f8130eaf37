#include "cli/gather_bar.h"

#include "base/clock.h"
#include "base/json_memory.h"
#include "base/mem.h"
#include "base/size_text.h"
#include "cli/answer.h"

#include <stdio.h>
#include <unistd.h>

enum { GATHER_BAR_QUIET_S = 10 };

static void gather_bar_json(yyjson_val *root)
{
    yyjson_mut_doc *doc = yyjson_mut_doc_new(&json_memory);
    yyjson_mut_val *copy = doc ? yyjson_val_mut_copy(doc, root) : NULL;
    if (copy) {
        yyjson_mut_doc_set_root(doc, copy);
        yyjson_mut_obj_add_str(doc, copy, "event", "gathering");
    }
    char *text = copy ? yyjson_mut_write_opts(doc, 0, &json_memory, NULL, NULL) : NULL;
    if (text) {
        puts(text);
        fflush(stdout);
    }
    mem_free(text);
    yyjson_mut_doc_free(doc);
}

/* "tower 120 MiB of 400 MiB at 11 MiB/s" */
static void gather_bar_node(struct answer *answer, yyjson_val *node, struct buffer *out)
{
    const uint64_t bytes = answer_count(answer, node, "bytes");
    const uint64_t here = answer_count(answer, node, "here");
    uint64_t speed;
    answer_clean(out, answer_text(answer, node, "node"));
    if (yyjson_get_bool(yyjson_obj_get(node, "lost"))) {
        buffer_text(out, " left out");
        return;
    }
    buffer_printf(out, " %s of %s", size_text(here).text, size_text(bytes).text);
    if (answer_count_if(answer, node, "bytes_per_s", &speed))
        buffer_printf(out, " at %s/s", size_text(speed).text);
}

static void gather_bar_text(struct answer *answer, yyjson_val *root, struct buffer *out)
{
    yyjson_val *said = answer_object(answer, root, "gathering");
    yyjson_val *nodes = answer_list(answer, said, "nodes"), *node;
    size_t i, n;
    answer_clean(out, answer_text(answer, root, "state"));
    buffer_text(out, " ");
    answer_clean(out, answer_text(answer, said, "file"));
    yyjson_arr_foreach(nodes, i, n, node)
    {
        buffer_text(out, i ? ", " : ": ");
        gather_bar_node(answer, node, out);
    }
    if (yyjson_obj_get(said, "forecast_s")) {
        const uint64_t s = (uint64_t)answer_number(answer, said, "forecast_s") + 1;
        const bool measured = yyjson_get_bool(yyjson_obj_get(said, "measured"));
        buffer_printf(out, "; about %llu:%02llu left%s", (unsigned long long)(s / 60),
                      (unsigned long long)(s % 60), measured ? "" : " at its header's speed");
    }
}

enum error_code gather_bar_show(struct gather_bar *bar, yyjson_val *root, struct error *err)
{
    struct answer answer = {0};
    struct buffer line = {0};
    const uint64_t now_ns = clock_now_ns();
    const bool is_terminal = isatty(STDERR_FILENO);
    if (bar->json) {
        gather_bar_json(root);
        return ERROR_NONE;
    }
    if (bar->said_ns && !is_terminal &&
        now_ns - bar->said_ns < GATHER_BAR_QUIET_S * UINT64_C(1000000000))
        return ERROR_NONE;
    gather_bar_text(&answer, root, &line);
    const enum error_code code = answer_failed(&answer, err);
    if (!code && is_terminal)
        fprintf(stderr, "\r\033[K%s", line.data ? line.data : "");
    else if (!code)
        fprintf(stderr, "%s\n", line.data ? line.data : "");
    fflush(stderr);
    if (yyjson_arr_size(yyjson_obj_get(yyjson_obj_get(root, "gathering"), "nodes")))
        bar->said_ns = now_ns;
    bar->is_shown = is_terminal;
    buffer_deinit(&line);
    return code;
}

void gather_bar_end(struct gather_bar *bar)
{
    if (bar->is_shown)
        fprintf(stderr, "\r\033[K");
    bar->is_shown = false;
}
