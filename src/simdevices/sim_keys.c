#include "simdevices/sim_keys.h"

#include "simdevices/sim_presets.h"

#include <stdio.h>
#include <string.h>

/* ---- keys that are one number -------------------------------------------------------------- */

struct number_key {
    const char *name;
    size_t offset; /* of a double in struct sim_spec */
    enum sim_unit unit;
    struct sim_range range;
};

#define AT(field) offsetof(struct sim_spec, field)

/* The least memory is what verification needs. The slowest copy verifies in half a second. */
static const struct number_key numbers[] = {
    {"memory", AT(memory_bytes), SIM_BYTES, {0x1p22, 0x1p50, "4MiB to 1024TiB"}},
    {"decode", AT(decode_bytes_per_s), SIM_BYTES_PER_S, {1e6, 1e15, "1MB/s to 1000TB/s"}},
    {"flops", AT(flops_per_s), SIM_FLOPS, {1e6, 1e18, "1MFLOP/s to 1000PFLOP/s"}},
    {"copy", AT(copy_bytes_per_s), SIM_BYTES_PER_S, {1e7, 1e15, "10MB/s to 1000TB/s"}},
    {"launch", AT(launch_s), SIM_SECONDS, {0, 10, "0s to 10s"}},
    {"clock", AT(clock_mhz), SIM_MHZ, {1, 1e5, "1MHz to 100GHz"}},
    {"power_idle", AT(heat.power_idle_w), SIM_WATTS, {0, 1e5, "0W to 100kW"}},
    {"power_max", AT(heat.power_max_w), SIM_WATTS, {1e-3, 1e5, "1mW to 100kW"}},
    {"thermal_mass",
     AT(heat.thermal_mass_j_per_k),
     SIM_JOULES_PER_K,
     {0.1, 1e7, "0.1J/K to 10000000J/K"}},
    {"thermal_resistance",
     AT(heat.resistance_k_per_w),
     SIM_KELVIN_PER_W,
     {1e-3, 1e3, "0.001K/W to 1000K/W"}},
    {"ambient", AT(heat.ambient_c), SIM_CELSIUS, {-50, 100, "-50C to 100C"}},
    {"limit", AT(heat.limit_c), SIM_CELSIUS, {0, 200, "0C to 200C"}},
    {"hysteresis", AT(heat.hysteresis_k), SIM_KELVIN, {0.1, 100, "0.1K to 100K"}},
    {"throttle", AT(heat.throttled_clock), SIM_SHARE, {0.01, 1, "1% to 100%"}},
};
enum {
    NUMBERS = sizeof numbers / sizeof *numbers,
    KEY_PRESET = NUMBERS,
    KEY_NAME,
    KEY_FAIL,
    KEY_SPEED,
    KEY_CANNOT,
    KEY_OTHERS,
    KEYS
};

static double *field_of(struct sim_spec *spec, int index)
{
    return (double *)(void *)((char *)spec + numbers[index].offset);
}

/* ---- the failure script --------------------------------------------------------------------- */

/* WORDS NUMBER: how each failure is written. */
static const struct failure_words {
    const char *before, *after;
    enum sim_failure_kind kind;
    bool counts;
    enum sim_unit unit;
    struct sim_range range;
} failures[] = {
    {"dies at ", "", SIM_DIES, false, SIM_SECONDS, {0, 2.6e6, "0s to 700h"}},
    {"hangs at ", "", SIM_HANGS, false, SIM_SECONDS, {0, 2.6e6, "0s to 700h"}},
    {"allocation after ", "", SIM_REFUSES, false, SIM_BYTES, {0, 0x1p50, "0B to 1024TiB"}},
    {"garbage after ", " batches", SIM_LIES, true, SIM_BYTES, {0, 1e12, "0 to 1000000000000"}},
};
enum { FAILURES = sizeof failures / sizeof *failures };

static bool sim_keys_matches(struct sim_text text, const struct failure_words *words)
{
    size_t before = strlen(words->before), after = strlen(words->after);
    return text.size > before + after && memcmp(text.at, words->before, before) == 0 &&
           memcmp(text.at + text.size - after, words->after, after) == 0;
}

static enum error_code add_failure(struct sim_spec *spec, struct sim_text text, struct error *err)
{
    for (int i = 0; i < FAILURES; i++) {
        const struct failure_words *words = &failures[i];
        if (!sim_keys_matches(text, words))
            continue;
        for (uint32_t j = 0; j < spec->n_failures; j++) {
            if (spec->failures[j].kind == words->kind)
                return error_set(err, ERROR_INVALID, "fail: '%s' appears twice", words->before);
        }
        text.at += strlen(words->before);
        text.size -= strlen(words->before) + strlen(words->after);
        struct sim_failure *failure = &spec->failures[spec->n_failures++];
        failure->kind = words->kind;
        return words->counts
                   ? sim_count_parse("fail", text, words->range, &failure->at, err)
                   : sim_value_parse("fail", text, words->unit, words->range, &failure->at, err);
    }
    return error_set(err, ERROR_INVALID,
                     "fail: '%s' is not one of: dies at 30s, hangs at 30s, allocation after 4GiB, "
                     "garbage after 100 batches",
                     sim_text_show(text).text);
}

