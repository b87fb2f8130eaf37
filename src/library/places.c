/* Where other programs keep their models, as each documents it:
 *
 *   Ollama      OLLAMA_MODELS, else ~/.ollama/models and, of its service,
 * /usr/share/ollama/.ollama/models LM Studio   the home that ~/.lmstudio-home-pointer names, else
 * ~/.lmstudio; its folder models. Before version 0.3.6: ~/.cache/lm-studio/models llama.cpp
 * LLAMA_CACHE, else XDG_CACHE_HOME/llama.cpp, else ~/.cache/llama.cpp the hub     HF_HUB_CACHE (or
 * HUGGINGFACE_HUB_CACHE), else HF_HOME/hub, else XDG_CACHE_HOME/huggingface/hub, else
 * ~/.cache/huggingface/hub */
#include "library/library_impl.h"

#include "base/limits.h"
#include "base/state_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An empty variable counts as one that is not set. */
static const char *places_variable(const char *name)
{
    const char *value = getenv(name);
    return value && value[0] ? value : NULL;
}

bool library_state_file(const char *name, char out[PATH_MAX])
{
    return state_folder_file(name, out, PATH_MAX);
}

static bool places_join(char out[PATH_MAX], const char *folder, const char *rest)
{
    return folder && snprintf(out, PATH_MAX, "%s/%s", folder, rest) < PATH_MAX;
}

static bool places_cache(char out[PATH_MAX], const char *rest)
{
    char home[PATH_MAX];
    const char *cache = places_variable("XDG_CACHE_HOME");
    if (cache)
        return places_join(out, cache, rest);
    return places_join(home, places_variable("HOME"), ".cache") && places_join(out, home, rest);
}

static void places_ollama(library_root_fn each, void *arg)
{
    char path[PATH_MAX];
    const char *given = places_variable("OLLAMA_MODELS");
    if (given) {
        each(arg, LIBRARY_OLLAMA, given);
        return;
    }
    if (places_join(path, places_variable("HOME"), ".ollama/models"))
        each(arg, LIBRARY_OLLAMA, path);
    each(arg, LIBRARY_OLLAMA, "/usr/share/ollama/.ollama/models");
}

static void places_lm_studio(library_root_fn each, void *arg)
{
    char path[PATH_MAX], pointed[PATH_MAX] = "";
    const char *home = places_variable("HOME");
    FILE *pointer = places_join(path, home, ".lmstudio-home-pointer") ? fopen(path, "re") : NULL;
    if (pointer && fgets(pointed, sizeof pointed, pointer))
        pointed[strcspn(pointed, "\r\n")] = 0;
    if (pointer)
        fclose(pointer);
    if (pointed[0] == '/' ? places_join(path, pointed, "models")
                          : places_join(path, home, ".lmstudio/models"))
        each(arg, LIBRARY_LM_STUDIO, path);
    if (places_join(path, home, ".cache/lm-studio/models"))
        each(arg, LIBRARY_LM_STUDIO, path);
}

static void places_llama_cpp(library_root_fn each, void *arg)
{
    char path[PATH_MAX];
    const char *given = places_variable("LLAMA_CACHE");
    if (given)
        each(arg, LIBRARY_LLAMA_CPP, given);
    else if (places_cache(path, "llama.cpp"))
        each(arg, LIBRARY_LLAMA_CPP, path);
}

static void places_hub(library_root_fn each, void *arg)
{
    char path[PATH_MAX];
    const char *given = places_variable("HF_HUB_CACHE");
    const char *home = places_variable("HF_HOME");
    if (!given)
        given = places_variable("HUGGINGFACE_HUB_CACHE");
    if (given)
        each(arg, LIBRARY_HUB, given);
    else if (home ? places_join(path, home, "hub") : places_cache(path, "huggingface/hub"))
        each(arg, LIBRARY_HUB, path);
}

/* MEDLEY_MODELS: folders, with colons between. */
static void places_folders(library_root_fn each, void *arg)
{
    const char *at = places_variable("MEDLEY_MODELS");
    char path[PATH_MAX];
    for (int n = 0; at && *at && n < LIMIT_LIBRARY_FOLDERS; n++) {
        const size_t length = strcspn(at, ":");
        if (length && length < sizeof path) {
            memcpy(path, at, length);
            path[length] = 0;
            each(arg, LIBRARY_FOLDER, path);
        }
        at += length + (at[length] == ':');
    }
}

void library_each_root(bool only_ours, library_root_fn each, void *arg)
{
    char path[PATH_MAX];
    if (state_folder_file("pulled", path, sizeof path))
        each(arg, LIBRARY_PULLED, path);
    if (state_folder(path, sizeof path)) {
        each(arg, LIBRARY_FILES, path);
        each(arg, LIBRARY_SHELF, path);
    }
    places_folders(each, arg);
    if (only_ours)
        return;
    places_ollama(each, arg);
    places_lm_studio(each, arg);
    places_llama_cpp(each, arg);
    places_hub(each, arg);
}
