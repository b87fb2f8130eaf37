/* What a node's answers make of medley/client.h. The first byte says what the rest is: a stream of
 * events, cut by its second byte, a list of models, a forecast, an error, or fields that its
 * program adds. */
#include "fuzz.h"

#include "base/mem.h"
#include "client/client_events.h"
#include "client/client_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FUZZ_LINE_MAX = 1000 };

static void fuzz_tell(void *self, const struct medley_piece *piece)
{
    FUZZ_CHECK(piece->size && piece->text);
}

static bool fuzz_event(void *self, const char *data, size_t size)
{
    yyjson_doc *doc = yyjson_read(data, size, 0);
    FUZZ_CHECK(size && size <= FUZZ_LINE_MAX);
    client_json_read_event(yyjson_doc_get_root(doc), self, fuzz_tell, NULL);
    yyjson_doc_free(doc);
    return true;
}

static void fuzz_events(const char *bytes, size_t size)
{
    struct client_events events = {0};
    struct medley_client_request request = {0};
    const size_t step = size ? (size_t)(unsigned char)*bytes + 1 : 1;
    bool good = true;
    for (size_t at = 1; at < size && good; at += step)
        good = client_events_read(&events, bytes + at, size - at < step ? size - at : step,
                                  FUZZ_LINE_MAX, fuzz_event, &request);
    FUZZ_CHECK(events.line.size <= FUZZ_LINE_MAX);
    FUZZ_CHECK(strlen(request.finish_reason) < sizeof request.finish_reason);
    client_events_deinit(&events);
}

static void fuzz_models(yyjson_val *root)
{
    struct medley_error err = {0};
    struct medley_model *models;
    uint32_t n;
    const bool good = client_json_read_models(root, &models, &n, &err);
    FUZZ_CHECK(good == !err.code);
    for (uint32_t i = 0; good && i < n; i++)
        FUZZ_CHECK(models[i].id);
    mem_free(models);
}

static void fuzz_forecast(yyjson_val *root)
{
    struct medley_error err = {0};
    struct medley_forecast forecast;
    struct medley_forecast_stage *stages;
    const bool good = client_json_read_forecast(root, &forecast, &stages, &err);
    FUZZ_CHECK(good == !err.code);
    for (uint32_t i = 0; good && i < forecast.n_stages; i++)
        FUZZ_CHECK(forecast.stages[i].node && forecast.stages[i].device);
    mem_free(stages);
}

static void fuzz_more(const char *text)
{
    const struct medley_generation ask = {.model = text, .prompt = text, .more_json = text};
    struct medley_error err = {0};
    struct buffer body = {0};
    FUZZ_CHECK(client_json_ask_generation(&ask, &body, &err) == !err.code);
    buffer_deinit(&body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = size ? malloc(size) : NULL;
    struct medley_error err = {0};
    if (!text)
        return 0;
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    yyjson_doc *doc = yyjson_read(text, size - 1, 0);
    switch (data[0] % 5) {
    case 0:
        fuzz_events(text, size - 1);
        break;
    case 1:
        fuzz_models(yyjson_doc_get_root(doc));
        break;
    case 2:
        fuzz_forecast(yyjson_doc_get_root(doc));
        break;
    case 3:
        client_json_read_error(400 + data[0], yyjson_doc_get_root(doc), &err);
        FUZZ_CHECK(err.code && err.text[0]);
        break;
    case 4:
        fuzz_more(text);
        break;
    }
    yyjson_doc_free(doc);
    free(text);
    return 0;
}
