/* The process's side of chat_template_process.h. */
#include "model/chat_template.h"

#include "base/limits.h"
#include "base/mem.h"
#include "base/transfer.h"
#include "model/chat_template_jinja.h"
#include "model/chat_template_process.h"
#include "sandbox/reader.h"

#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct jinja *worker_jinja;

/* The node is trusted; one that asks for what cannot be is a mistake of ours. */
static char *worker_receive_text(size_t size, size_t max)
{
    char *text = size <= max ? mem_new(size + 1) : NULL;
    if (!text || !transfer_receive(READER_DESCRIPTOR, text, size, UINT64_MAX))
        _exit(1);
    return text;
}

static enum error_code worker_open(const struct template_head *head, struct error *err)
{
    char *texts[3];
    for (int i = 0; i < 3; i++)
        texts[i] = worker_receive_text(head->sizes[i], LIMIT_TEMPLATE_BYTES);
    tzset(); /* for strftime_now: the zone's file cannot be opened any more */
    enum error_code code = reader_enter_sandbox(LIMIT_TEMPLATE_PROCESS_BYTES, err);
    if (!code)
        code = jinja_open(texts[0], head->sizes[0], texts[1], texts[2], &worker_jinja, err);
    for (int i = 0; i < 3; i++)
        mem_free(texts[i]);
    return code;
}

static enum error_code worker_render(const struct template_head *head, struct buffer *out,
                                     struct error *err)
{
    char *json = worker_receive_text(head->sizes[0], LIMIT_TEMPLATE_OUTPUT_BYTES);
    enum error_code code = jinja_render(worker_jinja, json, head->sizes[0], out, err);
    mem_free(json);
    return code;
}

static void worker_answer(enum error_code code, const struct buffer *out, const struct error *err)
{
    const struct template_head head = {.kind = code,
                                       .sizes = {(uint32_t)(code ? strlen(err->text) : out->size)}};
    if (!transfer_send(READER_DESCRIPTOR, &head, sizeof head, UINT64_MAX) ||
        !transfer_send(READER_DESCRIPTOR, code ? err->text : out->data, head.sizes[0], UINT64_MAX))
        _exit(0); /* the node has gone */
}

void chat_template_main(int argc, char **argv)
{
    struct template_head head;
    struct error err = {0};
    if (!reader_is_asked(argc, argv, TEMPLATE_ARGUMENT))
        return;
    while (transfer_receive(READER_DESCRIPTOR, &head, sizeof head, UINT64_MAX)) {
        struct buffer out = {0};
        enum error_code code = ERROR_NONE;
        if (head.kind == TEMPLATE_OPEN && !worker_jinja)
            code = worker_open(&head, &err);
        else if (head.kind == TEMPLATE_RENDER && worker_jinja)
            code = worker_render(&head, &out, &err);
        else
            _exit(1);
        worker_answer(code, &out, &err);
        buffer_deinit(&out);
    }
    _exit(0);
}
