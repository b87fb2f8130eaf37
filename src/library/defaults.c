#include "library/defaults.h"
#include "library/library_impl.h"

#include "base/json_memory.h"
#include "base/limits.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yyjson.h>

enum parameter_kind { PARAMETER_NUMBER, PARAMETER_COUNT, PARAMETER_TEXTS, PARAMETER_QUIET };

/* QUIET: it says how to run a model, which the node knows better. */
static const struct parameter {
    const char *name, *field;
    enum parameter_kind kind;
} parameters[] = {
    {"temperature", "temperature", PARAMETER_NUMBER},
    {"top_p", "top_p", PARAMETER_NUMBER},
    {"top_k", "top_k", PARAMETER_COUNT},
    {"min_p", "min_p", PARAMETER_NUMBER},
    {"typical_p", "typical_p", PARAMETER_NUMBER},
    {"repeat_penalty", "repeat_penalty", PARAMETER_NUMBER},
    {"presence_penalty", "presence_penalty", PARAMETER_NUMBER},
    {"frequency_penalty", "frequency_penalty", PARAMETER_NUMBER},
    {"seed", "seed", PARAMETER_COUNT},
    {"stop", "stop", PARAMETER_TEXTS},
    {"num_predict", "max_tokens", PARAMETER_COUNT},
    {"num_ctx", "num_ctx", PARAMETER_COUNT},
    {"num_keep", NULL, PARAMETER_QUIET},
    {"num_batch", NULL, PARAMETER_QUIET},
    {"num_gpu", NULL, PARAMETER_QUIET},
    {"main_gpu", NULL, PARAMETER_QUIET},
    {"num_thread", NULL, PARAMETER_QUIET},
    {"use_mmap", NULL, PARAMETER_QUIET},
    {"use_mlock", NULL, PARAMETER_QUIET},
    {"low_vram", NULL, PARAMETER_QUIET},
    {"numa", NULL, PARAMETER_QUIET},
};

static bool parameter_is_texts(yyjson_val *value)
{
    size_t index, max;
    yyjson_val *element;
    yyjson_arr_foreach(value, index, max, element)
    {
        if (!yyjson_is_str(element))
            return false;
    }
    return yyjson_is_str(value) || (yyjson_is_arr(value) && yyjson_arr_size(value) > 0);
}

static bool parameter_fits(const struct parameter *parameter, yyjson_val *value)
{
    switch (parameter->kind) {
    case PARAMETER_NUMBER:
        return yyjson_is_num(value);
    case PARAMETER_COUNT: /* a negative num_predict is no limit: what Medley begins with */
        return yyjson_is_uint(value) || yyjson_is_sint(value);
    case PARAMETER_TEXTS:
        return parameter_is_texts(value);
    case PARAMETER_QUIET:
        return true;
    }
    return false;
}

static const struct parameter *parameter_find(yyjson_val *key, yyjson_val *value)
{
    for (size_t i = 0; i < sizeof parameters / sizeof *parameters; i++) {
        if (yyjson_equals_str(key, parameters[i].name))
            return parameter_fits(&parameters[i], value) ? &parameters[i] : NULL;
    }
    return NULL;
}

static void defaults_note(struct library_defaults *out, const char *name)
{
    const size_t used = strlen(out->unused);
    snprintf(out->unused + used, sizeof out->unused - used, "%s%s", used ? ", " : "", name);
}

static void defaults_add(yyjson_mut_doc *doc, yyjson_mut_val *root, yyjson_val *key,
                         yyjson_val *value, struct library_defaults *out)
{
    const struct parameter *parameter = parameter_find(key, value);
    const bool is_negative = yyjson_is_sint(value) && yyjson_get_sint(value) < 0;
    if (!parameter)
        defaults_note(out, yyjson_get_str(key));
    else if (parameter->field && !(is_negative && parameter->kind == PARAMETER_COUNT))
        yyjson_mut_obj_add_val(doc, root, parameter->field, yyjson_val_mut_copy(doc, value));
}

static enum error_code defaults_write(yyjson_mut_doc *doc, struct library_defaults *out,
                                      struct error *err)
{
    size_t size;
    yyjson_write_err why = {0};
    char *text = yyjson_mut_write_opts(doc, YYJSON_WRITE_NOFLAG, &json_memory, &size, &why);
    if (why.code == YYJSON_WRITE_ERROR_INVALID_STRING) {
        snprintf(out->unused, sizeof out->unused, "all of them: the system message is not UTF-8");
        return ERROR_NONE;
    }
    if (text && size < LIMIT_MODEL_DEFAULTS_BYTES)
        buffer_append(&out->json, text, size + 1);
    else if (text)
        snprintf(out->unused, sizeof out->unused, "all of them: they have more than %d bytes",
                 LIMIT_MODEL_DEFAULTS_BYTES - 1);
    const bool ok = text && !out->json.failed;
    mem_free(text);
    return ok ? ERROR_NONE
              : error_set(err, ERROR_NO_MEMORY, "not enough memory for a model's defaults");
}

