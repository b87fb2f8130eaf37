/* What the API reads of a page's request, and of the node's answer to it. The first byte says what
 * the rest is: a line of an answer, a Cookie header, the headers that say whose page it is, or
 * Accept-Encoding. */
#include "fuzz.h"

#include "api/bridge.h"
#include "api/page.h"
#include "api/sessions.h"
#include "api/site.h"
#include "base/buffer.h"

#include <stdlib.h>
#include <string.h>
#include <yyjson.h>

static void fuzz_answer(const char *line, size_t size)
{
    struct buffer out = {0};
    const unsigned status = bridge_status(line, size, &out);
    FUZZ_CHECK(status == 200 || (status >= 400 && status < 600));
    FUZZ_CHECK((status == 200) == !out.size);
    if (out.size) {
        yyjson_doc *doc = yyjson_read(out.data, out.size, 0);
        yyjson_val *error = yyjson_obj_get(yyjson_doc_get_root(doc), "error");
        FUZZ_CHECK(yyjson_is_str(yyjson_obj_get(error, "text")));
        FUZZ_CHECK(yyjson_is_str(yyjson_obj_get(error, "code")));
        yyjson_doc_free(doc);
    }
    buffer_deinit(&out);
}

static void fuzz_cookie(struct sessions *sessions, const char *header)
{
    struct browser_session found;
    size_t size;
    const char *secret = session_of_cookie(header, "medley_session_8080", &size);
    FUZZ_CHECK(!size || (secret > header && secret + size <= header + strlen(header)));
    FUZZ_CHECK(!memchr(secret, ';', size));
    FUZZ_CHECK(!sessions_find(sessions, SESSION_BROWSER, secret, size, 1, &found));
}

/* Lines: Host, Origin, Sec-Fetch-Site; an empty one: there is none. */
static void fuzz_site(char *text, bool only_reads)
{
    char *lines[3] = {0};
    for (int i = 0; i < 3 && text; i++) {
        char *end = strchr(text, '\n');
        if (end)
            *end = '\0';
        lines[i] = *text ? text : NULL;
        text = end ? end + 1 : NULL;
    }
    const enum site site = site_of(&(struct site_head){
        .host = lines[0], .origin = lines[1], .fetch_site = lines[2], .only_reads = only_reads});
    if (lines[1] && (!lines[0] || !strcasestr(lines[1], lines[0])))
        FUZZ_CHECK(site == SITE_OTHER);
    if (lines[2] && strcmp(lines[2], "same-origin") != 0 && !only_reads)
        FUZZ_CHECK(site == SITE_OTHER);
    FUZZ_CHECK(site != SITE_OTHER || !site_takes_cookie(site, only_reads));
    if (lines[0])
        site_is_json(lines[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct sessions *sessions;
    if (!sessions)
        sessions = sessions_new();
    char *text = size ? malloc(size) : NULL;
    if (!text)
        return 0;
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    switch (data[0] % 4) {
    case 0:
        fuzz_answer(text, size - 1);
        break;
    case 1:
        fuzz_cookie(sessions, text);
        break;
    case 2:
        fuzz_site(text, data[0] & 4);
        break;
    case 3:
        page_takes_gzip(text);
        break;
    }
    free(text);
    return 0;
}
