/* Projectors beside models. Hubs name them mmproj-…gguf or NAME-mmproj-…gguf. */
#include "model/projector.h"
#include "picture/sight.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int sight_is_projector_name(const struct dirent *entry)
{
    const size_t size = strlen(entry->d_name);
    return size > 5 && strcmp(entry->d_name + size - 5, ".gguf") == 0 &&
           strstr(entry->d_name, "mmproj") != NULL;
}

static bool sight_fits(const char *path, const struct model *model)
{
    struct projector *projector;
    if (projector_open(path, &projector, NULL))
        return false;
    const bool fits = !projector_check_model(projector, model, NULL);
    projector_close(projector);
    return fits;
}

bool sight_find(const char *model_path, const struct model *model, char path[PATH_MAX])
{
    char folder[PATH_MAX];
    struct dirent **entries;
    bool found = false;
    const char *slash = strrchr(model_path, '/');
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - model_path) : 1,
             slash ? model_path : ".");
    const int n = scandir(folder[0] ? folder : "/", &entries, sight_is_projector_name, alphasort);
    for (int i = 0; i < n; i++) {
        if (!found && snprintf(path, PATH_MAX, "%s/%s", folder, entries[i]->d_name) < PATH_MAX)
            found = sight_fits(path, model);
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
    return found;
}