static enum error_code set_failures(struct sim_spec *spec, struct sim_text value, struct error *err)
{
    for (;;) {
        const char *comma = value.size ? memchr(value.at, ',', value.size) : NULL;
        size_t length = comma ? (size_t)(comma - value.at) : value.size;
        if (add_failure(spec, sim_text_trim((struct sim_text){value.at, length}), err))
            return ERROR_INVALID;
        if (!comma)
            return ERROR_NONE;
        value.at += length + 1;
        value.size -= length + 1;
    }
}

/* ---- one line ------------------------------------------------------------------------------- */

static enum error_code set_preset(struct sim_section *section, struct sim_text value,
                                  struct error *err)
{
    snprintf(section->preset, sizeof section->preset, "%.*s",
             (int)(value.size < 24 ? value.size : 24), value.at);
    struct sim_spec unused;
    if (value.size < sizeof section->preset && sim_preset_fill(section->preset, &unused))
        return ERROR_NONE;
    char names[256];
    sim_preset_names(names, sizeof names);
    return error_set(err, ERROR_INVALID, "there is no preset '%s'; there are: %s",
                     sim_text_show(value).text, names);
}

static enum error_code sim_keys_set_name(struct sim_spec *spec, struct sim_text value,
                                         struct error *err)
{
    if (!value.size || value.size >= sizeof spec->title)
        return error_set(err, ERROR_INVALID, "name: it must have 1 to %zu characters",
                         sizeof spec->title - 1);
    for (size_t i = 0; i < value.size; i++) {
        if (value.at[i] < ' ' || value.at[i] > '~')
            return error_set(err, ERROR_INVALID, "name: '%s' is not plain ASCII",
                             sim_text_show(value).text);
    }
    memcpy(spec->title, value.at, value.size);
    spec->title[value.size] = '\0';
    return ERROR_NONE;
}

static enum error_code sim_keys_set_speed(struct sim_spec *spec, struct sim_text value,
                                          struct error *err)
{
    spec->is_measured = sim_text_is(value, "measured");
    return spec->is_measured || sim_text_is(value, "given")
               ? ERROR_NONE
               : error_set(err, ERROR_INVALID, "speed: '%s' is not one of: given, measured",
                           sim_text_show(value).text);
}

static enum error_code sim_keys_set_cannot(struct sim_spec *spec, struct sim_text value,
                                           struct error *err)
{
    static const char fine[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_,";
    if (!value.size || value.size >= sizeof spec->cannot)
        return error_set(err, ERROR_INVALID, "cannot: it must have 1 to %zu characters",
                         sizeof spec->cannot - 1);
    memcpy(spec->cannot, value.at, value.size);
    spec->cannot[value.size] = '\0';
    return strspn(spec->cannot, fine) == value.size
               ? ERROR_NONE
               : error_set(err, ERROR_INVALID,
                           "cannot: '%s' is no list of types such as q4_K,mxfp4", spec->cannot);
}

/* BYTES at SECONDS */
static enum error_code sim_keys_add_others(struct sim_spec *spec, struct sim_text text,
                                           struct error *err)
{
    static const char at[] = " at ";
    static const struct sim_range bytes = {0, 0x1p50, "0B to 1024TiB"},
                                  seconds = {0, 2.6e6, "0s to 700h"};
    const char *found = text.size ? memmem(text.at, text.size, at, sizeof at - 1) : NULL;
    if (!found || spec->n_others == SIM_OTHERS_MAX)
        return error_set(err, ERROR_INVALID,
                         "others: '%s' is not like 600MiB at 3s, or there are more than %d",
                         sim_text_show(text).text, SIM_OTHERS_MAX);
    struct sim_others *others = &spec->others[spec->n_others];
    const size_t length = (size_t)(found - text.at), end = length + sizeof at - 1;
    enum error_code code = sim_value_parse("others", (struct sim_text){text.at, length}, SIM_BYTES,
                                           bytes, &others->bytes, err);
    if (!code)
        code = sim_value_parse("others", (struct sim_text){text.at + end, text.size - end},
                               SIM_SECONDS, seconds, &others->at_s, err);
    if (!code && spec->n_others && others->at_s < others[-1].at_s)
        code = error_set(err, ERROR_INVALID, "others: %g s comes after %g s", others->at_s,
                         others[-1].at_s);
    spec->n_others += !code;
    return code;
}

static enum error_code sim_keys_set_others(struct sim_spec *spec, struct sim_text value,
                                           struct error *err)
{
    for (;;) {
        const char *comma = value.size ? memchr(value.at, ',', value.size) : NULL;
        const size_t length = comma ? (size_t)(comma - value.at) : value.size;
        if (sim_keys_add_others(spec, sim_text_trim((struct sim_text){value.at, length}), err))
            return ERROR_INVALID;
        if (!comma)
            return ERROR_NONE;
        value.at += length + 1;
        value.size -= length + 1;
    }
}

static int find_key(struct sim_text key)
{
    for (int i = 0; i < NUMBERS; i++) {
        if (sim_text_is(key, numbers[i].name))
            return i;
    }
    if (sim_text_is(key, "preset"))
        return KEY_PRESET;
    if (sim_text_is(key, "name"))
        return KEY_NAME;
    if (sim_text_is(key, "speed"))
        return KEY_SPEED;
    if (sim_text_is(key, "cannot"))
        return KEY_CANNOT;
    if (sim_text_is(key, "others"))
        return KEY_OTHERS;
    return sim_text_is(key, "fail") ? KEY_FAIL : KEYS;
}

static void list_keys(char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "preset, name, fail, speed, cannot, others");
    for (int i = 0; i < NUMBERS && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, ", %s", numbers[i].name);
}

