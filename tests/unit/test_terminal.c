/* Commands at a terminal: `medley top` takes the other screen and gives it back however it ends;
 * a conversation asks, stops and forgets. */
#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <pty.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define ENTERED "\033[?1049h"
#define LEFT "\033[?1049l"

static char out[1 << 20]; /* what the terminal was told and nobody has awaited yet */
static size_t n_out;
static int terminal;
static pid_t child;

static void begin(const char *line)
{
    const struct winsize size = {.ws_row = 24, .ws_col = 80};
    n_out = 0;
    out[0] = '\0';
    child = forkpty(&terminal, NULL, NULL, &size);
    assert_true(child >= 0);
    if (child == 0) {
        execl("/bin/sh", "sh", "-c", line, (char *)NULL);
        _exit(127);
    }
}

/* Waits until `text` comes, and forgets all before and with it. */
static void await(const char *text)
{
    const uint64_t end_ns = clock_now_ns() + UINT64_C(60000000000);
    const char *at;
    while (!(at = strstr(out, text))) {
        struct pollfd input = {terminal, POLLIN, 0};
        if (clock_now_ns() >= end_ns || (poll(&input, 1, 1000) == 1 && input.revents == POLLHUP))
            fail_msg("no '%s' in: %s", text, out);
        const ssize_t n =
            input.revents & POLLIN ? read(terminal, out + n_out, sizeof out - 1 - n_out) : 0;
        n_out += n > 0 ? (size_t)n : 0;
        out[n_out] = '\0';
    }
    at += strlen(text);
    n_out -= (size_t)(at - out);
    memmove(out, at, n_out + 1);
}

static void type(const char *keys)
{
    assert_int_equal(write(terminal, keys, strlen(keys)), strlen(keys));
}

static void expect_end(int want)
{
    int status;
    char rest[4096];
    while (read(terminal, rest, sizeof rest) > 0) { /* so that it never waits to be read */
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    close(terminal);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), want);
}

#define TOP "exec \"$MEDLEY_BINARY\" top --backend cpu --interval 100"

static void top_ends_by_a_key(void **state)
{
    (void)state;
    begin(TOP);
    await(ENTERED);
    await("cpu");
    type("x"); /* no key of its */
    await("cpu");
    type("q");
    await(LEFT);
    expect_end(0);
}

static void top_ends_by_a_signal(void **state)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    (void)state;
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        begin(TOP);
        await("cpu");
        assert_int_equal(kill(child, signals[i]), 0);
        await(LEFT);
        expect_end(0);
    }
}

/* Stopped, it gives the terminal back; continued by the shell, it takes it again; and it draws anew
 * where the window gets another size. */
static void top_stops_and_goes_on(void **state)
{
    const struct winsize wide = {.ws_row = 40, .ws_col = 132};
    (void)state;
    begin("set -m; \"$MEDLEY_BINARY\" top --backend cpu --interval 100; echo stopped; fg; echo "
          "ended");
    await(ENTERED);
    await("cpu");
    assert_int_equal(ioctl(terminal, TIOCSWINSZ, &wide), 0); /* which tells it by SIGWINCH */
    await("cpu");
    type("\032"); /* Ctrl-Z */
    await(LEFT);
    await("stopped");
    await(ENTERED);
    await("cpu");
    type("Q");
    await(LEFT);
    await("ended");
    expect_end(0);
}

#define TALK                                                                                       \
    "exec \"$MEDLEY_BINARY\" run \"$MEDLEY_ROOT/models/demo.gguf\" --devices cpu -t 1 -c 256 -n "  \
    "4 "                                                                                           \
    "--temp 0"

static void a_conversation_asks_and_forgets(void **state)
{
    (void)state;
    begin(TALK);
    await("/reset forgets the conversation, /exit leaves.");
    await("> ");
    type("hello\n");
    await("> "); /* the answer has ended */
    type("/reset\n");
    await("> ");
    type("\n"); /* nothing: asked again */
    await("> ");
    type("\377\n");
    await("the message is not UTF-8 text");
    await("> ");
    type("/exit\n");
    expect_end(0);
}

static void a_conversation_ends_by_ctrl_c(void **state)
{
    (void)state;
    begin(TALK);
    await("> ");
    type("\003");
    await("(Ctrl-C again leaves)");
    await("> ");
    type("\003");
    expect_end(0);
    begin(TALK);
    await("> ");
    type("\004"); /* the end of the input */
    expect_end(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(top_ends_by_a_key),
        cmocka_unit_test(top_ends_by_a_signal),
        cmocka_unit_test(top_stops_and_goes_on),
        cmocka_unit_test(a_conversation_asks_and_forgets),
        cmocka_unit_test(a_conversation_ends_by_ctrl_c),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
