/* The record of who did what: its entries, its files, and that nothing can be changed in it
 * unseen. */
#include "audit/check.h"
#include "audit/notes.h"
#include "audit/record.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct identity node;
static char folder[256];

static int audit_setup(void **unused)
{
    struct error err;
    snprintf(folder, sizeof folder, "/tmp/medley-audit-XXXXXX");
    assert_non_null(mkdtemp(folder));
    strcat(folder, "/audit");
    assert_int_equal(identity_make(&node, &err), ERROR_NONE);
    return 0;
}

static int audit_teardown(void **unused)
{
    char command[600];
    *strrchr(folder, '/') = 0;
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    identity_deinit(&node);
    return system(command);
}

/* ---- entries ---- */

static void make_entry(struct audit_entry *entry, struct audit_end *end)
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

static void entries_round_trip(void **unused)
{
    struct audit_end end = {0};
    struct audit_entry entry, back;
    struct buffer line = {0};
    struct digest hash;
    for (int i = 0; i < 100; i++) {
        make_entry(&entry, &end);
        buffer_clear(&line);
        audit_write_entry(&entry, &line);
        assert_int_equal(line.data[line.size - 1], '\n');
        assert_true(audit_read_entry(line.data, line.size - 1, &back));
        assert_memory_equal(&entry, &back, sizeof entry);
        audit_hash(&back, &hash);
        assert_true(digest_equal(&hash, &back.hash));
        assert_int_equal(back.number, i + 1);
    }
    buffer_deinit(&line);
}

/* Worked out by hand from entry.h's description (Python's hashlib), so that the form stays. */
static void hash_is_as_described(void **unused)
{
    struct audit_entry entry = {.number = 7, .time_ms = 1764000000000, .told = true};
    struct digest hash;
    char text[DIGEST_TEXT];
    strcpy(entry.node, "n");
    strcpy(entry.what, "token.used");
    strcpy(entry.who, "token ci");
    strcpy(entry.subject, "s");
    memset(entry.before.bytes, 0xab, DIGEST_BYTES);
    audit_hash(&entry, &hash);
    assert_string_equal(digest_text(&hash, text),
                        "486f9e52de7cfcefe64391bc1bff35aaa1b5b7d83b04c8e496ab2096f3842656");
}

static void foreign_texts_are_made_safe(void **unused)
{
    char text[16];
    audit_text(text, sizeof text, "a\033[2J\nb\x7f\xc3\xa4");
    assert_string_equal(text, "a?[2J?b???");
    audit_text(text, sizeof text, "0123456789abcdefgh");
    assert_string_equal(text, "0123456789abcde");
    audit_text(text, sizeof text, NULL);
    assert_string_equal(text, "");
}

/* The largest there can be fits into a line. */
static void longest_entry_fits(void **unused)
{
    struct audit_entry entry = {.number = UINT64_MAX - 1, .time_ms = UINT64_MAX}, back;
    struct audit_end end = {.number = UINT64_MAX - 2};
    struct buffer line = {0};
    memset(entry.node, '"', sizeof entry.node - 1);
    memset(entry.what, '"', sizeof entry.what - 1);
    memset(entry.who, '\\', sizeof entry.who - 1);
    memset(entry.subject, '"', sizeof entry.subject - 1);
    memset(entry.outcome, '\\', sizeof entry.outcome - 1);
    audit_chain(&entry, &end);
    audit_write_entry(&entry, &line);
    assert_true(audit_read_entry(line.data, line.size - 1, &back));
    assert_memory_equal(&entry, &back, sizeof entry);
    buffer_deinit(&line);
}

/* ---- the folder ---- */

static struct audit_record *open_record(void)
{
    struct error err;
    struct audit_record *record = NULL;
    if (record_open(folder, &node, &record, &err))
        fail_msg("%s", err.text);
    return record;
}

static void append_entries(struct audit_record *record, struct audit_end *end, uint32_t n)
{
    struct audit_entry entry;
    for (uint32_t i = 0; i < n; i++) {
        make_entry(&entry, end);
        record_append(record, &entry, 1);
    }
}

static void flush_record(struct audit_record *record)
{
    struct error err;
    if (record_flush(record, &err))
        fail_msg("%s", err.text);
}

