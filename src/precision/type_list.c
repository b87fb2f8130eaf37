#include "precision/type_list.h"

#include "model/weight_type.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static uint64_t type_list_bytes(const struct model *model)
{
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < gguf_file_tensor_count(model_file(model)); i++)
        bytes += gguf_file_tensor(model_file(model), i)->size;
    return bytes;
}

void type_list_write(const struct weight_choice *choice, const struct model *model,
                     const double *losses, const char *remark, struct buffer *out)
{
    buffer_printf(out, "medley types 1\nmodel %" PRIu64 " %" PRIu64 "\n", choice->n_tensors,
                  type_list_bytes(model));
    while (*remark) {
        const size_t size = strcspn(remark, "\n");
        buffer_text(out, "# ");
        buffer_append(out, remark, size);
        buffer_text(out, "\n");
        remark += size + (remark[size] == '\n');
    }
    for (uint64_t i = 0; i < choice->n_tensors; i++) {
        const struct gguf_tensor *tensor = gguf_file_tensor(model_file(model), i);
        if (choice->types[i] != tensor->type)
            buffer_printf(out, "%-32s %-7s # %.3g\n", tensor->name,
                          weight_type_name(choice->types[i]), losses[i]);
    }
}

static enum error_code type_list_set(const struct model *model, struct weight_choice *choice,
                                     const char *name, const char *type_word, struct error *err)
{
    const struct gguf_tensor *tensor = gguf_file_find_tensor(model_file(model), name);
    bool is_head;
    int type;
    if (!tensor)
        return error_set(err, ERROR_INVALID, "the model has no tensor %s", name);
    const uint64_t i = (uint64_t)(tensor - gguf_file_tensor(model_file(model), 0));
    if (!weight_choice_is_matrix(model, i, &is_head))
        return error_set(err, ERROR_INVALID, "tensor %s stays as it is: it is no matrix", name);
    enum error_code code = weight_type_find(type_word, &type, err);
    if (!code && weight_type_for_rows(type, tensor->ne[0]) != type)
        code = error_set(err, ERROR_INVALID, "rows of %s, %" PRId64 " weights, are no %s: take %s",
                         name, tensor->ne[0], type_word,
                         weight_type_name(weight_type_for_rows(type, tensor->ne[0])));
    if (!code)
        choice->types[i] = type;
    return code;
}

/* The line without its remark. */
static enum error_code type_list_line(const char *line, uint32_t number, const struct model *model,
                                      struct weight_choice *choice, struct error *err)
{
    char name[128], type[32], more[2];
    uint64_t n_tensors, bytes;
    const int n_words = sscanf(line, " %127s %31s %1s", name, type, more);
    if (number == 1)
        return strcmp(line, "medley types 1") == 0
                   ? ERROR_NONE
                   : error_set(err, ERROR_INVALID,
                               "it is no list of types: it does not begin with 'medley types 1'");
    if (number == 2) {
        if (sscanf(line, "model %" SCNu64 " %" SCNu64, &n_tensors, &bytes) != 2 ||
            n_tensors != choice->n_tensors || bytes != type_list_bytes(model))
            return error_set(err, ERROR_INVALID, "the list was made for another model");
        return ERROR_NONE;
    }
    if (n_words <= 0)
        return ERROR_NONE;
    if (n_words != 2)
        return error_set(err, ERROR_INVALID, "a line is a tensor's name and a type");
    return type_list_set(model, choice, name, type, err);
}

enum error_code type_list_read(const struct buffer *text, const struct model *model,
                               struct weight_choice *choice, struct error *err)
{
    const char *at = text->data ? text->data : "", *end = at + text->size;
    enum error_code code = ERROR_NONE;
    uint32_t number = 0;
    while (!code && at < end) {
        char line[256];
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const size_t size = (size_t)((newline ? newline : end) - at);
        snprintf(line, sizeof line, "%.*s", size < sizeof line ? (int)size : 255, at);
        line[strcspn(line, "#")] = '\0';
        number++;
        if (type_list_line(line, number, model, choice, err))
            code = err ? error_wrap(err, "line %u", number) : ERROR_INVALID;
        at += size + 1;
    }
    if (!code && number < 2)
        code = error_set(err, ERROR_INVALID, "it is no list of types: it is too short");
    return code;
}
