/* Nothing can be changed in the record of who did what unseen. */
#include "audit_world.h"
#include "base/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TAMPERED = 200 }; /* entries of the record that is tampered with */

static struct buffer whole;         /* the record as an export: the head, then the lines */
static size_t starts[TAMPERED + 2]; /* of line i; 0 is the head */

static bool collect_line(void *arg, const char *line, size_t size)
{
    uint32_t *n = arg;
    starts[(*n)++] = whole.size;
    buffer_append(&whole, line, size);
    buffer_append(&whole, "\n", 1);
    return true;
}

static void make_whole(struct audit_end *end)
{
    struct audit_entry entry;
    struct error err;
    uint32_t n = 0;
    struct audit_record *record = open_record();
    buffer_clear(&whole);
    while (end->number < TAMPERED) {
        make_entry(&entry, end);
        if (entry.number % 16 == 15) { /* a leader signs */
            struct audit_seal seal = {
                .type = SEAL_HEAD, .first = 1, .last = entry.number, .hash = entry.hash};
            record_append(record, &entry, 1);
            assert_int_equal(seal_sign(&seal, &node, &err), ERROR_NONE);
            struct audit_entry signing = {.told = true, .time_ms = entry.time_ms};
            strcpy(signing.node, entry.node);
            seal_to_entry(&seal, &signing);
            audit_chain(&signing, end);
            entry = signing;
        }
        record_append(record, &entry, 1);
    }
    record_close(record);
    assert_int_equal(record_read(folder, 0, false, collect_line, &n, &err), ERROR_NONE);
    assert_int_equal(n, TAMPERED + 1);
    starts[n] = whole.size;
}

static bool names(const struct found *found, uint64_t number)
{
    for (uint32_t i = 0; i < found->n && i < 512; i++) {
        if (found->list[i].first <= number && number <= found->list[i].last &&
            found->list[i].text[0])
            return true;
    }
    return false;
}

static void check_bytes(const struct buffer *bytes, struct found *found)
{
    char path[400];
    snprintf(path, sizeof path, "%s.export", folder);
    FILE *file = fopen(path, "w");
    assert_int_equal(fwrite(bytes->data, 1, bytes->size, file), bytes->size);
    fclose(file);
    check_path(path, false, NULL, found);
}

static uint32_t line_at(size_t position)
{
    uint32_t line = 0;
    while (starts[line + 1] <= position)
        line++;
    return line;
}

static void put_line(struct buffer *out, uint32_t line)
{
    buffer_append(out, whole.data + starts[line], starts[line + 1] - starts[line]);
}

/* One change of seven kinds; one of two entries must be named. */
static void tamper(uint64_t seed, struct buffer *out, uint64_t named[2], const char **how)
{
    const uint32_t a = 1 + (uint32_t)(random_at(seed, 1) % TAMPERED);
    const uint32_t b = 1 + (uint32_t)(random_at(seed, 2) % TAMPERED);
    buffer_clear(out);
    named[0] = a;
    const uint32_t kind = (uint32_t)(random_at(seed, 0) % 7);
    if (kind == 0) { /* a bit, of any entry or of the head (then no entry is named) */
        const uint64_t bit = random_at(seed, 3) % (whole.size * 8);
        *how = "bit";
        buffer_append(out, whole.data, whole.size);
        out->data[bit / 8] = (char)(out->data[bit / 8] ^ (1 << bit % 8));
        named[0] = line_at(bit / 8);
    } else if (kind == 1) { /* the tail, in the middle of a line or behind one */
        const size_t cut = random_at(seed, 4) % 2
                               ? starts[a]
                               : starts[a] + random_at(seed, 5) % (starts[a + 1] - starts[a]);
        *how = "cut";
        buffer_append(out, whole.data, cut);
    } else { /* of two that changed places either may be called the one that is out of place */
        static const char *const hows[] = {"swap", "deletion", "doubling", "insertion",
                                           "rewriting"};
        *how = hows[kind - 2];
        named[1] = kind == 2 ? b : a;
        for (uint32_t line = 0; line <= TAMPERED; line++) {
            const bool swaps = kind == 2 && a != b;
            if (kind == 3 && line == a)
                continue;
            if (kind == 6 && line == a) { /* with a hash that fits */
                struct audit_entry entry;
                assert_true(audit_read_entry(whole.data + starts[a], starts[a + 1] - starts[a] - 1,
                                             &entry));
                entry.time_ms++;
                audit_hash(&entry, &entry.hash);
                audit_write_entry(&entry, out);
                named[1] = a + 1; /* either of the two that do not fit */
                continue;
            }
            put_line(out, swaps && line == a ? b : swaps && line == b ? a : line);
            if (line != b)
                continue;
            if (kind == 4 || (kind == 2 && a == b))
                put_line(out, a);
            if (kind == 5) { /* a good entry of another record, with this one's number and link */
                struct audit_entry entry;
                assert_true(audit_read_entry(whole.data + starts[b], starts[b + 1] - starts[b] - 1,
                                             &entry));
                strcpy(entry.who, "mallory");
                audit_hash(&entry, &entry.hash);
                audit_write_entry(&entry, out);
                named[0] = b;
            }
        }
    }
}

