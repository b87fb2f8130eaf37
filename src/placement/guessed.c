#include "placement/guessed.h"

#include "placement/cost.h"

#include <math.h>

struct guessed_pass {
    double all_s, slowest_s, first_s;
};

static struct guessed_pass guessed_pass_of(const struct placement_problem *problem,
                                           const struct placement *placement, uint32_t n_rows)
{
    struct guessed_pass pass = {0};
    struct placement_load load = placement_decode_load(problem);
    load.rows = n_rows;
    load.sequences = 1;
    for (uint32_t i = 0; i < placement->n_stages; i++) {
        const struct placement_stage *stage = &placement->stages[i];
        const uint32_t first = placement->stages[0].device;
        const double stage_s = placement_stage_s(problem, stage, load);
        pass.slowest_s = fmax(pass.slowest_s, stage_s);
        pass.first_s = i ? pass.first_s : stage_s;
        pass.all_s += stage_s;
        pass.all_s += i + 1 < placement->n_stages
                          ? placement_hop_s(problem, stage->device, stage[1].device, n_rows)
                          : placement_back_s(problem, stage->device, first, n_rows);
    }
    return pass;
}

static bool guessed_can_be(const struct placement_model *model)
{
    for (uint32_t i = 0; i < model->n_layers; i++) {
        if (model->layers[i].state_bytes)
            return false;
    }
    return true;
}

bool placement_guesses_gain(const struct placement_guessed *guessed)
{
    return guessed->repeating > 1.05 * guessed->without;
}

void placement_guessed(const struct placement_problem *problem, const struct placement *placement,
                       struct placement_guessed *out)
{
    static const double share = PLACEMENT_GUESSED_SHARE;
    const uint32_t n_max = guessed_can_be(&problem->model) ? PLACEMENT_GUESSED_ROWS : 1;
    *out = (struct placement_guessed){0};
    for (uint32_t n = 1; n <= n_max; n++) {
        const struct guessed_pass pass = guessed_pass_of(problem, placement, n);
        const double right = pow(share, n),
                     gap_s = fmax(pass.slowest_s, pass.all_s / PLACEMENT_GUESSED_UNDER_WAY);
        if (pass.all_s <= 0)
            return;
        double rate = (1 - right) / (1 - share) / pass.all_s;
        if (placement->n_stages > 1 && n_max > 1)
            rate = fmax(rate, 1 / (1 - share) / (pass.all_s + gap_s * right / (1 - right)));
        out->without = n == 1 ? 1 / pass.all_s : out->without;
        out->repeating = fmax(out->repeating, rate);
    }
}

/* Tokens a second with passes of n rows that wait for their guesses. */
static double drafted_rate(const struct guessed_pass *pass, const struct placement_drafter *drafter,
                           uint32_t n)
{
    static const double share = PLACEMENT_DRAFTED_SHARE;
    const double waits_s = n > 1 ? drafter->ask_s + (n - 1) * drafter->guess_s : 0;
    return (1 - pow(share, n)) / (1 - share) / (pass->all_s + waits_s);
}

/* The same where guesses are made while one of one row is computed; 0: too few are. */
static double drafted_rate_beside(const struct guessed_pass *pass, double one_s,
                                  const struct placement_drafter *drafter, uint32_t n)
{
    static const double share = PLACEMENT_DRAFTED_SHARE;
    if (!drafter->is_apart || drafter->ask_s + n * drafter->guess_s > one_s)
        return 0;
    return 1 / (1 - share) / (one_s + share * pass->all_s / (1 - pow(share, n)));
}

/* The same of trains; a pass of one row takes one_s. */
static double drafted_train_rate(const struct guessed_pass *pass, double one_s,
                                 const struct placement_drafter *drafter, uint32_t n)
{
    static const double share = PLACEMENT_DRAFTED_SHARE;
    const double guesses_s = n * drafter->guess_s + (drafter->has_own_device ? 0 : pass->first_s);
    const double gap_s =
        fmax(fmax(pass->slowest_s, pass->all_s / PLACEMENT_GUESSED_UNDER_WAY), guesses_s);
    return 1 / (1 - share) /
           (one_s + share * (drafter->ask_s + pass->all_s - one_s + gap_s / (1 - pow(share, n))));
}

void placement_drafted(const struct placement_problem *problem, const struct placement *placement,
                       const struct placement_drafter *drafter, struct placement_guessed *out)
{
    const double one_s = guessed_pass_of(problem, placement, 1).all_s;
    out->drafted = out->without;
    out->guess_s = drafter->guess_s + drafter->ask_s / PLACEMENT_DRAFTED_ASKED;
    for (uint32_t n = 1; n <= PLACEMENT_DRAFTED_ROWS && guessed_can_be(&problem->model); n++) {
        const struct guessed_pass pass = guessed_pass_of(problem, placement, n);
        if (pass.all_s <= 0)
            return;
        const double rate = placement->n_stages == 1
                                ? fmax(drafted_rate(&pass, drafter, n),
                                       drafted_rate_beside(&pass, one_s, drafter, n))
                                : drafted_train_rate(&pass, one_s, drafter, n);
        out->drafted = fmax(out->drafted, rate);
    }
}
