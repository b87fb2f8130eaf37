/* The book of members: who is in it, how old it is, who never comes back; its file. */
#include "join/book.h"

#include "base/buffer.h"
#include "base/limits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { NODES = 4 };

static char folder[40], path[64];
static char ids[NODES][NODE_ID_TEXT];
static uint8_t raw[NODES][NODE_ID_BYTES];
static struct book *book;
static struct error err;

static int setup(void **state)
{
    strcpy(folder, "/tmp/medley-book-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/nodes", folder);
    for (int i = 0; i < NODES; i++) {
        memset(raw[i], 0x10 + i, NODE_ID_BYTES);
        id_text(raw[i], NODE_ID_BYTES, ids[i]);
    }
    assert_int_equal(book_open(path, &book, &err), ERROR_NONE);
    return 0;
}

static int teardown(void **state)
{
    book_close(book);
    unlink(path);
    return rmdir(folder);
}

static void reopen(void)
{
    book_close(book);
    if (book_open(path, &book, &err))
        fail_msg("%s", err.text);
}

/* Who was removed, as a snapshot says, so that no event of it was seen. */
static char **gone;
static size_t n_gone;

/* A state with these nodes: a letter each, small where it is not let in yet. */
static bool follow(const char *nodes, uint64_t generation, uint64_t index)
{
    static Cluster__NodeRecord records[NODES], *list[NODES];
    static Cluster__Node said[NODES];
    static char name[] = "x";
    Cluster__State root = CLUSTER__STATE__INIT;
    for (const char *at = nodes; *at; at++) {
        const bool admitted = *at < 'a';
        const int i = *at - (admitted ? 'A' : 'a');
        cluster__node_record__init(&records[root.n_nodes]);
        cluster__node__init(&said[root.n_nodes]);
        said[root.n_nodes].id = ids[i];
        said[root.n_nodes].name = name;
        records[root.n_nodes].node = &said[root.n_nodes];
        records[root.n_nodes].admitted = admitted;
        list[root.n_nodes] = &records[root.n_nodes];
        root.n_nodes++;
    }
    root.nodes = list;
    root.removed = gone;
    root.n_removed = n_gone;
    const struct state state = {.root = &root};
    return book_follow(book, &state, (struct lineage){generation, 7}, index);
}

/* Exactly these are in it. */
static void check(const char *nodes)
{
    size_t n = 0;
    for (int i = 0; i < NODES; i++) {
        const bool is_in = strchr(nodes, 'A' + i) != NULL;
        assert_int_equal(book_admits(book, raw[i]), is_in);
        n += is_in;
    }
    assert_int_equal(book_size(book), n);
}

static void test_follows(void **state)
{
    check("");
    assert_false(book_follow(book, &(struct state){0}, (struct lineage){1, 7}, 5));
    assert_true(follow("ABc", 1, 10));
    check("AB");
    assert_false(follow("ABc", 1, 11)); /* the same */
    assert_true(follow("ABC", 1, 12));
    reopen();
    check("ABC");
    assert_true(follow("AC", 1, 13));
    check("AC");
    assert_string_equal(book_at(book, 0)->id, ids[0]);
    assert_non_null(book_find(book, ids[2]));
    assert_null(book_find(book, ids[1]));
}

/* A node that starts again sees its last snapshot first; one that is new, all of the log. */
static void test_older(void **state)
{
    assert_true(follow("ABC", 2, 100));
    assert_false(follow("A", 2, 99));
    assert_false(follow("A", 1, 1000));
    check("ABC");
    reopen();
    assert_false(follow("A", 2, 99));
    check("ABC");
    assert_true(follow("AB", 3, 1)); /* founded anew */
    check("AB");

    struct buffer told = {0};
    book_encode(book, LIMIT_JOIN_PAYLOAD_BYTES, &told);
    book_forget(book);
    check("");
    assert_int_equal(book_take(book, told.data, told.size, &err), ERROR_NONE);
    assert_false(follow("C", 2, 1000));
    check("AB");
    buffer_deinit(&told);
    book_forget(book);
    assert_true(follow("C", 1, 1)); /* another cluster */
    check("C");
}