struct found {
    uint32_t n;
    struct audit_finding list[512];
};

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

static struct audit_report check_path(const char *path, bool running,
                                      const struct audit_end *agreed, struct found *found)
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

static void record_is_kept_over_restarts(void **unused)
{
    struct audit_end end = {0}, half;
    struct audit_entry again[10];
    struct found found;
    struct audit_record *record = open_record();
    append_entries(record, &end, 90);
    half = end;
    for (int i = 0; i < 10; i++)
        make_entry(&again[i], &end);
    record_append(record, again, 10);
    flush_record(record);
    record_close(record);
    record = open_record();
    assert_int_equal(record_end(record).number, 100);
    record_append(record, again, 10); /* the log is applied again */
    append_entries(record, &end, 1);
    record_close(record);
    struct audit_report report = check_path(folder, false, &end, &found);
    assert_int_equal(found.n, 0);
    assert_int_equal(report.n_entries, 101);
    assert_int_equal(report.last, 101);
    assert_int_equal(half.number, 90);
}

/* What stands behind the head was not promised: whole lines stay, a torn one goes. */
static void torn_tail_is_cut_off(void **unused)
{
    struct audit_end end = {0}, more;
    struct audit_entry entry;
    struct found found;
    struct buffer lines = {0};
    char path[400];
    struct audit_record *record = open_record();
    append_entries(record, &end, 5);
    record_close(record);
    more = end;
    make_entry(&entry, &more);
    audit_write_entry(&entry, &lines);
    make_entry(&entry, &more);
    audit_write_entry(&entry, &lines);
    snprintf(path, sizeof path, "%s/00000000000000000001.jsonl", folder);
    FILE *file = fopen(path, "a");
    fwrite(lines.data, 1, lines.size - 40, file);
    fclose(file);
    record = open_record();
    assert_int_equal(record_end(record).number, 6);
    record_append(record, &entry, 1); /* from the log, again */
    record_close(record);
    assert_int_equal(check_path(folder, false, NULL, &found).last, 7);
    assert_int_equal(found.n, 0);
    buffer_deinit(&lines);
}

static void empty_folder(void)
{
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    assert_int_equal(system(command), 0);
}

/* Power that is lost while lines are written leaves any part of them, or noise: the record is then
 * what its head says, or more of the same, and takes up the log's entries again. */
static void any_torn_tail_is_mended(void **unused)
{
    struct found found;
    char path[400];
    snprintf(path, sizeof path, "%s/00000000000000000001.jsonl", folder);
    for (size_t cut = 0;; cut += 13) {
        struct audit_end end = {0};
        struct audit_entry lost[3];
        struct buffer lines = {0};
        struct audit_record *record = open_record();
        append_entries(record, &end, 4);
        record_close(record);
        for (int i = 0; i < 3; i++) {
            make_entry(&lost[i], &end);
            audit_write_entry(&lost[i], &lines);
        }
        const bool over = cut >= lines.size;
        const size_t size = over ? lines.size : cut;
        if (size && cut % 2)
            lines.data[random_at(cut, 1) % size] ^= (char)(1 << random_at(cut, 2) % 8);
        FILE *file = fopen(path, "a");
        assert_int_equal(fwrite(lines.data, 1, size, file), size);
        fclose(file);
        record = open_record();
        assert_in_range(record_end(record).number, 4, 7);
        record_append(record, lost, 3);
        append_entries(record, &end, 1);
        record_close(record);
        struct audit_report report = check_path(folder, false, &end, &found);
        if (found.n || report.n_entries != 8)
            fail_msg("cut at %zu: %s", cut, found.n ? found.list[0].text : "not all are there");
        buffer_deinit(&lines);
        empty_folder();
        if (over)
            break;
    }
}

/* A disk that does not take it: nothing is lost, and it is written when it can be. */
static void failed_writes_are_made_again(void **unused)
{
    struct audit_end end = {0};
    struct found found;
    struct error err;
    char head[400];
    struct audit_record *record = open_record();
    append_entries(record, &end, 3);
    flush_record(record);
    snprintf(head, sizeof head, "%s/.head.new", folder);
    assert_int_equal(mkdir(head, 0700), 0); /* in the place of the next head's file */
    append_entries(record, &end, 2);
    assert_int_equal(record_flush(record, &err), ERROR_IO);
    assert_true(record_is_due(record));
    append_entries(record, &end, 2);
    assert_int_equal(record_flush(record, &err), ERROR_IO);
    assert_int_equal(rmdir(head), 0);
    flush_record(record);
    assert_false(record_is_due(record));
    record_close(record);
    assert_int_equal(check_path(folder, false, &end, &found).n_entries, 7);
    assert_int_equal(found.n, 0);
}

