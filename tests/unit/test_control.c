/* The control socket of a node, spoken to by commands as they should, and by others as they should
 * not; and nodes that cannot begin. */
#include "daemon_world.h"

#include "agreement/agreement.h"
#include "node/lead.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cmocka.h>
#include <yyjson.h>

static struct daemon_world *w;
static struct error err;

static int setup(void **state)
{
    w = daemon_world_open();
    return 0;
}

static int teardown(void **state)
{
    daemon_world_close(w);
    return 0;
}

static void start_alone(void)
{
    if (daemon_world_start(w, 0, &(struct daemon_options){0}, &err))
        fail_msg("%s", err.text);
}

static bool leads(void *arg)
{
    const struct daemon *daemon = w->nodes[0].daemon;
    const Cluster__NodeRecord *record = state_node(daemon_state(daemon), daemon->id);
    return lead_is(daemon->lead) && record && record->admitted;
}

static void await_leader(void)
{
    assert_true(daemon_world_run(w, leads, NULL, 5000));
}

/* Every line is one JSON object. */
static void check_lines(const char *text)
{
    while (*text) {
        const char *end = strchr(text, '\n');
        assert_non_null(end);
        yyjson_doc *doc = yyjson_read(text, (size_t)(end - text), 0);
        assert_true(yyjson_is_obj(yyjson_doc_get_root(doc)));
        yyjson_doc_free(doc);
        text = end + 1;
    }
}

static void expect(const char *line, const char *words)
{
    const char *answer = ask(w, 0, line);
    check_lines(answer);
    if (!strstr(answer, words))
        fail_msg("%s: '%s' is not in: %s", line, words, answer);
}

/* ---- a node as it should be ---- */

static void test_answers(void **state)
{
    struct stat status;
    char path[128];
    start_alone();
    await_leader();
    snprintf(path, sizeof path, "%s/control.sock", w->nodes[0].folder);
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
    expect("{\"do\":\"status\"}", "\"waiting\":false");
    expect("{\"do\":\"status\"}", "\"leader\":\"node0\"");
    expect("{\"do\":\"nodes\"}", "\"state\":\"up\"");
    expect("{\"do\":\"nodes\"}", "\"sim:chip\"");
    expect("{\"do\":\"links\"}", "{\"links\":[]}");
    expect("{\"do\":\"cluster\"}", "node0");
    expect("{\"do\":\"events\"}", "was let in");
    expect("{\"do\":\"invite\",\"minutes\":5}", "\"expires_s\":");
    expect("{\"do\":\"invite\",\"minutes\":null}", "\"code\":\"");
    expect("{\"do\":\"generate\",\"model\":\"none\"}", "not_found");
    expect("{\"do\":\"place\",\"model\":\"none\"}", "not_found");
    expect("{\"do\":\"place\",\"model\":\"/no/such/file\"}", "error");
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%s/models", getenv("MEDLEY_GOLDEN"));
    setenv("MEDLEY_MODELS", folder, 1); /* a name of `medley models` is as good as a path */
    expect("{\"do\":\"place\",\"model\":\"llama-q8_0\",\"context\":100000}", "was trained for 512");
    expect("{\"do\":\"place\",\"model\":\"llama-q8\"}", "`medley models` lists them");
    unsetenv("MEDLEY_MODELS");
    expect("{\"do\":\"add\",\"path\":\"relative\"}", "absolute");
    expect("{\"do\":\"forget\",\"model\":\"none\"}", "not_found");
    expect("{\"do\":\"unload\",\"instance\":\"none\"}", "not_found");
    expect("{\"do\":\"remove\",\"node\":\"none\"}", "not_found");
    expect("{\"do\":\"remove\",\"node\":\"node0\"}", "medley leave");
    expect("{\"do\":\"admit\",\"node\":\"none\"}", "not_found");
    expect("{\"do\":\"join\",\"code\":\"1234-5678\"}", "already in a cluster");
}

/* ---- what nobody should say ---- */