enum error_code library_defaults_make(const struct buffer *params, const struct buffer *system,
                                      struct library_defaults *out, struct error *err)
{
    yyjson_doc *read = params && params->size ? yyjson_read(params->data, params->size, 0) : NULL;
    yyjson_mut_doc *doc = yyjson_mut_doc_new(&json_memory);
    yyjson_mut_val *root = yyjson_mut_obj(doc);
    enum error_code code = ERROR_NONE;
    yyjson_val *key, *value;
    size_t index, max;
    yyjson_mut_doc_set_root(doc, root);
    yyjson_obj_foreach(yyjson_doc_get_root(read), index, max, key, value)
    {
        defaults_add(doc, root, key, value, out);
    }
    if (system && system->size)
        yyjson_mut_obj_add_strn(doc, root, "system", system->data, system->size);
    if (!doc || !root)
        code = error_set(err, ERROR_NO_MEMORY, "not enough memory for a model's defaults");
    else if (yyjson_mut_obj_size(root))
        code = defaults_write(doc, out, err);
    yyjson_doc_free(read);
    yyjson_mut_doc_free(doc);
    return code;
}

void library_defaults_deinit(struct library_defaults *defaults)
{
    buffer_deinit(&defaults->json);
    *defaults = (struct library_defaults){0};
}

/* As `medley pull` leaves Ollama's layers. NULL: there is none. */
static const struct buffer *defaults_beside(const char *path, const char *kind, struct buffer *out)
{
    char beside[PATH_MAX];
    const bool is_there =
        snprintf(beside, sizeof beside, "%s.%s", path, kind) < (int)sizeof beside &&
        library_read_foreign(beside, out);
    return is_there ? out : NULL;
}

enum error_code library_defaults_read(const char *path, struct library_defaults *out,
                                      struct error *err)
{
    struct buffer params = {0}, system = {0};
    *out = (struct library_defaults){0};
    const struct buffer *p = defaults_beside(path, "params", &params),
                        *s = defaults_beside(path, "system", &system);
    const enum error_code code =
        p || s ? library_defaults_make(p, s, out, err) : library_ollama_defaults(path, out, err);
    buffer_deinit(&params);
    buffer_deinit(&system);
    return code;
}

/* ---- reading them ---------------------------------------------------------------------------- */

static yyjson_doc *defaults_open(const char *json)
{
    return json ? yyjson_read(json, strlen(json), 0) : NULL;
}

uint32_t library_defaults_context(const char *json)
{
    yyjson_doc *doc = defaults_open(json);
    const uint64_t n = yyjson_get_uint(yyjson_obj_get(yyjson_doc_get_root(doc), "num_ctx"));
    yyjson_doc_free(doc);
    return n <= LIMIT_CONTEXT ? (uint32_t)n : 0;
}

static void defaults_say_value(yyjson_val *value, struct buffer *out)
{
    enum { SHOWN = 60 };
    size_t cut = yyjson_get_len(value);
    yyjson_val *element;
    size_t i, n;
    if (yyjson_is_arr(value)) {
        yyjson_arr_foreach(value, i, n, element) defaults_say_value(element, out);
    } else if (yyjson_is_str(value) && cut > SHOWN) {
        for (cut = SHOWN; ((unsigned char)yyjson_get_str(value)[cut] & 0xc0) == 0x80; cut--)
            ; /* not within a character */
        buffer_printf(out, " \"%.*s…\" (%zu bytes)", (int)cut, yyjson_get_str(value),
                      yyjson_get_len(value));
    } else {
        char *text = yyjson_val_write(value, YYJSON_WRITE_NOFLAG, NULL);
        buffer_printf(out, " %s", text ? text : "?");
        free(text);
    }
}

void library_defaults_say(const char *json, struct buffer *out)
{
    yyjson_doc *doc = defaults_open(json);
    yyjson_val *key, *value;
    size_t i, n;
    yyjson_obj_foreach(yyjson_doc_get_root(doc), i, n, key, value)
    {
        buffer_printf(out, "%s%s", i ? ", " : "", yyjson_get_str(key));
        defaults_say_value(value, out);
    }
    yyjson_doc_free(doc);
}
