/* The address of `--api`: host:port, :port, or [::1]:port. Pure. */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct api_address {
    char host[256]; /* without brackets; "127.0.0.1" when none was given */
    uint16_t port;  /* 0: any free one */
};

enum error_code api_address_parse(const char *text, struct api_address *out, struct error *err);

/* 127.0.0.0/8, ::1 or "localhost": only this machine can reach it. */
bool api_address_is_loopback(const char *host);
