/* Chat templates in a process of their own: what they render, how they fail, what their process may
 * do, and what a hostile one may answer. This program is its own child. */
#include "base/clock.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/transfer.h"
#include "model/chat_template.h"
#include "model/chat_template_process.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { LIMIT_MS = 120000 }; /* five seconds of a processor take long on a busy machine */

static struct template_process *opened(const char *source)
{
    struct template_process *process = NULL;
    struct error err = {0};
    if (template_process_open("/proc/self/exe", LIMIT_MS, source, strlen(source), "<s>", "</s>",
                              &process, &err))
        fail_msg("%s", err.text);
    return process;
}

static enum error_code render(struct template_process *process, const char *json,
                              struct buffer *out, struct error *err)
{
    out->size = 0;
    return template_process_render(process, json, strlen(json), out, err);
}

static void expect(struct template_process *process, const char *json, const char *text)
{
    struct buffer out = {0};
    struct error err = {0};
    if (render(process, json, &out, &err))
        fail_msg("%s", err.text);
    assert_string_equal(out.data, text);
    buffer_deinit(&out);
}

#define ECHO "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
#define HELLO "{\"messages\": [{\"role\": \"user\", \"content\": \"hello\"}]}"

static void it_renders_again_and_again(void **state)
{
    (void)state;
    struct template_process *process = opened(ECHO);
    const pid_t pid = template_process_pid(process);
    assert_true(pid > 0);
    for (int i = 0; i < 3; i++)
        expect(process, HELLO, "<s>[user]hello");
    assert_int_equal(template_process_pid(process), pid);
    template_process_close(process);
    assert_int_equal(kill(pid, 0), -1); /* nobody is left behind */
}

static void large_texts_come_through(void **state)
{
    (void)state;
    enum { SIZE = 4 * 1024 * 1024 };
    char *json = malloc(SIZE + 128), *text = malloc(SIZE + 1);
    assert_true(json && text);
    memset(text, 'a', SIZE);
    text[SIZE] = '\0';
    snprintf(json, SIZE + 128, "{\"messages\": [{\"role\": \"user\", \"content\": \"%s\"}]}", text);
    struct template_process *process = opened("{{ messages[0].content }}");
    expect(process, json, text);
    template_process_close(process);
    free(json);
    free(text);
}

static void errors_are_those_of_the_template(void **state)
{
    (void)state;
    struct template_process *process = NULL;
    struct error err = {0};
    struct buffer out = {0};
    assert_int_equal(
        template_process_open("/proc/self/exe", LIMIT_MS, "{% if %}", 8, "", "", &process, &err),
        ERROR_INVALID);
    assert_null(process);
    process = opened("{{ raise_exception('no\ttool for ' + messages[0].content) }}");
    const pid_t pid = template_process_pid(process);
    assert_int_equal(render(process, HELLO, &out, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "no tool for hello")); /* the tab cannot come into a log */
    assert_int_equal(template_process_pid(process), pid);
    buffer_deinit(&out);
    template_process_close(process);
}

static void endless_work_ends(void **state)
{
    (void)state;
    struct template_process *process = opened(
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}ok");
    struct error err = {0};
    struct buffer out = {0};
    assert_int_equal(render(process, HELLO, &out, &err), ERROR_BUSY);
    assert_int_equal(out.size, 0);
    buffer_deinit(&out);
    template_process_close(process);
}

static void one_that_was_ended_is_started_again(void **state)
{
    (void)state;
    struct template_process *process = opened(ECHO);
    const pid_t pid = template_process_pid(process);
    kill(pid, SIGKILL);
    while (kill(pid, 0) == 0 && template_process_pid(process) == pid) {
        struct buffer out = {0};
        struct error err = {0};
        /* nobody hears of it, unless it was ended in that very moment */
        const enum error_code code = render(process, HELLO, &out, &err);
        assert_true(code == ERROR_NONE || code == ERROR_IO);
        buffer_deinit(&out);
    }
    assert_int_not_equal(template_process_pid(process), pid);
    expect(process, HELLO, "<s>[user]hello");
    template_process_close(process);
}

static void *kill_later(void *arg)
{
    nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
    kill(*(const pid_t *)arg, SIGKILL);
    return NULL;
}

static void one_that_dies_at_work_fails_that_request(void **state)
{
    (void)state;
    struct template_process *process = opened(ECHO);
    pid_t pid = template_process_pid(process);
    pthread_t thread;
    struct error err = {0};
    struct buffer out = {0};
    kill(pid, SIGSTOP);
    assert_int_equal(pthread_create(&thread, NULL, kill_later, &pid), 0);
    assert_int_equal(render(process, HELLO, &out, &err), ERROR_IO);
    pthread_join(thread, NULL);
    assert_non_null(strstr(err.text, "has ended"));
    assert_int_equal(out.size, 0);
    expect(process, HELLO, "<s>[user]hello");
    buffer_deinit(&out);
    template_process_close(process);
}

static void one_that_hangs_is_ended(void **state)
{
    (void)state;
    struct template_process *process = NULL;
    struct error err = {0};
    struct buffer out = {0};
    assert_int_equal(
        template_process_open("/proc/self/exe", 3000, ECHO, strlen(ECHO), "", "", &process, &err),
        ERROR_NONE);
    const pid_t pid = template_process_pid(process);
    kill(pid, SIGSTOP);
    assert_int_equal(render(process, HELLO, &out, &err), ERROR_IO);
    assert_non_null(strstr(err.text, "took too long"));
    assert_int_equal(template_process_pid(process), 0);
    assert_int_equal(kill(pid, 0), -1);
    expect(process, HELLO, "[user]hello");
    buffer_deinit(&out);
    template_process_close(process);
}