static void test_hostile(void **state)
{
    static const struct {
        const char *line, *answer;
    } said[] = {
        {"", "one JSON object"},
        {"{", "one JSON object"},
        {"[]", "one JSON object"},
        {"7", "one JSON object"},
        {"{}", "does not know"},
        {"{\"do\":5}", "does not know"},
        {"{\"do\":null}", "does not know"},
        {"{\"do\":\"fly\"}", "does not know the request 'fly'"},
        {"{\"do\":\"invite\",\"minutes\":-1}", "minutes must be a whole number"},
        {"{\"do\":\"invite\",\"minutes\":4294967296}", "minutes must be"},
        {"{\"do\":\"invite\",\"minutes\":1e300}", "minutes must be"},
        {"{\"do\":\"invite\",\"minutes\":\"5\"}", "minutes must be"},
        {"{\"do\":\"events\",\"last\":[]}", "last must be"},
        {"{\"do\":\"place\",\"model\":\"m\",\"context\":8589934592}", "context must be"},
        {"{\"do\":\"place\",\"model\":\"m\",\"streams\":4294967297}", "streams must be"},
        {"{\"do\":\"place\",\"model\":\"m\",\"idle_s\":18446744073709551615}", "idle_s must be"},
        {"{\"do\":\"place\",\"model\":\"m\",\"goal\":\"fame\"}", "not 'fame'"},
        {"{\"do\":\"place\"}", "say which model"},
        {"{\"do\":\"place\",\"model\":{}}", "'model' must be a string"},
        {"{\"do\":\"generate\",\"model\":7}", "'model' must be a string"},
        {"{\"do\":\"add\",\"path\":[]}", "'path' must be a string"},
        {"{\"do\":\"invite\",\"role\":0}", "'role' must be a string"},
        {"{\"do\":\"alerts\",\"kinds\":[]}", "'kinds' must be true or false"},
        {"{\"do\":\"forget\"}", "not_found"},
        {"{\"do\":\"unload\",\"instance\":null}", "not_found"},
        {"{\"do\":\"remove\",\"node\":1}", "'node' must be a string"},
        {"{\"do\":\"remove\",\"node\":\"\"}", "not_found"},
        {"{\"do\":\"admit\",\"node\":false}", "'node' must be a string"},
        {"{\"do\":\"join\",\"code\":\"x\",\"host\":\"h\"}", "already"},
    };
    start_alone();
    await_leader();
    for (size_t i = 0; i < sizeof said / sizeof *said; i++)
        expect(said[i].line, said[i].answer);
    expect("{\"do\":\"status\"}", "\"waiting\":false");
}

static void fill(char *line, size_t n, char with)
{
    memset(line, with, n);
    line[n] = 0;
}

static void test_long_lines(void **state)
{
    static char line[200 * 1024];
    start_alone();
    fill(line, 63 * 1024, '[');
    expect(line, "one JSON object");
    fill(line, 64 * 1024 - 1, ' ');
    memcpy(line, "{\"do\":\"status\"}", 15);
    expect(line, "\"waiting\"");
    fill(line, 150 * 1024, 'x');
    expect(line, "at most 65536 bytes");

    /* Bytes one after another, two requests at once, half a line. */
    struct talk *talk = talk_open(w, 0);
    for (const char *at = "{\"do\":\"status\"}\n"; *at; at++)
        talk_say(w, talk, at, 1);
    assert_true(talk_await_end(w, talk, 5000));
    assert_non_null(strstr(talk->text, "\"waiting\""));
    talk_close(talk);
    talk = talk_open(w, 0);
    talk_say(w, talk, "{\"do\":\"fly\"}\n{\"do\":\"status\"}\n", 29);
    assert_true(talk_await_end(w, talk, 5000));
    check_lines(talk->text);
    assert_null(strstr(talk->text, "waiting"));
    talk_close(talk);
    talk = talk_open(w, 0);
    talk_say(w, talk, "{\"do\":\"sta", 10);
    talk_close(talk);
    talk = talk_open(w, 0);
    talk_say(w, talk, "{\"do\":\"status\"}\0\n", 17);
    assert_true(talk_await(w, talk, "one JSON object", 5000));
    talk_close(talk);
    expect("{\"do\":\"status\"}", "\"waiting\"");
}

enum { MANY = 100 };

