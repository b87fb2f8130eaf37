/* A record of who did what, as a file from anybody. What reads as a line is written as the same
 * bytes again; every finding names something; and nothing is accepted whose hashes do not fit. */
#include "fuzz.h"

#include "audit/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void on_finding(void *arg, const struct audit_finding *finding)
{
    uint64_t *n = arg;
    FUZZ_CHECK(finding->text[0] && !strchr(finding->text, '\n'));
    FUZZ_CHECK(finding->first <= finding->last);
    ++*n;
}

static void same_line(const struct buffer *written, const uint8_t *line, size_t size)
{
    FUZZ_CHECK(written->size == size + 1 && memcmp(written->data, line, size) == 0);
}

static void check_line(const uint8_t *line, size_t size)
{
    struct audit_entry entry;
    struct audit_seal seal;
    struct buffer written = {0};
    if (audit_read_entry((const char *)line, size, &entry)) {
        audit_write_entry(&entry, &written);
        same_line(&written, line, size);
        if (seal_of_entry(&entry, &seal))
            seal_is_good(&seal);
    } else if (audit_read_seal((const char *)line, size, &seal)) {
        audit_write_seal(&seal, &written);
        same_line(&written, line, size);
    }
    buffer_deinit(&written);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct audit_check *check;
    struct error err;
    uint64_t n = 0;
    const struct audit_end agreed = {.number = 3};
    if (audit_check_new(size % 2, on_finding, &n, &check, &err))
        return 0;
    for (size_t from = 0; from < size;) {
        const uint8_t *end = memchr(data + from, '\n', size - from);
        const size_t line = end ? (size_t)(end - data) - from : size - from;
        check_line(data + from, line);
        audit_check_line(check, (const char *)data + from, line);
        from += line + 1;
    }
    const struct audit_report report = audit_check_end(check, size % 3 ? &agreed : NULL);
    FUZZ_CHECK(report.n_findings >= n && (report.has_head || n));
    audit_check_free(check);
    return 0;
}