/* ---- what its process may do ---- */

static void status_says(pid_t pid, const char *line)
{
    char path[64], text[8192] = "";
    snprintf(path, sizeof path, "/proc/%ld/status", (long)pid);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    assert_true(fread(text, 1, sizeof text - 1, file) > 0);
    fclose(file);
    if (!strstr(text, line))
        fail_msg("%s is not in %s", line, text);
}

static void its_process_is_in_a_sandbox(void **state)
{
    (void)state;
    struct template_process *process = opened(ECHO);
    status_says(template_process_pid(process), "NoNewPrivs:\t1\n");
    status_says(template_process_pid(process), "Seccomp:\t2\n");
    status_says(template_process_pid(process), "CapEff:\t0000000000000000\n");
    status_says(template_process_pid(process), "CapPrm:\t0000000000000000\n");
    template_process_close(process);
}

static void the_zone_is_known_in_it(void **state)
{
    (void)state;
    char now[64];
    struct tm local;
    const time_t time_s = time(NULL);
    struct template_process *process = opened("{{ strftime_now('%Y %Z') }}");
    strftime(now, sizeof now, "%Y %Z", localtime_r(&time_s, &local));
    expect(process, HELLO, now);
    template_process_close(process);
}

static void templates_are_isolated_where_asked(void **state)
{
    (void)state;
    struct chat_template *inside = NULL, *outside = NULL;
    struct error err = {0};
    struct buffer out = {0};
    assert_int_equal(chat_template_open(ECHO, strlen(ECHO), "", "", &inside, &err), 0);
    assert_int_equal(chat_template_pid(inside), 0);
    chat_template_isolate("/proc/self/exe");
    assert_int_equal(chat_template_open(ECHO, strlen(ECHO), "", "", &outside, &err), 0);
    chat_template_isolate(NULL);
    assert_true(chat_template_pid(outside) > 0);
    assert_false(chat_template_is_fallback(outside));
    assert_int_equal(chat_template_render(outside, HELLO, strlen(HELLO), &out, &err), 0);
    assert_string_equal(out.data, "[user]hello");
    buffer_deinit(&out);
    chat_template_close(outside);
    chat_template_close(inside);
}

/* ---- what a hostile one may answer ---- */

static enum error_code answer_of(struct template_head head, const void *bytes, size_t size,
                                 bool *broken, struct error *err)
{
    int ends[2];
    struct buffer out = {0};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    assert_true(transfer_send(ends[0], &head, sizeof head, UINT64_MAX));
    assert_true(transfer_send(ends[0], bytes, size, UINT64_MAX));
    close(ends[0]);
    const enum error_code code =
        template_receive_answer(ends[1], clock_now_ns() + 1000000000, &out, broken, err);
    assert_true(!code || !out.size);
    close(ends[1]);
    buffer_deinit(&out);
    return code;
}

static void answers_that_cannot_be(void **state)
{
    (void)state;
    static const struct {
        struct template_head head;
        const char *bytes;
    } bad[] = {
        {{.kind = ERROR_INTERNAL + 1}, ""},
        {{.kind = UINT32_MAX, .sizes = {4}}, "oops"},
        {{.sizes = {LIMIT_TEMPLATE_OUTPUT_BYTES + 1}}, ""},
        {{.kind = ERROR_BUSY, .sizes = {ERROR_TEXT_MAX}}, ""},
        {{.sizes = {4, 1}}, "text"},
        {{.sizes = {5}}, "text"}, /* one byte less than it says */
        {{.sizes = {2}}, "\xff\xfe"},
        {{.kind = ERROR_BUSY, .sizes = {2}}, "\xc0\x80"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        bool broken = false;
        struct error err = {0};
        assert_int_equal(answer_of(bad[i].head, bad[i].bytes, strlen(bad[i].bytes), &broken, &err),
                         ERROR_IO);
        assert_true(broken);
        assert_true(err.text[0]);
    }
}

static void a_head_alone_is_not_waited_for(void **state)
{
    (void)state;
    int ends[2];
    bool broken = false;
    struct error err = {0};
    struct buffer out = {0};
    const struct template_head head = {.sizes = {100}};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    assert_true(transfer_send(ends[0], &head, sizeof head, UINT64_MAX));
    assert_int_equal(
        template_receive_answer(ends[1], clock_now_ns() + 100000000, &out, &broken, &err),
        ERROR_IO);
    assert_true(broken);
    close(ends[0]);
    close(ends[1]);
}

int main(int argc, char **argv)
{
    chat_template_main(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_renders_again_and_again),
        cmocka_unit_test(large_texts_come_through),
        cmocka_unit_test(errors_are_those_of_the_template),
        cmocka_unit_test(endless_work_ends),
        cmocka_unit_test(one_that_was_ended_is_started_again),
        cmocka_unit_test(one_that_dies_at_work_fails_that_request),
        cmocka_unit_test(one_that_hangs_is_ended),
        cmocka_unit_test(its_process_is_in_a_sandbox),
        cmocka_unit_test(the_zone_is_known_in_it),
        cmocka_unit_test(templates_are_isolated_where_asked),
        cmocka_unit_test(answers_that_cannot_be),
        cmocka_unit_test(a_head_alone_is_not_waited_for),
    };
    return cmocka_run_group_tests_name("template_process", tests, NULL, NULL);
}
