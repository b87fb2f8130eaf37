/* What it costs that a chat template runs in a process of its own: rendering of one chat, in this
 * process and in the other, in turns; medians.
 *
 *     template [ROUNDS [MESSAGES]] */
#include "base/clock.h"
#include "model/chat_template.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS_MAX = 10001, WARM = 50 };

static const char source[] =
    "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nYou are a helpful "
    "assistant.<|im_end|>\\n' }}{% endif %}{% for message in messages %}{{ '<|im_start|>' + "
    "message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}{% if "
    "add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void fail_with(const struct error *err)
{
    fprintf(stderr, "template: %s\n", err->text);
    exit(1);
}

static double measure(struct chat_template *chat_template, const struct buffer *json)
{
    struct buffer out = {0};
    struct error err = {0};
    const uint64_t begin_ns = clock_now_ns();
    if (chat_template_render(chat_template, json->data, json->size, &out, &err))
        fail_with(&err);
    const double us = (double)(clock_now_ns() - begin_ns) / 1000;
    buffer_deinit(&out);
    return us;
}

static void chat_of(int n, struct buffer *json)
{
    buffer_text(json, "{\"add_generation_prompt\": true, \"messages\": [");
    for (int i = 0; i < n; i++)
        buffer_printf(json,
                      "%s{\"role\": \"%s\", \"content\": \"Tell me in a few sentences why the sky "
                      "is blue, and what colour it has on other planets (%d).\"}",
                      i ? ", " : "", i % 2 ? "assistant" : "user", i);
    buffer_text(json, "]}");
}

int main(int argc, char **argv)
{
    chat_template_main(argc, argv);
    static double here_us[ROUNDS_MAX], there_us[ROUNDS_MAX], more_us[ROUNDS_MAX];
    int n = argc > 1 ? atoi(argv[1]) : 1001;
    const int n_messages = argc > 2 ? atoi(argv[2]) : 5;
    struct chat_template *here, *there;
    struct buffer json = {0};
    struct error err = {0};
    n = n < 1 ? 1 : n > ROUNDS_MAX ? ROUNDS_MAX : n;
    chat_of(n_messages, &json);
    if (chat_template_open(source, strlen(source), "", "", &here, &err))
        fail_with(&err);
    chat_template_isolate("/proc/self/exe");
    const uint64_t begin_ns = clock_now_ns();
    if (chat_template_open(source, strlen(source), "", "", &there, &err))
        fail_with(&err);
    const double open_ms = (double)(clock_now_ns() - begin_ns) / 1000000;
    for (int i = -WARM; i < n; i++) {
        const double a = measure(here, &json), b = measure(there, &json);
        if (i < 0)
            continue;
        here_us[i] = a;
        there_us[i] = b;
        more_us[i] = b - a;
    }
    qsort(here_us, (size_t)n, sizeof *here_us, by_size);
    qsort(there_us, (size_t)n, sizeof *there_us, by_size);
    qsort(more_us, (size_t)n, sizeof *more_us, by_size);
    printf("%d messages, %zu bytes, %d rounds: here %.0f us, in a process %.0f us; more: median "
           "%.0f us, 99 %% %.0f us; opening it took %.1f ms\n",
           n_messages, json.size, n, here_us[n / 2], there_us[n / 2], more_us[n / 2],
           more_us[n * 99 / 100], open_ms);
    chat_template_close(here);
    chat_template_close(there);
    buffer_deinit(&json);
    return 0;
}
