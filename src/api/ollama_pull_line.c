/* What is said between Ollama's clients and `medley pull`. */
#include "api/json_out.h"
#include "api/ollama_pull.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <yyjson.h>

static const char ollama_pull_letters[] =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-:/";

/* What it means is `medley pull`'s to say; here it only must not be anything else. */
bool ollama_pull_name(const char *text, size_t size, char out[OLLAMA_PULL_NAME_MAX])
{
    static const char *const hubs[] = {"hf.co/", "huggingface.co/", "hf:"};
    static const char own[] = "ollama:";
    const char *scheme = own;
    for (size_t i = 0; i < sizeof hubs / sizeof *hubs; i++) {
        const size_t prefix = strlen(hubs[i]);
        if (scheme != own || size < prefix || memcmp(text, hubs[i], prefix) != 0)
            continue;
        scheme = "hf:";
        text += prefix;
        size -= prefix;
    }
    if (scheme == own && size > sizeof own - 1 && memcmp(text, own, sizeof own - 1) == 0) {
        text += sizeof own - 1;
        size -= sizeof own - 1;
    }
    /* of three pieces the first is another registry's host */
    const char *slash = memchr(text, '/', size);
    if (scheme == own && slash && memchr(slash + 1, '/', size - (size_t)(slash + 1 - text)))
        return false;
    if (!size || strlen(scheme) + size >= OLLAMA_PULL_NAME_MAX || memmem(text, size, "//", 2))
        return false;
    for (size_t i = 0; i < size; i++) {
        if (!text[i] || !strchr(ollama_pull_letters, text[i]))
            return false;
    }
    snprintf(out, OLLAMA_PULL_NAME_MAX, "%s%.*s", scheme, (int)size, text);
    return true;
}

static void ollama_pull_progress(yyjson_val *root, struct buffer *out)
{
    const char *file = yyjson_get_str(yyjson_obj_get(root, "file"));
    const uint64_t size = yyjson_get_uint(yyjson_obj_get(root, "size"));
    buffer_text(out, "{\"status\":\"pulling\",\"digest\":");
    json_out_text(out, file ? file : "");
    if (size)
        buffer_printf(out, ",\"total\":%" PRIu64 ",\"completed\":%" PRIu64, size,
                      yyjson_get_uint(yyjson_obj_get(root, "done")));
    buffer_text(out, "}\n");
}

bool ollama_pull_line(const char *line, size_t size, struct buffer *out, char *path,
                      size_t path_size)
{
    yyjson_doc *doc = yyjson_read(line, size, YYJSON_READ_NOFLAG);
    yyjson_val *root = yyjson_doc_get_root(doc), *event = yyjson_obj_get(root, "event");
    const char *file = yyjson_get_str(yyjson_obj_get(root, "path"));
    const bool is_done = yyjson_equals_str(event, "done") && file && strlen(file) < path_size;
    if (yyjson_equals_str(event, "progress"))
        ollama_pull_progress(root, out);
    else if (yyjson_equals_str(event, "checking"))
        buffer_text(out, "{\"status\":\"verifying sha256 digest\"}\n");
    if (is_done)
        memcpy(path, file, strlen(file) + 1);
    yyjson_doc_free(doc);
    return is_done;
}
