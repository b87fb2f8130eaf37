#include "node/node.h"

#include "base/descriptors.h"
#include "base/log.h"
#include "base/service_manager.h"

#include <signal.h>
#include <uv.h>

enum { SIGNALS = 3 };

struct node_process {
    uv_loop_t loop;
    uv_signal_t signals[SIGNALS];
    uv_timer_t alive; /* tells the service manager */
    struct service_manager manager;
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

static void node_reload(struct node_process *node)
{
    log_line(LOG_INFO, "node", "reading settings anew");
    service_manager_tell_reloading(&node->manager);
    for (size_t i = 0; i < node->n_services; i++) {
        if (node->services[i].reload)
            node->services[i].reload(node->services[i].arg);
    }
    service_manager_tell(&node->manager, "READY=1");
}

static void node_on_signal(uv_signal_t *handle, int number)
{
    struct node_process *node = handle->data;
    if (number == SIGHUP && service_manager_is_there(&node->manager)) {
        node_reload(node);
        return;
    }
    log_line(LOG_INFO, "node", "signal %d: stopping", number);
    service_manager_tell(&node->manager, "STOPPING=1\nSTATUS=stopping");
    for (size_t i = 0; i < node->n_services; i++)
        node->services[i].stop(node->services[i].arg, on_stopped, node);
}

static enum error_code open_loop(struct node_process *node, struct error *err)
{
    static const int numbers[SIGNALS] = {SIGINT, SIGTERM, SIGHUP};
    int problem = uv_loop_init(&node->loop);
    if (problem)
        return error_set(err, ERROR_IO, "cannot make an event loop: %s", uv_strerror(problem));
    for (int i = 0; i < SIGNALS; i++) {
        uv_signal_init(&node->loop, &node->signals[i]);
        node->signals[i].data = node;
        uv_signal_start(&node->signals[i], node_on_signal, numbers[i]);
    }
    uv_timer_init(&node->loop, &node->alive);
    node->alive.data = node;
    uv_unref((uv_handle_t *)&node->alive);
    return ERROR_NONE;
}

static void node_on_alive(uv_timer_t *timer)
{
    const struct node_process *node = timer->data;
    service_manager_tell(&node->manager, "WATCHDOG=1");
}

/* All services are open. */
static void node_tell_ready(struct node_process *node)
{
    const uint64_t every_ms = node->manager.watchdog_ms / 2;
    service_manager_tell(&node->manager, "READY=1\nSTATUS=serving");
    if (every_ms)
        uv_timer_start(&node->alive, node_on_alive, every_ms, every_ms);
}

static void close_loop(struct node_process *node)
{
    for (int i = 0; i < SIGNALS; i++)
        uv_close((uv_handle_t *)&node->signals[i], NULL);
    uv_close((uv_handle_t *)&node->alive, NULL);
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
    service_manager_open(&node.manager);
    for (size_t i = 0; i < n_services && !code; i++) {
        code = services[i].open(services[i].arg, &node.loop, err);
        node.n_services += !code;
    }
    node.n_running = node.n_services;
    if (!code) {
        node_tell_ready(&node);
        uv_run(&node.loop, UV_RUN_DEFAULT);
    }
    for (size_t i = node.n_services; i-- > 0;)
        services[i].close(services[i].arg);
    close_loop(&node);
    service_manager_close(&node.manager);
    return code;
}
