/* Lines of the record of who did what, for people. */
#pragma once

#include "audit/entry.h"

#include <yyjson.h>

/* Names for ids: the node's answer to {"do":"audit"}; NULL: none, and ids are cut to 8 digits. */
void audit_show_entry(const struct audit_entry *entry, yyjson_doc *names);
/* The name, or the first 8 digits. */
void audit_show_name(struct buffer *out, const char *id, yyjson_doc *names);