/* Whichever allocation fails: what is written is good, and what is not is said to be a gap. */
static void without_memory_there_are_gaps(void **unused)
{
    struct error err;
    struct found found;
    for (unsigned nth = 1; nth < 40; nth++) {
        struct audit_end end = {0};
        struct audit_record *record = open_record();
        append_entries(record, &end, 2);
        flush_record(record);
        mem_fail_nth(nth);
        append_entries(record, &end, 5);
        record_flush(record, &err);
        mem_fail_nth(0);
        append_entries(record, &end, 1);
        flush_record(record);
        record_close(record);
        check_path(folder, false, &end, &found);
        if (found.n)
            fail_msg("allocation %u: %s", nth, found.list[0].text);
        empty_folder();
    }
}

/* A disk that takes nothing for long does not cost memory without end. */
static void queue_is_bounded(void **unused)
{
    struct audit_end end = {0};
    struct found found;
    struct audit_record *record = open_record();
    append_entries(record, &end, 3 * LIMIT_AUDIT_QUEUE_BYTES / 400);
    assert_true(record_end(record).number < end.number);
    flush_record(record);
    append_entries(record, &end, 1);
    record_close(record);
    struct audit_report report = check_path(folder, false, &end, &found);
    assert_int_equal(found.n, 0);
    assert_true(report.last == end.number && report.n_entries < end.number);
    assert_int_equal(report.first, 1); /* with a gap, and not begun anew */
}

static void damaged_record_is_set_aside(void **unused)
{
    struct audit_end end = {0};
    struct found found;
    char path[400], aside[400];
    struct audit_record *record = open_record();
    append_entries(record, &end, 50);
    record_close(record);
    snprintf(path, sizeof path, "%s/00000000000000000001.jsonl", folder);
    assert_int_equal(truncate(path, 4000), 0);
    record = open_record();
    record_take_aside(record, aside, sizeof aside);
    assert_non_null(strstr(aside, "/audit.aside-1"));
    append_entries(record, &end, 3);
    record_close(record);
    struct audit_report report = check_path(folder, false, &end, &found);
    assert_int_equal(found.n, 0);
    assert_int_equal(report.head.first, 51);
    assert_int_equal(report.last, 53);
    check_path(aside, false, NULL, &found);
    assert_int_equal(found.list[found.n - 1].problem, AUDIT_CUT);
    assert_int_equal(found.list[found.n - 1].last, 50);
}

/* A node that got the state as a whole says which entries it does not have. */
static void gaps_are_signed(void **unused)
{
    struct audit_end end = {0};
    struct audit_entry entry;
    struct found found;
    struct audit_record *record = open_record();
    append_entries(record, &end, 10);
    for (int i = 0; i < 20; i++)
        make_entry(&entry, &end);
    record_follow(record, &end, false);
    append_entries(record, &end, 10);
    record_close(record);
    struct audit_report report = check_path(folder, false, &end, &found);
    assert_int_equal(found.n, 0);
    assert_int_equal(report.n_entries, 20);
    assert_int_equal(report.last, 40);
    record = open_record(); /* and again */
    assert_int_equal(record_end(record).number, 40);
    record_close(record);
}

/* Another lineage of the log: entries that the cluster no longer agrees on are not lost. */
static void given_up_entries_are_set_aside(void **unused)
{
    struct audit_end ours = {0}, theirs;
    struct audit_entry entry;
    struct found found;
    char aside[400];
    struct audit_record *record = open_record();
    append_entries(record, &ours, 10);
    theirs = ours;
    append_entries(record, &ours, 5);
    make_entry(&entry, &theirs);
    entry.who[0] = 'x';
    theirs = (struct audit_end){10, entry.before};
    audit_chain(&entry, &theirs);
    record_append(record, &entry, 1); /* another number 11 */
    flush_record(record);
    record_take_aside(record, aside, sizeof aside);
    record_close(record);
    assert_int_equal(check_path(folder, false, &theirs, &found).n_entries, 1);
    assert_int_equal(found.n, 0);
    assert_int_equal(check_path(aside, false, &ours, &found).n_entries, 15);
    assert_int_equal(found.n, 0);
}

