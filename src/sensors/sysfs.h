/* Reading small files of the kernel, none of which is trusted.
 *
 * A file is opened without blocking and must be a regular one (a pipe or a device in its place is
 * refused), and no more than LIMIT_SENSOR_FILE_BYTES of it are looked at. Nothing is kept open, so
 * that a device may be unplugged between two reads. Any thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The folder in which /sys and /proc are; "" for the machine's own. Not ending in "/". */
struct sysfs {
    char root[256];
};

enum sysfs_result {
    SYSFS_OK,
    SYSFS_MISSING,    /* no such file */
    SYSFS_DENIED,     /* no permission */
    SYSFS_UNREADABLE, /* not a regular file, or the driver does not answer */
    SYSFS_NONSENSE,   /* read, but not what was expected */
};

/* A path below the root: "sys/class/hwmon/%s/name". */
#define SYSFS_FORMAT __attribute__((format(printf, 4, 5)))

/* The file's text without white space at its end. `size` > 0; what does not fit is cut off. */
enum sysfs_result sysfs_text(const struct sysfs *fs, char *text, size_t size, const char *format,
                             ...) SYSFS_FORMAT;

/* The file's one decimal number. Negative, signed, empty, with other characters, above `max`:
 * nonsense. */
enum sysfs_result sysfs_u64(const struct sysfs *fs, uint64_t *number, uint64_t max,
                            const char *format, ...) SYSFS_FORMAT;

/* Does the path exist, whatever it is? */
bool sysfs_exists(const struct sysfs *fs, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Names in a folder that begin with `prefix`, in natural order (hwmon2 before hwmon10). Longer
 * names than fit are skipped; entries beyond `max` are not seen. */
enum { SYSFS_NAME_BYTES = 48 };
uint32_t sysfs_list(const struct sysfs *fs, const char *folder, const char *prefix,
                    char names[][SYSFS_NAME_BYTES], uint32_t max);

/* The whole of `text` as a decimal number of at most `max`. Pure. */
bool sysfs_parse_u64(const char *text, uint64_t max, uint64_t *number);

/* A number such as "1.53" at the beginning of `text`, at most 15 digits; where it ends, or NULL
 * when there is none. Not strtod(), whose point depends on the locale and which takes "inf" and
 * hexadecimal. Pure. */
const char *sysfs_parse_decimal(const char *text, double *number);
