#include "gpu/plugin_package.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct package_row {
    bool is_it, is_installed;
    char version[64];
};

static void package_take_line(struct package_row *row, const char *line, const char *package)
{
    if (strncmp(line, "Package: ", 9) == 0)
        row->is_it = strcmp(line + 9, package) == 0;
    else if (strcmp(line, "Status: install ok installed") == 0)
        row->is_installed = true;
    else if (strncmp(line, "Version: ", 9) == 0)
        snprintf(row->version, sizeof row->version, "%s", line + 9);
}

/* False: not installed. Packages are paragraphs of "Field: value", an empty line between them. */
static bool package_find(const char *status, const char *package, struct package_row *row)
{
    FILE *file = fopen(status, "re");
    char *line = NULL;
    size_t size = 0;
    bool found = false;
    *row = (struct package_row){0};
    while (file && !found) {
        const bool ends = getline(&line, &size, file) < 0;
        if (!ends)
            line[strcspn(line, "\n")] = 0;
        if (!ends && line[0]) {
            package_take_line(row, line, package);
            continue;
        }
        found = row->is_it && row->is_installed;
        if (ends)
            break;
        if (!found)
            *row = (struct package_row){0};
    }
    free(line);
    if (file)
        fclose(file);
    return found && row->version[0];
}

/* "1:0.27.0+ds-2~bpo13+1" -> "0.27.0": without epoch, Debian's revision, and how it was packed. */
static void package_upstream(char *version)
{
    const char *colon = strchr(version, ':');
    if (colon)
        memmove(version, colon + 1, strlen(colon));
    char *dash = strrchr(version, '-');
    if (dash)
        *dash = 0;
    version[strcspn(version, "+~")] = 0;
}

bool plugin_package_fits(const char *status, const char *package, const char *ggml, char *reason,
                         size_t size)
{
    struct package_row row;
    if (!package_find(status, package, &row))
        return true;
    package_upstream(row.version);
    if (strcmp(row.version, ggml) == 0)
        return true;
    snprintf(reason, size, "its plugin is of ggml %.24s, ggml here is %.24s", row.version, ggml);
    return false;
}
