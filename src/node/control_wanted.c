/* What is wanted of an instance, as `place` and `plan` say it. */
#include "node/control.h"

#include "base/amount.h"
#include "model/weight_type.h"
#include "node/wish.h"
#include "pipeline/driver.h"
#include "placement/score.h"
#include "plan/plan_model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { IDLE_S_MAX = 10 * 365 * 86400 };

static bool control_wanted_take_goal(yyjson_val *request, struct place_demand *wanted,
                                     struct error *err)
{
    const char *goal = control_text(request, "goal");
    wanted->has_goal = goal != NULL;
    for (int i = PLACEMENT_LATENCY; goal && i <= PLACEMENT_MIX; i++) {
        if (strcmp(goal, placement_goal_name((enum placement_goal)i)) == 0) {
            wanted->goal = (uint32_t)i;
            return true;
        }
    }
    return !goal || !error_set(err, ERROR_INVALID,
                               "the goal must be latency, throughput or mix, not '%s'", goal);
}

static bool control_wanted_take_kv(yyjson_val *request, struct place_demand *wanted,
                                   struct error *err)
{
    const char *name = control_text(request, "kv");
    enum kv_type type = KV_F16;
    const bool ok = !name || plan_kv_type_find(name, &type, err) == ERROR_NONE;
    wanted->has_kv_type = name != NULL;
    wanted->kv_type = type;
    return ok;
}

static bool control_wanted_take_speculate(yyjson_val *request, struct place_demand *wanted,
                                          struct error *err)
{
    const char *name = control_text(request, "speculate");
    enum speculate how = SPECULATE_LOOKUP;
    const bool ok = !name || speculate_find(name, &how);
    wanted->has_speculate = name != NULL;
    wanted->speculate = how;
    return ok || !error_set(err, ERROR_INVALID, "`speculate` is lookup or off, not '%s'", name);
}

static bool control_wanted_take_draft(yyjson_val *request, struct place_demand *wanted,
                                      struct error *err)
{
    const char *name = control_text(request, "draft"),
               *device = control_text(request, "draft_device");
    if (name && strlen(name) >= sizeof wanted->draft)
        return !error_set(err, ERROR_INVALID, "`draft` is the name of a model");
    if (device && (!*device || strlen(device) >= sizeof wanted->draft_device))
        return !error_set(err, ERROR_INVALID, "`draft_device` is the id of a device");
    if (name && wanted->has_speculate && wanted->speculate == SPECULATE_OFF)
        return !error_set(err, ERROR_INVALID,
                          "nothing is to be guessed (`speculate` off): leave out `draft`");
    snprintf(wanted->draft, sizeof wanted->draft, "%s", name ? name : "");
    snprintf(wanted->draft_device, sizeof wanted->draft_device, "%s", device ? device : "");
    return true;
}

bool control_weight_type(yyjson_val *root, const char *key, uint32_t *type, struct error *err)
{
    const char *name = control_text(root, key);
    int found = 0;
    const bool ok = !name || weight_type_find(name, &found, err) == ERROR_NONE;
    *type = (uint32_t)found;
    return ok;
}

/* An amount with its unit, or a number of bytes. */
static bool control_wanted_take_weights(yyjson_val *request, struct place_demand *wanted,
                                        struct error *err)
{
    static const struct amount_rule rule = {.plain_bytes = 1, .min = 1, .max = PLACEMENT_BYTES_MAX};
    yyjson_val *said = yyjson_obj_get(request, "weights_memory");
    char number[32];
    if (!said || yyjson_is_null(said))
        return true;
    snprintf(number, sizeof number, "%llu", (unsigned long long)yyjson_get_uint(said));
    const char *text = yyjson_is_str(said) ? yyjson_get_str(said) : number;
    return amount_read("weights_memory", text, &rule, &wanted->weights_bytes, err) == ERROR_NONE;
}

static bool control_wanted_take_score(yyjson_val *request, struct place_demand *wanted,
                                      struct error *err)
{
    struct placement_weights weights = PLACEMENT_WEIGHTS_DEFAULT;
    const char *text = control_text(request, "score_weights");
    wanted->has_score = text != NULL;
    cluster__score_weights__init(&wanted->score);
    if (!text)
        return true;
    if (placement_weights_read(text, &weights, err))
        return false;
    const double said[] = {weights.compute, weights.memory, weights.network, weights.thermal,
                           weights.bandwidth};
    Cluster__ScoreWeights *score = &wanted->score;
    uint32_t *const out[] = {&score->compute, &score->memory, &score->network, &score->thermal,
                             &score->bandwidth};
    for (int i = 0; i < 5; i++)
        *out[i] = (uint32_t)lround(1000 * said[i]);
    score->has_compute = score->has_memory = score->has_network = true;
    score->has_thermal = score->has_bandwidth = true;
    return true;
}

