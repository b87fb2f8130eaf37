/* The dashboard's files as browsers and plain clients get them. */
#include "api/page.h"
#include "api_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int set_up(void **state)
{
    api_world_start((struct fake_driver_options){.n_slots = 1});
    return 0;
}

static int tear_down(void **state)
{
    api_world_stop();
    return 0;
}

static struct api_reply page_get(const char *method, const char *path, const char *headers)
{
    char request[512];
    int fd = api_connect();
    snprintf(request, sizeof request,
             "%s %s HTTP/1.1\r\nHost: localhost\r\n%sConnection: close\r\n\r\n", method, path,
             headers);
    api_send_text(fd, request);
    return api_receive(fd);
}

static bool page_has(const struct api_reply *reply, const char *text)
{
    return reply->head.data && strcasestr(reply->head.data, text);
}

/* Every file comes compressed and plain, with its type and the policy. */
static void test_all_files(void **state)
{
    assert_non_null(page_find("/"));
    assert_true(n_page_files > 3);
    for (size_t i = 0; i < n_page_files; i++) {
        const struct page_file *file = &page_files[i];
        struct api_reply plain = page_get("GET", file->path, "");
        struct api_reply gzip = page_get("GET", file->path, "Accept-Encoding: gzip, br\r\n");
        assert_int_equal(plain.status, 200);
        assert_int_equal(plain.body.size, file->size);
        assert_false(page_has(&plain, "content-encoding"));
        assert_int_equal(gzip.status, 200);
        assert_true(page_has(&gzip, "content-encoding: gzip\r\n"));
        assert_int_equal(gzip.body.size, file->gzip_size);
        assert_memory_equal(gzip.body.data, file->gzip, file->gzip_size);
        assert_true(page_has(&plain, file->type));
        assert_true(
            page_has(&plain, "content-security-policy: default-src 'none'; script-src 'self';"));
        assert_true(page_has(&plain, "x-content-type-options: nosniff\r\n"));
        assert_true(page_has(&plain, "cross-origin-opener-policy: same-origin\r\n"));
        assert_true(
            page_has(&plain, file->is_immutable ? "immutable\r\n" : "cache-control: no-cache"));
        api_reply_clear(&plain);
        api_reply_clear(&gzip);
    }
}

/* What the policy forbids is not in the page. */
static void test_no_inline(void **state)
{
    struct buffer html = {0};
    page_write(page_find("/"), false, &html);
    assert_false(html.failed);
    assert_non_null(strstr(html.data, "<script type=\"module\" crossorigin src=\"/assets/"));
    assert_null(strstr(html.data, "<script>"));
    assert_null(strstr(html.data, "<style"));
    assert_null(strstr(html.data, " style="));
    buffer_deinit(&html);
}

static void test_had_already(void **state)
{
    char header[128];
    snprintf(header, sizeof header, "If-None-Match: W/\"%s\"\r\n", page_find("/")->hash);
    struct api_reply same = page_get("GET", "/", header);
    struct api_reply other = page_get("GET", "/", "If-None-Match: W/\"0123\"\r\n");
    assert_int_equal(same.status, 304);
    assert_int_equal(same.body.size, 0);
    assert_true(page_has(&same, page_find("/")->hash));
    assert_int_equal(other.status, 200);
    api_reply_clear(&same);
    api_reply_clear(&other);
}

static void test_what_is_not_there(void **state)
{
    const char *paths[] = {"/assets/none.js", "/assets/../index.html", "/index.html",
                           "/assets/%2e"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        struct api_reply reply = page_get("GET", paths[i], "");
        assert_int_equal(reply.status, 404);
        api_reply_clear(&reply);
    }
    struct api_reply post = page_get("DELETE", "/", "");
    assert_int_equal(post.status, 405);
    api_reply_clear(&post);
    struct api_reply head = page_get("HEAD", "/", "");
    assert_int_equal(head.status, 200);
    api_reply_clear(&head);
}

static void test_takes_gzip(void **state)
{
    assert_true(page_takes_gzip("gzip"));
    assert_true(page_takes_gzip("br, GZIP ; q=0.5"));
    assert_true(page_takes_gzip("deflate,gzip;q=1"));
    assert_false(page_takes_gzip(NULL));
    assert_false(page_takes_gzip(""));
    assert_false(page_takes_gzip("br"));
    assert_false(page_takes_gzip("gzip;q=0"));
    assert_false(page_takes_gzip("gzip;q=0.0, br;q=1"));
    assert_false(page_takes_gzip("xgzip, gzipped"));
    assert_false(page_takes_gzip(",,; ,"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_takes_gzip),
        cmocka_unit_test(test_no_inline),
        cmocka_unit_test_setup_teardown(test_all_files, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_had_already, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_is_not_there, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
