#include "cli/pull_bar.h"

#include "base/clock.h"
#include "base/json_memory.h"
#include "base/mem.h"
#include "base/size_text.h"

#include <stdio.h>
#include <unistd.h>

enum { PULL_BAR_WIDTH = 24, PULL_BAR_QUIET_S = 10 };

/* 0: not known. */
static uint64_t pull_bar_left_s(const struct pull_progress *progress)
{
    if (progress->bytes_per_s <= 0)
        return 0;
    return (uint64_t)((double)(progress->size - progress->done) / progress->bytes_per_s) + 1;
}

static void pull_bar_json(const struct pull_progress *progress)
{
    yyjson_mut_doc *doc = yyjson_mut_doc_new(&json_memory);
    yyjson_mut_val *root = doc ? yyjson_mut_obj(doc) : NULL;
    if (root) {
        yyjson_mut_doc_set_root(doc, root);
        yyjson_mut_obj_add_str(doc, root, "event", progress->is_checking ? "checking" : "progress");
        yyjson_mut_obj_add_str(doc, root, "file", progress->what);
        yyjson_mut_obj_add_uint(doc, root, "done", progress->done);
        yyjson_mut_obj_add_uint(doc, root, "size", progress->size);
        yyjson_mut_obj_add_uint(doc, root, "received", progress->received);
        if (progress->bytes_per_s > 0) {
            yyjson_mut_obj_add_uint(doc, root, "bytes_per_s", (uint64_t)progress->bytes_per_s);
            yyjson_mut_obj_add_uint(doc, root, "left_s", pull_bar_left_s(progress));
        }
    }
    char *text = root ? yyjson_mut_write_opts(doc, 0, &json_memory, NULL, NULL) : NULL;
    if (text) {
        puts(text);
        fflush(stdout);
    }
    mem_free(text);
    yyjson_mut_doc_free(doc);
}

static void pull_bar_text(const struct pull_progress *progress, char *out, size_t size)
{
    const uint64_t left_s = pull_bar_left_s(progress);
    const double part = progress->size ? (double)progress->done / (double)progress->size : 0;
    char time[48] = "", speed[48] = "";
    if (left_s)
        snprintf(time, sizeof time, ", %llu:%02llu left", (unsigned long long)(left_s / 60),
                 (unsigned long long)(left_s % 60));
    if (progress->bytes_per_s > 0)
        snprintf(speed, sizeof speed, ", %s/s", size_text((uint64_t)progress->bytes_per_s).text);
    snprintf(out, size, "%s%.60s  %3.0f %%  %s of %s%s%s", progress->is_checking ? "checking " : "",
             progress->what, part * 100, size_text(progress->done).text,
             size_text(progress->size).text, speed, time);
}

static void pull_bar_draw(struct pull_bar *bar, const struct pull_progress *progress)
{
    char line[256], blocks[PULL_BAR_WIDTH + 1];
    const uint64_t now_ns = clock_now_ns();
    const bool is_terminal = isatty(STDERR_FILENO);
    if (!is_terminal && now_ns - bar->said_ns < PULL_BAR_QUIET_S * UINT64_C(1000000000))
        return;
    bar->said_ns = now_ns;
    pull_bar_text(progress, line, sizeof line);
    if (!is_terminal) {
        fprintf(stderr, "%s\n", line);
        return;
    }
    for (uint64_t i = 0; i < PULL_BAR_WIDTH; i++)
        blocks[i] = progress->done * PULL_BAR_WIDTH > i * progress->size ? '#' : '.';
    blocks[PULL_BAR_WIDTH] = '\0';
    fprintf(stderr, "\r\033[K[%s] %s", blocks, line);
    fflush(stderr);
    bar->is_shown = true;
}

static void pull_bar_each(void *arg, const struct pull_progress *progress)
{
    struct pull_bar *bar = arg;
    if (bar->json)
        pull_bar_json(progress);
    else
        pull_bar_draw(bar, progress);
}

struct pull_watch pull_bar_watch(struct pull_bar *bar)
{
    return (struct pull_watch){pull_bar_each, bar};
}

void pull_bar_end(struct pull_bar *bar)
{
    if (bar->is_shown)
        fputs("\r\033[K", stderr);
    bar->is_shown = false;
}