static void old_entries_go(void **unused)
{
    struct audit_end end = {0};
    struct found found;
    struct audit_record *record = open_record();
    for (int i = 0; i < 24; i++) {
        append_entries(record, &end, 500);
        flush_record(record);
    }
    assert_int_equal(check_path(folder, false, &end, &found).n_entries, 12000);
    assert_int_equal(found.n, 0);
    char path[400];
    snprintf(path, sizeof path, "%s/00000000000000000001.jsonl", folder);
    struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
    record_close(record);
    record = open_record();
    append_entries(record, &end, 1);
    record_close(record);
    assert_int_not_equal(access(path, F_OK), 0);
    struct audit_report report = check_path(folder, false, &end, &found);
    assert_int_equal(found.n, 0);
    assert_true(report.head.first > 1 && report.first == report.head.first);
    assert_int_equal(report.n_entries, 12001 - (report.head.first - 1));
}

static void files_are_closed_to_others(void **unused)
{
    struct audit_end end = {0};
    struct stat facts;
    char path[400];
    struct audit_record *record = open_record();
    append_entries(record, &end, 1);
    record_close(record);
    snprintf(path, sizeof path, "%s/00000000000000000001.jsonl", folder);
    assert_int_equal(stat(path, &facts), 0);
    assert_int_equal(facts.st_mode & 0777, 0600);
    snprintf(path, sizeof path, "%s/head", folder);
    assert_int_equal(stat(path, &facts), 0);
    assert_int_equal(facts.st_mode & 0777, 0600);
    assert_int_equal(chmod(path, 0644), 0);
    struct error err;
    assert_int_equal(record_open(folder, &node, &record, &err), ERROR_INVALID);
}

/* ---- tampering ---- */

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

/* ---- notes ---- */

static uint32_t take_notes(struct audit_notes *notes, uint64_t now_ms, struct told_note *last)
{
    struct told_note list[LIMIT_AUDIT_NOTES];
    uint32_t n, total = 0;
    while ((n = notes_take(notes, now_ms, 5, list, LIMIT_AUDIT_NOTES)) != 0) {
        total += n;
        *last = list[n - 1];
    }
    return total;
}

static void notes_that_are_alike_are_merged(void **unused)
{
    struct audit_notes *notes = notes_new();
    struct told_note last;
    const struct audit_note wrong = {.what = AUDIT_LOGIN_REFUSED,
                                     .address = "10.0.0.7",
                                     .subject = "from 10.0.0.7",
                                     .outcome = "invalid_api_key"};
    for (int i = 0; i < 216; i++)
        notes_add(notes, 1000 + (uint64_t)i, 5, &wrong);
    assert_int_equal(take_notes(notes, 2000, &last), LIMIT_AUDIT_ALIKE);
    assert_string_equal(last.outcome, "invalid_api_key");
    assert_int_equal(take_notes(notes, 1000 + LIMIT_AUDIT_WINDOW_MS - 1, &last), 0);
    assert_int_equal(take_notes(notes, 1000 + LIMIT_AUDIT_WINDOW_MS, &last), 1);
    assert_string_equal(last.subject, "212 more like this from 10.0.0.7 in 60 s");
    /* While they go on: none by itself, and the next number after twice the time. */
    notes_add(notes, 70000, 5, &wrong);
    assert_int_equal(take_notes(notes, 70000 + LIMIT_AUDIT_WINDOW_MS, &last), 0);
    assert_int_equal(take_notes(notes, 70000 + 2 * LIMIT_AUDIT_WINDOW_MS, &last), 1);
    /* After a quiet time they are told one by one again. */
    assert_int_equal(take_notes(notes, 10000000, &last), 0);
    notes_add(notes, 10000001, 5, &wrong);
    assert_int_equal(take_notes(notes, 10000002, &last), 1);
    notes_free(notes);
}

/* From however many addresses strangers come, for a day: a bounded number of entries, all are
 * counted, and what others have to tell is told. */
