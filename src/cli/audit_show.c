#include "cli/audit_show.h"

#include "audit/seal.h"
#include "cli/answer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* NULL: nobody's. */
static const char *audit_name_of(const char *id, yyjson_doc *names)
{
    yyjson_val *nodes = names ? yyjson_obj_get(yyjson_doc_get_root(names), "nodes") : NULL, *node;
    size_t i, n;
    yyjson_arr_foreach(nodes, i, n, node)
    {
        const char *known = yyjson_get_str(yyjson_obj_get(node, "id"));
        if (known && strcmp(known, id) == 0)
            return yyjson_get_str(yyjson_obj_get(node, "name"));
    }
    return NULL;
}

void audit_show_name(struct buffer *out, const char *id, yyjson_doc *names)
{
    const char *name = audit_name_of(id, names);
    if (name)
        answer_clean(out, name);
    else
        buffer_printf(out, "%.8s", id[0] ? id : "?");
}

/* Ids in a text become names. */
static void audit_put_text(struct buffer *out, const char *text, yyjson_doc *names)
{
    char id[NODE_ID_TEXT];
    uint8_t bytes[NODE_ID_BYTES];
    while (*text) {
        snprintf(id, sizeof id, "%.*s", NODE_ID_TEXT - 1, text);
        if (id_parse(id, bytes, sizeof bytes) && audit_name_of(id, names)) {
            audit_show_name(out, id, names);
            text += NODE_ID_TEXT - 1;
        } else {
            buffer_append(out, text++, 1);
        }
    }
}

void audit_show_entry(const struct audit_entry *entry, yyjson_doc *names)
{
    const time_t seconds = (time_t)(entry->time_ms / 1000);
    struct buffer line = {0};
    struct tm local;
    char when[32] = "?";
    if (localtime_r(&seconds, &local) && !strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", &local))
        snprintf(when, sizeof when, "?");
    buffer_printf(&line, "%s  %6" PRIu64 "  ", when, entry->number);
    audit_show_name(&line, entry->node, names);
    if (entry->who[0])
        buffer_printf(&line, " (%s)", entry->who);
    buffer_printf(&line, ": %s ", entry->what);
    if (strcmp(entry->what, AUDIT_SIGNED) == 0) {
        buffer_printf(&line, "%.*s", (int)strcspn(entry->subject + 6, " ") + 6, entry->subject);
    } else {
        audit_put_text(&line, entry->subject, names);
        buffer_text(&line, ": ");
        audit_put_text(&line, entry->outcome, names);
    }
    if (!line.failed)
        printf("%s\n", line.data);
    buffer_deinit(&line);
}
