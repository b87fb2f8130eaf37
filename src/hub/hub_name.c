#include "hub/hub_name.h"

#include "base/limits.h"

#include <stdio.h>
#include <string.h>

static bool hub_starts(const char *word, const char *with)
{
    return strncmp(word, with, strlen(with)) == 0;
}

bool hub_name_is_one(const char *word)
{
    return hub_starts(word, "hf:") || hub_starts(word, "ollama:") || hub_starts(word, "https://") ||
           hub_starts(word, "http://");
}

bool hub_name_piece_holds(const char *text, size_t size)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    if (size == 0 || size >= HUB_TEXT || text[0] == '.')
        return false;
    for (size_t i = 0; i < size; i++) {
        if (!text[i] || !strchr(letters, text[i]))
            return false;
    }
    return true;
}

static bool hub_copy(const char *text, size_t size, char out[HUB_TEXT])
{
    if (!hub_name_piece_holds(text, size))
        return false;
    memcpy(out, text, size);
    out[size] = '\0';
    return true;
}

/* Folders and a file, each of which holds. */
static bool hub_copy_path(const char *text, char out[HUB_TEXT])
{
    if (strlen(text) >= HUB_TEXT)
        return false;
    for (const char *at = text;;) {
        const size_t size = strcspn(at, "/");
        if (!hub_name_piece_holds(at, size))
            return false;
        if (!at[size])
            break;
        at += size + 1;
    }
    memcpy(out, text, strlen(text) + 1);
    return true;
}

static bool hub_parse_hf(const char *text, struct hub_name *out)
{
    const size_t owner = strcspn(text, "/");
    if (!text[owner] || !hub_copy(text, owner, out->owner))
        return false;
    const char *model = text + owner + 1;
    const size_t size = strcspn(model, ":/");
    if (!hub_copy(model, size, out->model))
        return false;
    if (model[size] == ':')
        return hub_copy(model + size + 1, strlen(model + size + 1), out->tag);
    return !model[size] || hub_copy_path(model + size + 1, out->file);
}

/* HOST is told from USER by Ollama's own rule: with all three given, the first is a host. */
static bool hub_parse_ollama(const char *text, struct hub_name *out)
{
    const char *last = strrchr(text, '/'), *name = last ? last + 1 : text;
    const char *colon = strchr(name, ':');
    const size_t size = colon ? (size_t)(colon - name) : strlen(name);
    snprintf(out->owner, sizeof out->owner, "library");
    snprintf(out->tag, sizeof out->tag, "latest");
    if (!hub_copy(name, size, out->model) ||
        (colon && !hub_copy(colon + 1, strlen(colon + 1), out->tag)))
        return false;
    if (!last)
        return true;
    const char *owner = last;
    while (owner > text && owner[-1] != '/')
        owner--;
    if (!hub_copy(owner, (size_t)(last - owner), out->owner))
        return false;
    if (owner == text)
        return true;
    const size_t host = (size_t)(owner - text) - 1;
    const size_t letters = strcspn(text, ":/");
    if (host >= HUB_TEXT || !hub_name_piece_holds(text, letters) ||
        (letters < host &&
         (text[letters] != ':' || strspn(text + letters + 1, "0123456789") != host - letters - 1)))
        return false;
    memcpy(out->host, text, host);
    return true;
}

/* The path's last piece is the file's name; a query is none of it. */
static bool hub_parse_url(const char *text, struct hub_name *out)
{
    const char *host = strstr(text, "://") + 3;
    const size_t host_size = strcspn(host, "/?#");
    for (const char *at = text; *at; at++) {
        if (*at <= ' ' || *at == 0x7f)
            return false;
    }
    if (strlen(text) >= HUB_URL_TEXT || host_size == 0 || host_size >= HUB_TEXT ||
        memchr(host, '@', host_size) || host[host_size] != '/')
        return false;
    memcpy(out->url, text, strlen(text) + 1);
    memcpy(out->host, host, host_size);
    const char *path = host + host_size;
    const size_t path_size = strcspn(path, "?#");
    const char *file = path + path_size;
    while (file[-1] != '/')
        file--;
    return hub_copy(file, (size_t)(path + path_size - file), out->file);
}

enum error_code hub_name_parse(const char *word, struct hub_name *out, struct error *err)
{
    *out = (struct hub_name){0};
    if (hub_starts(word, "hf:")) {
        out->kind = HUB_HF;
        if (hub_parse_hf(word + 3, out))
            return ERROR_NONE;
        return error_set(
            err, ERROR_INVALID,
            "'%.100s' is no name of a repository; write hf:ORG/REPO, hf:ORG/REPO:Q4_K_M "
            "or hf:ORG/REPO/FILE.gguf",
            word);
    }
    if (hub_starts(word, "ollama:")) {
        out->kind = HUB_OLLAMA;
        if (hub_parse_ollama(word + 7, out))
            return ERROR_NONE;
        return error_set(err, ERROR_INVALID,
                         "'%.100s' is no name of a model; write ollama:NAME or ollama:NAME:TAG",
                         word);
    }
    out->kind = hub_name_is_one(word) ? HUB_URL : HUB_PATH;
    if (out->kind == HUB_PATH || hub_parse_url(word, out))
        return ERROR_NONE;
    /* Not the word itself: a URL may hold what nobody else should read. */
    return error_set(err, ERROR_INVALID,
                     "not a URL of a file; write https://HOST/FOLDER/FILE.gguf, without a user or "
                     "password in it");
}

bool hub_part_of(const char *file, unsigned *part, unsigned *n_parts, size_t *stem)
{
    enum { TAIL = sizeof "-00001-of-00003.gguf" - 1 };
    const size_t length = strlen(file);
    int end = 0;
    if (length <= TAIL)
        return false;
    const char *tail = file + length - TAIL;
    for (int i = 0; i < TAIL; i++) {
        const bool is_digit = (i >= 1 && i <= 5) || (i >= 10 && i <= 14);
        if (is_digit ? (tail[i] < '0' || tail[i] > '9') : tail[i] != "-00001-of-00003.gguf"[i])
            return false;
    }
    *stem = length - TAIL;
    return sscanf(tail, "-%5u-of-%5u.gguf%n", part, n_parts, &end) == 2 && end == TAIL &&
           *part >= 1 && *part <= *n_parts && *n_parts <= LIMIT_MODEL_PARTS;
}
