/* Numbers of the kernel's files. Pure, and the same in every locale. */
#include "sensors/sysfs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool sysfs_parse_u64(const char *text, uint64_t max, uint64_t *number)
{
    *number = 0;
    if (!text[0] || strlen(text) > 20 || strspn(text, "0123456789") != strlen(text))
        return false;
    errno = 0;
    unsigned long long value = strtoull(text, NULL, 10);
    if (errno || value > max)
        return false;
    *number = value;
    return true;
}

const char *sysfs_parse_decimal(const char *text, double *number)
{
    enum { DIGITS_MAX = 15 }; /* what a double holds exactly */
    double value = 0, scale = 1;
    int n_digits = 0;
    bool point = false;
    for (; (*text >= '0' && *text <= '9') || (*text == '.' && !point && n_digits); text++) {
        if (*text == '.') {
            point = true;
            continue;
        }
        if (++n_digits > DIGITS_MAX)
            return NULL;
        value = value * 10 + (*text - '0');
        scale *= point ? 10 : 1;
    }
    *number = value / scale;
    return n_digits ? text : NULL;
}
