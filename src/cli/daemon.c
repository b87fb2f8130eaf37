#include "cli/daemon.h"

#include "base/buffer.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/state_folder.h"
#include "cli/answer.h"
#include "cli/service_unit.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

struct daemon_client {
    int fd;
    struct buffer received; /* read and not taken yet */
    size_t searched;        /* of it, without a line feed */
};

static enum error_code no_node(struct error *err)
{
    return error_set(err, ERROR_NOT_FOUND,
                     "no node runs on this machine: start one with `medley up`");
}

/* ---- the connection -------------------------------------------------------------------------- */

static enum error_code find_socket(struct sockaddr_un *out, struct error *err)
{
    char folder[sizeof out->sun_path + 1];
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (state_folder_file("control.sock", out->sun_path, sizeof out->sun_path))
        return ERROR_NONE;
    if (!state_folder(folder, sizeof folder) && getenv("MEDLEY_STATE_DIR") &&
        !getenv("MEDLEY_STATE_DIR")[0])
        return no_node(err);
    return error_set(err, ERROR_NOT_FOUND,
                     "no node runs on this machine: its folder (MEDLEY_STATE_DIR) has no path, or "
                     "one of more than %zu "
                     "characters, which no socket can have",
                     sizeof out->sun_path - sizeof "/control.sock");
}

static enum error_code daemon_connection_dial(const struct sockaddr_un *address, int *fd,
                                              struct error *err)
{
    *fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (*fd < 0)
        return error_set(err, ERROR_IO, "%s: %s", address->sun_path, strerror(errno));
    int failure;
    do
        failure = connect(*fd, (const struct sockaddr *)address, sizeof *address) ? errno : 0;
    while (failure == EINTR);
    if (!failure)
        return ERROR_NONE;
    close(*fd);
    if (failure == ENOENT || failure == ENOTDIR ||
        failure == ECONNREFUSED) /* none, or one that a dead node left */
        return no_node(err);
    return error_set(err, ERROR_IO, "the node's socket %s: %s", address->sun_path,
                     strerror(failure));
}

/* The machine's own service has its state elsewhere, and lets only root in. */
static enum error_code dial_service(int *fd, struct error *err)
{
    static const struct sockaddr_un address = {.sun_family = AF_UNIX,
                                               .sun_path = SERVICE_STATE_FOLDER "/control.sock"};
    struct error why;
    if (getenv("MEDLEY_STATE_DIR") || access(SERVICE_STATE_FOLDER, F_OK))
        return ERROR_NOT_FOUND;
    if (access(address.sun_path, F_OK) && errno == EACCES)
        return error_set(err, ERROR_NOT_FOUND,
                         "no node of yours runs on this machine; its own service's node is "
                         "root's: try sudo");
    return daemon_connection_dial(&address, fd, &why) ? ERROR_NOT_FOUND : ERROR_NONE;
}

enum error_code daemon_client_open(struct daemon_client **out, struct error *err)
{
    struct sockaddr_un address;
    int fd = -1;
    enum error_code code = find_socket(&address, err);
    if (!code)
        code = daemon_connection_dial(&address, &fd, err);
    if (code == ERROR_NOT_FOUND)
        code = dial_service(&fd, err);
    if (code)
        return code;
    struct daemon_client *client = mem_new(sizeof *client);
    if (!client) {
        close(fd);
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for a connection to the node");
    }
    client->fd = fd;
    *out = client;
    return ERROR_NONE;
}

void daemon_client_close(struct daemon_client *client)
{
    if (!client)
        return;
    close(client->fd);
    buffer_deinit(&client->received);
    mem_free(client);
}

