/* Reads a file of simulated devices from the disk. */
#include "base/mem.h"
#include "simdevices/sim_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum error_code sim_file_read(const char *path, struct sim_file *out, struct error *err)
{
    FILE *file = fopen(path, "rbe");
    if (!file)
        return error_set(err, errno == ENOENT ? ERROR_NOT_FOUND : ERROR_IO, "%s: %s", path,
                         strerror(errno));
    char *bytes = mem_new(LIMIT_SIM_FILE_BYTES + 1);
    if (!bytes) {
        fclose(file);
        return error_set(err, ERROR_NO_MEMORY, "%s: out of memory", path);
    }
    size_t size = fread(bytes, 1, LIMIT_SIM_FILE_BYTES + 1, file);
    enum error_code code =
        ferror(file) ? error_set(err, ERROR_IO, "%s", strerror(errno)) : ERROR_NONE;
    fclose(file);
    if (!code && size > LIMIT_SIM_FILE_BYTES)
        code =
            error_set(err, ERROR_INVALID, "the file has more than %d bytes", LIMIT_SIM_FILE_BYTES);
    if (!code)
        code = sim_file_parse(bytes, size, out, err);
    mem_free(bytes);
    if (code)
        error_wrap(err, "%s", path);
    return code;
}
