/* What a node notes for the record of who did what, until it is told. */
#include "audit/notes.h"
#include "base/limits.h"
#include "base/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(notes_that_are_alike_are_merged),
        cmocka_unit_test(strangers_cannot_fill_the_record),
        cmocka_unit_test(notes_that_were_not_taken_come_again),
    };
    return cmocka_run_group_tests_name("audit_notes", tests, NULL, NULL);
}
