/* Pictures in what a message says: as a request gives them, and as a dialect writes them anew.
 * Pure. Private to the api room. */
#pragma once

#include "api/request_json.h"

#include <yyjson.h>

/* Where a picture stands in a chat's text while that is rendered; a code point that stands for
 * nothing (U+10FFFD is private use). */
#define CHAT_PICTURE_MARK "\xf4\x8f\xbf\xbd"

/* A part {"type":"image_url","image_url":{"url","detail"}} at `path`: another of the request's
 * pictures. The URL is a data URL; others are refused, for a server that fetches what strangers
 * name reaches what they cannot. */
bool chat_pictures_read(struct generation_request *request, const char *path, yyjson_val *part,
                        struct api_error *err);

/* The bytes in a picture's URL. False: `err` names the picture. */
bool chat_picture_bytes(const struct chat_picture *picture, struct buffer *out,
                        struct api_error *err);

/* What a message says, from the dialect's parts to a chat's content: a string, or, where there are
 * pictures, an array of parts. Zeroed is empty. */
struct chat_content {
    struct buffer text;  /* since the last picture */
    struct buffer parts; /* before that, as JSON with commas between */
};
void chat_content_text(struct chat_content *content, yyjson_val *text);
/* A URL as the client gave it; `prefix` stands before what they did not give as one. */
void chat_content_picture(struct chat_content *content, const char *prefix, yyjson_val *url);
bool chat_content_is_empty(const struct chat_content *content);
void chat_content_write(struct chat_content *content, struct buffer *out);
void chat_content_deinit(struct chat_content *content);
