#include "mesh/host_port.h"

#include <stdio.h>
#include <string.h>

static enum error_code read_port(const char *text, uint16_t *port, struct error *err)
{
    uint32_t value = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9' && value <= 65535; at++)
        value = value * 10 + (uint32_t)(*at - '0');
    if (*at || value == 0 || value > 65535)
        return error_set(err, ERROR_INVALID, "'%s' is not a port (1 to 65535)", text);
    *port = (uint16_t)value;
    return ERROR_NONE;
}

enum error_code host_port_parse(const char *text, uint16_t standard, char host[HOST_TEXT],
                                uint16_t *port, struct error *err)
{
    const char *bracket = text[0] == '[' ? strchr(text, ']') : NULL, *colon = strchr(text, ':');
    const char *from = text, *end = text + strlen(text), *after = NULL;
    *port = standard;
    if (text[0] == '[') {
        if (!bracket || (bracket[1] && bracket[1] != ':'))
            return error_set(err, ERROR_INVALID, "'%s' is not an address; write [IPV6]:PORT", text);
        from = text + 1, end = bracket;
        after = bracket[1] ? bracket + 2 : NULL;
    } else if (colon && !strchr(colon + 1, ':')) { /* more colons: an IPv6 address alone */
        end = colon, after = colon + 1;
    }
    if (end == from || end - from >= HOST_TEXT)
        return error_set(err, ERROR_INVALID, "'%s' is not an address; write HOST or HOST:PORT",
                         text);
    snprintf(host, HOST_TEXT, "%.*s", (int)(end - from), from);
    return after ? read_port(after, port, err) : ERROR_NONE;
}
