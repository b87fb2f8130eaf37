#include "api/chat_pictures.h"

#include "api/json_out.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

/* ---- a request's ---- */

/* https://www.rfc-editor.org/rfc/rfc2397: data:[<mediatype>][;base64],<data> */
static bool chat_pictures_cut_url(const char *path, yyjson_val *url, struct text *base64,
                                  struct api_error *err)
{
    static const char data[] = "data:image/", mark[] = ";base64,";
    const char *text = yyjson_get_str(url);
    const size_t size = yyjson_get_len(url);
    if (size >= 4 && memcmp(text, "http", 4) == 0)
        return api_error_field(err, path,
                               "'%s' must be a data URL: this server fetches nothing. Send the "
                               "picture itself, as data:image/png;base64,…",
                               path);
    const char *comma = size > sizeof data && memcmp(text, data, sizeof data - 1) == 0
                            ? memchr(text, ',', size)
                            : NULL;
    const size_t head = comma ? (size_t)(comma - text) + 1 : 0;
    if (head < sizeof mark || memcmp(text + head - (sizeof mark - 1), mark, sizeof mark - 1) != 0)
        return api_error_field(err, path,
                               "'%s' must be a data URL of a PNG, JPEG or WebP picture: "
                               "data:image/png;base64,…",
                               path);
    *base64 = (struct text){text + head, size - head};
    if (base64->size / 4 * 3 > LIMIT_PICTURE_BYTES + 3)
        return api_error_field(err, path, "'%s' has more than %d bytes. Scale the picture down",
                               path, LIMIT_PICTURE_BYTES);
    return true;
}

static bool chat_pictures_check_members(const char *path, yyjson_val *object, const char *name,
                                        const char *other, struct api_error *err)
{
    size_t index, max;
    yyjson_val *key, *value;
    yyjson_obj_foreach(object, index, max, key, value)
    {
        char field[192];
        if (yyjson_equals_str(key, name) || (other && yyjson_equals_str(key, other)))
            continue;
        snprintf(field, sizeof field, "%s.%s", path, yyjson_get_str(key));
        return api_error_field(err, field, "Unrecognized request argument supplied: %s", field);
    }
    return true;
}

bool chat_pictures_read(struct generation_request *request, const char *path, yyjson_val *part,
                        struct api_error *err)
{
    char field[176];
    struct text base64;
    yyjson_val *image = yyjson_obj_get(part, "image_url");
    yyjson_val *url = yyjson_obj_get(image, "url"), *detail = yyjson_obj_get(image, "detail");
    snprintf(field, sizeof field, "%s.image_url", path);
    if (!chat_pictures_check_members(path, part, "type", "image_url", err))
        return false;
    if (!yyjson_is_obj(image))
        return api_error_field(err, field, "'%s' must be an object", field);
    if (!chat_pictures_check_members(field, image, "url", "detail", err))
        return false;
    snprintf(field, sizeof field, "%s.image_url.detail", path);
    if (detail && !yyjson_is_null(detail) && !yyjson_equals_str(detail, "auto"))
        return api_error_field(
            err, field, "'%s' is not supported beyond auto: the model says how it looks", field);
    snprintf(field, sizeof field, "%s.image_url.url", path);
    if (!yyjson_is_str(url))
        return api_error_field(err, field, "'%s' must be a string", field);
    if (!chat_pictures_cut_url(field, url, &base64, err))
        return false;
    if (request->n_pictures == LIMIT_PROMPT_PICTURES)
        return api_error_field(err, path, "a request may have %d pictures at most",
                               LIMIT_PROMPT_PICTURES);
    if (!request->pictures)
        request->pictures = mem_new_array(LIMIT_PROMPT_PICTURES, sizeof *request->pictures);
    if (!request->pictures)
        return api_error_set(err, 503, "server_error", "no_memory",
                             "not enough memory for the request");
    struct chat_picture *picture = &request->pictures[request->n_pictures++];
    picture->base64 = base64;
    snprintf(picture->path, sizeof picture->path, "%s", path);
    return true;
}

