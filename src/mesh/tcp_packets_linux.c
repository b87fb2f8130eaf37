/* A file of its own: the kernel's header and the C library's, which libuv includes, exclude each
 * other, and the C library's lacks the number of packets sent. */
#include "mesh/tcp_packets.h"

#include <linux/tcp.h>
#include <netinet/in.h>

void tcp_packets(int fd, struct stream_packets *packets)
{
    struct tcp_info info = {0};
    socklen_t size = sizeof info;
    *packets = (struct stream_packets){0};
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size))
        return;
    if (size < offsetof(struct tcp_info, tcpi_segs_out) + sizeof info.tcpi_segs_out)
        return; /* an older kernel */
    *packets = (struct stream_packets){
        .sent = info.tcpi_segs_out, .lost = info.tcpi_total_retrans, .valid = true};
}
