#include "node/wish.h"

#include "cluster/state.h"
#include "model/model_precision.h"
#include "pipeline/driver.h"
#include "placement/problem.h"
#include "plan/plan_model.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Stages that are chosen by hand are loaded whole. */
static void wish_of_weights(const struct place_demand *wanted, Cluster__Demand *out)
{
    if (wanted->weights_bytes || wanted->is_by_hand) {
        out->has_weights_bytes = wanted->weights_bytes > 0;
        out->weights_bytes = wanted->weights_bytes;
    }
    if (wanted->precision_allowed) {
        out->has_precision_allowed = true;
        out->precision_allowed = wanted->precision_allowed;
    }
    if (wanted->precision) {
        out->has_precision = true;
        out->precision = wanted->precision;
    }
}

static void wish_of_search(const struct place_demand *wanted, Cluster__Demand *out)
{
    if (wanted->has_score)
        out->score_weights = (Cluster__ScoreWeights *)(uintptr_t)&wanted->score;
    if (wanted->has_rope)
        out->rope = (Cluster__Rope *)(uintptr_t)&wanted->rope;
    if (wanted->time_limit_s) {
        out->has_time_limit_s = true;
        out->time_limit_s = wanted->time_limit_s;
    }
}

void wish_of(const struct place_demand *wanted, const Cluster__Instance *before,
             Cluster__Demand *out)
{
    cluster__demand__init(out);
    if (before && before->wished)
        *out = *before->wished;
    if (wanted && wanted->context) {
        out->has_context_tokens = true;
        out->context_tokens = wanted->context;
    }
    if (wanted && wanted->streams) {
        out->has_streams = true;
        out->streams = wanted->streams;
    }
    if (wanted && wanted->has_goal) {
        out->has_goal = true;
        out->goal = wanted->goal;
    }
    if (wanted && wanted->has_kv_type) {
        out->has_kv_type = true;
        out->kv_type = wanted->kv_type;
    }
    if (wanted && wanted->cells) {
        out->has_cells = true;
        out->cells = wanted->cells;
    }
    if (wanted && wanted->has_speculate) {
        out->has_speculate = true;
        out->speculate = wanted->speculate;
    }
    if (wanted && wanted->draft[0])
        out->draft = (char *)(uintptr_t)wanted->draft;
    if (wanted && wanted->draft_device[0])
        out->draft_device = (char *)(uintptr_t)wanted->draft_device;
    if (wanted)
        wish_of_search(wanted, out);
    if (wanted)
        wish_of_weights(wanted, out);
}

bool wish_is_sound(const Cluster__Demand *wish)
{
    return !wish->weights_bytes || !wish->precision || !wish->precision_allowed;
}

uint64_t wish_idle_ms(const struct place_demand *wanted, const Cluster__Instance *before)
{
    const bool keeps = !wanted->has_idle && before && before->wished;
    return keeps ? before->idle_ms : wanted->idle_ms;
}

/* ---- words ----------------------------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static void wish_say(char out[static WISH_TEXT],
                                                           const char *format, ...)
{
    const size_t used = strlen(out);
    va_list arguments;
    if (used)
        snprintf(out + used, WISH_TEXT - used, ", ");
    va_start(arguments, format);
    vsnprintf(out + strlen(out), WISH_TEXT - strlen(out), format, arguments);
    va_end(arguments);
}

static void wish_say_rope(const Cluster__Demand *wished, char out[static WISH_TEXT])
{
    const struct rope_stretch rope = state_rope(wished);
    if (rope.type)
        wish_say(out, "--rope-scaling %s", rope_choice_name(rope.type));
    if (rope.factor != 0)
        wish_say(out, "--rope-scale %g", (double)rope.factor);
    if (rope.base != 0)
        wish_say(out, "--rope-freq-base %g", (double)rope.base);
    if (rope.n_original)
        wish_say(out, "--yarn-orig-ctx %u", rope.n_original);
}

void wish_kept_text(const struct place_demand *wanted, const Cluster__Instance *before,
                    char out[static WISH_TEXT])
{
    const Cluster__Demand *wished = before ? before->wished : NULL;
    out[0] = '\0';
    if (!wished)
        return;
    if (wished->context_tokens && !wanted->context)
        wish_say(out, "--context %u", wished->context_tokens);
    if (wished->streams && !wanted->streams)
        wish_say(out, "--streams %u", wished->streams);
    if (wished->has_goal && wished->goal <= PLACEMENT_MIX && !wanted->has_goal)
        wish_say(out, "--goal %s", placement_goal_name((enum placement_goal)wished->goal));
    if (wished->has_kv_type && wished->kv_type < KV_TYPES && !wanted->has_kv_type)
        wish_say(out, "--kv %s", plan_kv_type((enum kv_type)wished->kv_type).name);
    if (wished->has_speculate && wished->speculate < SPECULATE_ALWAYS && !wanted->has_speculate)
        wish_say(out, "--speculate %s", speculate_name((enum speculate)wished->speculate));
    if (wished->draft && !wanted->draft[0])
        wish_say(out, "--draft '%.100s'", wished->draft);
    if (wished->draft_device && !wanted->draft_device[0])
        wish_say(out, "--draft-device %.64s", wished->draft_device);
    if (wished->cells && !wanted->cells)
        wish_say(out, "--cells %u", wished->cells);
    if (wished->precision && !wanted->precision)
        wish_say(out, "--precision %s", model_precision_name((int)wished->precision));
    if (wished->precision_allowed && !wanted->precision_allowed)
        wish_say(out, "--allow-precision %s", model_precision_name((int)wished->precision_allowed));
    if (wished->weights_bytes && !wanted->weights_bytes && !wanted->is_by_hand)
        wish_say(out, "--weights-memory %llu", (unsigned long long)wished->weights_bytes);
    if (wished->score_weights && !wanted->has_score)
        wish_say(out, "--score-weights");
    if (wished->time_limit_s && !wanted->time_limit_s)
        wish_say(out, "--time-limit %u", wished->time_limit_s);
    if (wished->rope && !wanted->has_rope)
        wish_say_rope(wished, out);
    if (before->idle_ms && !wanted->has_idle)
        wish_say(out, "--idle %llu", (unsigned long long)before->idle_ms / 1000);
}
