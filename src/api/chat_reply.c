#include "api/chat_reply.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <yyjson.h>

/* ---- the request's tools ---- */

/* Whether a value of that schema is a text: it says so, null aside. */
static bool schema_is_text(yyjson_val *schema)
{
    yyjson_val *type = yyjson_obj_get(schema, "type"), *each;
    size_t index, max;
    bool any = false;
    if (yyjson_is_str(type))
        return yyjson_equals_str(type, "string");
    yyjson_arr_foreach(type, index, max, each)
    {
        if (!yyjson_equals_str(each, "string") && !yyjson_equals_str(each, "null"))
            return false;
        any |= yyjson_equals_str(each, "string");
    }
    return any;
}

static void table_add(struct buffer *bytes, char kind, yyjson_val *text)
{
    buffer_append(bytes, &kind, 1);
    buffer_append(bytes, yyjson_get_str(text), yyjson_get_len(text) + 1);
}

/* A row is its kind, 't' a tool or 'a' one of its arguments, a text, and a NUL. */
bool tool_table_make(struct tool_table *table, yyjson_val *tools)
{
    size_t i, k, n_tools, n_keys;
    yyjson_val *tool, *key, *schema;
    yyjson_arr_foreach(tools, i, n_tools, tool)
    {
        yyjson_val *function = yyjson_obj_get(tool, "function");
        yyjson_val *parameters = yyjson_obj_get(function, "parameters");
        table_add(&table->bytes, 't', yyjson_obj_get(function, "name"));
        yyjson_obj_foreach(yyjson_obj_get(parameters, "properties"), k, n_keys, key, schema)
        {
            if (schema_is_text(schema))
                table_add(&table->bytes, 'a', key);
        }
    }
    return !table->bytes.failed;
}

void tool_table_deinit(struct tool_table *table)
{
    buffer_deinit(&table->bytes);
}

static bool row_is(const char *row, char kind, const char *text, size_t size)
{
    return row[0] == kind && strlen(row + 1) == size && memcmp(row + 1, text, size) == 0;
}

static size_t table_find_tool(const struct tool_table *table, const char *name, size_t size)
{
    const struct buffer *bytes = &table->bytes;
    size_t at = 0;
    while (at < bytes->size && !row_is(bytes->data + at, 't', name, size))
        at += strlen(bytes->data + at) + 1;
    return at;
}

static bool table_has_tool(void *self, const char *name, size_t size)
{
    const struct tool_table *table = self;
    return table_find_tool(table, name, size) < table->bytes.size;
}

static bool table_takes_text(void *self, const char *tool, size_t tool_size, const char *key,
                             size_t key_size)
{
    const struct tool_table *table = self;
    const struct buffer *bytes = &table->bytes;
    size_t at = table_find_tool(table, tool, tool_size);
    if (at == bytes->size)
        return false;
    for (at += strlen(bytes->data + at) + 1; at < bytes->size && bytes->data[at] == 'a';
         at += strlen(bytes->data + at) + 1) {
        if (row_is(bytes->data + at, 'a', key, key_size))
            return true;
    }
    return false;
}

struct reply_tools tool_table_for_reply(struct tool_table *table)
{
    if (!table->bytes.size)
        return (struct reply_tools){0};
    return (struct reply_tools){
        .is_tool = table_has_tool, .takes_text = table_takes_text, .self = table};
}

/* ---- what a choice says ---- */

void chat_call_id(const struct tool_format *format, uint64_t number, char out[CALL_ID_BYTES])
{
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    if (strcmp(format->name, "mistral") != 0) {
        snprintf(out, CALL_ID_BYTES, "call_%016" PRIx64, number);
        return;
    }
    for (int i = 0; i < 9; i++, number /= 36)
        out[i] = digits[number % 36];
    out[9] = 0;
}

static struct chat_call *chat_reply_call(struct chat_reply *reply, uint32_t index)
{
    if (!reply->calls)
        reply->calls = mem_new_array(LIMIT_TOOLS, sizeof *reply->calls);
    reply->failed |= !reply->calls;
    return reply->calls && index < LIMIT_TOOLS ? &reply->calls[index] : NULL;
}

void chat_reply_keep(struct chat_reply *reply, const struct reply_event *event)
{
    struct chat_call *call = NULL;
    switch (event->part) {
    case REPLY_CONTENT:
        return;
    case REPLY_REASONING:
        buffer_append(&reply->reasoning, event->text, event->size);
        break;
    case REPLY_CALL:
        call = chat_reply_call(reply, event->call);
        if (!call)
            return;
        memcpy(call->id, reply->call_id, sizeof call->id);
        buffer_append(&call->name, event->text, event->size);
        reply->n_calls = event->call + 1;
        break;
    case REPLY_ARGUMENTS:
        call = chat_reply_call(reply, event->call);
        if (call)
            buffer_append(&call->arguments, event->text, event->size);
        break;
    }
    reply->failed |=
        reply->reasoning.failed || (call && (call->name.failed || call->arguments.failed));
}

void chat_reply_deinit(struct chat_reply *reply)
{
    reply_reader_deinit(&reply->reply);
    buffer_deinit(&reply->reasoning);
    for (uint32_t i = 0; reply->calls && i < reply->n_calls; i++) {
        buffer_deinit(&reply->calls[i].name);
        buffer_deinit(&reply->calls[i].arguments);
    }
    mem_free(reply->calls);
    *reply = (struct chat_reply){0};
}
