/* The record of who did what: its entries and its files. */
#include "audit_world.h"
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

/* ---- entries ---- */

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

int main(void)
{
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
    };
    return cmocka_run_group_tests_name("audit", tests, NULL, NULL);
}
