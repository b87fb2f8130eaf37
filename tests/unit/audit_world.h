/* A node, a folder for its record of who did what, and what tests of them share. */
#ifndef MEDLEY_TESTS_AUDIT_WORLD_H
#define MEDLEY_TESTS_AUDIT_WORLD_H

#include "audit/check.h"
#include "audit/record.h"

extern struct identity node; /* of the test that runs */
extern char folder[256];     /* of its record, not made yet */

int audit_setup(void **unused);
int audit_teardown(void **unused);
/* A test with both. */
#define AUDIT_TEST(name) cmocka_unit_test_setup_teardown(name, audit_setup, audit_teardown)

/* The next entry after `end`, which moves on to it. */
void make_entry(struct audit_entry *entry, struct audit_end *end);
struct audit_record *open_record(void);
void append_entries(struct audit_record *record, struct audit_end *end, uint32_t n);
void flush_record(struct audit_record *record);

/* What a check has found; `n` also counts those that the list has no room for. */
struct found {
    uint32_t n;
    struct audit_finding list[512];
};

/* `path`: a record's folder, or an export. `agreed`: what the cluster knows of it, or NULL. */
struct audit_report check_path(const char *path, bool running, const struct audit_end *agreed,
                               struct found *found);

#endif
