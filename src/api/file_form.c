#include "api/file_form.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* One part: where its headers and its content are. */
struct form_part {
    struct text head, content;
    char name[64];
};

/* What is left to read, and what ends each part. */
struct form_reader {
    const char *at, *end;
    char delimiter[FILE_FORM_DELIMITER_BYTES + 5]; /* with the line break before it */
    size_t delimiter_size;
    struct api_error *err;
};

static bool form_is_malformed(struct form_reader *reader, const char *why)
{
    return api_error_set(reader->err, 400, "invalid_request_error", "malformed_form",
                         "the form is malformed: %s; send multipart/form-data with the parts "
                         "'purpose' and 'file'",
                         why);
}

/* "--BOUNDARY", CR LF. */
static bool form_read_delimiter(struct form_reader *reader)
{
    const size_t left = (size_t)(reader->end - reader->at);
    const char *line_end = memmem(reader->at, left, "\r\n", 2);
    const size_t size = line_end ? (size_t)(line_end - reader->at) : 0;
    if (size < 3 || size > FILE_FORM_DELIMITER_BYTES || memcmp(reader->at, "--", 2) != 0)
        return form_is_malformed(reader, "it does not begin with a delimiter");
    memcpy(reader->delimiter, "\r\n", 2);
    memcpy(reader->delimiter + 2, reader->at, size);
    reader->delimiter_size = size + 2;
    reader->at = line_end + 2;
    return true;
}

/* The value of name="…" in a header, its escapes undone; false: there is none, or it is too long.
 * Clients escape as HTML does ("%22"), or with a backslash. */
static bool form_read_parameter(struct text head, const char *name, char *out, size_t size)
{
    char key[32];
    const int key_size = snprintf(key, sizeof key, "; %s=\"", name);
    const char *end = head.data + head.size;
    const char *at = head.size ? memmem(head.data, head.size, key, (size_t)key_size) : NULL;
    size_t used = 0;
    for (at = at ? at + key_size : end; at < end && *at != '"'; at++) {
        if (*at == '\\' && at + 1 < end)
            at++;
        if (used + 1 >= size)
            return false;
        out[used++] = *at;
        if (end - at > 2 && memcmp(at, "%22", 3) == 0)
            out[used - 1] = '"', at += 2;
    }
    out[used] = '\0';
    return at < end;
}

/* The header Content-Disposition of a part; size 0: none. */
static struct text form_disposition(struct text head)
{
    static const char wanted[] = "content-disposition:";
    for (const char *at = head.data, *end = at + head.size; at < end;) {
        const char *line_end = memmem(at, (size_t)(end - at), "\r\n", 2);
        const size_t size = (size_t)((line_end ? line_end : end) - at);
        if (size >= sizeof wanted - 1 && strncasecmp(at, wanted, sizeof wanted - 1) == 0)
            return (struct text){at, size};
        at += size + 2;
    }
    return (struct text){0};
}

/* The next part, up to and with the delimiter behind it. */
static bool form_read_part(struct form_reader *reader, struct form_part *part)
{
    const size_t left = (size_t)(reader->end - reader->at);
    const size_t head_max = left < FILE_FORM_HEAD_BYTES ? left : FILE_FORM_HEAD_BYTES;
    const char *head_end = memmem(reader->at, head_max, "\r\n\r\n", 4);
    if (!head_end)
        return form_is_malformed(reader, "a part has no headers, or too long ones");
    part->head = (struct text){reader->at, (size_t)(head_end - reader->at)};
    const char *content = head_end + 4;
    /* an empty content may share its line break with the headers' end */
    const char *end = memmem(head_end + 2, (size_t)(reader->end - head_end - 2), reader->delimiter,
                             reader->delimiter_size);
    if (!end)
        return form_is_malformed(reader, "a part does not end");
    part->content = (struct text){content, end > content ? (size_t)(end - content) : 0};
    reader->at = end + reader->delimiter_size;
    if (!form_read_parameter(form_disposition(part->head), "name", part->name, sizeof part->name))
        return form_is_malformed(reader, "a part has no name");
    return true;
}

/* What stands behind a delimiter: another part, or "--" and the end. */
static bool form_goes_on(struct form_reader *reader, bool *more)
{
    if (reader->end - reader->at < 2)
        return form_is_malformed(reader, "it is cut off");
    *more = memcmp(reader->at, "\r\n", 2) == 0;
    if (!*more && memcmp(reader->at, "--", 2) != 0)
        return form_is_malformed(reader, "a delimiter is followed by other text");
    reader->at += 2;
    return true;
}

static bool form_take_part(const struct form_part *part, struct file_form *out,
                           struct api_error *err)
{
    char path[1024];
    if (strcmp(part->name, "purpose") == 0) {
        out->purpose = part->content;
        return true;
    }
    if (strcmp(part->name, "file") != 0)
        return api_error_field(err, part->name, "'%s' is not supported here", part->name);
    if (out->data.data)
        return api_error_field(err, "file", "one file at a time: 'file' is there twice");
    out->data = part->content;
    if (!form_read_parameter(form_disposition(part->head), "filename", path, sizeof path))
        path[0] = '\0';
    const char *slash = strrchr(path, '/');
    snprintf(out->name, sizeof out->name, "%.*s", FILE_FORM_NAME_BYTES, slash ? slash + 1 : path);
    return true;
}

bool file_form_read(const char *body, size_t size, struct file_form *out, struct api_error *err)
{
    struct form_reader reader = {.at = body, .end = body + size, .err = err};
    *out = (struct file_form){0};
    if (!form_read_delimiter(&reader))
        return false;
    bool more = true;
    for (unsigned n = 0; more; n++) {
        struct form_part part = {0};
        if (n == FILE_FORM_PARTS)
            return form_is_malformed(&reader, "it has too many parts");
        if (!form_read_part(&reader, &part) || !form_take_part(&part, out, err) ||
            !form_goes_on(&reader, &more))
            return false;
    }
    if (!out->data.data)
        return api_error_field(err, "file", "the part 'file' is missing");
    if (!out->purpose.data)
        return api_error_field(err, "purpose", "the part 'purpose' is missing");
    return true;
}
