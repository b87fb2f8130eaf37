#include "cli/stages.h"

#include <inttypes.h>
#include <string.h>

static void say_layers(uint64_t first, uint64_t n, struct buffer *out)
{
    if (n == 1)
        buffer_printf(out, " layer %" PRIu64, first);
    else if (n)
        buffer_printf(out, " layers %" PRIu64 "-%" PRIu64, first, first + n - 1);
}

/* Layers that are read from the node's disk for every batch. */
static void say_streamed(struct answer *answer, yyjson_val *stage, struct buffer *out)
{
    uint64_t n;
    if (answer_count_if(answer, stage, "n_streamed", &n) && n)
        buffer_printf(out, ", %" PRIu64 " of them from its disk", n);
}

static void say_state(struct answer *answer, yyjson_val *stage, struct buffer *out)
{
    const char *state = answer_text(answer, stage, "state"),
               *problem = answer_text_if(answer, stage, "problem");
    if (strcmp(state, "ready") != 0 || problem) {
        buffer_text(out, " (");
        answer_clean(out, state);
        if (problem) {
            buffer_text(out, ": ");
            answer_clean(out, problem);
        }
        buffer_text(out, ")");
    }
}

/* How far it has gone down the ladder (docs/offload.md). */
static void stage_say_memory(struct answer *answer, yyjson_val *stage, struct buffer *out)
{
    uint64_t step;
    const char *given = answer_text_if(answer, stage, "memory_given");
    if (!answer_count_if(answer, stage, "memory_step", &step) || !step || !given)
        return;
    buffer_printf(out, " [short of memory, step %" PRIu64 ": ", step);
    answer_clean(out, given);
    buffer_text(out, "]");
}

void stages_text(struct answer *answer, yyjson_val *stages, bool with_states, struct buffer *out)
{
    yyjson_val *stage;
    size_t i, n;
    yyjson_arr_foreach(stages, i, n, stage)
    {
        buffer_text(out, i ? ", " : "");
        answer_clean(out, answer_text(answer, stage, "node"));
        buffer_text(out, " ");
        answer_clean(out, answer_text(answer, stage, "device"));
        say_layers(answer_count(answer, stage, "first_layer"),
                   answer_count(answer, stage, "n_layers"), out);
        say_streamed(answer, stage, out);
        if (with_states)
            say_state(answer, stage, out);
        stage_say_memory(answer, stage, out);
    }
}

void stages_say_precision(struct answer *answer, yyjson_val *instance, struct buffer *out)
{
    const char *precision = answer_text_if(answer, instance, "precision");
    if (!precision)
        return;
    buffer_text(out, out->size ? ", weights as " : "weights as ");
    answer_clean(out, precision);
}
