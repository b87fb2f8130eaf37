#include "cli/model_given.h"

#include "base/clock.h"
#include "base/size_text.h"
#include "cli/pull_choose.h"
#include "library/resolve.h"

#include <stdio.h>
#include <string.h>

/* What of a model of Ollama's does not come along. */
static void model_given_say_left(const struct hub_list *list, uint32_t model)
{
    struct buffer text = {0};
    hub_left_out_text(&list->files.files[list->models[model].files[0]], &text);
    if (text.data && !text.failed)
        fprintf(stderr, "%s\n", text.data);
    buffer_deinit(&text);
}

enum error_code model_given_pull(const struct hub_name *name, const struct hub_settings *settings,
                                 bool json, char out[PATH_MAX], struct hub_got *got,
                                 struct error *err)
{
    uint32_t model = 0;
    struct hub_list list = {0};
    struct buffer why = {0};
    struct pull_bar bar = {.json = json};
    const struct pull_watch watch = pull_bar_watch(&bar);
    enum error_code code = hub_list(name, settings, &list, err);
    if (!code)
        code = pull_choose(&list, &model, &why, err);
    if (!code && why.data)
        fprintf(stderr, "chosen: %s\n", why.data);
    if (!code)
        model_given_say_left(&list, model);
    if (!code)
        code = hub_pull(&list, model, &watch, out, got, err);
    pull_bar_end(&bar);
    buffer_deinit(&why);
    hub_list_deinit(&list);
    return code;
}

enum error_code model_given(const char *word, char out[PATH_MAX], struct error *err)
{
    struct hub_name name;
    struct hub_got got;
    const struct hub_settings settings = {0};
    if (!hub_name_is_one(word))
        return library_resolve(word, out, err);
    const enum error_code code = hub_name_parse(word, &name, err);
    if (code || !hub_find(&name, out, NULL))
        return code;
    return model_given_pull(&name, &settings, false, out, &got, err);
}

static void model_header_say(const struct hub_headers *headers, double seconds)
{
    const double bytes_per_s = (double)headers->received / (seconds > 1e-3 ? seconds : 1e-3);
    const double left_s = (double)headers->size / (bytes_per_s > 1 ? bytes_per_s : 1);
    fprintf(stderr, "not here yet: %s to pull, about %.0f min at the %s/s of its header\n",
            size_text(headers->size).text, left_s / 60 < 1 ? 1 : left_s / 60,
            size_text((uint64_t)bytes_per_s).text);
}

static enum error_code model_header_read(const struct hub_name *name, struct model_header *out,
                                         struct error *err)
{
    uint32_t model = 0;
    struct hub_list list = {0};
    struct buffer why = {0};
    const struct hub_settings settings = {0};
    enum error_code code = hub_list(name, &settings, &list, err);
    if (!code)
        code = pull_choose(&list, &model, &why, err);
    if (!code && why.data)
        fprintf(stderr, "chosen: %s\n", why.data);
    const uint64_t began_ns = clock_now_ns();
    if (!code)
        code = hub_headers_open(&list, model, &out->headers, err);
    if (!code) {
        memcpy(out->path, out->headers.path, PATH_MAX);
        model_header_say(&out->headers, (double)(clock_now_ns() - began_ns) * 1e-9);
    }
    buffer_deinit(&why);
    hub_list_deinit(&list);
    return code;
}

enum error_code model_header_open(const char *word, struct model_header *out, struct error *err)
{
    struct hub_name name;
    *out = (struct model_header){0};
    if (!hub_name_is_one(word))
        return model_given(word, out->path, err);
    const enum error_code code = hub_name_parse(word, &name, err);
    if (code || !hub_find(&name, out->path, NULL))
        return code;
    return model_header_read(&name, out, err);
}

void model_header_close(struct model_header *header)
{
    hub_headers_close(&header->headers);
}