static void test_many(void **state)
{
    struct talk *talks[MANY];
    uint32_t n_refused = 0;
    start_alone();
    for (int i = 0; i < MANY; i++)
        talks[i] = talk_open(w, 0);
    daemon_world_pass(w, 100);
    for (int i = 0; i < MANY; i++)
        n_refused += talk_await(w, talks[i], "busy", 0);
    assert_int_equal(n_refused, MANY - 64);
    for (int i = 0; i < MANY; i++)
        talk_close(talks[i]);
    daemon_world_pass(w, 50);
    expect("{\"do\":\"status\"}", "\"waiting\"");
}

/* Whoever asks for what lasts, and does not wait: at once, and while the node stops. */
static void test_goes_away(void **state)
{
    static const char *const lines[] = {
        "{\"do\":\"events\",\"follow\":true}\n",
        "{\"do\":\"place\",\"model\":\"/no/such/file\"}\n",
        "{\"do\":\"add\",\"path\":\"/dev/null\"}\n",
        "{\"do\":\"generate\",\"model\":\"/no/such/file\"}\n",
        "{\"do\":\"nodes\"}\n",
        "{\"do\":\"",
    };
    start_alone();
    await_leader();
    struct talk *left[6];
    for (int i = 0; i < 6; i++) {
        struct talk *talk = talk_open(w, 0);
        talk_say(w, talk, lines[i], strlen(lines[i]));
        talk_close(talk);
        left[i] = talk_open(w, 0);
        assert_int_equal(send(left[i]->fd, lines[i], strlen(lines[i]), 0), strlen(lines[i]));
    }
    expect("{\"do\":\"status\"}", "\"waiting\"");
    daemon_world_stop(w, 0);
    for (int i = 0; i < 6; i++) {
        assert_true(talk_await_end(w, left[i], 1000));
        talk_close(left[i]);
    }
}

/* ---- a node that is in no cluster ---- */

static void test_waits(void **state)
{
    const struct daemon_options options = {.peers = {"127.0.0.1:1"}, .n_peers = 1};
    if (daemon_world_start(w, 0, &options, &err))
        fail_msg("%s", err.text);
    expect("{\"do\":\"status\"}", "\"waiting\":true");
    expect("{\"do\":\"status\"}", "\"cluster\":null");
    expect("{\"do\":\"nodes\"}", "{\"nodes\":[]}");
    expect("{\"do\":\"links\"}", "{\"links\":[]}");
    expect("{\"do\":\"cluster\"}", "busy");
    expect("{\"do\":\"invite\"}", "busy");
    expect("{\"do\":\"admit\",\"node\":\"x\"}", "busy");
    expect("{\"do\":\"remove\",\"node\":\"x\"}", "busy");
    expect("{\"do\":\"leave\"}", "in no cluster");
    expect("{\"do\":\"add\",\"path\":\"/dev/null\"}", "busy");
    expect("{\"do\":\"place\",\"model\":\"x\"}", "busy");
    expect("{\"do\":\"generate\",\"model\":\"x\"}", "busy");
    expect("{\"do\":\"forget\",\"model\":\"x\"}", "not_found");
    expect("{\"do\":\"unload\",\"instance\":\"x\"}", "not_found");
    expect("{\"do\":\"events\"}", "");
    expect("{\"do\":\"join\",\"code\":\"no code\",\"host\":\"127.0.0.1:1\"}", "invalid");
    expect("{\"do\":\"join\",\"code\":null,\"host\":\"a:b:c:99999999\"}", "error");
    expect("{\"do\":\"join\",\"code\":null,\"host\":\"127.0.0.1:99999\"}", "invalid");
    expect("{\"do\":\"join\",\"code\":\"12345678\",\"host\":\"127.0.0.1:1\"}",
           "error"); /* nobody is there */

    /* Who asked to join goes, or stays while the node stops. */
    struct talk *gone = talk_open(w, 0), *stays;
    talk_say(w, gone, "{\"do\":\"join\"}\n", 14);
    talk_close(gone);
    daemon_world_pass(w, 20);
    stays = talk_open(w, 0);
    talk_say(w, stays, "{\"do\":\"join\"}\n{\"agree\":true}\n", 30);
    daemon_world_stop(w, 0);
    assert_true(talk_await_end(w, stays, 1000));
    talk_close(stays);
}