static void test_removed(void **state)
{
    assert_true(follow("ABC", 1, 1));
    book_remove(book, ids[1]);
    book_remove(book, ids[1]);
    check("AC");
    assert_true(book_was_removed(book, ids[1]));
    reopen();
    assert_true(book_was_removed(book, ids[1]));
    follow("ABC", 1, 2);
    check("AC");
    book_add(book, ids[3], "d");
    book_add(book, ids[3], "again");
    check("ACD");
    assert_string_equal(book_find(book, ids[3])->name, "d");
    reopen();
    check("ACD");
    book_forget(book);
    assert_false(book_was_removed(book, ids[1]));
    reopen();
    check("");
}

static void test_removed_by_snapshot(void **state)
{
    enum { MANY = LIMIT_CLUSTER_REMOVED };
    static char texts[MANY][NODE_ID_TEXT], *list[MANY];
    char *one[] = {ids[1]};
    assert_true(follow("AB", 1, 5));
    gone = one, n_gone = 1;
    assert_true(follow("AB", 1, 9)); /* whatever else it says */
    check("A");
    assert_true(book_was_removed(book, ids[1]));
    assert_false(follow("AB", 1, 10));
    reopen();
    check("A");
    assert_false(book_admits(book, raw[1]));
    /* More than it keeps: the oldest give way, two lists of a state later. */
    for (unsigned round = 1; round <= 3; round++) {
        for (unsigned i = 0; i < MANY; i++) {
            const uint8_t id[NODE_ID_BYTES] = {(uint8_t)i, (uint8_t)(i >> 8), (uint8_t)round};
            id_text(id, sizeof id, texts[i]);
            list[i] = texts[i];
        }
        gone = list, n_gone = MANY;
        assert_true(follow("A", 1, 10 + round));
        assert_true(book_was_removed(book, ids[1]) == (round == 1));
        assert_true(book_was_removed(book, texts[0]) && book_was_removed(book, texts[MANY - 1]));
    }
    gone = NULL, n_gone = 0;
    reopen();
    assert_true(book_was_removed(book, texts[0]));
}

static void test_told(void **state)
{
    struct buffer all = {0}, some = {0}, none = {0};
    follow("ABCD", 1, 9);
    book_encode(book, LIMIT_JOIN_PAYLOAD_BYTES, &all);
    book_encode(book, all.size - 1, &some);
    book_encode(book, 1, &none);
    assert_true(some.size < all.size && none.size < some.size);
    book_remove(book, ids[0]);
    assert_int_equal(book_take(book, all.data, all.size, &err), ERROR_NONE);
    check("BCD");                           /* who was removed here stays so */
    for (size_t n = 0; n < all.size; n++) { /* a part of it is an error, or a book */
        struct buffer copy = {0};
        buffer_append(&copy, all.data, n);
        if (book_take(book, copy.data ? copy.data : "", n, &err))
            assert_int_equal(err.code, ERROR_INVALID);
        buffer_deinit(&copy);
    }
    assert_int_equal(book_take(book, "\x0a\x04\x0a\x02xx", 6, &err),
                     ERROR_INVALID); /* an id that is none */
    assert_int_equal(book_take(book, "\x12\x02xx", 4, &err), ERROR_INVALID);
    buffer_deinit(&all);
    buffer_deinit(&some);
    buffer_deinit(&none);
}

static void test_damaged(void **state)
{
    follow("AB", 1, 1);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs("\x0a\xff\xff\xff\xff\x0f", file) >= 0);
    fclose(file);
    struct book *second;
    assert_int_equal(book_open(path, &second, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, path));
    follow("ABC", 1, 2); /* written anew */
    reopen();
    check("ABC");
}

/* A file that cannot be written: what is known now holds all the same. */
static void test_unwritable(void **state)
{
    char away[64];
    snprintf(away, sizeof away, "%s.gone", folder);
    assert_int_equal(rename(folder, away), 0);
    assert_true(follow("AB", 1, 1));
    book_remove(book, ids[1]);
    check("A");
    assert_int_equal(rename(away, folder), 0);
    book_add(book, ids[2], "c");
    reopen();
    check("AC");
    assert_true(book_was_removed(book, ids[1]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_follows, setup, teardown),
        cmocka_unit_test_setup_teardown(test_older, setup, teardown),
        cmocka_unit_test_setup_teardown(test_removed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_removed_by_snapshot, setup, teardown),
        cmocka_unit_test_setup_teardown(test_told, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damaged, setup, teardown),
        cmocka_unit_test_setup_teardown(test_unwritable, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
