#include "mesh/stream_quic.h"

enum error_code quic_endpoint_open(struct mesh *mesh, struct quic_endpoint **out, struct error *err)
{
    *out = NULL;
    return error_set(err, ERROR_UNSUPPORTED, "QUIC is not there yet");
}

enum error_code quic_endpoint_listen(struct quic_endpoint *endpoint, const struct sockaddr *address, uint16_t *port,
                                     struct error *err)
{
    return error_set(err, ERROR_UNSUPPORTED, "QUIC is not there yet");
}

enum error_code quic_endpoint_connect(struct quic_endpoint *endpoint, const struct sockaddr *address,
                                      struct stream **out, struct error *err)
{
    return error_set(err, ERROR_UNSUPPORTED, "QUIC is not there yet");
}

void quic_endpoint_close(struct quic_endpoint *endpoint)
{
}