/* ---- nodes that cannot begin ---- */

static void refuse(const struct daemon_options *options, enum error_code code, const char *words)
{
    assert_int_equal(daemon_world_start(w, 1, options, &err), code);
    if (!strstr(err.text, words))
        fail_msg("'%s' is not in: %s", words, err.text);
}

static void test_cannot_begin(void **state)
{
    start_alone();
    await_leader();
    refuse(&(struct daemon_options){.join_code = "a code"}, ERROR_INVALID, "--join");
    refuse(&(struct daemon_options){.peers = {"host:"}, .n_peers = 1}, ERROR_INVALID, "--peer");
    refuse(&(struct daemon_options){.name = "two\nlines"}, ERROR_INVALID, "--name");
    refuse(&(struct daemon_options){.name = ""}, ERROR_INVALID, "--name");
    refuse(&(struct daemon_options){.host = "no address"}, ERROR_INVALID, "--listen");
    refuse(&(struct daemon_options){.port = w->nodes[0].daemon->port}, ERROR_IO, "--listen");
    strcpy(w->nodes[1].folder, w->nodes[0].folder);
    refuse(&(struct daemon_options){0}, ERROR_BUSY, "already runs here");
    expect("{\"do\":\"status\"}", "\"waiting\":false"); /* the first has not noticed */
    assert_int_equal(daemon_check_folder(w->nodes[0].folder, &err), ERROR_BUSY);
    assert_int_equal(daemon_check_folder("/tmp/no-such-folder", &err), ERROR_NONE);
    strcpy(w->nodes[1].folder, "/proc/nowhere");
    refuse(&(struct daemon_options){0}, ERROR_IO, "/proc");
}

/* A file that is not what it was is told, and left as it is. */
static void test_damaged(void **state)
{
    static const char *const files[] = {"nodes", "cluster.db"};
    start_alone();
    await_leader();
    daemon_world_stop(w, 0);
    for (int i = 0; i < 2; i++) {
        char path[128], kept[140];
        snprintf(path, sizeof path, "%s/%s", w->nodes[0].folder, files[i]);
        snprintf(kept, sizeof kept, "%s.kept", path);
        assert_int_equal(rename(path, kept), 0);
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        assert_true(fputs("this is none of ours", file) >= 0);
        fclose(file);
        assert_int_equal(daemon_world_start(w, 0, &(struct daemon_options){0}, &err),
                         ERROR_INVALID);
        assert_non_null(strstr(err.text, files[i]));
        assert_int_equal(rename(kept, path), 0);
    }
    start_alone();
    await_leader();
    expect("{\"do\":\"status\"}", "\"nodes\":1");
}

/* Founding that was interrupted: a log without a certificate is dropped, and the node founds
 * anew. */
static void test_founding_interrupted(void **state)
{
    char path[128];
    start_alone();
    await_leader();
    const uint64_t member = agreement_member(w->nodes[0].daemon->agreement);
    daemon_world_stop(w, 0);
    snprintf(path, sizeof path, "rm %s/identity/member*", w->nodes[0].folder);
    if (system(path) != 0)
        fail_msg("%s", path);
    const struct daemon_options options = {.peers = {"127.0.0.1:1"}, .n_peers = 1};
    assert_int_equal(daemon_world_start(w, 0, &options, &err), ERROR_NONE);
    daemon_world_pass(w, 300);
    assert_true(agreement_member(w->nodes[0].daemon->agreement) != member);
    expect("{\"do\":\"status\"}", "\"waiting\":true");
}

/* ---- requests that come otherwise than over the socket ---- */

struct heard {
    unsigned n_lines, n_ended;
    char last[256];
};

static void hear_line(void *self, const char *line, size_t size)
{
    struct heard *heard = self;
    assert_int_equal(line[size - 1], '\n');
    assert_int_equal(heard->n_ended, 0);
    heard->n_lines++;
    snprintf(heard->last, sizeof heard->last, "%.*s", (int)size, line);
}

static void hear_end(void *self)
{
    ((struct heard *)self)->n_ended++;
}

