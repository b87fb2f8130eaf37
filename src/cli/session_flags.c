/* How the flags of a session are read (session.h). */
#include "cli/options.h"
#include "cli/session.h"
#include "engine/batch_shape.h"
#include "model/model_precision.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* The value's place among the words. */
static bool session_choose(const struct command *command, const struct option_row *row,
                           const char *value, const char *const words[3], unsigned *out)
{
    for (unsigned i = 0; i < 3; i++) {
        if (strcmp(words[i], value) == 0) {
            *out = i;
            return true;
        }
    }
    command_misused(command, "%s takes %s, %s or %s, not '%s'", option_name(row), words[0],
                    words[1], words[2], value);
    return false;
}

static bool session_take_kv(const struct command *command, const struct option_row *row,
                            const char *value, void *flags)
{
    struct driver_options *driver = &((struct session_flags *)flags)->driver;
    driver->kv_is_chosen = true;
    if (plan_kv_type_find(value, &driver->kv_type, NULL) == ERROR_NONE)
        return true;
    command_misused(command, "%s takes f16, f32, q8_0 or q4_0, not '%s'", option_name(row), value);
    return false;
}

static bool session_take_precision(const struct command *command, const struct option_row *row,
                                   const char *value, void *flags)
{
    return option_precision(command, option_name(row), value,
                            &((struct session_flags *)flags)->driver.precision);
}

static bool session_take_precision_allowed(const struct command *command,
                                           const struct option_row *row, const char *value,
                                           void *flags)
{
    return option_precision(command, option_name(row), value,
                            &((struct session_flags *)flags)->driver.precision_allowed);
}

static bool session_take_flash(const struct command *command, const struct option_row *row,
                               const char *value, void *flags)
{
    static const char *const words[] = {"auto", "on", "off"};
    static const enum flash_mode modes[] = {FLASH_AUTO, FLASH_ON, FLASH_OFF};
    unsigned chosen = 0;
    const bool ok = session_choose(command, row, value, words, &chosen);
    ((struct session_flags *)flags)->driver.flash = modes[chosen];
    return ok;
}

static bool session_take_speculate(const struct command *command, const struct option_row *row,
                                   const char *value, void *flags)
{
    if (speculate_find(value, &((struct session_flags *)flags)->driver.speculate))
        return true;
    command_misused(command, "%s takes lookup or off, not '%s'", option_name(row), value);
    return false;
}

static bool session_take_weights(const struct command *command, const struct option_row *row,
                                 const char *value, void *flags)
{
    struct placement_weights *weights = &((struct session_flags *)flags)->weights;
    struct error err;
    *weights = placement_options_default().weights;
    if (placement_weights_read(value, weights, &err) == ERROR_NONE)
        return true;
    command_misused(command, "%s: %s", option_name(row), err.text);
    return false;
}

static bool session_take_rope(const struct command *command, const struct option_row *row,
                              const char *value, void *flags)
{
    if (!rope_choice_find(value, &((struct session_flags *)flags)->rope.type, NULL))
        return true;
    command_misused(command, "%s takes none, linear or yarn, not '%s'", option_name(row), value);
    return false;
}

/* All but the context say on which devices, or how. */
#define WHERE .mark = offsetof(struct session_flags, says_where)

