/* A node's event loop: it runs services (the API now; the cluster later) until a signal ends it.
 *
 * node_run() opens the services in order on one libuv loop, runs it, and on SIGINT or SIGTERM asks
 * each to stop; a second signal asks again, which means "now". When all have stopped it closes them
 * and gives the loop time to take back their handles. One node a process; call it on the main
 * thread.
 *
 * A service manager that started the process (base/service_manager.h) hears when it is ready, that
 * the loop still turns, and when it stops; its SIGHUP has the services read their settings anew.
 * Without one SIGHUP stops the node: its terminal is gone. */
#pragma once

#include "base/error.h"

#include <stddef.h>

struct node;

struct node_service {
    const char *name;
    enum error_code (*open)(void *arg, void *uv_loop, struct error *err);
    /* Begin to end; call stopped(node) on the loop when nothing is under way any more. */
    void (*stop)(void *arg, void (*stopped)(void *node), void *node);
    void (*close)(void *arg); /* give handles back; the loop runs on until they are */
    void (*free)(void *arg);  /* the loop has no handle of the service left */
    void *arg;
    void (*reload)(void *arg); /* reads its settings anew; NULL: there are none */
};

/* Returns when all services have ended. A service that cannot be opened ends the node with its
 * error. */
enum error_code node_run(const struct node_service *services, size_t n_services, struct error *err);
