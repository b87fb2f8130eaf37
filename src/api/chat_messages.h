/* The `messages` of a chat request, checked and made plain for the chat template: each becomes
 * {"role","content"[,"name"]} with a text content, in which marks stand for pictures; calls have
 * their arguments as an object, and their results the tool's name. Private to the api room. */
#pragma once

#include "api/json_in.h"
#include "base/buffer.h"

/* Appends the template's whole input, {"messages":[…],"add_generation_prompt":true}. */
bool chat_messages_read(struct json_in *in, yyjson_val *messages, struct buffer *out);
