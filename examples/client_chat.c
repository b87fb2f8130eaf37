/* A question to a node, and the answer as it is written.
 *
 *   cc client_chat.c $(pkg-config --cflags --libs medley)
 *   client_chat URL MODEL QUESTION [AUTHORITY.pem]
 *
 * The token, where the node wants one, is in the environment variable MEDLEY_TOKEN. Interrupt
 * (Ctrl-C) cancels the request: the node stops its work. */
#include <medley/client.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

struct chat {
    struct medley_client *client;
    struct medley_client_request request;
    uv_signal_t interrupt;
    int status;
};

static void on_piece(struct medley_client_request *request, const struct medley_piece *piece)
{
    fwrite(piece->text, 1, piece->size, piece->is_reasoning ? stderr : stdout);
    fflush(stdout);
}

static void on_end(struct medley_client_request *request)
{
    struct chat *chat = request->data;
    if (request->error.code) {
        fprintf(stderr, "%s\n", request->error.text);
        chat->status = 1;
    } else {
        printf("\n(%s after %llu tokens)\n", request->finish_reason,
               (unsigned long long)request->completion_tokens);
    }
    uv_close((uv_handle_t *)&chat->interrupt, NULL);
    medley_client_close(chat->client, NULL, NULL);
}

static void on_interrupt(uv_signal_t *interrupt, int number)
{
    struct chat *chat = interrupt->data;
    medley_client_cancel(&chat->request);
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "Usage: %s URL MODEL QUESTION [AUTHORITY.pem]\n", argv[0]);
        return 2;
    }
    const struct medley_client_options options = {
        .url = argv[1],
        .token = getenv("MEDLEY_TOKEN"),
        .authority_path = argc > 4 ? argv[4] : NULL,
    };
    const struct medley_message message = {.role = "user", .content = argv[3]};
    const struct medley_generation generation = {
        .model = argv[2],
        .messages = &message,
        .n_messages = 1,
        .max_tokens = 100,
        .more_json = "{\"temperature\":0}",
    };
    struct chat chat = {0};
    struct medley_error err;
    chat.request.data = &chat;
    if (medley_client_open(uv_default_loop(), &options, &chat.client, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    uv_signal_init(uv_default_loop(), &chat.interrupt);
    chat.interrupt.data = &chat;
    uv_signal_start(&chat.interrupt, on_interrupt, SIGINT);
    if (medley_client_generate(chat.client, &generation, &chat.request, on_piece, on_end))
        on_end(&chat.request);
    uv_run(uv_default_loop(), UV_RUN_DEFAULT);
    uv_loop_close(uv_default_loop());
    return chat.status;
}
