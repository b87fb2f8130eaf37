/* The commands that ask this machine's node, on a real one: alone in its cluster, without a model.
 * What they say when all is well, and of names, words and numbers that mean nothing to it. */
#include "shell_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define MEDLEY "\"$MEDLEY\" "

struct answer_row {
    int status;
    const char *words, *part;
};

static void expect_each(const struct answer_row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char line[512];
        snprintf(line, sizeof line, MEDLEY "%s </dev/null", rows[i].words);
        shell_expect(rows[i].status, line, rows[i].part);
    }
}
#define EXPECT_EACH(rows) expect_each(rows, sizeof rows / sizeof *rows)

static int begin(void **state)
{
    if (shell_open(state))
        return 1;
    unsetenv("MEDLEY_MODELS");
    return system("{ \"$MEDLEY\" up --api 127.0.0.1:0 --listen 127.0.0.1:$((20000 + $$ % 10000)) "
                  "--no-discovery "
                  ">up.log 2>&1 & echo $! >up.pid; }\n"
                  "for i in $(seq 600); do\n"
                  "  \"$MEDLEY\" status 2>/dev/null | grep -q 'an admin' && exit 0\n"
                  "  kill -0 $(cat up.pid) 2>/dev/null || break\n"
                  "  sleep 0.05\n"
                  "done; cat up.log; exit 1");
}

static int end(void **state)
{
    if (system("kill $(cat up.pid)\n"
               "for i in $(seq 600); do kill -0 $(cat up.pid) 2>/dev/null || exit 0; sleep 0.05\n"
               "done; cat up.log; exit 1"))
        return 1;
    return shell_close(state);
}

static void alerts_are_set_and_muted(void **state)
{
    static const struct answer_row rows[] = {
        {0, "alerts --kinds", "critical  1 s after 0 s         0.5 s after 5 s"},
        {0, "alerts --kinds --json", "\"raise_after_s\""},
        {2, "alerts --set nothing.raise=3", "there is no alert 'nothing.raise'"},
        {2, "alerts --set device_hot.depth=3", "and no 'depth'"},
        {0, "alerts --set device_hot.raise=91", "device_hot.raise is set, for the whole cluster"},
        {0, "alerts --unset device_hot.raise", "is as usual again"},
        {2, "alerts --unset device_hot.raise", "there is no such setting"},
        {2, "alerts --mute nothing", "there is no alert 'nothing'"},
        {0, "alerts --mute all --for 30m", "mute/all is set"},
        {0, "alerts --kinds --json", "\"kind\": \"all\""},
        {0, "alerts --unmute all", "mute/all is over"},
        {2, "alerts --unmute link_slow", "there is no such setting"},
    };
    (void)state;
    EXPECT_EACH(rows);
}

static void tokens_are_made_and_revoked(void **state)
{
    static const struct answer_row rows[] = {
        {0, "token list", "There is no token."},
        {2, "token create 'a b'", "a token's name has 1 to 63 letters"},
        {2, "token create ci --scope everything", "there is no scope 'everything'"},
        {1, "token create ci --nodes nowhere", "the cluster has no node 'nowhere'"},
        {1, "token create ci --models nothing", "the cluster has no model 'nothing'"},
        {0, "token create ci --scope read --nodes \"$(hostname)\" --rate 60/min --expires 2d",
         "This is the only time that it is shown."},
        {1, "token show cj", "there is no token 'cj'"},
        {0, "token show ci", "ci"},
        {0, "token list", "60/min"},
        {0, "token revoke ci", "ci"},
        {1, "token revoke ci", "there is no token 'ci'"},
        {2, "token create a --tokens f --nodes n", "cannot be bound to machines"},
        {2, "token create a --tokens f --scope all", "there is no scope 'all'"},
        {0, "token create a --tokens f --scope read --json", "\"token\""},
        {0, "token list --tokens f", "a "},
        {0, "token revoke a --tokens f", "a"},
        {1, "token revoke a --tokens f", "'a'"},
    };
    (void)state;
    EXPECT_EACH(rows);
}

static void the_record_is_read(void **state)
{
    static const struct answer_row rows[] = {
        {0, "audit --keep 30", "entries are kept for 30 days"},
        {0, "audit --since 1h", "record.begun"},
        {0, "audit --since 2026-01-01 --json", "\"what\":\"record.begun\""},
        {0, "audit --verify", "nothing was changed"},
        {1, "audit nothing", "nothing: No such file"},
        {0, "events", "the cluster was founded"},
    };
    (void)state;
    EXPECT_EACH(rows);
    shell_expect(1, "MEDLEY_STATE_DIR= " MEDLEY "audit", "this machine keeps no state");
}

static void names_that_nobody_has(void **state)
{
    static const struct answer_row rows[] = {
        {1, "move x --to a/b:1", "the cluster has no instance 'x'"},
        {1, "drain nowhere", "the cluster has no node 'nowhere'"},
        {1, "drain --undo nowhere", "the cluster has no node 'nowhere'"},
        {1, "forget nothing", "the cluster has no model 'nothing'"},
        {1, "remove nowhere", "the cluster has no node 'nowhere'"},
        {1, "role nowhere admin", "the cluster has no node 'nowhere'"},
        {1, "unload nothing", "the cluster has no instance 'nothing'"},
        {1, "place nothing.gguf", "No such file"},
        {1, "place nothing", "has a model 'nothing'"},
        {1, "admit nobody", "nobody"},
    };
    (void)state;
    EXPECT_EACH(rows);
}

static void one_node_is_shown(void **state)
{
    static const struct answer_row rows[] = {
        {0, "nodes", "admin, leads"},
        {0, "nodes --json", "\"votes\": true"},
        {0, "status", "led by"},
        {0, "heat", "GOVERNOR"},
        {0, "heat --json", "{"},
        {0, "links", "BANDWIDTH"},
        {0, "models", "There is no model here."},
        {0, "models --json", "\"models\""},
        {0, "lend --memory 1GiB", "memory     1GiB"},
        {0, "status", "memory 1GiB"},
        {0, "lend off", "nothing"},
        {0, "lend on", "memory"},
        {2, "authority retire", "no rotation is under way"},
    };
    (void)state;
    EXPECT_EACH(rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alerts_are_set_and_muted), cmocka_unit_test(tokens_are_made_and_revoked),
        cmocka_unit_test(the_record_is_read),       cmocka_unit_test(names_that_nobody_has),
        cmocka_unit_test(one_node_is_shown),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
