/* grammar/grammar.h against the JSON-Schema-Test-Suite: each schema is honoured, and then every
 * instance is accepted exactly if it is valid, written compactly and with blanks; or it is refused
 * with its reason. What is honoured and wrong must be nothing.
 *
 *     test-grammar_suite FOLDER PERCENT [-v]
 *
 * fails also where fewer PERCENT of the schemas are honoured. */
#include "base/buffer.h"
#include "grammar/grammar.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yyjson.h>

struct tally {
    unsigned honoured, refused, wrong, instances;
};

static bool is_verbose, is_draft_07;

/* Numbers as ECMAScript writes them, but never with an exponent. */
static void write_number(yyjson_val *value, struct buffer *out)
{
    if (!yyjson_is_real(value)) {
        char *text = yyjson_val_write(value, 0, NULL);
        buffer_text(out, text);
        free(text);
        return;
    }
    const double number = yyjson_get_real(value);
    if (number == floor(number)) {
        buffer_printf(out, "%.0f", number);
        return;
    }
    char text[400];
    for (int digits = 1; digits < 330; digits++) {
        snprintf(text, sizeof text, "%.*f", digits, number);
        if (strtod(text, NULL) == number)
            break;
    }
    buffer_text(out, text);
}

static void write_break(struct buffer *out, bool is_spaced, unsigned depth)
{
    if (is_spaced)
        buffer_printf(out, "\n%*s", (int)depth * 2, "");
}

static void write_value(yyjson_val *value, bool is_spaced, unsigned depth, struct buffer *out)
{
    const bool is_object = yyjson_is_obj(value);
    yyjson_val *key, *each;
    size_t index, max;
    if (yyjson_is_num(value)) {
        write_number(value, out);
    } else if (!yyjson_is_ctn(value)) {
        char *text = yyjson_val_write(
            value, is_spaced ? YYJSON_WRITE_ESCAPE_UNICODE : YYJSON_WRITE_NOFLAG, NULL);
        buffer_text(out, text);
        free(text);
    } else {
        buffer_text(out, is_object ? "{" : "[");
        yyjson_obj_foreach(value, index, max, key, each)
        {
            buffer_text(out, index ? "," : "");
            write_break(out, is_spaced, depth + 1);
            write_value(key, is_spaced, depth + 1, out);
            buffer_text(out, is_spaced ? ": " : ":");
            write_value(each, is_spaced, depth + 1, out);
        }
        yyjson_arr_foreach(value, index, max, each)
        {
            buffer_text(out, index ? "," : "");
            write_break(out, is_spaced, depth + 1);
            write_value(each, is_spaced, depth + 1, out);
        }
        if (yyjson_get_len(value))
            write_break(out, is_spaced, depth);
        buffer_text(out, is_object ? "}" : "]");
    }
}

static bool is_accepted(const struct grammar *grammar, const struct buffer *text)
{
    struct grammar_matcher *matcher;
    struct grammar_run run = {0};
    struct error err;
    bool may_end = false, must_end;
    if (grammar_matcher_new(grammar, NULL, &matcher, &err)) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    if (!grammar_take(matcher, &run, text->data, text->size, &err))
        grammar_may_end(matcher, &run, &may_end, &must_end, &err);
    grammar_run_deinit(&run);
    grammar_matcher_free(matcher);
    return may_end;
}

static unsigned check_instance(const struct grammar *grammar, yyjson_val *test)
{
    const bool is_valid = yyjson_get_bool(yyjson_obj_get(test, "valid"));
    unsigned n_wrong = 0;
    for (int is_spaced = 0; is_spaced < 2; is_spaced++) {
        struct buffer text = {0};
        write_value(yyjson_obj_get(test, "data"), is_spaced, 0, &text);
        if (is_accepted(grammar, &text) != is_valid) {
            n_wrong++;
            printf("  wrong: %s: %s is %s\n", yyjson_get_str(yyjson_obj_get(test, "description")),
                   text.data, is_valid ? "valid" : "not valid");
        }
        buffer_deinit(&text);
    }
    return n_wrong;
}

