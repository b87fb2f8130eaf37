/* What a model's text says: content, reasoning, and calls of tools, told apart as the text comes.
 *
 * Push the text in pieces, cut anywhere; events come as soon as they are certain, in the text's
 * order, and joined they are the same however it was cut. Where nothing is a mark of the format the
 * content is the text, byte by byte. White space around marks says nothing and is dropped. What
 * begins like a call and turns out not to be one is content, marks included. Once a call is
 * announced its arguments come as they are written: a text that breaks off in the middle leaves
 * them unfinished.
 *
 * Example:
 *     struct reply_reader reply = {.format = traits.format, .tools = …, .event = …, .self = …};
 *     reply_reader_push(&reply, "<tool_call>{\"name\": \"f\", \"argu", 29);
 *     reply_reader_push(&reply, "ments\": {}}", 11);      // REPLY_CALL f, REPLY_ARGUMENTS {}
 *     reply_reader_finish(&reply);
 *     reply_reader_deinit(&reply);
 *
 * A reply is zeroed but for the fields marked "set before use". Pure; one thread. Memory is bounded
 * by the text: what is held back is a part of it. */
#pragma once

#include "base/buffer.h"
#include "tools/tool_format.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    LIMIT_TOOL_NAME_BYTES = 256, /* of a call; longer ones are content */
    LIMIT_REPLY_SPACE = 256,     /* white space that is held back */
    LIMIT_CHANNEL_BYTES = 1024,  /* of a message's header, in harmony */
};

enum reply_part { REPLY_CONTENT, REPLY_REASONING, REPLY_CALL, REPLY_ARGUMENTS };

struct reply_event { /* its bytes are valid during the call */
    enum reply_part part;
    uint32_t call; /* of a call and its arguments: counted from 0 */
    const char *text;
    size_t size;    /* of a call: its name */
    const char *id; /* of a call: what the model itself calls it; size 0: nothing */
    size_t id_size;
};

struct reply_tools { /* zeroed: none, and nothing is a call */
    bool (*is_tool)(void *self, const char *name, size_t size);
    /* Whether a text stands where that argument's value does, and not JSON. */
    bool (*takes_text)(void *self, const char *tool, size_t tool_size, const char *key,
                       size_t key_size);
    void *self;
};

enum reply_state {
    REPLY_IN_TEXT,
    REPLY_IN_THOUGHT,
    REPLY_IN_GAP,           /* after a call */
    REPLY_AT_CALL,          /* after its mark */
    REPLY_IN_JSON,          /* reply_json.c */
    REPLY_IN_NAME,          /* reply_named.c … */
    REPLY_IN_VALUE,         /* … */
    REPLY_IN_ELEMENTS_NAME, /* reply_elements.c … */
    REPLY_IN_ELEMENTS,
    REPLY_IN_ELEMENT_KEY,
    REPLY_IN_ELEMENT_VALUE,
    REPLY_IN_ELEMENTS_JSON,
    REPLY_IN_DICT_NAME, /* reply_dict.c … */
    REPLY_IN_DICT,
    REPLY_IN_HEADER, /* reply_channels.c … */
    REPLY_IN_MESSAGE,
};

/* Where a JSON value is. */
struct json_progress {
    uint32_t depth;
    bool in_string, escaped, begun;
};

enum json_call_state {
    JSON_CALL_BEFORE,
    JSON_CALL_MEMBER,
    JSON_CALL_KEY,
    JSON_CALL_COLON,
    JSON_CALL_VALUE,
    JSON_CALL_NAME,
    JSON_CALL_ID,
    JSON_CALL_ARGUMENTS,
    JSON_CALL_ARGUMENTS_TEXT,
    JSON_CALL_OTHER,
    JSON_CALL_DONE,
    JSON_CALL_BROKEN,
};

struct json_text { /* of a string's characters, escapes undone */
    bool escaped;
    uint32_t n_hex, code, high;
};

struct json_call {
    enum json_call_state state;
    bool in_function;   /* inside "function": {…} */
    bool has_arguments; /* some came */
    char key[16];
    uint32_t n_key;
    struct json_text text;
    struct json_progress place;
};

enum dict_state {
    DICT_KEY,   /* one comes, or the dictionary's end */
    DICT_VALUE, /* one comes, or a list's end */
    DICT_TEXT,  /* between its marks */
    DICT_QUOTED,
    DICT_NEXT, /* behind a value */
};

enum { LIMIT_DICT_DEPTH = 64 }; /* of dictionaries and lists in each other */

struct dict_call {
    enum dict_state state;
    uint64_t lists; /* bit i: at that depth is a list, not a dictionary */
    uint32_t depth;
    bool comma; /* stands before the next key or value */
    bool escaped;
};

struct reply_reader {
    /* set before use */
    const struct tool_format *format;
    const struct think_marks *think; /* NULL: none */
    bool thinks_first;               /* the prompt has opened the reasoning */
    struct reply_tools tools;
    void (*event)(void *self, const struct reply_event *event);
    void *self;
    /* its own */
    enum reply_state state;
    bool started, final;
    bool begun;       /* some content has come */
    bool drops_space; /* white space that comes first is dropped */
    bool announced;   /* the call at hand */
    bool in_list;     /* of calls */
    bool failed;      /* out of memory */
    uint32_t n_calls; /* announced so far */
    struct buffer held;
    size_t at;           /* bytes of it that are done */
    size_t scanned;      /* bytes behind `at` in which no mark begins */
    struct buffer raw;   /* the text of a call that is not announced */
    struct buffer early; /* arguments that came before the name */
    struct buffer name, id, key;
    struct buffer value_end; /* the mark of an element that its key closes */
    struct json_call json;
    struct dict_call dict;
    uint32_t n_arguments; /* of elements */
    enum reply_part part; /* of a channel's message */
    bool value_is_text, value_begun;
    bool arguments_told; /* of elements: all of them */
};

void reply_reader_push(struct reply_reader *reply, const char *text, size_t size);
/* Nothing follows: what was held back comes out. */
void reply_reader_finish(struct reply_reader *reply);
void reply_reader_deinit(struct reply_reader *reply);