void daemon_client_hurry(struct daemon_client *client)
{
    const struct timeval patience = {.tv_sec = LIMIT_CONTROL_ANSWER_MS / 1000};
    setsockopt(client->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(client->fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
}

void daemon_client_hang_up(struct daemon_client *client)
{
    shutdown(client->fd, SHUT_RDWR);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static enum error_code daemon_connection_explain(int failure, struct error *err)
{
    if (failure == EAGAIN || failure == EWOULDBLOCK)
        return error_set(err, ERROR_IO,
                         "the node on this machine does not answer: nothing for %d s",
                         LIMIT_CONTROL_ANSWER_MS / 1000);
    if (failure == EPIPE || failure == ECONNRESET)
        return error_set(err, ERROR_IO, "the node on this machine closed the connection");
    return error_set(err, ERROR_IO, "the connection to the node on this machine: %s",
                     strerror(failure));
}

enum error_code daemon_client_write(struct daemon_client *client, const void *bytes, size_t size,
                                    struct error *err)
{
    for (size_t n = 0; n < size;) {
        const ssize_t sent = send(client->fd, (const char *)bytes + n, size - n, MSG_NOSIGNAL);
        if (sent >= 0)
            n += (size_t)sent;
        else if (errno != EINTR)
            return daemon_connection_explain(errno, err);
    }
    return ERROR_NONE;
}

/* What there is, at most `size` bytes; *n is 0 at the end. */
static enum error_code take_some(struct daemon_client *client, void *bytes, size_t size, size_t *n,
                                 struct error *err)
{
    ssize_t got;
    do
        got = recv(client->fd, bytes, size, 0);
    while (got < 0 && errno == EINTR);
    *n = got > 0 ? (size_t)got : 0;
    return got < 0 && errno != ECONNRESET ? daemon_connection_explain(errno, err) : ERROR_NONE;
}

enum error_code daemon_client_read(struct daemon_client *client, void *bytes, size_t size,
                                   struct error *err)
{
    const size_t there = client->received.size < size ? client->received.size : size;
    if (there)
        memcpy(bytes, client->received.data, there);
    buffer_drop_front(&client->received, there);
    client->searched = 0;
    for (size_t n = there; n < size;) {
        size_t got;
        enum error_code code = take_some(client, (char *)bytes + n, size - n, &got, err);
        if (!code && !got)
            code = error_set(err, ERROR_IO, "the node on this machine closed the connection");
        if (code)
            return code;
        n += got;
    }
    return ERROR_NONE;
}

enum error_code daemon_client_wait(struct daemon_client *client, int wake, bool *woken,
                                   struct error *err)
{
    struct pollfd fds[] = {{.fd = wake, .events = POLLIN}, {.fd = client->fd, .events = POLLIN}};
    int n;
    do
        n = poll(fds, 2, client->received.size ? 0 : -1);
    while (n < 0 && errno == EINTR);
    *woken = n > 0 && fds[0].revents;
    return n < 0 ? daemon_connection_explain(errno, err) : ERROR_NONE;
}

/* ---- lines ----------------------------------------------------------------------------------- */

yyjson_mut_doc *daemon_question(const char *name)
{
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *root = yyjson_mut_obj(doc);
    yyjson_mut_doc_set_root(doc, root);
    if (name)
        yyjson_mut_obj_add_str(doc, root, "do", name);
    return doc;
}

void daemon_question_text(yyjson_mut_doc *question, const char *key, const char *text)
{
    yyjson_mut_val *value = text ? yyjson_mut_strcpy(question, text) : yyjson_mut_null(question);
    yyjson_mut_obj_add_val(question, yyjson_mut_doc_get_root(question), key, value);
}

void daemon_question_count(yyjson_mut_doc *question, const char *key, uint32_t count)
{
    yyjson_mut_val *value =
        count == UINT32_MAX ? yyjson_mut_null(question) : yyjson_mut_uint(question, count);
    yyjson_mut_obj_add_val(question, yyjson_mut_doc_get_root(question), key, value);
}

enum error_code daemon_client_send(struct daemon_client *client, yyjson_mut_doc *object,
                                   struct error *err)
{
    size_t size = 0;
    yyjson_write_err problem = {0};
    char *line =
        object ? yyjson_mut_write_opts(object, YYJSON_WRITE_NEWLINE_AT_END, NULL, &size, &problem)
               : NULL;
    yyjson_mut_doc_free(object);
    if (!line && problem.code == YYJSON_WRITE_ERROR_INVALID_STRING)
        return error_set(err, ERROR_INVALID, "a word that is not UTF-8 text");
    if (!line)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for a question to the node");
    enum error_code code = daemon_client_write(client, line, size, err);
    free(line);
    return code;
}

/* Reads until there is a line; its length without the line feed. *ended: there is none, and never
 * will be. */
static enum error_code daemon_connection_read_line(struct daemon_client *client, size_t *length,
                                                   bool *ended, struct error *err)
{
    enum { PIECE = 64 * 1024 };
    struct buffer *received = &client->received;
    *ended = false;
    for (;;) {
        const char *unseen = received->data ? received->data + client->searched : "";
        const char *end = memchr(unseen, '\n', received->size - client->searched);
        if (end) {
            *length = (size_t)(end - received->data);
            client->searched = 0;
            return ERROR_NONE;
        }
        client->searched = received->size;
        if (received->size > LIMIT_CONTROL_LINE_BYTES)
            return error_set(err, ERROR_INTERNAL,
                             "the node's answer is longer than the limit of %d bytes",
                             LIMIT_CONTROL_LINE_BYTES);
        char *room = buffer_extend(received, PIECE);
        if (!room)
            return error_set(err, ERROR_NO_MEMORY, "not enough memory for the node's answer");
        size_t got;
        enum error_code code = take_some(client, room, PIECE, &got, err);
        received->size -= PIECE - got;
        received->data[received->size] = '\0';
        if (code)
            return code;
        if (!got && received->size)
            return error_set(
                err, ERROR_IO,
                "the node on this machine closed the connection in the middle of its answer");
        if (!got) {
            *ended = true;
            return ERROR_NONE;
        }
    }
}

enum error_code daemon_client_receive_or_end(struct daemon_client *client, yyjson_doc **out,
                                             struct error *err)
{
    size_t length = 0;
    bool ended;
    *out = NULL;
    enum error_code code = daemon_connection_read_line(client, &length, &ended, err);
    if (code || ended)
        return code;
    yyjson_doc *doc = yyjson_read(client->received.data, length, 0);
    buffer_drop_front(&client->received, length + 1);
    if (!yyjson_is_obj(yyjson_doc_get_root(doc)))
        code = error_set(err, ERROR_INTERNAL,
                         "the node's answer is not a JSON object: does it have another version?");
    else
        code = answer_error(yyjson_doc_get_root(doc), err);
    if (code)
        yyjson_doc_free(doc);
    else
        *out = doc;
    return code;
}

enum error_code daemon_client_receive(struct daemon_client *client, yyjson_doc **out,
                                      struct error *err)
{
    enum error_code code = daemon_client_receive_or_end(client, out, err);
    if (!code && !*out)
        code = error_set(err, ERROR_IO,
                         "the node on this machine closed the connection without an answer");
    return code;
}

enum error_code daemon_ask(yyjson_mut_doc *question, bool hurry, yyjson_doc **out,
                           struct error *err)
{
    struct daemon_client *client;
    enum error_code code = daemon_client_open(&client, err);
    if (code) {
        yyjson_mut_doc_free(question);
        return code;
    }
    if (hurry)
        daemon_client_hurry(client);
    code = daemon_client_send(client, question, err);
    if (!code)
        code = daemon_client_receive(client, out, err);
    daemon_client_close(client);
    return code;
}
