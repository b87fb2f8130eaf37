/* Who passes the gate of the API. */
#include "api/gate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct gate gate;

static int setup(void **state)
{
    struct error err;
    (void)state;
    gate = (struct gate){0};
    assert_int_equal(gate_allow(&gate, "Tower", &err), ERROR_NONE);
    assert_int_equal(gate_allow(&gate, "api.example.com", &err), ERROR_NONE);
    assert_int_equal(gate_allow(&gate, "2001:DB8::1", &err), ERROR_NONE);
    return 0;
}

static unsigned gate_status(const struct gate_head *head)
{
    struct gate_body body;
    struct api_error err;
    return gate_check(&gate, head, &body, &err) ? 200 : err.status;
}

static void test_hosts(void **state)
{
    (void)state;
    static const struct {
        const char *host, *arrived;
        unsigned status;
    } rows[] = {
        {"localhost", NULL, 200},
        {"LocalHost.:8080", NULL, 200},
        {"127.0.0.1:1", NULL, 200},
        {"127.200.1.1", NULL, 200},
        {"[::1]:8080", NULL, 200},
        {"tower", NULL, 200},
        {"TOWER.LOCAL:80", NULL, 200},
        {"tower.home.arpa", NULL, 200},
        {"tower.evil.local", NULL, 403},
        {"attic.local", NULL, 403},
        {"api.example.com", NULL, 200},
        {"[2001:db8:0::1]", NULL, 200},
        {"192.0.2.1", "192.0.2.1", 200},
        {"192.0.2.1", "::ffff:192.0.2.1", 200},
        {"[fe80::1]", "fe80::1%eth0", 200},
        {"192.0.2.2", "192.0.2.1", 403},
        {"192.0.2.1", NULL, 403},
        {"evil.example", "192.0.2.1", 403},
        {"tower.evil.example", NULL, 403},
        {"xapi.example.com", NULL, 403},
        {"localhost.local", NULL, 403},
        {"127.0.0.1.evil.example", NULL, 403},
        {"0x7f.1", NULL, 403},
        {"", NULL, 400},
        {"::1", NULL, 400},
        {"[::1", NULL, 400},
        {"[::1]x", NULL, 400},
        {"tower:", NULL, 200},
        {"tower:80:80", NULL, 400},
        {"tower evil", NULL, 400},
        {"evil@tower", NULL, 400},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct gate_head head = {.host = rows[i].host, .n_hosts = 1, .arrived = rows[i].arrived};
        if (gate_status(&head) != rows[i].status)
            fail_msg("Host '%s': %u", rows[i].host, gate_status(&head));
    }
}

static void test_origins(void **state)
{
    (void)state;
    struct gate_head head = {.host = "tower:80", .n_hosts = 1, .origin = "http://tower:80"};
    assert_int_equal(gate_status(&head), 200);
    head.origin = "http://tower:81";
    assert_int_equal(gate_status(&head), 403);
    head.origin = "null";
    assert_int_equal(gate_status(&head), 403);
    gate.cors_origin = "https://app.example";
    head.origin = "https://app.example";
    assert_int_equal(gate_status(&head), 200);
    gate.cors_origin = "*";
    head.origin = "https://evil.example";
    assert_int_equal(gate_status(&head), 200);
    head.host = "evil.example"; /* every page may call, but not by another name */
    assert_int_equal(gate_status(&head), 403);
}

static void test_missing_and_double_hosts(void **state)
{
    (void)state;
    struct gate_head head = {0};
    assert_int_equal(gate_status(&head), 400);
    head.http_1_0 = true;
    assert_int_equal(gate_status(&head), 200);
    head = (struct gate_head){.host = "tower", .n_hosts = 2};
    assert_int_equal(gate_status(&head), 400);
}

static void test_as_many_hosts_as_there_may_be(void **state)
{
    (void)state;
    struct error err;
    char name[32];
    assert_int_equal(gate_allow(&gate, "tower.", &err), ERROR_NONE); /* is there */
    for (uint32_t i = 0; gate.n_names < LIMIT_API_HOSTS; i++) {
        snprintf(name, sizeof name, "host%u", i);
        assert_int_equal(gate_allow(&gate, name, &err), ERROR_NONE);
    }
    assert_int_equal(gate_allow(&gate, "one.more", &err), ERROR_INVALID);
    assert_int_equal(gate_allow(&gate, "host:80", &err), ERROR_INVALID);
    assert_int_equal(gate_allow(&gate, "http://host", &err), ERROR_INVALID);
    assert_int_equal(gate_allow(&gate, "", &err), ERROR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_hosts, setup),
        cmocka_unit_test_setup(test_origins, setup),
        cmocka_unit_test_setup(test_missing_and_double_hosts, setup),
        cmocka_unit_test_setup(test_as_many_hosts_as_there_may_be, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
