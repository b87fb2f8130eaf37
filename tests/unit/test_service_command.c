/* `medley service`: what it asks systemctl and journalctl for (stand-ins that write down their
 * words), which units it writes and removes, and what it says where there is no systemd. */
#include "shell_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* On a machine that systemd has started, as far as sd_booted(3) sees: a /run of its own. */
#define BOOTED                                                                                     \
    "unshare --map-root-user --mount sh -c 'mount -t tmpfs none /run && "                          \
    "mkdir -p /run/systemd/system && PATH=\"$PWD/bin:$PATH\" && "
#define USERS_UNIT ".config/systemd/user/medley.service"

static void put_tool(const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "bin/%s", name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file,
            "#!/bin/sh\necho \"%s $*\" >>\"$HOME/asked\"\n"
            "case \"$*\" in *\"$FAILS\"*) exit ${STATUS:-0} ;; esac\n",
            name);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(path, 0755), 0);
}

static int open_tools(void **state)
{
    if (shell_open(state) || mkdir("bin", 0755))
        return -1;
    put_tool("systemctl");
    put_tool("journalctl");
    setenv("FAILS", "nothing", 1);
    return 0;
}

static void need_namespaces(void)
{
    const char *out;
    if (shell_run(BOOTED "true'", &out) != 0) {
        print_message("no mount namespaces here: %s", out);
        skip();
    }
}

static void expect_asked(const char *words)
{
    const char *out;
    assert_int_equal(shell_run("cat asked; rm asked", &out), 0);
    assert_string_equal(out, words);
}

static void a_users_service_comes_and_goes(void **state)
{
    (void)state;
    need_namespaces();
    shell_expect(0, BOOTED "\"$MEDLEY\" service install --user -- --api 127.0.0.1:9090'",
                 "medley status");
    expect_asked("systemctl --user daemon-reload\n"
                 "systemctl --user enable medley.service\n"
                 "systemctl --user restart medley.service\n");
    shell_expect(0, "cat " USERS_UNIT, "127.0.0.1:9090");
    shell_expect(0, BOOTED "\"$MEDLEY\" service remove --user'", "The service is gone");
    expect_asked("systemctl --user disable --now medley.service\n"
                 "systemctl --user daemon-reload\n");
    assert_int_not_equal(access(USERS_UNIT, F_OK), 0);
    shell_expect(1, BOOTED "\"$MEDLEY\" service remove --user'", "there is no service");
}

static void the_machines_service_has_a_socket_where_systemd_can_listen(void **state)
{
    (void)state;
    const char *out;
    need_namespaces();
    const char *const own_etc = BOOTED "mount -t tmpfs none /etc && ";
    char line[1024];
    if (shell_run(BOOTED "mount -t tmpfs none /etc'", &out) != 0)
        skip();
    snprintf(
        line, sizeof line,
        "%s \"$MEDLEY\" service install -- --api=[::1]:9091 && cat /etc/systemd/system/*.socket "
        "&& \"$MEDLEY\" service install && \"$MEDLEY\" service install -- --api=any:9091 "
        "&& ls /etc/systemd/system && \"$MEDLEY\" service remove && ls /etc/systemd/system'",
        own_etc);
    shell_expect(0, line, "ListenStream=[::1]:9091");
    shell_run("grep -c 'enable medley.service medley.socket' asked; grep stop asked", &out);
    /* twice with one; then it is stopped for good */
    assert_string_equal(out, "2\nsystemctl --system stop medley.service\n"
                             "systemctl --system stop medley.service\n"
                             "systemctl --system stop medley.socket\n");
    assert_int_equal(remove("asked"), 0);
}

static void what_systemd_says_is_shown_and_so_is_that_it_failed(void **state)
{
    (void)state;
    need_namespaces();
    shell_expect(3, BOOTED "FAILS=status STATUS=3 \"$MEDLEY\" service status --user'", "");
    expect_asked("systemctl --user --no-pager status medley.service\n");
    shell_expect(0, BOOTED "\"$MEDLEY\" service logs'", "");
    expect_asked("journalctl --unit medley.service --lines=100 --follow\n");
    shell_expect(1, BOOTED "FAILS=enable STATUS=4 \"$MEDLEY\" service install --user'",
                 "systemctl enable did not succeed (status 4); see medley service logs --user");
    assert_int_equal(remove(USERS_UNIT), 0); /* it is there, for `systemctl` to say more of it */
    assert_int_equal(remove("asked"), 0);
}

static void without_systemd_it_says_so(void **state)
{
    (void)state;
    if (access("/run/systemd/system", F_OK) == 0)
        skip();
    shell_expect(1, "\"$MEDLEY\" service install --user", "was not started by systemd");
    shell_expect(1, "\"$MEDLEY\" service remove", "was not started by systemd");
    shell_expect(1, "PATH=/nowhere \"$MEDLEY\" service status", "not run by systemd");
    assert_int_not_equal(access(USERS_UNIT, F_OK), 0);
}

static void words_that_mean_nothing_are_refused(void **state)
{
    (void)state;
    shell_expect(2, "\"$MEDLEY\" service", "what about the service?");
    shell_expect(2, "\"$MEDLEY\" service start", "'start'?");
    shell_expect(2, "\"$MEDLEY\" service unit status", "'status'?");
    shell_expect(2, "\"$MEDLEY\" service remove -- --api 1:1", "takes no options of the node");
    shell_expect(0, "\"$MEDLEY\" service unit --user -- --lend 'when idle'", "ExecStart=");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_users_service_comes_and_goes),
        cmocka_unit_test(the_machines_service_has_a_socket_where_systemd_can_listen),
        cmocka_unit_test(what_systemd_says_is_shown_and_so_is_that_it_failed),
        cmocka_unit_test(without_systemd_it_says_so),
        cmocka_unit_test(words_that_mean_nothing_are_refused),
    };
    return cmocka_run_group_tests(tests, open_tools, shell_close);
}
