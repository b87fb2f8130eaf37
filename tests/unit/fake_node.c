#include "fake_node.h"

#include <assert.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>
#include <yyjson.h>

static struct {
    char folder[64];
    int listener;
    pthread_t thread;
    bool running;
    const struct fake_answer *answers;
    size_t n;
    pthread_mutex_t lock; /* of heard */
    char heard[64 * 1024];
} node = {.listener = -1, .lock = PTHREAD_MUTEX_INITIALIZER};

static bool read_line(int fd, char *line, size_t size)
{
    size_t n = 0;
    while (n + 1 < size && recv(fd, line + n, 1, 0) == 1) {
        if (line[n++] == '\n') {
            line[n] = '\0';
            pthread_mutex_lock(&node.lock);
            strncat(node.heard, line, sizeof node.heard - strlen(node.heard) - 1);
            pthread_mutex_unlock(&node.lock);
            return true;
        }
    }
    return false;
}

static bool write_all(int fd, const char *bytes, size_t size)
{
    for (size_t n = 0; n < size;) {
        ssize_t sent = send(fd, bytes + n, size - n, MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        n += (size_t)sent;
    }
    return true;
}

static void write_endless(int fd)
{
    static char bytes[64 * 1024];
    memset(bytes, 'x', sizeof bytes);
    while (write_all(fd, bytes, sizeof bytes)) {
    }
}

static void answer(int fd, const struct fake_answer *with)
{
    char line[4096];
    for (int i = 0; i < FAKE_STEPS && with->steps[i]; i++) {
        if (strcmp(with->steps[i], FAKE_LISTEN) == 0)
            read_line(fd, line, sizeof line);
        else if (strcmp(with->steps[i], FAKE_ENDLESS) == 0)
            write_endless(fd);
        else
            write_all(fd, with->steps[i], strlen(with->steps[i]));
    }
    if (with->talk)
        with->talk(fd);
}

static void serve(int fd)
{
    const struct timeval patience = {.tv_sec = 20}; /* a command that hangs fails its test */
    char line[4096];
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (!read_line(fd, line, sizeof line))
        return;
    yyjson_doc *doc = yyjson_read(line, strlen(line), 0);
    const char *question = yyjson_get_str(yyjson_obj_get(yyjson_doc_get_root(doc), "do"));
    for (size_t i = 0; question && i < node.n; i++) {
        if (strcmp(node.answers[i].question, question) == 0) {
            answer(fd, &node.answers[i]);
            break;
        }
    }
    yyjson_doc_free(doc);
}

static void *listen_on(void *unused)
{
    (void)unused;
    for (int fd; (fd = accept(node.listener, NULL, NULL)) >= 0;) {
        serve(fd);
        close(fd);
    }
    return NULL;
}

void fake_node_begin(void)
{
    snprintf(node.folder, sizeof node.folder, "/tmp/medley-node-XXXXXX");
    if (!mkdtemp(node.folder))
        abort();
    setenv("MEDLEY_STATE_DIR", node.folder, 1);
    unsetenv("MEDLEY_LOG");
}

static void start(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s/control.sock", node.folder);
    unlink(address.sun_path);
    node.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(node.listener, (const struct sockaddr *)&address, sizeof address) ||
        listen(node.listener, 8))
        abort();
    node.running = pthread_create(&node.thread, NULL, listen_on, NULL) == 0;
}

void fake_node_stop(void)
{
    if (!node.running)
        return;
    shutdown(node.listener, SHUT_RDWR); /* accept() ends */
    pthread_join(node.thread, NULL);
    close(node.listener);
    node.running = false;
}

void fake_node_answers(const struct fake_answer *answers, size_t n)
{
    fake_node_stop();
    node.answers = answers;
    node.n = n;
    node.heard[0] = '\0';
    start();
}

void fake_node_end(void)
{
    char path[96];
    fake_node_stop();
    snprintf(path, sizeof path, "rm -rf '%s'", node.folder);
    if (system(path))
        abort();
}

const char *fake_node_heard(void)
{
    static char copy[sizeof node.heard];
    pthread_mutex_lock(&node.lock);
    memcpy(copy, node.heard, sizeof copy);
    pthread_mutex_unlock(&node.lock);
    return copy;
}

const char *fake_node_folder(void)
{
    return node.folder;
}
