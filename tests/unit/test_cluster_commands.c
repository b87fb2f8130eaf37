/* The commands that ask this machine's node, as a user starts them, on a node that answers from a
 * table: what they ask, what they print, and how they end when the node is not there, or answers
 * what it should not. */
#include "fake_node.h"

#include <pty.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char out[1 << 20]; /* stdout and stderr of the last command */

/* Runs `medley WORDS` by the shell; its exit status. */
static int medley(const char *words)
{
    char line[4096];
    snprintf(line, sizeof line, "( \"$MEDLEY_BINARY\" %s ) </dev/null 2>&1", words);
    FILE *pipe = popen(line, "r");
    assert_non_null(pipe);
    out[fread(out, 1, sizeof out - 1, pipe)] = '\0';
    const int status = pclose(pipe);
    if (!WIFEXITED(status))
        fail_msg("medley %s: ended by signal %d\n%s", words, WTERMSIG(status), out);
    return WEXITSTATUS(status);
}

/* The same on a terminal, where the user types something. */
static int medley_on_terminal(const char *word, const char *argument, const char *typed)
{
    int terminal;
    const pid_t child = forkpty(&terminal, NULL, NULL, NULL);
    assert_true(child >= 0);
    if (child == 0) {
        const char *program = getenv("MEDLEY_BINARY");
        execl(program, program, word, argument, (char *)NULL);
        _exit(127);
    }
    size_t n = 0;
    bool answered = false;
    for (ssize_t got;
         n + 1 < sizeof out && (got = read(terminal, out + n, sizeof out - 1 - n)) > 0;) {
        n += (size_t)got;
        out[n] = '\0';
        if (!answered && strstr(out, "[y/N] ")) {
            answered = true;
            assert_int_equal(write(terminal, typed, strlen(typed)), strlen(typed));
        }
    }
    close(terminal);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void expect_out(const char *words, const char *part)
{
    if (!strstr(out, part))
        fail_msg("medley %s: no '%s' in\n%s", words, part, out);
}

static void expect(int status, const char *words, const char *const *parts)
{
    const int ended = medley(words);
    if (ended != status)
        fail_msg("medley %s: status %d, not %d\n%s", words, ended, status, out);
    for (; *parts; parts++)
        expect_out(words, *parts);
}
#define EXPECT(status, words, ...) expect(status, words, (const char *const[]){__VA_ARGS__, NULL})
#define ANSWERS(...)                                                                               \
    static const struct fake_answer answers[] = {__VA_ARGS__};                                     \
    fake_node_answers(answers, sizeof answers / sizeof *answers)

static void expect_heard(const char *line)
{
    if (!strstr(fake_node_heard(), line))
        fail_msg("the node did not hear '%s' but\n%s", line, fake_node_heard());
}

/* ---- what they print ------------------------------------------------------------------------- */

#define NODES                                                                                      \
    "{\"nodes\":[{\"id\":\"a1\",\"name\":\"laptop\",\"self\":true,\"state\":\"up\",\"leads\":"     \
    "true,\"votes\":true,"                                                                         \
    "\"version\":\"0.1\",\"addresses\":[\"10.0.0.1:7979\",\"[fe80::1]:7979\"],\"heard_ms\":null,"  \
    "\"words\":null,"                                                                              \
    "\"devices\":[{\"id\":\"cuda0\",\"name\":\"RTX\",\"kind\":\"gpu\",\"memory_bytes\":"           \
    "25769803776,"                                                                                 \
    "\"free_bytes\":21474836480,\"driver_fault\":\"NVIDIA 1 is old; 2 mends "                      \
    "it\"},{\"id\":\"vulkan0\",\"name\":\"Iris\",\"kind\":\"integrated "                           \
    "gpu\","                                                                                       \
    "\"memory_bytes\":17179869184,\"free_bytes\":8589934592},{\"id\":\"cpu\",\"name\":\"CPU\","    \
    "\"kind\":\"cpu\","                                                                            \
    "\"memory_bytes\":17179869184,\"free_bytes\":8589934592}]},"                                   \
    "{\"id\":\"b2\",\"name\":\"nuc\",\"self\":false,\"state\":\"silent\",\"leads\":false,"         \
    "\"votes\":true,"                                                                              \
    "\"version\":\"0.1\",\"addresses\":[],\"heard_ms\":12000,\"words\":null,\"dial_address\":"     \
    "\"10.0.0.2:7979\",\"dial_problem\":\"nobody answers\",\"devices\":[{\"id\":"                  \
    "\"cpu\","                                                                                     \
    "\"name\":\"CPU\",\"kind\":\"cpu\",\"memory_bytes\":8589934592,\"free_bytes\":null}]},"        \
    "{\"id\":\"c3\",\"name\":\"tower\",\"self\":false,\"state\":\"waiting\",\"leads\":false,"      \
    "\"votes\":false,"                                                                             \
    "\"version\":null,\"addresses\":[\"10.0.0.3:7979\"],\"heard_ms\":null,\"words\":\"apple "      \
    "river stone cloud\","                                                                         \
    "\"devices\":[]}]}\n"

static void test_nodes(void **state)
{
    (void)state;
    ANSWERS({"nodes", {NODES}, NULL});
    assert_int_equal(medley("nodes"), 0);
    assert_string_equal(
        out,
        "NAME               STATE           ROLE   DEVICES              MEMORY (FREE / TOTAL)  "
        "ADDRESSES\n"
        "laptop (this one)  up              leads  cuda0, vulkan0, cpu  28.0 GiB / 40.0 GiB    "
        "10.0.0.1:7979, "
        "[fe80::1]:7979\n"
        "nuc                silent, 12.0 s  votes  cpu                  8.0 GiB                -\n"
        "tower              waiting         -      -                    -                      "
        "10.0.0.3:7979\n"
        "\n"
        "laptop: driver of cuda0: NVIDIA 1 is old; 2 mends it\n"
        "nuc: dialling 10.0.0.2:7979: nobody answers (medley doctor says more)\n"
        "tower waits to be let in: medley admit tower   (its words: apple river stone cloud)\n");
    assert_string_equal(fake_node_heard(), "{\"do\":\"nodes\"}\n");
    EXPECT(0, "nodes --json", "\"name\": \"laptop\"", "\"heard_ms\": null", "\n}\n");
    EXPECT(2, "nodes tower", "unexpected argument 'tower'");
    EXPECT(2, "nodes --all", "unknown or incomplete option '--all'", "medley nodes --help");
}

static void test_links(void **state)
{
    (void)state;
    ANSWERS(
        {"links",
         {"{\"links\":[{\"from\":\"laptop\",\"to\":\"tower\",\"class\":\"ethernet\",\"up\":true,"
          "\"latency_ns\":250000,\"jitter_ns\":31000,\"loss_ppm\":0,\"bytes_per_s\":117500000},"
          "{\"from\":\"tower\",\"to\":\"laptop\",\"class\":\"wifi\",\"up\":false,\"latency_ns\":"
          "2500000,"
          "\"jitter_ns\":null,\"loss_ppm\":120,\"bytes_per_s\":null}]}\n"}});
    assert_int_equal(medley("links"), 0);
    assert_string_equal(out,
                        "FROM    TO      STATE  CLASS     LATENCY  JITTER  LOSS     BANDWIDTH\n"
                        "laptop  tower   up     ethernet  0.25 ms  31 us   0.0 %    940 Mb/s\n"
                        "tower   laptop  down   wifi      2.5 ms   -       0.012 %  -\n");
    EXPECT(0, "links --json", "\"bytes_per_s\": 117500000");
    assert_int_equal(medley("links --dot"), 0);
    assert_string_equal(out, "digraph topology {\n  charset=\"UTF-8\";\n  node [shape=box];\n"
                             "  n0 [label=\"laptop\"];\n  n1 [label=\"tower\"];\n"
                             "  n0 -> n1 [label=\"ethernet\\n250 µs\\n118 MB/s\"];\n"
                             "  n1 -> n0 [label=\"wifi\\n2.5 ms\\ndown\", style=dashed];\n}\n");
    EXPECT(2, "links --dots", "unknown or incomplete option '--dots'", "medley links --help");
    EXPECT(2, "links all", "unexpected argument 'all'");
}

#define STAGES                                                                                     \
    "[{\"node\":\"tower\",\"device\":\"cuda0\",\"first_layer\":0,\"n_layers\":10,\"state\":"       \
    "\"ready\","                                                                                   \
    "\"problem\":null},{\"node\":\"laptop\",\"device\":\"cpu\",\"first_layer\":10,\"n_layers\":1," \
    "\"state\":\"loading\",\"problem\":\"disk is slow\"}]"

static void test_status(void **state)
{
    (void)state;
    ANSWERS(
        {"status",
         {"{\"node\":{\"id\":\"a1b2c3d4e5f60718293a\",\"name\":\"laptop\"},\"version\":\"0.1.0\","
          "\"waiting\":false,\"cluster\":{\"id\":\"c1\",\"generation\":2,\"leader\":\"tower\","
          "\"term\":7,"
          "\"voters\":3,\"nodes\":4},\"api\":\"http://"
          "127.0.0.1:8080\",\"listening\":[\"[::]:7979\"],"
          "\"code\":\"K7QM-4XZD\",\"instances\":[{\"survives\":1,\"survives_limit\":\"weights\","
          "\"served\":{\"replies\":3,\"decode_tokens_per_s\":74.04,"
          "\"forecast_decode_tokens_per_s\":75.01,\"decode_error\":-0.0129},"
          "\"id\":\"demo-1\",\"model\":\"demo\",\"active\":"
          "true,"
          "\"state\":\"loading\",\"problem\":null,\"epoch\":3,\"stages\":" STAGES "}],"
          "\"models\":[{\"name\":\"demo\",\"bytes\":2645056,\"n_layers\":11,\"architecture\":"
          "\"llama\"},{\"name\":\"new\",\"bytes\":2645056,\"n_layers\":11,\"architecture\":"
          "\"llama\",\"fetching\":{\"verified_bytes\":1048576,\"wanted_bytes\":2097152}}]}\n"}});
    assert_int_equal(medley("status"), 0);
    assert_string_equal(
        out, "node       laptop, medley 0.1.0, id a1b2c3d4e5f60718\n"
             "cluster    c1, 4 nodes of which 3 vote, led by tower (generation 2, term 7)\n"
             "listens    [::]:7979\n"
             "API        http://127.0.0.1:8080\n"
             "join code  K7QM-4XZD\n"
             "\n"
             "MODEL  SIZE     LAYERS  ARCHITECTURE\n"
             "demo   2.5 MiB  11      llama\n"
             "new    2.5 MiB  11      llama; 1.0 MiB of 2.0 MiB fetched here\n"
             "\n"
             "INSTANCE  MODEL  STATE    SURVIVES     FORECAST                   WHERE\n"
             "demo-1    demo   loading  1 (weights)  74.0 of 75.0 tok/s (-1 %)  tower cuda0 layers "
             "0-9, laptop cpu layer 10 "
             "(loading: disk is slow)\n");
    EXPECT(0, "status --json", "\"term\": 7");
}

static void test_status_of_one_that_waits(void **state)
{
    (void)state;
    ANSWERS({"status",
             {"{\"node\":{\"id\":\"a1\",\"name\":\"tower\"},\"version\":\"0.1.0\",\"waiting\":true,"
              "\"cluster\":null,"
              "\"api\":null,\"listening\":[],\"code\":null,\"instances\":[],\"models\":[]}\n"}});
    EXPECT(0, "status", "none yet: waits to be let in", "medley admit", "listens    nowhere",
           "No models yet", "No model runs.");
}

static void test_events(void **state)
{
    (void)state;
    ANSWERS(
        {"events",
         {"{\"index\":5,\"time_ms\":1700000000123,\"by\":\"laptop\",\"text\":\"tower joined\"}\n",
          "{\"index\":6,\"time_ms\":1700000060000,\"by\":null,\"text\":\"demo-1 placed\"}\n"}});
    setenv("TZ", "UTC", 1);
    assert_int_equal(medley("events --last 2"), 0);
    assert_string_equal(out, "2023-11-14 22:13:20       5  laptop: tower joined\n"
                             "2023-11-14 22:14:20       6  demo-1 placed\n");
    assert_string_equal(fake_node_heard(), "{\"do\":\"events\",\"follow\":false,\"last\":2}\n");
    EXPECT(0, "events --json",
           "{\"index\":5,\"time_ms\":1700000000123,\"by\":\"laptop\",\"text\":\"tower joined\"}\n");
    expect_heard("{\"do\":\"events\",\"follow\":false,\"last\":null}\n");
    EXPECT(1, "events --follow", "demo-1 placed\n", "the node on this machine has ended");
    expect_heard("\"follow\":true");
    EXPECT(2, "events --last many", "--last takes a whole number");
}

#define AN_ALERT                                                                                   \
    "{\"id\":\"node_lost@a1\",\"kind\":\"node_lost\",\"severity\":\"critical\",\"subject\":{"      \
    "\"node\":\"a1\"},\"about\":\"tower\",\"raised_ms\":1700000000123,\"text\":\"tower is "        \
    "\\u001b lost\",\"mend\":\"Look.\""

static void test_alerts(void **state)
{
    (void)state;
    ANSWERS({"alerts",
             {"{\"alerts\":[" AN_ALERT "}],\"cleared\":[" AN_ALERT
              ",\"cleared_ms\":1700000060000,\"why\":\"muted\"}]}\n",
              "{\"cleared\":" AN_ALERT ",\"cleared_ms\":1700000120000}}\n"}});
    setenv("TZ", "UTC", 1);
    EXPECT(1, "alerts --follow",
           "2023-11-14 22:13:20  critical  tower is ? lost\n"
           "                     Look.\n",
           "2023-11-14 22:15:20  over      tower is ? lost\n",
           "the node on this machine has ended");
    expect_heard("{\"do\":\"alerts\",\"follow\":true,\"kinds\":false}\n");
}

static void test_alerts_that_are_over(void **state)
{
    (void)state;
    ANSWERS({"alerts",
             {"{\"alerts\":[],\"cleared\":[" AN_ALERT
              ",\"cleared_ms\":1700000060000,\"why\":\"muted\"}]}\n"}});
    EXPECT(0, "alerts", "all is well\n");
    EXPECT(0, "alerts --all", "22:14:20  over      tower is ? lost (muted)\n", "all is well\n");
}

static void test_alerts_of_a_node_that_lies(void **state)
{
    (void)state;
    ANSWERS({"alerts", {"{\"alerts\":[{\"id\":7}],\"cleared\":[]}\n"}});
    EXPECT(1, "alerts", "cannot understand the node's answer: 'raised_ms' is not");
}

static void test_alerts_that_are_set(void **state)
{
    (void)state;
    ANSWERS({"alerts", {"{\"set\":\"device_hot.raise\"}\n"}});
    EXPECT(0, "alerts --set device_hot.raise=90.5", "device_hot.raise is set");
    expect_heard("{\"do\":\"alerts\",\"set\":\"device_hot.raise\",\"value\":90.5}\n");
}

static void test_alerts_that_are_muted(void **state)
{
    (void)state;
    ANSWERS({"alerts", {"{\"muted\":\"mute/node_lost\"}\n"}});
    EXPECT(0, "alerts --mute node_lost --for 30m", "node_lost");
    expect_heard("{\"do\":\"alerts\",\"mute\":\"node_lost\",\"seconds\":1800}\n");
    EXPECT(2, "alerts --set device_hot.raise", "--set takes KIND.FIELD=NUMBER");
    EXPECT(2, "alerts --set device_hot.raise=hot", "--set takes KIND.FIELD=NUMBER");
    EXPECT(2, "alerts --unset device_hot.raise=3", "--unset takes KIND.FIELD");
    EXPECT(2, "alerts --mute node_lost --for 31d", "up to 30 days");
    EXPECT(2, "alerts --mute node_lost --for long", "up to 30 days");
    EXPECT(2, "alerts --mute node_lost --all", "one at a time");
}

/* ---- who is in ------------------------------------------------------------------------------- */

static void test_invite(void **state)
{
    (void)state;
    ANSWERS({"invite", {"{\"code\":\"K7QM-4XZD\",\"expires_s\":300}\n"}});
    assert_int_equal(medley("invite --minutes 5"), 0);
    assert_string_equal(out, "K7QM-4XZD\nThe code lets one machine in, within 5 minutes. There: "
                             "medley join K7QM-4XZD\n");
    assert_string_equal(fake_node_heard(),
                        "{\"do\":\"invite\",\"minutes\":5,\"role\":\"member\"}\n");
    EXPECT(0, "invite --json", "\"code\": \"K7QM-4XZD\"");
    expect_heard("\"minutes\":10");
    EXPECT(2, "invite --minutes 2000", "--minutes takes a whole number from 1 to 1440");
}

#define JOINED "{\"joined\":{\"cluster\":\"c1\",\"through\":\"laptop\"}}\n"

static void test_join_by_code(void **state)
{
    (void)state;
    ANSWERS({"join", {"{\"searching\":true}\n", JOINED}});
    EXPECT(0, "join k7qm4xzd", "looking for the cluster", "joined the cluster c1 through laptop\n");
    assert_string_equal(fake_node_heard(),
                        "{\"do\":\"join\",\"code\":\"k7qm4xzd\",\"host\":null}\n");
    EXPECT(0, "join K7QM-4XZD laptop:7979", "joined");
    expect_heard("{\"do\":\"join\",\"code\":\"K7QM-4XZD\",\"host\":\"laptop:7979\"}\n");
    EXPECT(0, "join 10.0.0.1", "joined");
    expect_heard("{\"do\":\"join\",\"code\":null,\"host\":\"10.0.0.1\"}\n");
    EXPECT(0, "join", "joined");
    expect_heard("{\"do\":\"join\",\"code\":null,\"host\":null}\n");
    EXPECT(2, "join code! laptop", "medley join: ", "medley join --help");
    EXPECT(2, "join a b c", "unexpected argument 'c'");
}

static void test_join_by_hand(void **state)
{
    (void)state;
    ANSWERS({"join",
             {"{\"compare\":{\"words\":\"apple river stone cloud\",\"with\":\"laptop\"}}\n",
              FAKE_LISTEN, JOINED}});
    EXPECT(1, "join", "there is no terminal to ask on", "medley join CODE");
    expect_heard("{\"agree\":false}\n");
    assert_int_equal(medley_on_terminal("join", NULL, "y\n"), 0);
    expect_out("join", "apple river stone cloud");
    expect_out("join", "Are these the words on laptop? [y/N] ");
    expect_out("join", "joined the cluster c1 through laptop");
    expect_heard("{\"agree\":true}\n");
    assert_int_equal(medley_on_terminal("join", NULL, "\n"), 1);
    expect_out("join", "the words differ: not joined");
}

static void test_admit(void **state)
{
    (void)state;
    ANSWERS({"admit",
             {"{\"compare\":{\"words\":\"apple river stone "
              "cloud\",\"name\":\"tower\",\"id\":\"c3\"}}\n",
              FAKE_LISTEN, "{\"admitted\":\"tower\"}\n"}});
    EXPECT(1, "admit tower", "--yes-the-words-are");
    expect_heard("{\"do\":\"admit\",\"node\":\"tower\"}\n{\"agree\":false}\n");
    EXPECT(0, "admit tower --yes-the-words-are 'Apple-River stone cloud'",
           "tower is in the cluster\n");
    expect_heard("{\"agree\":true}\n");
    fake_node_answers(answers, 1);
    EXPECT(1, "admit tower --yes-the-words-are 'apple river stone clown'",
           "tower is not let in: the words here differ");
    EXPECT(1, "admit tower --yes-the-words-are 'apple river stone'", "tower is not let in");
    EXPECT(1, "admit tower --yes-the-words-are ''", "tower is not let in");
    assert_null(strstr(fake_node_heard(), "true"));
    assert_int_equal(medley_on_terminal("admit", "tower", "no\n"), 1);
    expect_out("admit", "tower is not let in");
    assert_null(strstr(fake_node_heard(), "true"));
    assert_int_equal(medley_on_terminal("admit", "tower", "Yes\n"), 0);
    expect_out("admit", "tower is in the cluster");
    EXPECT(2, "admit", "which machine?");
}

/* An admin has known the authority's key: that is said, or mended at once. */
static void test_an_admin_goes(void **state)
{
    (void)state;
    ANSWERS({"remove", {"{\"removed\":\"tower\",\"was_admin\":true}\n"}},
            {"role", {"{\"member\":\"tower\"}\n"}},
            {"authority", {"{\"rotated\":\"the authority\"}\n"}});
    EXPECT(0, "remove tower", "tower is removed from the cluster\n", "medley authority rotate");
    EXPECT(0, "role tower member", "plain member now", "medley authority rotate");
    EXPECT(0, "remove --rotate tower",
           "tower is removed from the cluster\nthe authority has a new");
    EXPECT(0, "role tower member --rotate", "plain member now\nthe authority has a new key");
    expect_heard("{\"do\":\"remove\",\"node\":\"tower\"}\n"
                 "{\"do\":\"authority\",\"what\":\"rotate\"}\n"
                 "{\"do\":\"role\",\"node\":\"tower\",\"role\":\"member\"}\n"
                 "{\"do\":\"authority\",\"what\":\"rotate\"}\n");
    EXPECT(2, "role tower member --rotated", "--rotated");
}

static void test_token(void **state)
{
    (void)state;
    ANSWERS({"token",
             {"{\"tokens\":[{\"name\":\"ci\",\"id\":\"0123456789abcdef\",\"scopes\":"
              "\"generate\",\"created_ms\":1,\"expires_ms\":0,\"expired\":false,\"models\":[],"
              "\"places\":[\"tower\"],\"requests_per_min\":60,\"streams\":0,\"tokens_per_day\":9},"
              "{\"name\":\"tv\",\"id\":\"1123456789abcdef\",\"scopes\":\"read\","
              "\"created_ms\":1,\"expires_ms\":0,\"expired\":false,\"models\":[\"demo\"],"
              "\"places\":[],\"requests_per_min\":0,\"streams\":4,\"tokens_per_day\":0}]}\n"}});
    EXPECT(0, "token list", "NAME", "ci ", "tv ", "tower", "demo");
    EXPECT(0, "token show tv", "tv ", "demo");
    assert_null(strstr(out, "tower")); /* the other one */
    EXPECT(1, "token show none", "there is no token 'none'");
    EXPECT(0, "token list --json", "\"tokens_per_day\": 9");
    EXPECT(2, "token", "say create, list, show or revoke");
    EXPECT(2, "token show", "which token?");
    EXPECT(2, "token create x --rate often", "60/min, not 'often'");
}

static void test_what_is_told_the_node(void **state)
{
    (void)state;
    ANSWERS({"remove", {"{\"removed\":\"tower\"}\n"}}, {"forget", {"{\"forgotten\":\"demo\"}\n"}},
            {"unload", {"{\"unloaded\":\"demo-1\"}\n"}});
    EXPECT(0, "remove tower", "tower is removed from the cluster\n");
    EXPECT(0, "forget demo", "demo is forgotten\n");
    EXPECT(0, "unload demo-1", "demo-1 is unloaded\n");
    EXPECT(0, "unload --json demo-1", "\"unloaded\": \"demo-1\"");
    expect_heard("{\"do\":\"remove\",\"node\":\"tower\"}\n{\"do\":\"forget\",\"model\":\"demo\"}\n"
                 "{\"do\":\"unload\",\"instance\":\"demo-1\"}\n");
    EXPECT(2, "remove", "which machine?");
    EXPECT(2, "remove --rotated x", "--rotated");
    EXPECT(2, "forget", "which model?");
    EXPECT(2, "unload", "which instance?");
}

#define LENDS(nothing)                                                                             \
    "{\"lends\":{\"memory\":\"8GiB\",\"share\":\"50%\",\"devices\":\"all\",\"hours\":"             \
    "\"always\",\"battery\":\"yes\",\"used\":\"yes\",\"now\":\"no\",\"nothing_now\":" nothing      \
    "}}\n"

static void test_lend(void **state)
{
    (void)state;
    ANSWERS({"lend", {LENDS("\"its owner lends nothing now\"")}});
    EXPECT(0, "lend off --memory 8GiB --share 50%", "Nothing is lent now: its owner lends nothing");
    expect_heard("{\"do\":\"lend\",\"memory\":\"8GiB\",\"share\":\"50%\",\"now\":\"no\"}\n");
    EXPECT(2, "lend maybe", "on or off, not 'maybe'");
    EXPECT(2, "lend on off", "one word at most");
    EXPECT(2, "lend --hours 9", "hours takes two times such as 22:00-07:00, or always, not '9'");
    EXPECT(2, "lend --colour red", "unknown or incomplete option");
}

static void test_moves(void **state)
{
    (void)state;
    ANSWERS({"drain", {"{\"drained\":\"tower\"}\n"}},
            {"move", {"{\"moved\":\"demo\",\"stages\":[]}\n"}},
            {"moves", {"{\"moves\":\"off\"}\n"}});
    EXPECT(0, "drain tower", "tower is used for nothing new");
    EXPECT(0, "move demo --to tower/sim:card:20,pi/cpu:2", "demo runs where you said\n");
    EXPECT(0, "move --off", "moves for gain are off\n");
    expect_heard("{\"do\":\"drain\",\"node\":\"tower\",\"undo\":false}\n"
                 "{\"do\":\"move\",\"instance\":\"demo\",\"to\":[{\"node\":\"tower\",\"device\":"
                 "\"sim:card\","
                 "\"n_layers\":20},{\"node\":\"pi\",\"device\":\"cpu\",\"n_layers\":2}]}\n"
                 "{\"do\":\"moves\",\"instance\":null,\"on\":false}\n");
    EXPECT(2, "drain", "which machine?");
    EXPECT(2, "move --to a/b:1", "which instance?");
    EXPECT(2, "move demo", "one of --to, --on and --off");
    EXPECT(2, "move demo --off --on", "one of --to, --on and --off");
    EXPECT(2, "move demo --to ''", "is not NODE/DEVICE:LAYERS");
    EXPECT(2, "move demo --to a/b:0", "'a/b:0' is not NODE/DEVICE:LAYERS");
    EXPECT(2, "move demo --to a/b:1,", "'' is not NODE/DEVICE:LAYERS");
    EXPECT(2, "move demo --to a:1", "is not NODE/DEVICE:LAYERS");
    EXPECT(2, "move demo --to /b:1", "is not NODE/DEVICE:LAYERS");
    EXPECT(2, "move demo --to a/:1", "is not NODE/DEVICE:LAYERS");
    EXPECT(2, "move demo --to a/b:1x", "is not NODE/DEVICE:LAYERS");
}

/* ---- models ---------------------------------------------------------------------------------- */

static void test_add(void **state)
{
    (void)state;
    char words[256], heard[256];
    ANSWERS({"add",
             {"{\"adding\":{\"bytes\":1000000}}\n", "{\"adding\":{\"bytes\":1000000}}\n",
              "{\"model\":\"demo\"}\n"}});
    snprintf(words, sizeof words, "add %s/../$(basename %s)/m.gguf", fake_node_folder(),
             fake_node_folder());
    EXPECT(1, words, "m.gguf: No such file");
    snprintf(heard, sizeof heard, "%s/m.gguf", fake_node_folder());
    fclose(fopen(heard, "w"));
    EXPECT(0, words, "the cluster now knows demo\n");
    snprintf(heard, sizeof heard, "{\"do\":\"add\",\"path\":\"%s/m.gguf\"}\n", fake_node_folder());
    assert_string_equal(fake_node_heard(), heard);
    snprintf(words, sizeof words, "add %s", fake_node_folder());
    EXPECT(2, words, "is not a file");
    EXPECT(2, "add", "which model?");
}

static void test_place(void **state)
{
    (void)state;
    ANSWERS({"place",
             {"{\"state\":\"placing\"}\n", "{\"state\":\"loading\",\"stages\":" STAGES "}\n",
              "{\"ready\":{\"instance\":\"demo-1\",\"stages\":" STAGES "}}\n"}});
    assert_int_equal(medley("place demo -c 100 --streams 4 --cells 256 --kv q8_0 --speculate off "
                            "--goal mix --idle 0"),
                     0);
    assert_string_equal(out, "demo-1 is ready: tower cuda0 layers 0-9, laptop cpu layer 10\n");
    assert_string_equal(
        fake_node_heard(),
        "{\"do\":\"place\",\"model\":\"demo\",\"context\":100,\"streams\":4,"
        "\"cells\":256,\"goal\":\"mix\",\"kv\":\"q8_0\","
        "\"speculate\":\"off\",\"draft\":null,\"draft_device\":null,\"precision\":null,\"allow_"
        "precision\":null,\"idle_s\":0,"
        "\"weights_memory\":null,\"score_weights\":null,"
        "\"time_limit_s\":null}\n");
    EXPECT(0, "place demo --json", "\"instance\": \"demo-1\"");
    expect_heard("\"context\":null,\"streams\":null,\"cells\":null,\"goal\":null,\"kv\":null,"
                 "\"speculate\":null,\"draft\":null,\"draft_device\":null,\"precision\":null,"
                 "\"allow_precision\":null,"
                 "\"idle_s\":null");
    EXPECT(0, "place demo --weights-memory 8GiB --score-weights memory=60 --time-limit 9", "ready");
    expect_heard("\"weights_memory\":\"8GiB\",\"score_weights\":\"memory=60\",\"time_limit_s\":9");
    EXPECT(0, "place demo --rope-scaling yarn --rope-scale 2", "ready");
    expect_heard("\"rope\":{\"scaling\":\"yarn\",\"scale\":2.0}");
    EXPECT(2, "place demo --speculate much", "--speculate takes lookup or off, not 'much'");
    EXPECT(2, "place demo --rope-scaling wide", "--rope-scaling takes none, linear or yarn");
    EXPECT(2, "place demo --rope-scale 0.5", "--rope-scale takes 1 to 1024");
    EXPECT(2, "place demo --weights-memory 8apples", "--weights-memory");
    EXPECT(2, "place demo --score-weights speed=3", "--score-weights: weights are compute");
    EXPECT(2, "place demo --time-limit 61", "--time-limit");
    EXPECT(2, "place demo --kv q4_k", "--kv takes f16, f32, q8_0 or q4_0");
    EXPECT(2, "place demo --cells 0", "--cells");
    EXPECT(2, "place demo --goal speed", "--goal takes latency, throughput or mix");
    EXPECT(1, "place ./demo", "./demo: No such file");
    EXPECT(1, "place nothing.gguf", "nothing.gguf: No such file");
    EXPECT(2, "place", "which model?");
}

static void test_place_says_its_context(void **state)
{
    (void)state;
    ANSWERS({"place",
             {"{\"ready\":{\"instance\":\"demo-1\",\"context\":16384,\"streams\":4,"
              "\"stages\":" STAGES "}}\n"}});
    assert_int_equal(medley("place demo"), 0); /* nobody gave one */
    assert_string_equal(out, "demo-1 is ready: tower cuda0 layers 0-9, laptop cpu layer 10\n"
                             "Its context is 16384 tokens for each of 4 streams (--context)\n");
}

static void test_place_says_what_it_keeps(void **state)
{
    (void)state;
    ANSWERS({"place",
             {"{\"ready\":{\"instance\":\"demo-1\",\"kept\":\"--context 512, --kv q8_0\","
              "\"stages\":" STAGES "}}\n"}});
    assert_int_equal(medley("place demo --streams 2"), 0);
    assert_string_equal(out, "demo-1 is ready: tower cuda0 layers 0-9, laptop cpu layer 10\n"
                             "Kept, as asked for before: --context 512, --kv q8_0\n");
}

static void test_place_says_who_shares_memory(void **state)
{
    (void)state;
    ANSWERS({"place",
             {"{\"ready\":{\"instance\":\"demo-1\",\"context\":4096,\"streams\":16,\"cells\":16384,"
              "\"stages\":" STAGES "}}\n"}});
    EXPECT(0, "place demo -c 4096",
           "4096 tokens for each of 16 streams, which share 16384 (--context, --cells)\n");
}

static void test_place_says_who_cannot_share_memory(void **state)
{
    (void)state;
    ANSWERS({"place",
             {"{\"ready\":{\"instance\":\"demo-1\",\"context\":4096,\"streams\":4,\"cells\":0,"
              "\"apart\":\"cuda0 of tower\",\"stages\":" STAGES "}}\n"}});
    EXPECT(0, "place demo -c 4096",
           "each of 4 streams (--context); cuda0 of tower cannot share memory between streams\n");
}

/* ---- a node that is not there, that fails, that is no node ----------------------------------- */

#define NO_NODE "no node runs on this machine: start one with `medley up`"

static void test_no_node(void **state)
{
    (void)state;
    char path[128];
    ANSWERS({"nodes", {NODES}});
    fake_node_stop();
    EXPECT(1, "nodes", "medley nodes: " NO_NODE); /* a socket on which nobody listens */
    snprintf(path, sizeof path, "%s/control.sock", fake_node_folder());
    assert_int_equal(unlink(path), 0);
    static const char *const all[] = {"nodes",    "links",    "status",  "events",
                                      "invite",   "join",     "admit x", "remove x",
                                      "forget x", "unload x", "place x"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        EXPECT(1, all[i], NO_NODE);
    setenv("MEDLEY_STATE_DIR", "", 1);
    EXPECT(1, "nodes", NO_NODE);
    setenv("MEDLEY_STATE_DIR",
           "/tmp/a-folder-whose-name-is-so-long-that-no-socket-can-be-in-it/"
           "because-a-socket-path-has-107-characters",
           1);
    EXPECT(1, "nodes", "no node runs on this machine: its folder");
    setenv("MEDLEY_STATE_DIR", fake_node_folder(), 1);
    fclose(fopen(path, "w"));
    EXPECT(1, "nodes", NO_NODE); /* a file that is no socket refuses */
    unlink(path);
}

static void test_errors_of_the_node(void **state)
{
    (void)state;
    ANSWERS(
        {"remove", {"{\"error\":{\"code\":\"not_found\",\"text\":\"there is no node 'x'\"}}\n"}},
        {"forget",
         {"{\"error\":{\"code\":\"invalid\",\"text\":\"a \\u001b[31mred\\u0000 word\"}}\n"}},
        {"unload", {"{\"error\":{\"code\":\"of a newer node\",\"text\":\"new\"}}\n"}},
        {"nodes", {"{\"error\":5}\n"}}, {"links", {"{\"error\":{\"code\":7,\"text\":\"x\"}}\n"}},
        {"join",
         {"{\"searching\":true}\n",
          "{\"error\":{\"code\":\"busy\",\"text\":\"the code is used\"}}\n"}});
    EXPECT(1, "remove x", "medley remove: there is no node 'x'\n");
    EXPECT(1, "forget x", "'text' is not a text");
    EXPECT(1, "unload x", "medley unload: new\n");
    EXPECT(1, "nodes", "cannot understand the node's answer: 'error' is not an object");
    EXPECT(1, "links", "'code' is not a text");
    EXPECT(1, "join K7QM-4XZD", "the code is used");
}

static void test_answers_that_are_none(void **state)
{
    (void)state;
    ANSWERS(
        {"nodes", {"nonsense\n"}}, {"links", {"[1, 2]\n"}}, {"status", {"{\"node\":{\"id\":"}},
        {"events", {"{\"index\":1,\"time_ms\":2,\"by\":null,\"text\":\"one\"}\n", "{\"index\":2"}},
        {"invite", {"\n"}}, {"admit", {"{\"compare\":{}}\n"}}, {"remove", {"{}\n"}},
        {"forget", {"{\"forgotten\":[]}\n"}}, {"place", {"{\"state\":\"placing\"}\n"}},
        {"join", {"{\"compare\":\"x\"}\n"}});
    EXPECT(1, "nodes", "the node's answer is not a JSON object");
    EXPECT(1, "links", "the node's answer is not a JSON object");
    EXPECT(1, "status", "closed the connection in the middle of its answer");
    EXPECT(1, "events", "  one\n", "closed the connection in the middle of its answer");
    EXPECT(1, "invite", "the node's answer is not a JSON object");
    EXPECT(1, "admit x", "'words' is not a text");
    EXPECT(1, "remove x", "'removed' is not a text");
    EXPECT(1, "forget x", "'forgotten' is not a text");
    EXPECT(1, "unload x", "closed the connection without an answer");
    EXPECT(1, "place x", "closed the connection without an answer");
    EXPECT(1, "join", "'compare' is not an object");
}

static void test_endless_line(void **state)
{
    (void)state;
    ANSWERS({"nodes", {FAKE_ENDLESS}});
    EXPECT(1, "nodes", "the node's answer is longer than the limit of");
}

static void test_wrong_types(void **state)
{
    (void)state;
    ANSWERS({"nodes", {"{\"nodes\":[5]}\n"}}, {"links", {"{\"links\":{}}\n"}},
            {"status", {"{\"node\":{\"id\":\"a\",\"name\":\"b\"},\"version\":-1}\n"}},
            {"events",
             {"{\"index\":-1,\"time_ms\":18446744073709551615,\"by\":null,\"text\":\"x\"}\n"}},
            {"invite", {"{\"code\":\"K7QM-4XZD\",\"expires_s\":1e300}\n"}});
    EXPECT(1, "nodes", "'devices' is not a list");
    EXPECT(1, "links", "'links' is not a list");
    EXPECT(1, "links --dot", "'links' is not a list");
    EXPECT(1, "status", "'version' is not a text");
    EXPECT(1, "events", "'index' is not a whole number");
    EXPECT(1, "invite", "'expires_s' is not a whole number");
}

static void test_names_cannot_write_to_the_terminal(void **state)
{
    (void)state;
    ANSWERS(
        {"nodes",
         {"{\"nodes\":[{\"id\":\"a\",\"name\":\"t\\u001b[2J\\nx\\u0085\",\"self\":false,\"state\":"
          "\"waiting\","
          "\"leads\":false,\"votes\":false,\"version\":\"\",\"addresses\":[\"\\r\"],\"heard_ms\":"
          "null,"
          "\"words\":\"\\u0007\",\"devices\":[{\"id\":\"\\u009b\",\"name\":\"\",\"kind\":\"\","
          "\"memory_bytes\":18446744073709551615,\"free_bytes\":18446744073709551615}]}]}\n"}},
        {"remove", {"{\"removed\":\"\\u001b]0;x\\u0007\"}\n"}},
        {"events",
         {"{\"index\":1,\"time_ms\":18446744073709551615,\"by\":\"\\t\",\"text\":\"\\u001b\"}\n"}},
        {"place", {"{\"ready\":{\"instance\":\"\\u001b\",\"stages\":[]}}\n"}});
    static const char *const all[] = {"nodes", "remove x", "events", "place x", "nodes --json"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (medley(all[i]))
            fail_msg("medley %s: %s", all[i], out);
        for (const char *c = out; *c; c++)
            assert_true(*c == '\n' || (unsigned char)*c >= ' ');
        assert_null(strstr(out, "\xc2\x85"));
    }
    EXPECT(0, "nodes", "t?[2J?x?", "waits to be let in");
}

static int set_up(void **state)
{
    (void)state;
    fake_node_begin();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fake_node_end();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nodes),
        cmocka_unit_test(test_links),
        cmocka_unit_test(test_status),
        cmocka_unit_test(test_status_of_one_that_waits),
        cmocka_unit_test(test_events),
        cmocka_unit_test(test_alerts),
        cmocka_unit_test(test_alerts_that_are_over),
        cmocka_unit_test(test_alerts_of_a_node_that_lies),
        cmocka_unit_test(test_alerts_that_are_set),
        cmocka_unit_test(test_alerts_that_are_muted),
        cmocka_unit_test(test_invite),
        cmocka_unit_test(test_join_by_code),
        cmocka_unit_test(test_join_by_hand),
        cmocka_unit_test(test_admit),
        cmocka_unit_test(test_an_admin_goes),
        cmocka_unit_test(test_token),
        cmocka_unit_test(test_what_is_told_the_node),
        cmocka_unit_test(test_lend),
        cmocka_unit_test(test_moves),
        cmocka_unit_test(test_add),
        cmocka_unit_test(test_place),
        cmocka_unit_test(test_place_says_its_context),
        cmocka_unit_test(test_place_says_what_it_keeps),
        cmocka_unit_test(test_place_says_who_shares_memory),
        cmocka_unit_test(test_place_says_who_cannot_share_memory),
        cmocka_unit_test(test_no_node),
        cmocka_unit_test(test_errors_of_the_node),
        cmocka_unit_test(test_answers_that_are_none),
        cmocka_unit_test(test_endless_line),
        cmocka_unit_test(test_wrong_types),
        cmocka_unit_test(test_names_cannot_write_to_the_terminal),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
