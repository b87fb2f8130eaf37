/* What the kernel has counted on a TCP socket. Not valid where it does not say. */
#pragma once

#include "mesh/stream.h"

void tcp_packets(int fd, struct stream_packets *packets);