/* With the dialect of its folder, where it names none. */
static char *schema_text(yyjson_val *schema)
{
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *copy = yyjson_val_mut_copy(doc, schema);
    if (is_draft_07 && yyjson_mut_is_obj(copy) && !yyjson_mut_obj_get(copy, "$schema"))
        yyjson_mut_obj_add_str(doc, copy, "$schema", "http://json-schema.org/draft-07/schema#");
    char *text = yyjson_mut_val_write(copy, 0, NULL);
    yyjson_mut_doc_free(doc);
    return text;
}

static void check_group(yyjson_val *group, const char *file, struct tally *tally)
{
    const char *name = yyjson_get_str(yyjson_obj_get(group, "description"));
    char *schema = schema_text(yyjson_obj_get(group, "schema"));
    struct grammar_source source = {GRAMMAR_JSON_SCHEMA, true, schema, strlen(schema)};
    struct grammar *grammar = NULL;
    struct error err;
    yyjson_val *test;
    size_t index, max;
    unsigned n_wrong = 0;
    if (grammar_compile(&source, &grammar, &err)) {
        tally->refused++;
        if (is_verbose)
            printf("  refused: %s: %s: %s\n", file, name, err.text);
    } else {
        yyjson_arr_foreach(yyjson_obj_get(group, "tests"), index, max, test)
        {
            n_wrong += check_instance(grammar, test);
            tally->instances++;
        }
        tally->honoured++;
        if (n_wrong)
            printf("  wrong: %s: %s: %s\n", file, name, schema);
        tally->wrong += n_wrong > 0;
    }
    grammar_free(grammar);
    free(schema);
}

static void check_file(const char *folder, const char *name, struct tally *total)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    yyjson_doc *doc = yyjson_read_file(path, 0, NULL, NULL);
    struct tally tally = {0};
    yyjson_val *group;
    size_t index, max;
    if (!doc) {
        fprintf(stderr, "%s is no JSON\n", path);
        exit(1);
    }
    yyjson_arr_foreach(yyjson_doc_get_root(doc), index, max, group)
        check_group(group, name, &tally);
    printf("%-36s %4u honoured %4u refused %4u wrong\n", name, tally.honoured, tally.refused,
           tally.wrong);
    total->honoured += tally.honoured;
    total->refused += tally.refused;
    total->wrong += tally.wrong;
    total->instances += tally.instances;
    yyjson_doc_free(doc);
}

static int is_json_file(const struct dirent *entry)
{
    const size_t n = strlen(entry->d_name);
    return n > 5 && strcmp(entry->d_name + n - 5, ".json") == 0;
}

int main(int argc, char **argv)
{
    struct dirent **files;
    struct tally total = {0};
    const unsigned percent_min = argc > 2 ? (unsigned)atoi(argv[2]) : 0;
    is_verbose = argc > 3;
    is_draft_07 = argc > 1 && strstr(argv[1], "draft7");
    const int n = argc > 1 ? scandir(argv[1], &files, is_json_file, alphasort) : -1;
    if (n <= 0) {
        fprintf(stderr, "no tests in '%s'\n", argc > 1 ? argv[1] : "");
        return 1;
    }
    for (int i = 0; i < n; i++) {
        check_file(argv[1], files[i]->d_name, &total);
        free(files[i]);
    }
    free(files);
    const unsigned all = total.honoured + total.refused;
    printf("%u schemas: %u honoured (%.1f %%), %u refused with a reason, %u wrong; "
           "%u instances, each written in two ways\n",
           all, total.honoured, 100.0 * total.honoured / all, total.refused, total.wrong,
           total.instances);
    return total.wrong || total.honoured * 100 < all * percent_min;
}