static enum error_code begin(const char *name, const char *body, struct heard *heard,
                             struct conversation **out)
{
    const struct daemon_hearer hearer = {hear_line, hear_end, heard};
    *heard = (struct heard){0};
    return daemon_begin_request(w->nodes[0].daemon, name, body, strlen(body), "token ci", &hearer,
                                out, &err);
}

static bool never(void *arg)
{
    return false;
}

static void test_heard(void **state)
{
    struct conversation *asked;
    struct heard heard;
    start_alone();
    await_leader();
    assert_int_equal(begin("status", "", &heard, &asked), ERROR_NONE);
    assert_null(asked);
    assert_int_equal(heard.n_lines, 1);
    assert_int_equal(heard.n_ended, 1);
    assert_int_equal(begin("nothing", "{}", &heard, &asked), ERROR_NONE);
    assert_non_null(strstr(heard.last, "unsupported"));
    assert_int_equal(begin("join", "{}", &heard, &asked), ERROR_NONE);
    assert_non_null(strstr(heard.last, "a join code is needed"));
    assert_int_equal(begin("status", "[]", &heard, &asked), ERROR_INVALID);
    assert_int_equal(begin("status", "{", &heard, &asked), ERROR_INVALID);
    assert_int_equal(heard.n_lines + heard.n_ended, 0);
}

/* Who goes away hears nothing more, and the node goes on. */
static void test_heard_cancelled(void **state)
{
    struct conversation *asked;
    struct heard heard;
    start_alone();
    await_leader();
    assert_int_equal(begin("events", "{\"follow\":true,\"last\":0}", &heard, &asked), ERROR_NONE);
    assert_non_null(asked);
    daemon_cancel_request(asked);
    assert_int_equal(begin("drain", "{\"node\":\"none\"}", &heard, &asked), ERROR_NONE);
    assert_int_equal(begin("moves", "{\"on\":false}", &heard, &asked), ERROR_NONE);
    if (asked)
        daemon_cancel_request(asked); /* while the cluster decides */
    daemon_world_run(w, never, NULL, 300);
    assert_int_equal(heard.n_ended, asked ? 0 : 1);
    expect("{\"do\":\"status\"}", "\"node\"");
}

/* They have a limit of their own, which leaves the socket alone; and a node that ends tells them.
 */
static void test_heard_many(void **state)
{
    enum { HEARD_MAX = 64 };
    static struct heard heard[HEARD_MAX + 1];
    struct conversation *asked[HEARD_MAX + 1];
    start_alone();
    await_leader();
    for (int i = 0; i < HEARD_MAX; i++)
        assert_int_equal(begin("events", "{\"follow\":true}", &heard[i], &asked[i]), ERROR_NONE);
    assert_int_equal(begin("status", "", &heard[HEARD_MAX], &asked[HEARD_MAX]), ERROR_BUSY);
    expect("{\"do\":\"status\"}", "\"node\"");
    for (int i = 0; i < HEARD_MAX; i += 2)
        daemon_cancel_request(asked[i]);
    daemon_world_run(w, never, NULL, 100);
    assert_int_equal(begin("status", "", &heard[HEARD_MAX], &asked[HEARD_MAX]), ERROR_NONE);
    daemon_world_close(w);
    for (int i = 0; i < HEARD_MAX; i++)
        assert_int_equal(heard[i].n_ended, i % 2);
    w = daemon_world_open();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_answers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_hostile, setup, teardown),
        cmocka_unit_test_setup_teardown(test_long_lines, setup, teardown),
        cmocka_unit_test_setup_teardown(test_many, setup, teardown),
        cmocka_unit_test_setup_teardown(test_goes_away, setup, teardown),
        cmocka_unit_test_setup_teardown(test_waits, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cannot_begin, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damaged, setup, teardown),
        cmocka_unit_test_setup_teardown(test_founding_interrupted, setup, teardown),
        cmocka_unit_test_setup_teardown(test_heard, setup, teardown),
        cmocka_unit_test_setup_teardown(test_heard_cancelled, setup, teardown),
        cmocka_unit_test_setup_teardown(test_heard_many, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
