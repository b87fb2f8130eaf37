#include "pipeline/memory_ladder.h"

#include <assert.h>

#define MS_NS UINT64_C(1000000)
#define STALL_SHORT 0.10
#define STALL_CALM 0.01

static const uint64_t down_ns = 500 * MS_NS, up_ns = 2000 * MS_NS, calm_ns = 5000 * MS_NS,
                      forgotten_ns = 30000 * MS_NS, regrow_ns = 20000 * MS_NS;

#define STEP(rows, takes, others) .divisor = (rows), .form = MEMORY_##takes, .words = (others)

/* The words go into the log: LIMIT_CLUSTER_ID_BYTES of them. */
static const struct memory_terms steps[MEMORY_STEPS] = {
    {STEP(1, AS_PLACED, "micro-batches as long as configured")},
    {STEP(2, AS_PLACED, "micro-batches of half the rows")},
    {STEP(8, AS_PLACED, "micro-batches of an eighth of the rows")},
    {STEP(32, AS_PLACED, "micro-batches of a 32nd of the rows")},
    {STEP(32, AS_PLACED, "idle caches go to host memory, or are given back"), .gives_back = true},
    {STEP(32, SMALL_CACHES, "KV caches as q8_0; what is under way is computed again"),
     .gives_back = true},
    {STEP(32, SMALLER_CACHES, "KV caches as q4_0; what is under way is computed again"),
     .gives_back = true},
    {STEP(32, STREAMED, "weights from the disk, up to half of them"), .gives_back = true},
    {STEP(32, LOWER, "weights of the type that --allow-precision says"), .gives_back = true},
    {STEP(32, ON_CPU, "computed on the CPU"), .gives_back = true},
    {STEP(32, ON_CPU, "no new requests; those under way go on"), .gives_back = true,
     .refuses = true},
};

static bool step_is_there(const struct memory_ladder *ladder, uint32_t step)
{
    const struct memory_terms *terms = &steps[step];
    if (terms->refuses || (terms->form == MEMORY_AS_PLACED && !terms->gives_back))
        return true;
    return terms->form == MEMORY_AS_PLACED ? !ladder->lacks_caches : !ladder->lacks[terms->form];
}

/* The largest that can be; at the top all is as placed. */
static enum memory_form form_of(const struct memory_ladder *ladder, uint32_t step)
{
    uint32_t form = steps[step].form;
    while (form && ladder->lacks[form])
        form--;
    return (enum memory_form)form;
}

static bool sign_is_short(const struct memory_sign *sign)
{
    return sign->failed || sign->in_parts || (sign->has_stall && sign->stall >= STALL_SHORT) ||
           sign->free_bytes < sign->low_bytes;
}

static bool sign_is_calm(const struct memory_sign *sign)
{
    return !sign_is_short(sign) && (!sign->has_stall || sign->stall <= STALL_CALM) &&
           sign->free_bytes / 2 >= sign->low_bytes;
}

static void ladder_set(struct memory_ladder *ladder, uint32_t step, uint64_t now_ns)
{
    assert(step < MEMORY_STEPS);
    ladder->step = step;
    ladder->changed_ns = now_ns;
}

static void ladder_down(struct memory_ladder *ladder, const struct memory_sign *sign)
{
    uint32_t last = sign->failed ? MEMORY_STEPS - 1 : MEMORY_STEPS_OF_PRESSURE - 1;
    const bool waits = !sign->failed && !sign->in_parts && ladder->changed_ns &&
                       sign->now_ns - ladder->changed_ns < down_ns;
    uint32_t next = ladder->step + 1;
    while (!step_is_there(ladder, last))
        last--;
    while (next < last && !step_is_there(ladder, next))
        next++;
    if (waits || sign->is_changing)
        return;
    if (ladder->is_grown && (ladder->step >= last || form_of(ladder, next) != MEMORY_AS_PLACED)) {
        ladder->is_grown = false;
        ladder->shrunk_ns = ladder->changed_ns = sign->now_ns;
    } else if (ladder->step < last) {
        ladder_set(ladder, next, sign->now_ns);
    }
}

/* A larger form is not tried where there is no room for it. */
static bool ladder_has_room(const struct memory_ladder *ladder, uint32_t next,
                            const struct memory_sign *sign)
{
    const bool is_larger = form_of(ladder, next) != form_of(ladder, ladder->step);
    return !is_larger || !sign->more_bytes || !sign->low_bytes ||
           sign->free_bytes >= sign->more_bytes + 2 * sign->low_bytes;
}

static void ladder_grow(struct memory_ladder *ladder, const struct memory_sign *sign)
{
    const bool rests = ladder->shrunk_ns && sign->now_ns - ladder->shrunk_ns < regrow_ns;
    if (!ladder->can_grow || ladder->is_grown || rests || !sign->can_hold)
        return;
    ladder->is_grown = true;
    ladder->changed_ns = sign->now_ns;
}

static void ladder_up(struct memory_ladder *ladder, const struct memory_sign *sign)
{
    if (!ladder->calm_ns)
        ladder->calm_ns = sign->now_ns;
    if (sign->is_changing || sign->now_ns - ladder->calm_ns < calm_ns ||
        sign->now_ns - ladder->changed_ns < up_ns)
        return;
    if (!ladder->step) {
        ladder_grow(ladder, sign);
        return;
    }
    uint32_t next = ladder->step - 1;
    while (next && !step_is_there(ladder, next))
        next--;
    if (ladder_has_room(ladder, next, sign))
        ladder_set(ladder, next, sign->now_ns);
}

bool memory_ladder_look(struct memory_ladder *ladder, const struct memory_sign *sign)
{
    const uint32_t before = ladder->step;
    const bool calm = sign_is_calm(sign);
    assert(sign->now_ns >= ladder->looked_ns);
    if (calm && ladder->step && sign->now_ns - ladder->looked_ns >= forgotten_ns &&
        ladder_has_room(ladder, 0, sign))
        ladder_set(ladder, 0, sign->now_ns);
    ladder->looked_ns = sign->now_ns;
    ladder->host_is_short = sign->host_is_short;
    if (!calm)
        ladder->calm_ns = 0;
    if (sign_is_short(sign))
        ladder_down(ladder, sign);
    else if (calm)
        ladder_up(ladder, sign);
    return ladder->step != before;
}

struct memory_terms memory_ladder_terms(const struct memory_ladder *ladder)
{
    assert(ladder->step < MEMORY_STEPS);
    struct memory_terms terms = steps[ladder->step];
    terms.form = form_of(ladder, ladder->step);
    terms.step = ladder->step;
    terms.is_grown = ladder->is_grown;
    terms.drops = terms.gives_back && ladder->host_is_short;
    return terms;
}

bool memory_ladder_can_shrink(const struct memory_ladder *ladder)
{
    uint32_t form = form_of(ladder, ladder->step) + 1;
    if (ladder->is_grown)
        return true;
    while (form < MEMORY_FORMS && ladder->lacks[form])
        form++;
    return form < MEMORY_FORMS;
}

const char *memory_step_words(uint32_t step)
{
    return step < MEMORY_STEPS ? steps[step].words : "";
}
