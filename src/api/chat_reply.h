/* What one choice of a chat says: its text, reasoning and calls, told apart (tools/reply.h), and
 * kept where the answer is not streamed. Calls have ids that come from the request's, so that an
 * answer that is repeated names them the same. One thread. Private to the api room. */
#pragma once

#include "api/request_json.h"
#include "tools/reply.h"

enum { CALL_ID_BYTES = LIMIT_TOOL_NAME_BYTES + 1 };

/* The tools of a request: their names, and which arguments are texts. A zeroed one has none. */
struct tool_table {
    struct buffer bytes;
};
bool tool_table_make(struct tool_table *table, struct yyjson_val *tools);
void tool_table_deinit(struct tool_table *table);
struct reply_tools tool_table_for_reply(struct tool_table *table);

struct chat_call {
    char id[CALL_ID_BYTES];
    struct buffer name, arguments;
};

struct chat_reply {
    struct reply_reader reply; /* its format NULL: the text is content, all of it */
    struct buffer reasoning;
    struct chat_call *calls; /* LIMIT_TOOLS, once there is one */
    uint32_t n_calls;
    char call_id[CALL_ID_BYTES]; /* of the last call */
    bool failed;
};

/* The id of a call that its model gave none: nine letters and digits where the format wants that.
 */
void chat_call_id(const struct tool_format *format, uint64_t number, char out[CALL_ID_BYTES]);
/* Keeps what an event says, content excepted. */
void chat_reply_keep(struct chat_reply *reply, const struct reply_event *event);
void chat_reply_deinit(struct chat_reply *reply);
