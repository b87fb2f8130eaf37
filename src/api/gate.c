#include "api/gate.h"

#include "api/address.h"
#include "trust/served_names.h"

#include <arpa/inet.h>
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char name_letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                   "0123456789-._";

/* ---- names ---- */

/* An address in one way of writing, so that two can be compared: an IPv4 address in IPv6 as IPv4,
 * without brackets and zone. False: `text` is no address. */
static bool gate_write_address(const char *text, size_t size, char out[GATE_NAME_MAX])
{
    char plain[INET6_ADDRSTRLEN];
    struct in_addr v4;
    struct in6_addr v6;
    if (size >= 2 && text[0] == '[' && text[size - 1] == ']') {
        text++;
        size -= 2;
    }
    const char *zone = memchr(text, '%', size);
    if (zone)
        size = (size_t)(zone - text);
    if (size >= sizeof plain)
        return false;
    memcpy(plain, text, size);
    plain[size] = '\0';
    if (inet_pton(AF_INET, plain, &v4) == 1)
        return inet_ntop(AF_INET, &v4, out, GATE_NAME_MAX) != NULL;
    if (inet_pton(AF_INET6, plain, &v6) != 1)
        return false;
    if (IN6_IS_ADDR_V4MAPPED(&v6))
        return inet_ntop(AF_INET, &v6.s6_addr[12], out, GATE_NAME_MAX) != NULL;
    return inet_ntop(AF_INET6, &v6, out, GATE_NAME_MAX) != NULL;
}

/* A name or address in the one way in which the list has it: lower case, without the root's dot. */
static bool gate_write_name(const char *text, size_t size, char out[GATE_NAME_MAX])
{
    if (gate_write_address(text, size, out))
        return true;
    if (size && text[size - 1] == '.')
        size--;
    if (!size || size >= GATE_NAME_MAX || strspn(text, name_letters) < size)
        return false;
    for (size_t i = 0; i < size; i++)
        out[i] = (char)(text[i] >= 'A' && text[i] <= 'Z' ? text[i] + 'a' - 'A' : text[i]);
    out[size] = '\0';
    return true;
}

static bool gate_lists(const struct gate *gate, const char *name)
{
    for (uint32_t i = 0; i < gate->n_names; i++) {
        if (strcmp(gate->names[i], name) == 0)
            return true;
    }
    return false;
}

enum error_code gate_allow(struct gate *gate, const char *name, struct error *err)
{
    char written[GATE_NAME_MAX];
    assert(gate->n_names <= LIMIT_API_HOSTS);
    if (!gate_write_name(name, strlen(name), written))
        return error_set(err, ERROR_INVALID,
                         "'%s' is not a host: give a name or an address, without a port", name);
    if (gate_lists(gate, written))
        return ERROR_NONE;
    if (gate->n_names == LIMIT_API_HOSTS)
        return error_set(err, ERROR_INVALID, "at most %d hosts can be allowed", LIMIT_API_HOSTS);
    memcpy(gate->names[gate->n_names++], written, sizeof written);
    return ERROR_NONE;
}

/* ---- Host and Origin ---- */

/* RFC 9110, section 7.2: uri-host [":" port]. The port may be any: what came here has found it. */
static bool gate_read_host(const char *text, char out[GATE_NAME_MAX])
{
    const char *end = text[0] == '[' ? strchr(text, ']') : NULL;
    end = end ? end + 1 : text + strcspn(text, ":");
    if (end[0] == ':' && end[1 + strspn(end + 1, "0123456789")])
        return false;
    return (!end[0] || end[0] == ':') && gate_write_name(text, (size_t)(end - text), out);
}

/* "tower.lan", where "tower" is on the list. Nobody can own a name under these suffixes, and the
 * API's certificate is made out to them too. */
