#include "cli/top_cluster.h"

#include "cli/answer.h"
#include "cli/ask.h"
#include "cli/commands.h"
#include "cli/live_client.h"
#include "cli/live_rows.h"
#include "cli/top_terminal.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct top_cluster_args {
    bool once, json, live; /* live: on the terminal, until it is ended */
};

/* Over what the terminal shows: each line erases what was there, the end what is below. */
static void top_cluster_put(const struct buffer *text, bool live)
{
    if (!live) {
        fwrite(text->data, 1, text->size, stdout);
        return;
    }
    fputs("\033[H\033[K", stdout);
    for (size_t at = 0; at < text->size; at++) {
        const bool is_last = at + 1 == text->size;
        if (text->data[at] == '\n')
            fputs(is_last ? "" : "\n\033[K", stdout);
        else
            putchar(text->data[at]);
    }
    fputs("\033[J", stdout);
}

static enum error_code top_cluster_show_json(const struct live_client *live, struct error *err)
{
    char *text = yyjson_mut_write(live->view, YYJSON_WRITE_ALLOW_INVALID_UNICODE, NULL);
    if (!text)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the cluster's view");
    printf("%s\n", text);
    free(text);
    return ERROR_NONE;
}

static enum error_code top_cluster_show(const struct live_client *live,
                                        const struct top_cluster_args *args, struct error *err)
{
    const struct terminal_size size =
        args->live ? terminal_size() : (struct terminal_size){.columns = 0};
    yyjson_mut_val *view = yyjson_mut_doc_get_root(live->view);
    struct live_rows rows;
    struct buffer text = {0};
    if (args->json)
        return top_cluster_show_json(live, err);
    const bool read = live_rows_read(view, false, &rows);
    if (read)
        live_rows_show_all(view, &rows, size.columns, size.rows, &text);
    if (read && !text.failed)
        top_cluster_put(&text, args->live);
    const bool good = read && !text.failed;
    live_rows_deinit(&rows);
    buffer_deinit(&text);
    return good ? ERROR_NONE : error_set(err, ERROR_NO_MEMORY, "not enough memory for the devices");
}

static enum error_code top_cluster_converse(struct daemon_client *client, const void *arg,
                                            struct error *err)
{
    const struct top_cluster_args *args = arg;
    struct live_client live = {0};
    bool changed = true, over = false;
    daemon_client_hurry(client);
    enum error_code code = live_client_begin(&live, client, err);
    if (!code && args->live)
        terminal_enter();
    while (!code && !over && !ferror(stdout)) {
        if (changed)
            code = top_cluster_show(&live, args, err);
        fflush(stdout);
        over = args->once || terminal_wait(1) == TERMINAL_END;
        if (!code && !over)
            code = live_client_take(&live, client, &changed, err);
    }
    terminal_leave();
    live_client_deinit(&live);
    return code;
}

int top_cluster_run(bool once, bool json)
{
    struct top_cluster_args args = {.json = json};
    args.live = !json && !once && isatty(STDOUT_FILENO);
    args.once = once || (!json && !args.live);
    signal(SIGPIPE, SIG_IGN); /* a reader that has gone shows as a failed write */
    terminal_begin();
    return ask_converse(&command_top, top_cluster_converse, &args);
}
