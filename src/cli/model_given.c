#include "cli/model_given.h"

#include "cli/pull_choose.h"
#include "library/resolve.h"

#include <stdio.h>

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
