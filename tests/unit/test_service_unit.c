/* The units that `medley service` writes. What systemd makes of them: ./dev service-check. */
#include "cli/service_unit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct service_unit unit_of(char *const *words, size_t n)
{
    return (struct service_unit){
        .program = "/usr/bin/medley", .words = words, .n_words = n, .groups = ""};
}

static void contains(const struct buffer *text, const char *line)
{
    if (!strstr(text->data, line))
        fail_msg("%s is not in:\n%s", line, text->data);
}

static void test_words_reach_the_node_as_they_are(void **state)
{
    (void)state;
    char *words[] = {"--name", "a \"b\" \\ 100 % $HOME"};
    const struct service_unit unit = unit_of(words, 2);
    struct buffer text = {0};
    struct error err;
    assert_int_equal(service_unit_text(&unit, &text, &err), ERROR_NONE);
    contains(&text, "\nExecStart=\"/usr/bin/medley\" up \"--name\" "
                    "\"a \\\"b\\\" \\\\ 100 %% $$HOME\"\n");
    buffer_deinit(&text);
}

static void test_a_word_cannot_add_a_line(void **state)
{
    (void)state;
    char *words[] = {"--name", "x\nExecStartPre=/bin/sh"};
    const struct service_unit unit = unit_of(words, 2);
    struct buffer text = {0};
    struct error err;
    assert_int_equal(service_unit_text(&unit, &text, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "option 2"));
    buffer_deinit(&text);
}

static void test_the_machines_is_hardened_and_a_users_is_not(void **state)
{
    (void)state;
    struct service_unit unit = unit_of(NULL, 0);
    struct buffer text = {0};
    struct error err;
    unit.groups = "render video";
    assert_int_equal(service_unit_text(&unit, &text, &err), ERROR_NONE);
    contains(&text, "\nDynamicUser=yes\n");
    contains(&text, "\nSupplementaryGroups=render video\n");
    contains(&text, "\nWantedBy=multi-user.target\n");
    contains(&text, "\nKillMode=mixed\n");
    assert_null(strstr(text.data, "medley.socket"));
    buffer_clear(&text);
    unit.for_user = true;
    assert_int_equal(service_unit_text(&unit, &text, &err), ERROR_NONE);
    contains(&text, "\nWantedBy=default.target\n");
    assert_null(strstr(text.data, "DynamicUser"));
    assert_null(strstr(text.data, "SupplementaryGroups"));
    buffer_deinit(&text);
}

static void test_its_socket(void **state)
{
    (void)state;
    struct service_unit unit = unit_of(NULL, 0);
    struct buffer text = {0};
    struct error err;
    unit.listen = "[::1]:8080";
    assert_int_equal(service_socket_text(&unit, &text, &err), ERROR_NONE);
    contains(&text, "\nListenStream=[::1]:8080\n");
    buffer_clear(&text);
    assert_int_equal(service_unit_text(&unit, &text, &err), ERROR_NONE);
    contains(&text, "\nRequires=medley.socket\n");
    buffer_deinit(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words_reach_the_node_as_they_are),
        cmocka_unit_test(test_a_word_cannot_add_a_line),
        cmocka_unit_test(test_the_machines_is_hardened_and_a_users_is_not),
        cmocka_unit_test(test_its_socket),
    };
    return cmocka_run_group_tests_name("service_unit", tests, NULL, NULL);
}
