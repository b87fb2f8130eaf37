#include "simdevices/sim_file.h"

#include "simdevices/sim_keys.h"
#include "simdevices/sim_presets.h"

#include <stdio.h>
#include <string.h>

struct parser {
    struct sim_file *out;
    struct sim_section
        section; /* the one that is being read; its spec is put in its place at its end */
    bool in_section;
    unsigned line;
    unsigned section_line;
    struct error *err;
};

static enum error_code at_line(const struct parser *parser, unsigned line)
{
    return error_wrap(parser->err, "line %u", line);
}

/* ---- sections ------------------------------------------------------------------------------ */

static bool is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

static enum error_code end_section(struct parser *parser)
{
    if (!parser->in_section)
        return ERROR_NONE;
    if (sim_section_finish(&parser->section, parser->err)) {
        error_wrap(parser->err, "device '%s'", parser->section.spec.name);
        return at_line(parser, parser->section_line);
    }
    parser->out->devices[parser->out->n_devices++] = parser->section.spec;
    parser->in_section = false;
    return ERROR_NONE;
}

/* `name`: between the brackets. */
static enum error_code check_name(const struct parser *parser, struct sim_text name)
{
    bool good = name.size > 0 && name.size <= SIM_NAME_MAX;
    for (size_t i = 0; good && i < name.size; i++)
        good = is_name_char(name.at[i]);
    if (!good)
        return error_set(parser->err, ERROR_INVALID,
                         "'%s' is not a device name: 1 to %d characters of a-z, 0-9, '-' and '_'",
                         sim_text_show(name).text, SIM_NAME_MAX);
    for (uint32_t i = 0; i < parser->out->n_devices; i++) {
        if (sim_text_is(name, parser->out->devices[i].name))
            return error_set(parser->err, ERROR_INVALID, "device '%s' appears twice",
                             sim_text_show(name).text);
    }
    if (parser->out->n_devices == LIMIT_SIM_DEVICES)
        return error_set(parser->err, ERROR_INVALID, "more than %d devices", LIMIT_SIM_DEVICES);
    return ERROR_NONE;
}

static enum error_code sim_file_begin_section(struct parser *parser, struct sim_text line)
{
    if (end_section(parser))
        return ERROR_INVALID;
    if (line.at[line.size - 1] != ']') {
        error_set(parser->err, ERROR_INVALID, "'%s' has no ']'", sim_text_show(line).text);
        return at_line(parser, parser->line);
    }
    struct sim_text name = sim_text_trim((struct sim_text){line.at + 1, line.size - 2});
    if (check_name(parser, name))
        return at_line(parser, parser->line);
    parser->section = (struct sim_section){0};
    snprintf(parser->section.spec.name, sizeof parser->section.spec.name, "%.*s", (int)name.size,
             name.at);
    parser->section_line = parser->line;
    parser->in_section = true;
    return ERROR_NONE;
}

/* ---- lines --------------------------------------------------------------------------------- */

static enum error_code sim_file_read_key(struct parser *parser, struct sim_text line)
{
    const char *equals = memchr(line.at, '=', line.size);
    if (!equals)
        return error_set(parser->err, ERROR_INVALID, "'%s' is neither [device] nor key = value",
                         sim_text_show(line).text);
    if (!parser->in_section)
        return error_set(parser->err, ERROR_INVALID, "'%s' stands before the first [device]",
                         sim_text_show(line).text);
    size_t before = (size_t)(equals - line.at);
    struct sim_text key = sim_text_trim((struct sim_text){line.at, before});
    struct sim_text value = sim_text_trim((struct sim_text){equals + 1, line.size - before - 1});
    return sim_section_set(&parser->section, key, value, parser->err);
}

static enum error_code sim_file_read_line(struct parser *parser, struct sim_text line)
{
    for (size_t i = 0; i < line.size; i++) {
        if (line.at[i] == '\0') {
            error_set(parser->err, ERROR_INVALID, "there is a NUL byte: this is not a text file");
            return at_line(parser, parser->line);
        }
        if (line.at[i] == '#' || line.at[i] == ';') {
            line.size = i;
            break;
        }
    }
    line = sim_text_trim(line);
    if (!line.size)
        return ERROR_NONE;
    if (line.at[0] == '[')
        return sim_file_begin_section(parser, line);
    return sim_file_read_key(parser, line) ? at_line(parser, parser->line) : ERROR_NONE;
}

enum error_code sim_file_parse(const char *bytes, size_t size, struct sim_file *out,
                               struct error *err)
{
    struct error local;
    struct parser parser = {.out = out, .err = err ? err : &local};
    *out = (struct sim_file){0};
    if (size > LIMIT_SIM_FILE_BYTES)
        return error_set(err, ERROR_INVALID, "%zu bytes are more than the limit of %d", size,
                         LIMIT_SIM_FILE_BYTES);
    for (size_t at = 0; at < size;) {
        const char *end = memchr(bytes + at, '\n', size - at);
        size_t length = end ? (size_t)(end - bytes) - at : size - at;
        parser.line++;
        if (sim_file_read_line(&parser, (struct sim_text){bytes + at, length}))
            return ERROR_INVALID;
        at += length + (end != NULL);
    }
    if (end_section(&parser))
        return ERROR_INVALID;
    if (!out->n_devices)
        return error_set(err, ERROR_INVALID, "there is no [device] in it");
    return ERROR_NONE;
}
