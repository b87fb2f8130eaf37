/* What the kernel has counted on a TCP socket. Linux; elsewhere not valid. */
#pragma once

#include "mesh/stream.h"

void tcp_packets(int fd, struct stream_packets *packets);