static void strangers_cannot_fill_the_record(void **unused)
{
    struct audit_notes *notes = notes_new();
    struct told_note list[LIMIT_AUDIT_NOTES];
    uint64_t told = 0, counted = 0, added = 0, used = 0;
    for (uint64_t ms = 0; ms < 26 * 3600 * 1000; ms += 500) {
        for (int i = 0; ms < 24 * 3600 * 1000 && i < 3; i++) {
            char address[32];
            snprintf(address, sizeof address, "10.0.%llu.%d",
                     (unsigned long long)random_at(ms, (uint64_t)i) % 200, i);
            const struct audit_note wrong = {.what = AUDIT_LOGIN_REFUSED, .address = address};
            notes_add(notes, ms, ms, &wrong);
            added++;
        }
        if (ms % 3600000 == 0 && ms < 24 * 3600 * 1000) {
            const struct audit_note use = {.what = AUDIT_TOKEN_USED, .who = "token ci"};
            notes_add(notes, ms, ms, &use);
        }
        const uint32_t n = notes_take(notes, ms, ms, list, LIMIT_AUDIT_NOTES);
        told += n;
        for (uint32_t i = 0; i < n; i++) {
            unsigned long long more = 0;
            if (strcmp(list[i].what, AUDIT_TOKEN_USED) == 0)
                used++;
            else if (sscanf(list[i].subject, "%llu more", &more) == 1)
                counted += more;
            else
                counted++;
        }
    }
    print_message("# %llu refusals made %llu entries\n", (unsigned long long)added,
                  (unsigned long long)told);
    assert_int_equal(used, 24);
    assert_true(told <= LIMIT_AUDIT_BURST + 26ull * 3600 * 1000 / LIMIT_AUDIT_REFILL_MS);
    assert_int_equal(counted, added);
    notes_free(notes);
}

static void notes_that_were_not_taken_come_again(void **unused)
{
    struct audit_notes *notes = notes_new();
    struct told_note list[LIMIT_AUDIT_NOTES], again[LIMIT_AUDIT_NOTES];
    const struct audit_note use = {.what = AUDIT_TOKEN_USED, .who = "token \033ci"};
    notes_add(notes, 1, 7, &use);
    assert_int_equal(notes_take(notes, 1, 7, list, LIMIT_AUDIT_NOTES), 1);
    notes_give_back(notes, list, 1);
    assert_int_equal(notes_take(notes, 2, 8, again, LIMIT_AUDIT_NOTES), 1);
    assert_memory_equal(&list[0], &again[0], sizeof list[0]);
    assert_string_equal(again[0].who, "token ?ci");
    notes_free(notes);
}

int main(void)
{
#define AUDIT_TEST(name) cmocka_unit_test_setup_teardown(name, audit_setup, audit_teardown)
    const struct CMUnitTest tests[] = {
        AUDIT_TEST(entries_round_trip),
        AUDIT_TEST(hash_is_as_described),
        AUDIT_TEST(foreign_texts_are_made_safe),
        AUDIT_TEST(longest_entry_fits),
        AUDIT_TEST(record_is_kept_over_restarts),
        AUDIT_TEST(torn_tail_is_cut_off),
        AUDIT_TEST(any_torn_tail_is_mended),
        AUDIT_TEST(failed_writes_are_made_again),
        AUDIT_TEST(without_memory_there_are_gaps),
        AUDIT_TEST(queue_is_bounded),
        AUDIT_TEST(damaged_record_is_set_aside),
        AUDIT_TEST(gaps_are_signed),
        AUDIT_TEST(given_up_entries_are_set_aside),
        AUDIT_TEST(old_entries_go),
        AUDIT_TEST(files_are_closed_to_others),
        AUDIT_TEST(tampering_is_found),
        AUDIT_TEST(rewriting_is_found),
        AUDIT_TEST(record_of_another_program_is_good),
        AUDIT_TEST(cluster_knows_better),
        cmocka_unit_test(notes_that_are_alike_are_merged),
        cmocka_unit_test(strangers_cannot_fill_the_record),
        cmocka_unit_test(notes_that_were_not_taken_come_again),
    };
    return cmocka_run_group_tests_name("audit", tests, NULL, NULL);
}
