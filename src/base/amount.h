/* Amounts of bytes as people write them: "8GiB", "16 GB", "1.5 TiB", "900kB", "123456". Units of
 * 1024 have an i (KiB, MiB, GiB, TiB), units of 1000 have none (kB or KB, MB, GB, TB); "8gb" is
 * "8GB". Pure; the same in every locale.
 *
 *     static const struct amount_rule rule = {.plain_bytes = 1, .min = 1 << 20};
 *     uint64_t bytes;
 *     if (amount_read("--weights-memory", "8GiB", &rule, &bytes, &err)) … */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AMOUNT_BYTES_MAX (UINT64_C(1) << 53) /* up to here a double has every whole number */

struct amount_rule {      /* zeroed: any amount with a unit, but 0 */
    uint64_t plain_bytes; /* a number without a unit counts so many: 1 or 2^30; 0: refused */
    uint64_t min, max;    /* max of 0: AMOUNT_BYTES_MAX; min of 0: 1 */
    bool takes_all;       /* the word "all", which is 0 */
};

/* ERROR_INVALID names the flag and says what it takes. */
enum error_code amount_read(const char *name, const char *text, const struct amount_rule *rule,
                            uint64_t *out, struct error *err);
/* "50%" is 50: a whole number from 1 to 100, or "all" where the rule has it, which is 0. */
enum error_code amount_read_percent(const char *name, const char *text, bool takes_all,
                                    uint32_t *out, struct error *err);

/* ---- pieces, for readers of other units ---- */

struct amount_unit {
    const char *name; /* NULL ends the list */
    double factor;
};
extern const struct amount_unit amount_byte_units[];

/* Digits with at most one point, 30 at most, at the beginning of text[size]; how many bytes they
 * are. 0: no number. Not strtod(), whose point depends on the locale, and which takes "nan", "inf"
 * and hexadecimal. */
size_t amount_number(const char *text, size_t size, double *out);