static void tampering_is_found(void **unused)
{
    struct audit_end end = {0};
    struct buffer bytes = {0};
    struct found found;
    make_whole(&end);
    check_bytes(&whole, &found);
    if (found.n)
        fail_msg("%s", found.list[0].text);
    for (uint64_t seed = 1; seed <= 1000; seed++) {
        uint64_t named[2] = {0};
        const char *how = "";
        tamper(seed, &bytes, named, &how);
        check_bytes(&bytes, &found);
        if (!found.n)
            fail_msg("seed %llu: %s at entry %llu was not found", (unsigned long long)seed, how,
                     (unsigned long long)named[0]);
        if (named[0] && !names(&found, named[0]) && !names(&found, named[1]))
            fail_msg("seed %llu: %s: entry %llu is not named: %s", (unsigned long long)seed, how,
                     (unsigned long long)named[0], found.list[0].text);
    }
    buffer_deinit(&bytes);
    buffer_deinit(&whole);
}

/* One who reckons all hashes anew, from an entry on, is caught by what leaders signed; if he leaves
 * those out, by the signed head. */
static void rewriting_is_found(void **unused)
{
    struct audit_end end = {0}, from;
    struct buffer bytes = {0};
    struct found found;
    make_whole(&end);
    for (uint32_t changed = 1; changed < TAMPERED - 16; changed += 7) {
        struct audit_entry entry;
        buffer_clear(&bytes);
        for (uint32_t line = 0; line < changed; line++)
            put_line(&bytes, line);
        for (uint32_t line = changed; line <= TAMPERED; line++) {
            assert_true(audit_read_entry(whole.data + starts[line],
                                         starts[line + 1] - starts[line] - 1, &entry));
            if (line == changed) {
                from = (struct audit_end){entry.number - 1, entry.before};
                strcpy(entry.who, "mallory");
            }
            audit_chain(&entry, &from);
            audit_write_entry(&entry, &bytes);
        }
        check_bytes(&bytes, &found);
        assert_true(found.n > 1);
        bool signed_one = false, head = false;
        for (uint32_t i = 0; i < found.n && i < 512; i++) {
            signed_one |= found.list[i].problem == AUDIT_NOT_AS_SIGNED &&
                          found.list[i].first < TAMPERED && found.list[i].first + 16 > changed;
            head |= found.list[i].problem == AUDIT_NOT_AS_SIGNED && found.list[i].first == TAMPERED;
        }
        assert_true(signed_one && head);
    }
    buffer_deinit(&bytes);
    buffer_deinit(&whole);
}

/* Made by a program of some lines of Python, from what the headers say. */
static void record_of_another_program_is_good(void **unused)
{
    struct found found;
    char path[400];
    snprintf(path, sizeof path, "%s/tests/fuzz/corpus/audit/whole", getenv("MEDLEY_ROOT"));
    struct audit_report report = check_path(path, false, NULL, &found);
    assert_int_equal(found.n, 0);
    assert_int_equal(report.n_entries, 5);
    assert_int_equal(report.n_signed, 1);
}

/* A node that cuts its own record and signs that differs from the cluster. */
static void cluster_knows_better(void **unused)
{
    struct audit_end end = {0}, cut;
    struct found found;
    struct audit_record *record = open_record();
    append_entries(record, &end, 10);
    cut = end;
    record_close(record);
    for (int i = 0; i < 3; i++)
        make_entry(&(struct audit_entry){0}, &end);
    check_path(folder, true, &end, &found);
    assert_int_equal(found.n, 1);
    assert_int_equal(found.list[0].problem, AUDIT_CUT);
    assert_int_equal(found.list[0].first, 11);
    assert_int_equal(found.list[0].last, 13);
    cut.hash.bytes[0] ^= 1;
    check_path(folder, true, &cut, &found);
    assert_int_equal(found.n, 1);
    assert_int_equal(found.list[0].problem, AUDIT_NOT_AS_AGREED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        AUDIT_TEST(tampering_is_found),
        AUDIT_TEST(rewriting_is_found),
        AUDIT_TEST(record_of_another_program_is_good),
        AUDIT_TEST(cluster_knows_better),
    };
    return cmocka_run_group_tests_name("audit_tampering", tests, NULL, NULL);
}
