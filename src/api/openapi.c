#include "api/openapi.h"

#include "api/exchange.h"
#include "api/internal.h"

void openapi_handle(struct exchange *exchange)
{
    struct buffer body = {0};
    buffer_append(&body, openapi_document, openapi_document_size);
    exchange_answer_json(exchange, &body);
}
