/* medley models show: one model. */
#include "cli/models.h"

#include "base/size_text.h"
#include "cli/commands.h"
#include "library/defaults.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void models_show_text(const struct library_model *model,
                             const struct library_defaults *defaults, const char *said)
{
    const struct library_facts *facts = &model->facts;
    printf("%s\n", model->name);
    printf("  file      %s (%s)\n", model->path, library_place_name(model->place));
    printf("  size      %s%s%s%s\n", size_text(model->bytes).text,
           model->state == LIBRARY_WHOLE ? "" : ", ",
           model->state == LIBRARY_WHOLE ? "" : library_state_name(model->state),
           model->is_pinned ? ", pinned" : "");
    if (facts->family[0])
        printf("  family    %s%s\n", facts->family,
               facts->supported ? "" : ", which Medley does not run");
    if (facts->type[0])
        printf("  type      %s, %" PRIu64 " parameters\n", facts->type, facts->parameters);
    if (facts->context)
        printf("  context   %u tokens\n", facts->context);
    if (said)
        printf("  requests  begin with %s, where they do not say otherwise\n", said);
    else
        printf("  requests  begin with nothing of the model's own\n");
    if (defaults->unused[0])
        printf("            not used: %s\n", defaults->unused);
    if (model->problem[0])
        printf("  problem   %s\n", model->problem);
}

static bool models_show_json(const struct library_model *model,
                             const struct library_defaults *defaults)
{
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *root = yyjson_mut_obj(doc);
    yyjson_doc *read = defaults->json.size
                           ? yyjson_read(defaults->json.data, strlen(defaults->json.data), 0)
                           : NULL;
    yyjson_mut_doc_set_root(doc, root);
    models_json_add(doc, root, model);
    yyjson_mut_val *object =
        read ? yyjson_val_mut_copy(doc, yyjson_doc_get_root(read)) : yyjson_mut_null(doc);
    yyjson_mut_obj_add_val(doc, root, "defaults", object);
    yyjson_mut_obj_add_str(doc, root, "defaults_unused", defaults->unused);
    char *json = yyjson_mut_write(
        doc, YYJSON_WRITE_PRETTY | YYJSON_WRITE_NEWLINE_AT_END | YYJSON_WRITE_ALLOW_INVALID_UNICODE,
        NULL);
    if (json)
        fputs(json, stdout);
    const bool is_written = json != NULL;
    free(json);
    yyjson_doc_free(read);
    yyjson_mut_doc_free(doc);
    return is_written;
}

static enum error_code models_show_one(const struct library_model *model, bool as_json,
                                       struct error *err)
{
    struct library_defaults defaults = {0};
    struct buffer said = {0};
    enum error_code code = library_defaults_read(model->path, &defaults, err);
    if (code)
        return code;
    library_defaults_say(defaults.json.data, &said);
    bool is_shown = !said.failed;
    if (is_shown && as_json)
        is_shown = models_show_json(model, &defaults);
    else if (is_shown)
        models_show_text(model, &defaults, said.data);
    buffer_deinit(&said);
    library_defaults_deinit(&defaults);
    return is_shown ? ERROR_NONE
                    : error_set(err, ERROR_NO_MEMORY, "not enough memory for the model's view");
}

int models_show(const struct models_flags *flags)
{
    const struct library_options options = {.folders = flags->folders,
                                            .n_folders = flags->n_folders};
    struct library library = {0};
    const struct library_model *model;
    struct error err;
    enum error_code code = library_find(&options, &library, &err);
    if (!code) {
        library_read_headers(&library);
        code = library_choose(&library, flags->name, &model, &err);
    }
    if (!code)
        code = models_show_one(model, flags->json, &err);
    library_deinit(&library);
    return code ? command_fail(&command_models, &err) : EXIT_OK;
}