const struct option_row session_options[] = {
    {.name = "devices",
     .value = "LIST",
     .help = "on these, such as cpu,vulkan0 (see `medley devices`)",
     OPTION_TEXT(struct session_flags, devices),
     WHERE},
    {.name = "time-limit",
     .value = "S",
     .standard = "1",
     .help = "seconds to look for the fastest split (default %s); then the best that was found",
     OPTION_U32(struct session_flags, plan_limit_s, 1, 86400),
     WHERE},
    {.name = "score-weights",
     .value = "LIST",
     .help = "what counts in the order in which the search tries devices first, such as\n"
             "memory=60,compute=10 (docs/planning.md)",
     .take = session_take_weights,
     WHERE},
    {.name = "split",
     .value = "LIST",
     .help = "layers of each device, such as 10,6; with one device, stages on it\n"
             "(default: the devices and layers that generate fastest, which may leave some out)",
     OPTION_TEXT(struct session_flags, split),
     WHERE},
    {.name = "backend",
     .value = "NAME",
     .help = "only this backend and the CPU",
     OPTION_TEXT(struct session_flags, backend),
     WHERE},
    {.name = "sim",
     .value = "FILE",
     .help = "simulated devices (docs/simulated-devices.md); used alone unless --devices says else",
     OPTION_TEXT(struct session_flags, sim_file),
     WHERE},
    {.name = "threads",
     .letter = 't',
     .value = "N",
     .help = "threads of the CPU",
     OPTION_U32(struct session_flags, n_threads, 1, 1024),
     WHERE},
    {.name = "context",
     .letter = 'c',
     .value = "N",
     .help = "tokens of prompt and answer together (default: what memory allows)",
     OPTION_U32(struct session_flags, driver.context, 1, LIMIT_CONTEXT)},
    {.name = "kv",
     .value = "TYPE",
     .standard = "f16",
     .help = "type of the KV cache: %s (default), f32, q8_0 or q4_0",
     .take = session_take_kv,
     WHERE},
    {.name = "precision",
     .value = "TYPE",
     .help = "compute with weights of this type where it is smaller, such as q4_k: converted\n"
             "while they are loaded (docs/precision.md; default: as stored)",
     .take = session_take_precision,
     WHERE},
    {.name = "allow-precision",
     .value = "TYPE",
     .help = "weights may become of this type while memory is short or a device is hot\n"
             "(docs/precision.md; default: never)",
     .take = session_take_precision_allowed,
     WHERE},
    {.name = "flash",
     .value = "MODE",
     .standard = "auto",
     .help = "flash attention: %s (default), on or off",
     .take = session_take_flash,
     WHERE},
    {.name = "slots",
     .value = "N",
     .help = "sequences at once",
     OPTION_U32(struct session_flags, driver.n_slots, 1, LIMIT_SEQUENCES),
     WHERE},
    {.name = "cells",
     .value = "N",
     .help = "tokens of all sequences together, in memory that they share (default: --slots times\n"
             "the context)",
     OPTION_U32(struct session_flags, driver.cells, 1, LIMIT_POOL_CELLS),
     WHERE},
    {.name = "batch",
     .value = "N",
     .help = "rows of one micro-batch (default 512)",
     OPTION_U32(struct session_flags, driver.batch_rows, 1, LIMIT_BATCH_ROWS),
     WHERE},
    {.name = "weights-memory",
     .value = "SIZE",
     .help =
         "of each stage's weights, at most, such as 8GiB; layers beyond are read from the disk\n"
         "for every batch (docs/offload.md)",
     OPTION_BYTES(struct session_flags, driver.weights_max),
     WHERE},
    {.name = "rope-scaling",
     .value = "TYPE",
     .help = "rotate positions for a longer context than the model was trained for: none,\n"
             "linear or yarn (default: as its file says)",
     .take = session_take_rope,
     WHERE},
    {.name = "rope-scale",
     .value = "N",
     .help = "so many times as long",
     OPTION_FLOAT(struct session_flags, rope.factor),
     WHERE},
    {.name = "rope-freq-base",
     .value = "N",
     .help = "base of the rotations' frequencies",
     OPTION_FLOAT(struct session_flags, rope.base),
     WHERE},
    {.name = "yarn-orig-ctx",
     .value = "N",
     .help = "tokens that it was trained for, where its file does not say",
     OPTION_U32(struct session_flags, rope.n_original, 1, LIMIT_CONTEXT),
     WHERE},
    {.name = "speculate",
     .value = "HOW",
     .help =
         "guess tokens from the text so far and check several at once, while that pays: lookup\n"
         "(default) or off; the answer is the same (docs/speculation.md)",
     .take = session_take_speculate,
     WHERE},
    {.name = "draft",
     .value = "MODEL",
     .help = "a smaller model of the same family that guesses tokens where the text so far does\n"
             "not, while that pays; the answer is the same (docs/speculation.md)",
     OPTION_TEXT(struct session_flags, draft),
     WHERE},
    {.name = "draft-device",
     .value = "DEVICE",
     .help = "where the smaller model guesses (default: where it is fastest; `medley devices`)",
     OPTION_TEXT(struct session_flags, draft_device),
     WHERE},
    {.name = "no-governor",
     .help = "do not slow a device down before it gets too hot (bench and logits never do)",
     OPTION_TRUE(struct session_flags, no_governor),
     WHERE},
    {.name = "no-repack",
     .help = "keep the CPU's weights as they are stored: slower, for comparisons",
     OPTION_TRUE(struct session_flags, driver.no_repack),
     WHERE},
};
_Static_assert(sizeof session_options / sizeof *session_options == SESSION_OPTIONS,
               "as the header says");
