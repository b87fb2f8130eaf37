/* Bytes to and from a process of ours over a socket, with an end in time. Both ends are this
 * program; what comes is not trusted for that. Any thread, one at a time per socket. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* All of it, until that moment of clock.h, as long as somebody wants it (work_limit.h). False:
 * errno says why: ETIMEDOUT, or 0: the other end has gone. */
bool transfer_send(int socket, const void *bytes, size_t size, uint64_t until_ns);
bool transfer_receive(int socket, void *bytes, size_t size, uint64_t until_ns);