enum error_code sim_section_set(struct sim_section *section, struct sim_text key,
                                struct sim_text value, struct error *err)
{
    int index = find_key(key);
    if (index == KEYS) {
        char keys[256];
        list_keys(keys, sizeof keys);
        return error_set(err, ERROR_INVALID, "there is no key '%s'; there are: %s",
                         sim_text_show(key).text, keys);
    }
    if (section->set & (1u << index))
        return error_set(err, ERROR_INVALID, "%s is set twice", sim_text_show(key).text);
    section->set |= 1u << index;
    if (index == KEY_PRESET)
        return set_preset(section, value, err);
    if (index == KEY_NAME)
        return sim_keys_set_name(&section->spec, value, err);
    if (index == KEY_FAIL)
        return set_failures(&section->spec, value, err);
    if (index == KEY_SPEED)
        return sim_keys_set_speed(&section->spec, value, err);
    if (index == KEY_OTHERS)
        return sim_keys_set_others(&section->spec, value, err);
    if (index == KEY_CANNOT)
        return sim_keys_set_cannot(&section->spec, value, err);
    return sim_value_parse(numbers[index].name, value, numbers[index].unit, numbers[index].range,
                           field_of(&section->spec, index), err);
}

/* ---- the whole section ---------------------------------------------------------------------- */

static bool sim_keys_is_set(const struct sim_section *section, const char *name)
{
    return section->set & (1u << find_key((struct sim_text){name, strlen(name)}));
}

/* Everything that the section does not set comes from its preset, else is a default. */
static void fill_in(struct sim_section *section)
{
    struct sim_spec base = {
        .copy_bytes_per_s = 10e9,
        .launch_s = 20e-6,
        .heat = {.ambient_c = 25, .hysteresis_k = 5, .throttled_clock = 0.6},
    };
    snprintf(base.title, sizeof base.title, "%s (simulated)", section->spec.name);
    if (section->preset[0])
        sim_preset_fill(section->preset, &base);
    for (int i = 0; i < NUMBERS; i++) {
        if (!(section->set & (1u << i)))
            *field_of(&section->spec, i) = *field_of(&base, i);
    }
    if (!sim_keys_is_set(section, "name"))
        memcpy(section->spec.title, base.title, sizeof base.title);
    section->spec.has_heat = base.has_heat;
}

/* A device without a preset has heat when it has all of these; one alone is a mistake. */
static enum error_code check_heat(struct sim_section *section, struct error *err)
{
    static const char *const needed[] = {"power_idle", "power_max", "thermal_mass",
                                         "thermal_resistance", "limit"};
    static const char *const optional[] = {"ambient", "hysteresis", "throttle"};
    const char *given = NULL, *missing = NULL;
    for (int i = 0; i < 5; i++) {
        if (sim_keys_is_set(section, needed[i]))
            given = needed[i];
        else
            missing = missing ? missing : needed[i];
    }
    for (int i = 0; i < 3; i++)
        given = sim_keys_is_set(section, optional[i]) ? optional[i] : given;
    if (!section->spec.has_heat && given && missing)
        return error_set(err, ERROR_INVALID,
                         "%s is set and %s is not: the model of its heat needs both", given,
                         missing);
    section->spec.has_heat = section->spec.has_heat || given;
    const struct plant_params *heat = &section->spec.heat;
    if (!section->spec.has_heat)
        return ERROR_NONE;
    if (heat->power_max_w < heat->power_idle_w)
        return error_set(err, ERROR_INVALID, "power_max is below power_idle");
    double rest_c = heat->ambient_c + heat->power_idle_w * heat->resistance_k_per_w;
    if (rest_c >= heat->limit_c - heat->hysteresis_k)
        return error_set(
            err, ERROR_INVALID,
            "idle it settles at %.1f C: it would never cool below limit - hysteresis (%.1f C)",
            rest_c, heat->limit_c - heat->hysteresis_k);
    return ERROR_NONE;
}

enum error_code sim_section_finish(struct sim_section *section, struct error *err)
{
    static const char *const needed[] = {"memory", "decode", "flops"};
    for (int i = 0; i < 3 && !section->preset[0]; i++) {
        if (!sim_keys_is_set(section, needed[i]))
            return error_set(err, ERROR_INVALID, "%s is missing; set it, or a preset", needed[i]);
    }
    fill_in(section);
    return check_heat(section, err);
}
