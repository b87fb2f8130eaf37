#include "node/node.h"

#include "base/descriptors.h"
#include "base/log.h"

#include <signal.h>
#include <uv.h>

enum { SIGNALS = 2 };

struct node_process {
    uv_loop_t loop;
    uv_signal_t signals[SIGNALS];
    const struct node_service *services;
    size_t n_services; /* that are open */
    size_t n_running;
};

static void on_stopped(void *arg)
{
    struct node_process *node = arg;
    if (--node->n_running == 0)
        uv_stop(&node->loop);
}

static void node_on_signal(uv_signal_t *handle, int number)
{
    struct node_process *node = handle->data;
    log_line(LOG_INFO, "node", "signal %d: stopping", number);
    for (size_t i = 0; i < node->n_services; i++)
        node->services[i].stop(node->services[i].arg, on_stopped, node);
}

static enum error_code open_loop(struct node_process *node, struct error *err)
{
    static const int numbers[SIGNALS] = {SIGINT, SIGTERM};
    int problem = uv_loop_init(&node->loop);
    if (problem)
        return error_set(err, ERROR_IO, "cannot make an event loop: %s", uv_strerror(problem));
    for (int i = 0; i < SIGNALS; i++) {
        uv_signal_init(&node->loop, &node->signals[i]);
        node->signals[i].data = node;
        uv_signal_start(&node->signals[i], node_on_signal, numbers[i]);
    }
    return ERROR_NONE;
}

static void close_loop(struct node_process *node)
{
    for (int i = 0; i < SIGNALS; i++)
        uv_close((uv_handle_t *)&node->signals[i], NULL);
    uv_run(&node->loop, UV_RUN_DEFAULT);
    for (size_t i = node->n_services; i-- > 0;)
        node->services[i].free(node->services[i].arg);
    int problem = uv_loop_close(&node->loop);
    if (problem)
        log_line(LOG_WARN, "node", "the event loop still has handles: %s", uv_strerror(problem));
}

enum error_code node_run(const struct node_service *services, size_t n_services, struct error *err)
{
    struct node_process node = {.services = services};
    signal(SIGPIPE,
           SIG_IGN); /* a client that is gone is an error of its connection, not of the process */
    descriptors_raise();
    enum error_code code = open_loop(&node, err);
    if (code)
        return code;
    for (size_t i = 0; i < n_services && !code; i++) {
        code = services[i].open(services[i].arg, &node.loop, err);
        node.n_services += !code;
    }
    node.n_running = node.n_services;
    if (!code)
        uv_run(&node.loop, UV_RUN_DEFAULT);
    for (size_t i = node.n_services; i-- > 0;)
        services[i].close(services[i].arg);
    close_loop(&node);
    return code;
}