/* ---- bytes: https://www.rfc-editor.org/rfc/rfc4648#section-4 ---- */

static int base64_value(char letter)
{
    if (letter >= 'A' && letter <= 'Z')
        return letter - 'A';
    if (letter >= 'a' && letter <= 'z')
        return letter - 'a' + 26;
    if (letter >= '0' && letter <= '9')
        return letter - '0' + 52;
    return letter == '+' ? 62 : letter == '/' ? 63 : -1;
}

/* Four letters, of which so many stand for bits: 2 to 4. */
static bool base64_group(const char *letters, uint32_t n, uint8_t *out)
{
    uint32_t bits = 0;
    for (uint32_t i = 0; i < 4; i++) {
        const int value = i < n ? base64_value(letters[i]) : 0;
        if (value < 0)
            return false;
        bits = bits << 6 | (uint32_t)value;
    }
    for (uint32_t i = 0; i + 1 < n; i++)
        out[i] = (uint8_t)(bits >> (16 - 8 * i));
    return true;
}

bool chat_picture_bytes(const struct chat_picture *picture, struct buffer *out,
                        struct api_error *err)
{
    const char *letters = picture->base64.data;
    size_t n = picture->base64.size;
    while (n && letters[n - 1] == '=' && picture->base64.size - n < 2)
        n--;
    uint8_t *bytes = n % 4 == 1 ? NULL : buffer_extend(out, n * 3 / 4);
    if (n % 4 != 1 && n && !bytes)
        return api_error_set(err, 503, "server_error", "no_memory",
                             "not enough memory for the picture");
    bool ok = n % 4 != 1;
    for (size_t at = 0; at < n && ok; at += 4)
        ok = base64_group(letters + at, n - at < 4 ? (uint32_t)(n - at) : 4, bytes + at / 4 * 3);
    return ok || api_error_field(err, picture->path, "'%s' is not base64", picture->path);
}

/* ---- a dialect's ---- */

static void chat_content_end_text(struct chat_content *content)
{
    if (!content->text.size)
        return;
    buffer_text(&content->parts, content->parts.size ? ",{\"type\":\"text\",\"text\":"
                                                     : "{\"type\":\"text\",\"text\":");
    json_out_string(&content->parts, content->text.data, content->text.size);
    buffer_text(&content->parts, "}");
    content->parts.failed |= content->text.failed;
    buffer_clear(&content->text);
}

void chat_content_text(struct chat_content *content, yyjson_val *text)
{
    buffer_append(&content->text, yyjson_get_str(text), yyjson_get_len(text));
}

void chat_content_picture(struct chat_content *content, const char *prefix, yyjson_val *url)
{
    struct buffer *parts = &content->parts, whole = {0};
    chat_content_end_text(content);
    buffer_text(&whole, prefix);
    buffer_append(&whole, yyjson_get_str(url), yyjson_get_len(url));
    buffer_printf(parts,
                  "%s{\"type\":\"image_url\",\"image_url\":{\"url\":", parts->size ? "," : "");
    json_out_string(parts, whole.data ? whole.data : "", whole.size);
    buffer_text(parts, "}}");
    parts->failed |= whole.failed;
    buffer_deinit(&whole);
}

bool chat_content_is_empty(const struct chat_content *content)
{
    return !content->text.size && !content->parts.size;
}

void chat_content_write(struct chat_content *content, struct buffer *out)
{
    if (content->parts.size) {
        chat_content_end_text(content);
        buffer_text(out, "[");
        buffer_append(out, content->parts.data, content->parts.size);
        buffer_text(out, "]");
    } else {
        json_out_string(out, content->text.data ? content->text.data : "", content->text.size);
    }
    out->failed |= content->text.failed || content->parts.failed;
}

void chat_content_deinit(struct chat_content *content)
{
    buffer_deinit(&content->text);
    buffer_deinit(&content->parts);
}
