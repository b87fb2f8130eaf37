#include "cli/answer.h"

#include "cli/inspect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- fields ---------------------------------------------------------------------------------- */

static void answer_fail(struct answer *answer, const char *key, const char *wanted)
{
    if (!answer->failed)
        error_set(&answer->error, ERROR_INTERNAL, "cannot understand the node's answer: '%s' is %s",
                  key, wanted);
    answer->failed = true;
}

enum error_code answer_failed(const struct answer *answer, struct error *err)
{
    return answer->failed ? error_set(err, answer->error.code, "%s", answer->error.text)
                          : ERROR_NONE;
}

static bool answer_is_text(yyjson_val *value)
{
    return yyjson_is_str(value) && strlen(yyjson_get_str(value)) == yyjson_get_len(value);
}

const char *answer_text(struct answer *answer, yyjson_val *object, const char *key)
{
    yyjson_val *value = yyjson_obj_get(object, key);
    if (answer_is_text(value))
        return yyjson_get_str(value);
    answer_fail(answer, key, "not a text");
    return "";
}

uint64_t answer_count(struct answer *answer, yyjson_val *object, const char *key)
{
    yyjson_val *value = yyjson_obj_get(object, key);
    if (yyjson_is_uint(value))
        return yyjson_get_uint(value);
    answer_fail(answer, key, "not a whole number");
    return 0;
}

double answer_number(struct answer *answer, yyjson_val *object, const char *key)
{
    yyjson_val *value = yyjson_obj_get(object, key);
    if (yyjson_is_num(value))
        return yyjson_get_num(value);
    answer_fail(answer, key, "not a number");
    return 0;
}

bool answer_flag(struct answer *answer, yyjson_val *object, const char *key)
{
    yyjson_val *value = yyjson_obj_get(object, key);
    if (!yyjson_is_bool(value))
        answer_fail(answer, key, "neither true nor false");
    return yyjson_get_bool(value);
}

yyjson_val *answer_list(struct answer *answer, yyjson_val *object, const char *key)
{
    yyjson_val *value = yyjson_obj_get(object, key);
    if (yyjson_is_arr(value))
        return value;
    answer_fail(answer, key, "not a list");
    return NULL;
}

yyjson_val *answer_object(struct answer *answer, yyjson_val *object, const char *key)
{
    yyjson_val *value = yyjson_obj_get(object, key);
    if (yyjson_is_obj(value))
        return value;
    answer_fail(answer, key, "not an object");
    return NULL;
}

static bool is_absent(yyjson_val *object, const char *key)
{
    yyjson_val *value = yyjson_obj_get(object, key);
    return !value || yyjson_is_null(value);
}

const char *answer_text_if(struct answer *answer, yyjson_val *object, const char *key)
{
    return is_absent(object, key) ? NULL : answer_text(answer, object, key);
}

bool answer_count_if(struct answer *answer, yyjson_val *object, const char *key, uint64_t *out)
{
    *out = is_absent(object, key) ? 0 : answer_count(answer, object, key);
    return !is_absent(object, key);
}

yyjson_val *answer_object_if(struct answer *answer, yyjson_val *object, const char *key)
{
    return is_absent(object, key) ? NULL : answer_object(answer, object, key);
}

/* ---- errors ---------------------------------------------------------------------------------- */

/* As the enumeration has it ("not_found") or as error_name() does ("not found"). */
static enum error_code code_of(const char *name)
{
    if (strcmp(name, "io") == 0)
        return ERROR_IO;
    for (int code = ERROR_INVALID; code <= ERROR_INTERNAL; code++) {
        const char *known = error_name((enum error_code)code);
        size_t i = 0;
        while (known[i] && (name[i] == known[i] || (name[i] == '_' && known[i] == ' ')))
            i++;
        if (!known[i] && !name[i])
            return (enum error_code)code;
    }
    return ERROR_INTERNAL;
}

enum error_code answer_error(yyjson_val *root, struct error *err)
{
    struct answer answer = {0};
    struct buffer clean = {0};
    if (!yyjson_obj_get(root, "error"))
        return ERROR_NONE;
    yyjson_val *error = answer_object(&answer, root, "error");
    const char *code = answer_text(&answer, error, "code");
    answer_clean(&clean, answer_text(&answer, error, "text"));
    if (!answer_failed(&answer, err))
        error_set(err, code_of(code), "%s", clean.data ? clean.data : "");
    buffer_deinit(&clean);
    return answer.failed ? answer.error.code : code_of(code);
}

/* ---- texts ----------------------------------------------------------------------------------- */

void answer_clean(struct buffer *out, const char *text)
{
    inspect_clean_text(out, text, strlen(text), true);
}

enum error_code answer_print_json(yyjson_doc *doc, bool one_line, struct error *err)
{
    const yyjson_write_flag flags =
        YYJSON_WRITE_NEWLINE_AT_END | YYJSON_WRITE_ESCAPE_UNICODE |
        /* control characters are not only below U+0020 */
        (one_line ? YYJSON_WRITE_NOFLAG : YYJSON_WRITE_PRETTY_TWO_SPACES);
    char *json = yyjson_write(doc, flags, NULL);
    if (!json)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the answer");
    fputs(json, stdout);
    fflush(stdout);
    free(json);
    return ERROR_NONE;
}