static bool control_wanted_take_rope_number(yyjson_val *rope, const char *key, float *out,
                                            struct error *err)
{
    yyjson_val *said = yyjson_obj_get(rope, key);
    *out = (float)yyjson_get_num(said);
    return !said || yyjson_is_null(said) || yyjson_is_num(said) ||
           !error_set(err, ERROR_INVALID, "`rope.%s` is a number", key);
}

/* {"scaling":"yarn","scale":2,"base":…,"original_tokens":…}; an empty one is as the file says. */
static bool control_wanted_take_rope(yyjson_val *request, struct place_demand *wanted,
                                     struct error *err)
{
    yyjson_val *said = yyjson_obj_get(request, "rope");
    const char *scaling = control_text(said, "scaling");
    struct rope_stretch rope = {0};
    wanted->has_rope = yyjson_is_obj(said);
    if (!said || yyjson_is_null(said))
        return true;
    if (!wanted->has_rope)
        return !error_set(err, ERROR_INVALID, "`rope` is an object");
    if ((scaling && rope_choice_find(scaling, &rope.type, err)) ||
        !control_wanted_take_rope_number(said, "scale", &rope.factor, err) ||
        !control_wanted_take_rope_number(said, "base", &rope.base, err))
        return false;
    const uint64_t original = yyjson_get_uint(yyjson_obj_get(said, "original_tokens"));
    rope.n_original = original < UINT32_MAX ? (uint32_t)original : UINT32_MAX;
    cluster__rope__init(&wanted->rope);
    wanted->rope.has_scaling = wanted->rope.has_factor = true;
    wanted->rope.has_frequency_base = wanted->rope.has_original_tokens = true;
    wanted->rope.scaling = rope.type;
    wanted->rope.factor = rope.factor;
    wanted->rope.frequency_base = rope.base;
    wanted->rope.original_tokens = rope.n_original;
    return rope_stretch_check(&rope, err) == ERROR_NONE;
}

/* What cannot be together. */
static enum error_code control_wanted_check(const struct place_demand *wanted, struct error *err)
{
    Cluster__Demand wish;
    wish_of(wanted, NULL, &wish);
    if (!wish_is_sound(&wish))
        return error_set(err, ERROR_INVALID,
                         "weights of another type that may become smaller still are not read from "
                         "the disk: leave out `weights_memory`, `precision` or `allow_precision`");
    if (wanted->weights_bytes && wanted->is_by_hand)
        return error_set(err, ERROR_INVALID,
                         "stages that are chosen by hand are loaded whole: leave out "
                         "`weights_memory`, or `layers`");
    return ERROR_NONE;
}

bool control_take_wanted(struct conversation *conversation, yyjson_val *request,
                         struct place_demand *wanted)
{
    struct error err;
    yyjson_val *layers = yyjson_obj_get(request, "layers");
    uint64_t context, streams, cells, idle_s, limit_s;
    if (!control_number(conversation, request, "context", LIMIT_CONTEXT, 0, &context) ||
        !control_number(conversation, request, "streams", LIMIT_SEQUENCES, 0, &streams) ||
        !control_number(conversation, request, "cells", LIMIT_POOL_CELLS, 0, &cells) ||
        !control_number(conversation, request, "time_limit_s", LIMIT_PLACING_SEARCH_S, 0,
                        &limit_s) ||
        !control_number(conversation, request, "idle_s", IDLE_S_MAX, 0, &idle_s))
        return false;
    *wanted = (struct place_demand){.context = (uint32_t)context,
                                    .streams = (uint32_t)streams,
                                    .cells = (uint32_t)cells,
                                    .time_limit_s = (uint32_t)limit_s,
                                    .is_by_hand = layers && !yyjson_is_null(layers),
                                    .has_idle = yyjson_is_uint(yyjson_obj_get(request, "idle_s")),
                                    .idle_ms = idle_s * 1000};
    if (control_wanted_take_goal(request, wanted, &err) &&
        control_wanted_take_kv(request, wanted, &err) &&
        control_wanted_take_speculate(request, wanted, &err) &&
        control_wanted_take_draft(request, wanted, &err) &&
        control_weight_type(request, "precision", &wanted->precision, &err) &&
        control_weight_type(request, "allow_precision", &wanted->precision_allowed, &err) &&
        control_wanted_take_weights(request, wanted, &err) &&
        control_wanted_take_score(request, wanted, &err) &&
        control_wanted_take_rope(request, wanted, &err) && !control_wanted_check(wanted, &err))
        return true;
    control_fail(conversation, &err);
    return false;
}
