#include "cli/chat.h"

#include "base/mem.h"
#include "model/chat_template.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <yyjson.h>

struct chat {
    struct session *session;
    struct chat_template *chat_template;
    yyjson_mut_doc *doc;
    yyjson_mut_val *messages;
    bool has_system;
};

/* ---- messages ------------------------------------------------------------------------- */

enum error_code chat_open(struct session *session, const char *system, struct chat **out,
                          struct error *err)
{
    struct chat *chat = mem_new(sizeof *chat);
    if (!chat)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for a conversation");
    chat->session = session;
    enum error_code code = session_chat_template(session, &chat->chat_template, err);
    chat->doc = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *root = yyjson_mut_obj(chat->doc);
    chat->messages = yyjson_mut_arr(chat->doc);
    yyjson_mut_doc_set_root(chat->doc, root);
    if (!yyjson_mut_obj_add_val(chat->doc, root, "messages", chat->messages) ||
        !yyjson_mut_obj_add_bool(chat->doc, root, "add_generation_prompt", true))
        code =
            code ? code : error_set(err, ERROR_NO_MEMORY, "not enough memory for a conversation");
    if (!code && system) {
        code = chat_add(chat, "system", system, strlen(system), err);
        chat->has_system = true;
    }
    if (code) {
        chat_close(chat);
        return code;
    }
    *out = chat;
    return ERROR_NONE;
}

void chat_close(struct chat *chat)
{
    if (!chat)
        return;
    yyjson_mut_doc_free(chat->doc);
    mem_free(chat);
}

static bool chat_is_utf8(const char *text, size_t size)
{
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    yyjson_mut_doc_set_root(doc, yyjson_mut_strn(doc, text, size));
    char *json = yyjson_mut_write(doc, 0, NULL);
    yyjson_mut_doc_free(doc);
    bool valid = json != NULL;
    free(json);
    return valid;
}

enum error_code chat_add(struct chat *chat, const char *role, const char *text, size_t size,
                         struct error *err)
{
    if (!chat_is_utf8(text, size))
        return error_set(err, ERROR_INVALID, "the message is not UTF-8 text");
    yyjson_mut_val *message = yyjson_mut_arr_add_obj(chat->doc, chat->messages);
    if (!yyjson_mut_obj_add_strcpy(chat->doc, message, "role", role) ||
        !yyjson_mut_obj_add_strncpy(chat->doc, message, "content", text, size))
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for a message of %zu bytes",
                         size);
    return ERROR_NONE;
}

void chat_drop_last(struct chat *chat)
{
    yyjson_mut_arr_remove_last(chat->messages);
}

void chat_reset(struct chat *chat)
{
    size_t kept = chat->has_system ? 1 : 0;
    while (yyjson_mut_arr_size(chat->messages) > kept)
        yyjson_mut_arr_remove_last(chat->messages);
}

enum error_code chat_render(struct chat *chat, struct buffer *text, struct error *err)
{
    size_t size = 0;
    char *json = yyjson_mut_write(chat->doc, 0, &size);
    if (!json)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the conversation");
    enum error_code code = chat_template_render(chat->chat_template, json, size, text, err);
    free(json);
    return code ? error_wrap(err, "the model's chat template") : ERROR_NONE;
}

enum error_code chat_prompt(struct chat *chat, struct token_list *out, struct error *err)
{
    struct buffer text = {0};
    enum error_code code = chat_render(chat, &text, err);
    if (!code)
        code = session_encode(chat->session, text.data ? text.data : "", text.size, out, err);
    buffer_deinit(&text);
    return code;
}

/* ---- talking -------------------------------------------------------------------------- */

/* False when the message could not be answered; it is then taken back, so that the next can be. */
static bool chat_answer(const struct command *command, struct chat *chat, const char *text,
                        size_t size, const struct reply_options *options)
{
    struct error err = {0};
    struct token_list prompt = {0};
    struct reply reply = {0};
    enum error_code code = chat_add(chat, "user", text, size, &err);
    bool added = !code;
    if (!code)
        code = chat_prompt(chat, &prompt, &err);
    if (!code)
        code = reply_generate(chat->session, &prompt, options, &reply, &err);
    if (!code) {
        putchar('\n');
        fflush(stdout);
        reply_report(chat->session, &reply);
        code = chat_add(chat, "assistant", reply.text.data ? reply.text.data : "", reply.text.size,
                        &err);
    }
    if (code) {
        command_fail(command, &err);
        if (added)
            chat_drop_last(chat);
    }
    token_list_deinit(&prompt);
    reply_deinit(&reply);
    return !code;
}

enum chat_line { LINE_TEXT, LINE_INTERRUPTED, LINE_END };

enum { CHAT_LOOK_MS = 100 };

/* Waits for a line; false: Ctrl-C. It may come before the waiting begins, or to another thread, and
 * then ends no call of this one: so it is looked for. */
static bool chat_await_line(void)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    while (!interrupts()) {
        const int n = poll(&input, 1, CHAT_LOOK_MS);
        if (n > 0 || (n < 0 && errno != EINTR))
            return true;
    }
    return false;
}

static enum chat_line chat_read_line(bool terminal, char **line, size_t *capacity, size_t *size)
{
    if (terminal) {
        fputs("> ", stderr);
        fflush(stderr);
        if (!chat_await_line())
            return LINE_INTERRUPTED;
    }
    errno = 0;
    ssize_t length = getline(line, capacity, stdin);
    if (length < 0) {
        bool interrupted = errno == EINTR;
        clearerr(stdin);
        return interrupted ? LINE_INTERRUPTED : LINE_END;
    }
    while (length && ((*line)[length - 1] == '\n' || (*line)[length - 1] == '\r'))
        (*line)[--length] = '\0';
    *size = (size_t)length;
    return LINE_TEXT;
}

int chat_run(const struct command *command, struct chat *chat, const struct reply_options *options)
{
    bool terminal = isatty(STDIN_FILENO), ok = true;
    char *line = NULL;
    size_t capacity = 0, size = 0;
    unsigned in_a_row = 0; /* Ctrl-C without a message between */
    if (terminal)
        fputs("Ctrl-C stops an answer, twice leaves; /reset forgets the conversation, /exit "
              "leaves.\n",
              stderr);
    interrupts_catch();
    while (in_a_row < 2) {
        interrupts_clear();
        enum chat_line kind = chat_read_line(terminal, &line, &capacity, &size);
        if (kind == LINE_END && terminal)
            fputc('\n', stderr);
        if (kind == LINE_END || (kind == LINE_TEXT && strcmp(line, "/exit") == 0))
            break;
        if (kind == LINE_INTERRUPTED) {
            in_a_row++;
            fputs(in_a_row < 2 ? "\n(Ctrl-C again leaves)\n" : "\n", stderr);
        } else if (strcmp(line, "/reset") == 0) {
            chat_reset(chat);
        } else if (size) {
            ok = chat_answer(command, chat, line, size, options);
            in_a_row = interrupts(); /* one that stopped the answer counts: the next leaves */
        }
    }
    free(line);
    return ok || terminal ? EXIT_OK : EXIT_FAILED;
}
