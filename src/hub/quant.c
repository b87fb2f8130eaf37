#include "hub/quant.h"

#include <assert.h>
#include <ctype.h>
#include <string.h>
#include <strings.h>

static bool quant_is_end(char letter)
{
    return !letter || strchr("-.", letter);
}

/* How long the type's name is that begins here; 0: none does. Names of ggml and llama.cpp. */
static size_t quant_length(const char *text)
{
    static const char *const kinds[] = {"IQ", "TQ", "Q", "BF", "FP", "F", "MXFP", "NVFP"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const size_t kind = strlen(kinds[i]);
        if (strncasecmp(text, kinds[i], kind) != 0 || !isdigit((unsigned char)text[kind]))
            continue;
        size_t size = kind;
        while (isalnum((unsigned char)text[size]) || text[size] == '_')
            size++;
        return quant_is_end(text[size]) && size < QUANT_TEXT - 3 ? size : 0;
    }
    return 0;
}

static const char *quant_base(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

bool quant_of_name(const char *file, char out[QUANT_TEXT])
{
    const char *base = quant_base(file), *found = NULL;
    size_t size = 0;
    for (const char *at = base; *at; at++) {
        const size_t length = at == base || strchr("-._", at[-1]) ? quant_length(at) : 0;
        if (length > 0) {
            found = at;
            size = length;
        }
    }
    out[0] = '\0';
    if (!found)
        return false;
    if (found >= base + 3 && strncasecmp(found - 3, "UD-", 3) == 0) {
        found -= 3;
        size += 3;
    }
    for (size_t i = 0; i < size; i++)
        out[i] = (char)toupper((unsigned char)found[i]);
    out[size] = '\0';
    return true;
}

bool quant_matches(const char *quant, const char *tag)
{
    if (strcasecmp(quant, tag) == 0)
        return true;
    return strncmp(quant, "UD-", 3) == 0 && strcasecmp(quant + 3, tag) == 0;
}

static bool quant_is_model(const char *path)
{
    const char *base = quant_base(path);
    return !strcasestr(base, "mmproj") && !strcasestr(base, "imatrix");
}

static uint32_t quant_find(const struct hub_files *files, const char *like, size_t stem,
                           unsigned part, unsigned n_parts)
{
    for (uint32_t i = 0; i < files->n; i++) {
        unsigned own, count;
        size_t length;
        const char *path = files->files[i].path;
        if (hub_part_of(path, &own, &count, &length) && own == part && count == n_parts &&
            length == stem && strncmp(path, like, stem) == 0)
            return i;
    }
    return UINT32_MAX;
}

/* False: it is no model, or not its first part, or one lacks. */
static bool quant_gather(const struct hub_files *files, uint32_t first, struct hub_model_entry *out)
{
    const char *path = files->files[first].path;
    unsigned part = 1, n_parts = 1;
    size_t stem;
    const bool is_part = hub_part_of(path, &part, &n_parts, &stem);
    if (!quant_is_model(path) || part != 1)
        return false;
    *out = (struct hub_model_entry){.n_files = n_parts};
    assert(n_parts <= LIMIT_MODEL_PARTS);
    quant_of_name(path, out->quant);
    for (uint32_t i = 0; i < n_parts; i++) {
        out->files[i] = is_part ? quant_find(files, path, stem, i + 1, n_parts) : first;
        if (out->files[i] == UINT32_MAX)
            return false;
        out->bytes += files->files[out->files[i]].size;
    }
    return true;
}

uint32_t quant_models(const struct hub_files *files, struct hub_model_entry *out)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < files->n && n < QUANT_MODELS; i++)
        n += quant_gather(files, i, &out[n]);
    return n;
}
