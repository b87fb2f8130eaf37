#include "audit_world.h"

#include "base/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct identity node;
char folder[256];

int audit_setup(void **unused)
{
    struct error err;
    snprintf(folder, sizeof folder, "/tmp/medley-audit-XXXXXX");
    assert_non_null(mkdtemp(folder));
    strcat(folder, "/audit");
    assert_int_equal(identity_make(&node, &err), ERROR_NONE);
    return 0;
}

int audit_teardown(void **unused)
{
    char command[600];
    *strrchr(folder, '/') = 0;
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    identity_deinit(&node);
    return system(command);
}

void make_entry(struct audit_entry *entry, struct audit_end *end)
{
    *entry = (struct audit_entry){.time_ms = 1764000000000 + end->number * 977,
                                  .told = end->number % 3 == 1};
    char number[64];
    id_text(node.node_id, NODE_ID_BYTES, entry->node);
    snprintf(number, sizeof number, "model \"%llu\" \\ of many", (unsigned long long)end->number);
    audit_text(entry->what, sizeof entry->what, "model.added");
    audit_text(entry->who, sizeof entry->who, end->number % 2 ? "alice at tower" : "");
    audit_text(entry->subject, sizeof entry->subject, number);
    audit_text(entry->outcome, sizeof entry->outcome, "done");
    audit_chain(entry, end);
}

struct audit_record *open_record(void)
{
    struct error err;
    struct audit_record *record = NULL;
    if (record_open(folder, &node, &record, &err))
        fail_msg("%s", err.text);
    return record;
}

void append_entries(struct audit_record *record, struct audit_end *end, uint32_t n)
{
    struct audit_entry entry;
    for (uint32_t i = 0; i < n; i++) {
        make_entry(&entry, end);
        record_append(record, &entry, 1);
    }
}

void flush_record(struct audit_record *record)
{
    struct error err;
    if (record_flush(record, &err))
        fail_msg("%s", err.text);
}

static void on_found(void *arg, const struct audit_finding *finding)
{
    struct found *found = arg;
    if (found->n < 512)
        found->list[found->n] = *finding;
    found->n++;
}

static bool give_line(void *check, const char *line, size_t size)
{
    audit_check_line(check, line, size);
    return true;
}

struct audit_report check_path(const char *path, bool running, const struct audit_end *agreed,
                               struct found *found)
{
    struct audit_check *check;
    struct error err;
    *found = (struct found){0};
    assert_int_equal(audit_check_new(running, on_found, found, &check, &err), ERROR_NONE);
    if (record_read(path, 0, running, give_line, check, &err))
        fail_msg("%s", err.text);
    const struct audit_report report = audit_check_end(check, agreed);
    audit_check_free(check);
    return report;
}