static bool gate_lists_locally(const struct gate *gate, const char *name)
{
    char machine[GATE_NAME_MAX];
    const char *dot = strchr(name, '.');
    if (!dot)
        return false;
    snprintf(machine, sizeof machine, "%.*s", (int)(dot - name), name);
    for (const char *const *suffix = served_suffixes; *suffix; suffix++) {
        if (strcmp(dot + 1, *suffix) == 0)
            return gate_lists(gate, machine);
    }
    return false;
}

static bool gate_is_ours(const struct gate *gate, const char *name, const char *arrived)
{
    char address[GATE_NAME_MAX];
    return api_address_is_loopback(name) || gate_lists(gate, name) ||
           gate_lists_locally(gate, name) ||
           (arrived && gate_write_address(arrived, strlen(arrived), address) &&
            strcmp(address, name) == 0);
}

/* RFC 9112, section 3.2: exactly one Host, except in HTTP/1.0. */
static bool gate_check_host(const struct gate *gate, const struct gate_head *head,
                            struct api_error *err)
{
    char name[GATE_NAME_MAX];
    if (!head->n_hosts && head->http_1_0)
        return true;
    if (head->n_hosts != 1 || !head->host || !gate_read_host(head->host, name))
        return api_error_set(err, 400, "invalid_request_error", "bad_host",
                             "the request needs one Host header with a host in it, as in "
                             "'Host: localhost:8080'");
    return gate_is_ours(gate, name, head->arrived) ||
           api_error_set(err, 403, "invalid_request_error", "host_not_allowed",
                         "this server does not answer for '%.200s'; use an address of its machine, "
                         "or start it with --host %.200s",
                         name, name);
}

/* A web page of another origin may make its visitor's browser send requests to this machine. It
 * could not read the answers, but it would have the work done. Programs send no Origin. */
static bool gate_check_origin(const struct gate *gate, const struct gate_head *head,
                              struct api_error *err)
{
    const char *allowed = gate->cors_origin, *authority;
    if (!head->origin || (allowed && strcmp(allowed, "*") == 0))
        return true;
    authority = strstr(head->origin, "://");
    if ((authority && head->host && strcasecmp(authority + 3, head->host) == 0) ||
        (allowed && strcasecmp(allowed, head->origin) == 0))
        return true;
    return api_error_set(
        err, 403, "invalid_request_error", "origin_not_allowed",
        "web pages of '%s' may not use this server; start it with --cors to allow them",
        head->origin);
}

/* ---- the body ---- */

/* RFC 9110, section 8.6: digits only. */
static bool gate_read_length(const struct gate_head *head, struct gate_body *body,
                             struct api_error *err)
{
    const char *text = head->length;
    body->length_given = text != NULL;
    if (!text)
        return true;
    if (!text[0] || strlen(text) > 18 || text[strspn(text, "0123456789")])
        return api_error_set(err, 400, "invalid_request_error", NULL,
                             "Content-Length is not a number");
    body->expected = strtoull(text, NULL, 10);
    return true;
}

/* RFC 9112, section 6.3: both a length and an encoding is an attempt to confuse. */
static bool gate_check_encoding(const struct gate_head *head, struct gate_body *body,
                                struct api_error *err)
{
    if (!head->encoding)
        return true;
    body->chunked =
        !body->length_given && head->body_assumed && strcasecmp(head->encoding, "chunked") == 0;
    return body->chunked || api_error_set(err, 411, "invalid_request_error", NULL,
                                          "the body needs a Content-Length, or must be chunked");
}

bool gate_check(const struct gate *gate, const struct gate_head *head, struct gate_body *body,
                struct api_error *err)
{
    *body = (struct gate_body){0};
    if (!gate_read_length(head, body, err)) /* first: whoever refuses wants to know what follows */
        return false;
    if (head->websocket)
        return api_error_set(err, 400, "invalid_request_error", "upgrade_not_supported",
                             "this server speaks HTTP only: there is no WebSocket here");
    return gate_check_host(gate, head, err) && gate_check_origin(gate, head, err) &&
           gate_check_encoding(head, body, err);
}
