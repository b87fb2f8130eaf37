/* A real API server over loopback, with fakes behind it, and a raw HTTP client. */
#pragma once

#include "api/bridge.h"
#include "api/limits.h"
#include "base/buffer.h"
#include "base/live_feed.h"
#include "fake_driver.h"
#include "node/node.h"

#include <stdbool.h>

/* Starts the server in a thread of its own; it ends by SIGTERM to this process, as it would in
 * life. */
void api_world_start(struct fake_driver_options options);
/* The same over the test's own models; `beside`, if not NULL, is a service on the same loop, opened
 * first. */
void api_world_start_with(struct api_models models, uint32_t waiting_ms,
                          const struct node_service *beside);
/* For the next start; what is 0 is the default. */
void api_world_limit(struct api_limits limits);
/* For the next starts. */
void api_world_bridge(struct api_bridge bridge);
void api_world_live(struct live_feed live);
void api_world_stop(void); /* a second call does nothing */

uint16_t api_world_port(void);

int api_connect(void);
void api_send(int fd, const void *bytes, size_t size);
void api_send_text(int fd, const char *text);
/* POST of a JSON body, with its headers. */
void api_post(int fd, const char *path, const char *json);
void api_post_with(int fd, const char *path, const char *headers,
                   const char *json); /* more headers: "a: b\r\n" */

struct api_reply {
    int status;         /* 0: the connection closed before a status line */
    struct buffer head; /* with the status line */
    struct buffer body; /* chunks put together */
    bool closed;        /* the server closed afterwards, or in the middle */
};
/* One whole answer; fails the test after 10 s. Free with api_reply_clear(). */
struct api_reply api_receive(int fd);
void api_reply_clear(struct api_reply *reply);
/* Reads what comes until `text` has come; false: closed before. */
bool api_wait_for(int fd, const char *text);

/* The value at a JSON pointer of a body, as text: strings without quotes, "(none)". Valid until the
 * next call. */
const char *api_json_at(const struct buffer *body, const char *pointer);
/* A chat request's body. */
#define CHAT(content, more)                                                                        \
    "{\"model\":\"fake-model\",\"messages\":[{\"role\":\"user\",\"content\":\"" content            \
    "\"}]" more "}"

struct api_reply api_once(const char *path,
                          const char *json); /* json NULL: GET; on a connection of its own */
/* Waits until /health says that many slots are busy, and with 0 that nothing is queued; fails after
 * 5 s. */
void api_wait_busy(unsigned busy);
