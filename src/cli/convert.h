/* What the files of `medley convert` share. */
#pragma once

#include "cli/measure.h"
#include "model/weight_choice.h"
#include "precision/output_file.h"

struct convert_flags {
    struct measure_flags measure; /* its threads convert, too */
    const char *model, *to, *by, *plan, *out;
    uint64_t fit_bytes; /* 0: not asked for */
    float kl_max;
    bool has_kl_max, pure;
};

struct convert_result {
    char path[PATH_MAX];
    uint64_t bytes, bytes_before; /* of the files */
    uint64_t weight_bytes;        /* of the new one's tensors, as --fit counts them */
    uint64_t n_tensors, n_changed;
    uint64_t n_again; /* of those changed, that were quantised before */
    bool is_measured;
    struct divergence_summary summary; /* where it is measured */
};

/* `--fit`: measures each group of tensors on the text and chooses within the budget. losses: of
 * each tensor. */
enum error_code convert_fit(const struct convert_flags *flags, const struct model *model,
                            const char *beside, struct weight_choice *choice, double *losses,
                            struct error *err);
