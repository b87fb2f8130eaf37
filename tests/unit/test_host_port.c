/* Addresses as people write them. */
#include "mesh/host_port.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void test_taken(void **state)
{
    static const struct {
        const char *text, *host;
        uint16_t port;
    } cases[] = {
        {"tower", "tower", 7979},
        {"tower:80", "tower", 80},
        {"tower.local:65535", "tower.local", 65535},
        {"10.0.0.1:1", "10.0.0.1", 1},
        {"10.0.0.1:00080", "10.0.0.1", 80},
        {"::1", "::1", 7979},
        {"::", "::", 7979},
        {"fe80::1%eth0", "fe80::1%eth0", 7979},
        {"[::1]", "::1", 7979},
        {"[::1]:80", "::1", 80},
        {"[fe80::1%eth0]:7", "fe80::1%eth0", 7},
        {"[10.0.0.1]:7", "10.0.0.1", 7},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char host[HOST_TEXT];
        uint16_t port;
        struct error err;
        if (host_port_parse(cases[i].text, 7979, host, &port, &err))
            fail_msg("%s: %s", cases[i].text, err.text);
        assert_string_equal(host, cases[i].host);
        assert_int_equal(port, cases[i].port);
    }
}

static void test_refused(void **state)
{
    static const char *const cases[] = {
        "",
        ":",
        ":80",
        "tower:",
        "tower:0",
        "tower:65536",
        "tower:-1",
        "tower:+80",
        "tower: 80",
        "tower:80 ",
        "tower:8x",
        "tower:0x50",
        "[]",
        "[]:80",
        "[::1",
        "[::1]80",
        "[::1]:",
        "[::1]:0",
        "[::1]:x",
        "[",
        "tower:18446744073709551697",
        "tower:-18446744073709551535",
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char host[HOST_TEXT];
        uint16_t port;
        struct error err = {0};
        if (host_port_parse(cases[i], 7979, host, &port, &err) != ERROR_INVALID)
            fail_msg("'%s' was taken", cases[i]);
        assert_true(err.text[0]);
    }
}

static void test_long(void **state)
{
    char text[HOST_TEXT + 8], host[HOST_TEXT];
    uint16_t port;
    memset(text, 'a', sizeof text);
    strcpy(text + HOST_TEXT - 1, ":80");
    assert_int_equal(host_port_parse(text, 1, host, &port, NULL), ERROR_NONE);
    assert_int_equal(strlen(host), HOST_TEXT - 1);
    assert_int_equal(port, 80);
    text[HOST_TEXT - 1] = 'a';
    strcpy(text + HOST_TEXT, ":80");
    assert_int_equal(host_port_parse(text, 1, host, &port, NULL), ERROR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_taken),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
