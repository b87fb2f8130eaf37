/* How much work waits for memory: pressure stall information, Documentation/accounting/psi.rst of
 * the kernel. */
#include "base/mem.h"
#include "sensors/sensor_impl.h"

#include <string.h>

struct pressure {
    const struct sysfs *fs;
};

/* "some avg10=1.53 avg60=…": the line that begins with `word`, its avg10. */
static struct reading find_share(const char *text, const char *word)
{
    const char *line = strncmp(text, word, strlen(word)) == 0 ? text : strchr(text, '\n');
    if (line && line != text && strncmp(++line, word, strlen(word)) != 0)
        line = NULL;
    if (!line || strncmp(line + strlen(word), " avg10=", 7) != 0)
        return reading_failed();
    double pct;
    const char *end = sysfs_parse_decimal(line + strlen(word) + 7, &pct);
    return end && *end == ' ' ? reading_now(UNIT_SHARE, pct / 100) : reading_failed();
}

static enum error_code pressure_open(const struct sensor_context *context, void **self,
                                     struct error *err)
{
    char text[256];
    if (sysfs_text(&context->fs, text, sizeof text, "proc/pressure/memory"))
        return error_set(err, ERROR_NOT_FOUND,
                         "the kernel does not measure memory pressure: add psi=1 to its command "
                         "line and restart");
    struct pressure *pressure = mem_new(sizeof *pressure);
    if (!pressure)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    pressure->fs = &context->fs;
    *self = pressure;
    return ERROR_NONE;
}

static void pressure_read_node(void *self, struct sensor_node *out)
{
    const struct pressure *pressure = self;
    char text[256];
    sysfs_text(pressure->fs, text, sizeof text, "proc/pressure/memory");
    out->memory_stall_some_share = find_share(text, "some");
    out->memory_stall_full_share = find_share(text, "full");
}

const struct sensor_impl sensor_impl_pressure = {
    .name = "pressure", .open = pressure_open, .close = mem_free, .read_node = pressure_read_node};
