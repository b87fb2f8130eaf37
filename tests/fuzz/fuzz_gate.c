/* Heads of API requests: the first byte is flags, the lines that follow are Host, Origin,
 * Content-Length, Transfer-Encoding, and the address at which the connection arrived. What passes
 * was allowed to. */
#include "fuzz.h"

#include "api/gate.h"

#include <string.h>
#include <strings.h>
#include <yyjson.h>

enum { TEXTS = 5, TEXT_MAX = 300, ALLOWED_MAX = 8 };

/* The next line, NUL-terminated; NULL: none is left, or it is "-". */
static const char *fuzz_line(const uint8_t **at, const uint8_t *end, char out[TEXT_MAX])
{
    size_t size = 0;
    if (*at >= end)
        return NULL;
    for (; *at < end && **at != '\n'; (*at)++) {
        if (**at && size < TEXT_MAX - 1)
            out[size++] = (char)**at;
    }
    out[size] = '\0';
    (*at)++;
    return strcmp(out, "-") == 0 ? NULL : out;
}

static void check_refused(const struct api_error *err)
{
    struct buffer json = {0};
    FUZZ_CHECK(err->status == 400 || err->status == 403 || err->status == 411);
    api_error_write(err, &json);
    yyjson_doc *doc = yyjson_read(json.data, json.size, 0);
    FUZZ_CHECK(!json.failed && doc);
    yyjson_doc_free(doc);
    buffer_deinit(&json);
}

static bool is_prefix(const char *prefix, const char *text)
{
    return strncasecmp(prefix, text, strlen(prefix)) == 0;
}

/* None of these can be a part of a name that is ours. */
static void check_passed(const struct gate_head *head, const struct gate_body *body)
{
    FUZZ_CHECK(!head->websocket);
    FUZZ_CHECK(head->n_hosts == 1 || (head->n_hosts == 0 && head->http_1_0));
    FUZZ_CHECK(!(body->chunked && body->length_given));
    if (head->n_hosts) {
        FUZZ_CHECK(!strpbrk(head->host, "/@\\ \t\"<>"));
        FUZZ_CHECK(!is_prefix("evil", head->host));
    }
    if (head->origin)
        FUZZ_CHECK(strstr(head->origin, "://") && head->host);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char texts[TEXTS][TEXT_MAX];
    struct gate gate = {0};
    struct gate_body body;
    struct api_error err;
    struct error ignored;
    const uint8_t *at = data + 1, *end = data + size;
    if (!size)
        return 0;
    const char *found[TEXTS];
    for (int i = 0; i < TEXTS; i++)
        found[i] = fuzz_line(&at, end, texts[i]);
    FUZZ_CHECK(!gate_allow(&gate, "tower", &ignored));
    FUZZ_CHECK(gate.n_names == 1);
    struct gate_head head = {
        .host = found[0],
        .n_hosts = found[0] ? 1 + (data[0] >> 7) : 0,
        .origin = found[1],
        .length = found[2],
        .encoding = found[3],
        .arrived = found[4] && !is_prefix("evil", found[4]) ? found[4] : NULL,
        .http_1_0 = data[0] & 1,
        .websocket = data[0] & 2,
        .body_assumed = data[0] & 4,
    };
    if (gate_check(&gate, &head, &body, &err))
        check_passed(&head, &body);
    else
        check_refused(&err);
    for (int i = 0; i < ALLOWED_MAX && found[0]; i++)
        gate_allow(&gate, found[0], &ignored);
    FUZZ_CHECK(gate.n_names <= 3); /* the same name once */
    return 0;
}
