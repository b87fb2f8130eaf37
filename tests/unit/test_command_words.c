/* What each command says of words that it does not take, before it does anything: exit status 2,
 * and the word, so that nobody has to guess. A row is one start of the program. */
#include "shell_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

struct word_row {
    const char *words, *part;
};

static void expect_all(const struct word_row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char line[512];
        snprintf(line, sizeof line, "\"$MEDLEY\" %s </dev/null", rows[i].words);
        shell_expect(2, line, rows[i].part);
    }
}
#define EXPECT_ALL(rows) expect_all(rows, sizeof rows / sizeof *rows)

static void about_models(void **state)
{
    static const struct word_row rows[] = {
        {"bench", "a model is missing"},
        {"bench a b", "unexpected argument"},
        {"compare a", "give two models"},
        {"compare a b --max-kl -1", "--max-kl takes 0 or more"},
        {"compare a b --other-kv q5", "--other-kv takes f16, f32, q8_0 or q4_0, not 'q5'"},
        {"convert a", "to what? give --to"},
        {"convert a --to q4_0 --by b", "give one of --to, --fit and --by"},
        {"convert a --by b --plan c", "--by FILE is such a plan already"},
        {"convert a --to q4_0 --max-kl -1", "--max-kl takes 0 or more"},
        {"embed", "a model is missing"},
        {"embed a", "a text is missing"},
        {"inspect", "which model?"},
        {"inspect a b", "unexpected argument 'b'"},
        {"models show a b", "one word too many"},
        {"models pin", "which model?"},
        {"perplexity", "which model?"},
        {"perplexity a b", "unexpected argument 'b'"},
        {"plan a --policy luck", "not 'luck'"},
        {"plan a --busy 2", "--busy takes a part of the time"},
        {"plan a --busy 0.5", "--busy is for --goal mix"},
        {"plan a --goal fame", "--goal takes latency, throughput or mix"},
        {"plan a --kv q5", "--kv takes"},
        {"plan a --time-limit 0", "--time-limit takes seconds"},
        {"plan a --score-weights x", "--score-weights"},
        {"pull ./here", "is a path"},
        {"pull nonsense:x", "nonsense"},
        {"rerank", "a model and a query are needed"},
        {"rerank a b", "a text is missing"},
    };
    EXPECT_ALL(rows);
}

static void about_texts(void **state)
{
    static const struct word_row rows[] = {
        {"run a -p b -f c", "-p and -f exclude each other"},
        {"run a --raw", "need a prompt"},
        {"run a -p b --grammar c --json-schema d", "exclude each other"},
        {"run a -f - --grammar -", "cannot both be stdin"},
        {"run a -p b --grammar c --context-shift", "it excludes --grammar"},
        {"run a --flash maybe", "not 'maybe'"},
        {"run a --kv q5", "--kv takes"},
        {"run a --speculate luck", "takes lookup or off, not 'luck'"},
        {"run a --rope-scaling wide", "takes none, linear or yarn, not 'wide'"},
        {"run a --temp hot", "--temp takes a number, not 'hot'"},
        {"run a --seed x", "--seed takes a whole number, not 'x'"},
        {"run a -n x", "not 'x'"},
        {"serve", "model"},
        {"serve a --tls maybe", "takes auto, on or off, not 'maybe'"},
    };
    EXPECT_ALL(rows);
}

static void about_the_cluster(void **state)
{
    static const struct word_row rows[] = {
        {"alerts --for x", "--for takes a time"},
        {"alerts --set heat", "--set takes KIND.FIELD=NUMBER, not 'heat'"},
        {"alerts --unset heat=1", "--unset takes KIND.FIELD, not 'heat=1'"},
        {"alerts --set heat=hot", "--set takes KIND.FIELD=NUMBER"},
        {"alerts --set a.b=1 --unset c.d", "one at a time"},
        {"audit --since never", "--since takes 30m"},
        {"audit --since -3d", "--since takes 30m"},
        {"audit a b", "one record at a time"},
        {"audit a --follow", "--follow is for this machine's record"},
        {"audit --keep 0", "--keep"},
        {"audit --nonsense", "'--nonsense'"},
        {"authority turn", "rotate or retire, not 'turn'"},
        {"ca import", "'import' is not something that it does"},
        {"join a b c", "unexpected argument"},
        {"lend perhaps", "on or off, not 'perhaps'"},
        {"lend on off", "one word at most"},
        {"move a --to b --on c", "it takes one of --to, --on and --off"},
        {"move a --on", "unexpected argument 'a'"},
        {"move a --to b", "'b' is not NODE/DEVICE:LAYERS"},
        {"move a --to n/d:0", "'n/d:0' is not NODE/DEVICE:LAYERS"},
        {"move --to n/d:1", "which instance?"},
        {"place a --goal fame", "--goal takes latency, throughput or mix"},
        {"place a --kv q5", "--kv takes"},
        {"place a --speculate luck", "--speculate takes lookup or off"},
        {"place a --score-weights x", "--score-weights"},
        {"role", "which machine?"},
        {"role a king", "a role is admin or member, not 'king'"},
        {"token", "say create, list, show or revoke"},
        {"token create", "which token? it needs a name"},
        {"token list a", "one word too many: 'a'"},
        {"token create a b", "one word too many: 'b'"},
        {"token create a --expires soon", "--expires takes a time"},
        {"token create a --rate fast", "--rate takes requests a minute"},
        {"token create a --tokens-per-day x", "--tokens-per-day"},
    };
    EXPECT_ALL(rows);
}

static void about_this_machine(void **state)
{
    static const struct word_row rows[] = {
        {"completion", "for which shell?"},
        {"completion tcsh", "'tcsh' is none of bash, zsh, fish and man"},
        {"devices --nonsense", "'--nonsense'"},
        {"devices a", "unexpected argument 'a'"},
        {"doctor a", "unexpected argument 'a'"},
        {"service", "what about the service?"},
        {"service restart", "'restart'? it takes install"},
        {"service status -- --api none", "takes no options of the node"},
        {"sim a b", "unexpected argument 'b'"},
        {"sim a --nodes 3", "are for a scenario without a file"},
        {"sim --bug nothing", "there is no bug 'nothing'"},
        {"top a", "unexpected argument 'a'"},
        {"top --nonsense", "'--nonsense'"},
        {"up --transport udp", "takes tcp or quic, not 'udp'"},
        {"up --peer ''", "--peer"},
        {"up --lend nonsense", "--lend"},
        {"up --tls maybe", "takes auto, on or off, not 'maybe'"},
        {"nonsense", "nonsense"},
    };
    EXPECT_ALL(rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(about_models),
        cmocka_unit_test(about_texts),
        cmocka_unit_test(about_the_cluster),
        cmocka_unit_test(about_this_machine),
    };
    return cmocka_run_group_tests(tests, shell_open, shell_close);
}
