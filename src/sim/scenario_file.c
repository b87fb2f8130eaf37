/* A scenario as text: sections of `key = value` lines; all values are whole numbers but a fault's
 * kind. */
#include "sim/scenario.h"

#include "base/mem.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { KEYS_MAX = 12 };

struct key {
    const char *name;
    size_t offset;
    uint64_t low, high, missing; /* what it is where nobody says */
};

struct section {
    const char *name;
    size_t size;
    uint32_t most; /* 0: there is one, the scenario itself */
    size_t count, list;
    struct key keys[KEYS_MAX];
};

#define HOURS (UINT64_C(48) * 3600 * 1000)
#define KEY(type, field, low, high, missing)                                                       \
    {#field, offsetof(struct type, field), low, high, missing}
#define LIST(name) offsetof(struct scenario, n_##name), offsetof(struct scenario, name)

static const struct section sections[] = {
    {"scenario",
     0,
     0,
     0,
     0,
     {KEY(scenario, seed, 0, UINT64_MAX, 1), KEY(scenario, chaos_ms, 0, HOURS, 60000),
      KEY(scenario, settle_ms, 1000, HOURS, 120000), KEY(scenario, grace_ms, 0, HOURS, 30000),
      KEY(scenario, snapshot_after, 1, 100000, 512), KEY(scenario, delay_ms, 0, 10000, 2),
      KEY(scenario, patience_ms, 1000, HOURS, 600000), KEY(scenario, fits, 0, 1, 1),
      KEY(scenario, copies, 0, 2, 0), KEY(scenario, air_s, 0, 100000, 0),
      KEY(scenario, bug, 0, SCENARIO_BUGS - 1, 0)}},
    {"expect",
     0,
     0,
     0,
     0,
     {KEY(scenario, expect.violation, 0, 1, 0),
      KEY(scenario, expect.answered_min, 0, UINT64_MAX, 0),
      KEY(scenario, expect.failed_max, 0, UINT64_MAX, 0),
      KEY(scenario, expect.pause_ms_max, 0, HOURS, 0),
      KEY(scenario, expect.elections_max, 0, UINT64_MAX, 0),
      KEY(scenario, expect.moves_min, 0, UINT64_MAX, 0),
      KEY(scenario, expect.moves_max, 0, UINT64_MAX, 0),
      KEY(scenario, expect.suspicions_max, 0, UINT64_MAX, 0),
      KEY(scenario, expect.hottest_c_min, 0, 1000, 0),
      KEY(scenario, expect.throttled_ms_max, 0, UINT64_MAX, 0)}},
    {"node",
     sizeof(struct scenario_node),
     SCENARIO_NODES,
     LIST(nodes),
     {KEY(scenario_node, devices, 1, SCENARIO_DEVICES, 1),
      KEY(scenario_node, memory_mib, 1, 1 << 24, 8192), KEY(scenario_node, gb_per_s, 1, 100000, 50),
      KEY(scenario_node, load_mib_per_s, 1, 1 << 20, 1000),
      KEY(scenario_node, disk_ms, 1, 60000, 5), KEY(scenario_node, joins_ms, 0, HOURS, 0),
      KEY(scenario_node, has_weights, 0, 1, 1), KEY(scenario_node, hostile, 0, 1, 0),
      KEY(scenario_node, load_c, 0, 500, 0), KEY(scenario_node, limit_c, 30, 130, 90),
      KEY(scenario_node, tau_s, 10, 10000, 60)}},
    {"instance",
     sizeof(struct scenario_instance),
     SCENARIO_INSTANCES,
     LIST(instances),
     {KEY(scenario_instance, layers, 1, 1024, 16),
      KEY(scenario_instance, layer_mib, 1, 1 << 20, 256),
      KEY(scenario_instance, idle_ms, 0, HOURS, 0)}},
    {"stream",
     sizeof(struct scenario_stream),
     SCENARIO_STREAMS,
     LIST(streams),
     {KEY(scenario_stream, node, 0, SCENARIO_NODES - 1, 0),
      KEY(scenario_stream, instance, 0, SCENARIO_INSTANCES, 0),
      KEY(scenario_stream, start_ms, 0, HOURS, 0), KEY(scenario_stream, pause_ms, 0, HOURS, 1000),
      KEY(scenario_stream, requests, 1, 1000000, 1), KEY(scenario_stream, prompt, 1, 4096, 16),
      KEY(scenario_stream, tokens, 1, 65536, 100)}},
    {"fault",
     sizeof(struct scenario_fault),
     SCENARIO_FAULTS,
     LIST(faults),
     {KEY(scenario_fault, at_ms, 0, HOURS, 0), KEY(scenario_fault, for_ms, 1, HOURS, 5000),
      KEY(scenario_fault, kind, 0, FAULT_TYPES - 1, 0),
      KEY(scenario_fault, node, 0, SCENARIO_NODES - 1, 0),
      KEY(scenario_fault, other, 0, SCENARIO_NODES - 1, 0),
      KEY(scenario_fault, amount, 0, UINT64_MAX, 0)}},
};
enum { SECTIONS = sizeof sections / sizeof *sections };

static const struct key kind_key = KEY(scenario_fault, kind, 0, FAULT_TYPES - 1, 0);

static uint64_t *field(void *record, const struct key *key)
{
    return (uint64_t *)(void *)((char *)record + key->offset);
}

static void fill_missing(const struct section *section, void *record)
{
    for (const struct key *key = section->keys; key < section->keys + KEYS_MAX && key->name; key++)
        *field(record, key) = key->missing;
}

/* ---- reading ---- */

struct scenario_reader {
    struct scenario *out;
    const struct section *section;
    void *record;
    uint32_t line;
};

static uint32_t *count_of(struct scenario *s, const struct section *section)
{
    return (uint32_t *)(void *)((char *)s + section->count);
}

static enum error_code begin_section(struct scenario_reader *r, const char *name, struct error *err)
{
    r->section = NULL;
    for (int i = 0; i < SECTIONS && !r->section; i++) {
        if (strcmp(sections[i].name, name) == 0)
            r->section = &sections[i];
    }
    if (!r->section)
        return error_set(err, ERROR_INVALID, "line %u: there is no section [%s]", r->line, name);
    r->record = r->out;
    if (!r->section->most)
        return ERROR_NONE;
    uint32_t *n = count_of(r->out, r->section);
    if (*n == r->section->most)
        return error_set(err, ERROR_INVALID, "line %u: more than %u of [%s]", r->line,
                         r->section->most, name);
    void *list;
    memcpy(&list, (char *)r->out + r->section->list, sizeof list);
    void *grown = mem_resize(list, *n + 1, r->section->size);
    if (!grown)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for a scenario");
    memcpy((char *)r->out + r->section->list, &grown, sizeof grown);
    r->record = (char *)grown + (*n)++ * r->section->size;
    fill_missing(r->section, r->record);
    return ERROR_NONE;
}

static bool parse_value(const struct section *section, const struct key *key, const char *text,
                        uint64_t *out)
{
    if (key->offset == kind_key.offset && strcmp(section->name, "fault") == 0) {
        for (int i = 0; i < FAULT_TYPES; i++) {
            if (strcmp(text, scenario_fault_name((enum scenario_fault_type)i)) == 0) {
                *out = (uint64_t)i;
                return true;
            }
        }
        return false;
    }
    uint64_t value = 0;
    for (const char *at = text; *at; at++) {
        if (*at < '0' || *at > '9' || value > (UINT64_MAX - (uint64_t)(*at - '0')) / 10)
            return false;
        value = 10 * value + (uint64_t)(*at - '0');
    }
    *out = value;
    return text[0] && value >= key->low && value <= key->high;
}

static const char *key_name(const struct key *key)
{
    const char *dot = strrchr(key->name, '.');
    return dot ? dot + 1 : key->name;
}

static enum error_code scenario_set(struct scenario_reader *r, const char *name, const char *value,
                                    struct error *err)
{
    if (!r->section)
        return error_set(err, ERROR_INVALID, "line %u: no section begins before it", r->line);
    for (const struct key *key = r->section->keys; key < r->section->keys + KEYS_MAX && key->name;
         key++) {
        if (strcmp(key_name(key), name) != 0)
            continue;
        if (parse_value(r->section, key, value, field(r->record, key)))
            return ERROR_NONE;
        return error_set(err, ERROR_INVALID, "line %u: %s cannot be '%.40s'", r->line, name, value);
    }
    return error_set(err, ERROR_INVALID, "line %u: [%s] has no key '%.40s'", r->line,
                     r->section->name, name);
}

static char *trim(char *text)
{
    text += strspn(text, " \t\r");
    size_t n = strlen(text);
    while (n && strchr(" \t\r", text[n - 1]))
        text[--n] = 0;
    return text;
}

static enum error_code read_line(struct scenario_reader *r, char *line, struct error *err)
{
    line[strcspn(line, "#;")] = 0;
    line = trim(line);
    if (!line[0])
        return ERROR_NONE;
    const size_t n = strlen(line);
    if (line[0] == '[' && line[n - 1] == ']') {
        line[n - 1] = 0;
        return begin_section(r, trim(line + 1), err);
    }
    char *equals = strchr(line, '=');
    if (!equals)
        return error_set(err, ERROR_INVALID, "line %u: neither [section] nor key = value", r->line);
    *equals = 0;
    return scenario_set(r, trim(line), trim(equals + 1), err);
}

enum error_code scenario_parse(const char *text, size_t size, struct scenario *out,
                               struct error *err)
{
    *out = (struct scenario){0};
    struct scenario_reader r = {.out = out};
    fill_missing(&sections[0], out);
    fill_missing(&sections[1], out);
    if (size > SCENARIO_FILE_BYTES || memchr(text, 0, size))
        return error_set(err, ERROR_INVALID, "the file is too large, or not text");
    char *copy = mem_copy_text(text, size);
    enum error_code code =
        copy ? ERROR_NONE : error_set(err, ERROR_NO_MEMORY, "not enough memory for a scenario");
    for (char *line = copy, *end; !code && line; line = end) {
        end = strchr(line, '\n');
        if (end)
            *end++ = 0;
        r.line++;
        code = read_line(&r, line, err);
    }
    mem_free(copy);
    if (!code)
        code = scenario_check(out, err);
    if (code)
        scenario_deinit(out);
    return code;
}

/* ---- writing ---- */

static void write_record(const struct section *section, void *record, struct buffer *out)
{
    assert(record);
    buffer_printf(out, "[%s]\n", section->name);
    for (const struct key *key = section->keys; key < section->keys + KEYS_MAX && key->name;
         key++) {
        const uint64_t value = *field(record, key);
        if (key->offset == kind_key.offset && strcmp(section->name, "fault") == 0)
            buffer_printf(out, "kind = %s\n", scenario_fault_name((enum scenario_fault_type)value));
        else if (value != key->missing)
            buffer_printf(out, "%s = %llu\n", key_name(key), (unsigned long long)value);
    }
}

void scenario_write(const struct scenario *s, struct buffer *out)
{
    for (int i = 0; i < SECTIONS; i++) {
        const struct section *section = &sections[i];
        struct scenario *from = (struct scenario *)(uintptr_t)s;
        if (!section->most) {
            write_record(section, from, out);
            continue;
        }
        char *list;
        memcpy(&list, (const char *)s + section->list, sizeof list);
        for (uint32_t k = 0; k < *count_of(from, section); k++)
            write_record(section, list + k * section->size, out);
    }
}
