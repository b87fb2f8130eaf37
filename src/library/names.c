/* What a file is called, by the place where it lies. */
#include "library/library_impl.h"

#include "base/durable_file.h"
#include "base/limits.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool names_number(const char *text, uint32_t *out)
{
    char *end;
    for (int i = 0; i < 5; i++) {
        if (!isdigit((unsigned char)text[i]))
            return false;
    }
    *out = (uint32_t)strtoul(text, &end, 10);
    return true;
}

/* llama.cpp's gguf-split: "%s-%05d-of-%05d.gguf". */
bool library_cut_part(char *name, uint32_t *index, uint32_t *n_parts)
{
    enum { TAIL = sizeof "-00001-of-00002" - 1 };
    const size_t length = strlen(name);
    char *tail = name + length - TAIL;
    if (length <= TAIL || tail[0] != '-' || memcmp(tail + 6, "-of-", 4) != 0 ||
        !names_number(tail + 1, index) || !names_number(tail + 10, n_parts))
        return false;
    if (!*index || *index > *n_parts || *n_parts > LIMIT_MODEL_PARTS || *n_parts < 2)
        return false;
    --*index;
    *tail = 0;
    return true;
}

/* The text up to the next '/', and what is behind it. False: there is none. */
static bool names_component(const char **at, const char **text, size_t *length)
{
    const char *slash = strchr(*at, '/');
    if (!slash)
        return false;
    *text = *at;
    *length = (size_t)(slash - *at);
    *at = slash + 1;
    return true;
}

/* "hf/ORG/REPO/FILE", "ollama/NAME/TAG", "url/HOST/SHA/FILE". */
static bool names_of_pulled(const char *relative, char out[PATH_MAX])
{
    const char *at = relative, *kind, *host, *sha;
    size_t length, n_host, n_sha;
    if (!names_component(&at, &kind, &length))
        return false;
    if (length == 6 && memcmp(kind, "ollama", 6) == 0) {
        const char *tag = strrchr(at, '/');
        return tag && snprintf(out, PATH_MAX, "%.*s:%s", (int)(tag - at), at, tag + 1) < PATH_MAX;
    }
    if (length == 3 && memcmp(kind, "url", 3) == 0 && names_component(&at, &host, &n_host) &&
        names_component(&at, &sha, &n_sha))
        return snprintf(out, PATH_MAX, "%.*s/%s", (int)n_host, host, at) < PATH_MAX;
    return snprintf(out, PATH_MAX, "%s", at) < PATH_MAX;
}

/* Whether this revision is the one that the branch main stands at, or nobody says. */
static bool names_is_main(const char *root, const char *repo, size_t n_repo, const char *revision,
                          size_t n_revision)
{
    char path[PATH_MAX], text[128] = "";
    if (snprintf(path, sizeof path, "%s/%.*s/refs/main", root, (int)n_repo, repo) >=
        (int)sizeof path)
        return true;
    FILE *file = fopen(path, "re");
    if (!file)
        return true;
    const bool is_read = fgets(text, sizeof text, file) != NULL;
    fclose(file);
    text[strcspn(text, "\r\n")] = 0;
    return !is_read || (strlen(text) == n_revision && memcmp(text, revision, n_revision) == 0);
}

/* "models--ORG--REPO/snapshots/REVISION/FILE" -> "ORG/REPO/FILE", and "ORG/REPO@REVISION/FILE" of
 * another revision than main. "models--ORG--REPO/blobs/HASH" is one being fetched. */
static bool names_of_hub(const char *root, const char *relative, char out[PATH_MAX])
{
    static const char prefix[] = "models--";
    const char *at = relative, *repo, *kind, *revision = "";
    size_t n_repo, n_kind, n_revision = 0;
    char name[PATH_MAX];
    if (!names_component(&at, &repo, &n_repo) || strncmp(repo, prefix, sizeof prefix - 1) != 0 ||
        !names_component(&at, &kind, &n_kind))
        return false;
    snprintf(name, sizeof name, "%.*s", (int)(n_repo - (sizeof prefix - 1)),
             repo + sizeof prefix - 1);
    char *dashes = strstr(name, "--");
    if (dashes) {
        *dashes = '/';
        memmove(dashes + 1, dashes + 2, strlen(dashes + 2) + 1);
    }
    if (n_kind == 5 && memcmp(kind, "blobs", 5) == 0)
        return snprintf(out, PATH_MAX, "%s/%.12s", name, at) < PATH_MAX;
    if (n_kind != 9 || memcmp(kind, "snapshots", 9) != 0 ||
        !names_component(&at, &revision, &n_revision))
        return false;
    if (names_is_main(root, repo, n_repo, revision, n_revision))
        return snprintf(out, PATH_MAX, "%s/%s", name, at) < PATH_MAX;
    return snprintf(out, PATH_MAX, "%s@%.8s/%s", name, revision, at) < PATH_MAX;
}

bool library_name_of(enum library_place place, const char *root, const char *relative,
                     char out[PATH_MAX])
{
    if (place == LIBRARY_PULLED)
        return names_of_pulled(relative, out);
    if (place == LIBRARY_HUB)
        return names_of_hub(root, relative, out);
    return snprintf(out, PATH_MAX, "%s", relative) < PATH_MAX;
}
