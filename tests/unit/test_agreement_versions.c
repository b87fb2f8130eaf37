/* Agreements of unlike versions: kinds of events that not every node knows are not proposed, not
 * taken up by a leader, and, where a log has one after all, not passed over in silence. */
#include "agreement_world.h"

#include "cluster/store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { NEXT = EVENT_ROW_END };

static struct agreement_world *w;
static struct error err;

static int setup(void **state)
{
    w = agreement_world_init();
    return 0;
}

static int teardown(void **state)
{
    agreement_world_deinit(w);
    return 0;
}

/* An event of a kind that this version does not know: nothing but its field. */
static Cluster__Event an_event(ProtobufCMessageUnknownField *field, uint32_t kind)
{
    Cluster__Event event = CLUSTER__EVENT__INIT;
    *field = (ProtobufCMessageUnknownField){.tag = kind,
                                            .wire_type = PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED,
                                            .len = 1,
                                            .data = (uint8_t *)(uintptr_t)""};
    event.base.n_unknown_fields = 1;
    event.base.unknown_fields = field;
    return event;
}

static enum error_code propose(int node, Cluster__Event *event)
{
    struct agreement_wish wish;
    agreement_world_propose(w, node, event, &wish);
    assert_true(agreement_world_run(w, agreement_wish_is_done, &wish, 8000));
    err = wish.err;
    return wish.code;
}

/* A node joins, and is let in, that knows kinds up to `level`. */
static void join(const char *id, const char *name, uint32_t level)
{
    Cluster__Event event = CLUSTER__EVENT__INIT;
    Cluster__Node node = CLUSTER__NODE__INIT;
    Cluster__NodeName id_of = CLUSTER__NODE_NAME__INIT;
    node.id = id_of.id = (char *)(uintptr_t)id;
    node.name = (char *)(uintptr_t)name;
    node.version = (char *)(uintptr_t)"9.9";
    node.has_level = true;
    node.level = level;
    event.kind_case = CLUSTER__EVENT__KIND_NODE_JOINED, event.node_joined = &node;
    assert_int_equal(propose(0, &event), ERROR_NONE);
    event.kind_case = CLUSTER__EVENT__KIND_NODE_ADMITTED, event.node_admitted = &id_of;
    assert_int_equal(propose(0, &event), ERROR_NONE);
}

static void test_levels(void **state)
{
    ProtobufCMessageUnknownField field;
    Cluster__Event event = an_event(&field, NEXT), *back;
    struct buffer bytes = {0};
    assert_int_equal(event_level(&event), NEXT);
    event_encode(&event, &bytes);
    assert_int_equal(event_decode((const uint8_t *)bytes.data, bytes.size, &back, &err),
                     ERROR_NONE);
    assert_int_equal(event_level(back), NEXT);
    event_free(back);
    buffer_deinit(&bytes);
    event = an_event(&field, 9); /* a field more of every event is no kind */
    assert_int_equal(event_level(&event), 0);
    event.kind_case = CLUSTER__EVENT__KIND_REFOUNDED;
    assert_int_equal(event_level(&event), EVENT_LEVEL_FIRST);
    assert_true(event_level_known() >= EVENT_LEVEL_FIRST);
}

static void test_proposed_when_all_know_it(void **state)
{
    ProtobufCMessageUnknownField field;
    Cluster__Event event = an_event(&field, NEXT);
    agreement_world_found(w, 1);
    join("a1", "tower", NEXT);
    join("b2", "attic", EVENT_LEVEL_FIRST);
    assert_int_equal(propose(0, &event), ERROR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "attic has an older medley (9.9)"));

    /* A leader takes it from nobody else either. */
    struct agreement *a = w->nodes[0].agreement;
    struct buffer bytes = {0};
    const uint64_t last = agreement_status(a).last;
    event.has_nonce = true;
    event.nonce = 4711;
    event_encode(&event, &bytes);
    agreement_receive_proposal(a, bytes.data, bytes.size);
    agreement_world_run_for(w, 100);
    assert_true(agreement_status(a).last == last);
    buffer_deinit(&bytes);

    /* Kinds that all know go on being proposed. */
    Cluster__NodeName attic = CLUSTER__NODE_NAME__INIT;
    attic.id = (char *)(uintptr_t)"b2";
    Cluster__Event removal = CLUSTER__EVENT__INIT;
    removal.kind_case = CLUSTER__EVENT__KIND_NODE_REMOVED, removal.node_removed = &attic;
    assert_int_equal(propose(0, &removal), ERROR_NONE);
}

/* What a newer version that ran here has left in the log. */
static void write_newer(const char *path)
{
    ProtobufCMessageUnknownField field;
    Cluster__Event event = an_event(&field, NEXT);
    struct store *store;
    struct log_saved saved;
    struct buffer bytes = {0};
    struct log_write write = {0};
    event_encode(&event, &bytes);
    assert_int_equal(store_open(path, &store, &err), ERROR_NONE);
    assert_int_equal(store_load(store, &saved, &err), ERROR_NONE);
    const struct log_entry entry = {
        .term = saved.term, .type = LOG_EVENT, .bytes = (uint8_t *)bytes.data, .size = bytes.size};
    write.log.first = log_last(&saved.log) + 1;
    assert_int_equal(log_append(&write.log, &entry, &err), ERROR_NONE);
    assert_int_equal(store_write(store, &write, &err), ERROR_NONE);
    store_close(store);
    log_write_clear(&write);
    log_saved_clear(&saved);
    buffer_deinit(&bytes);
}

static bool has_failed(void *node)
{
    return ((struct agreement_node *)node)->n_failed;
}

static void test_a_newer_log_is_not_passed_over(void **state)
{
    struct agreement_node *node = &w->nodes[0];
    agreement_world_found(w, 1);
    agreement_world_close(w, 0);
    write_newer(node->path);
    assert_int_equal(agreement_world_open(w, 0, &err), ERROR_NONE);
    assert_true(agreement_world_run(w, has_failed, node, 5000));
    assert_int_equal(node->failure.code, ERROR_UNSUPPORTED);
    assert_non_null(strstr(node->failure.text, "update the medley here"));
    agreement_world_run_for(w, 300);
    assert_int_equal(node->n_failed, 1); /* and it is not tried again */
    assert_int_equal(agreement_failure(node->agreement)->code, ERROR_UNSUPPORTED);
    assert_false(agreement_status(node->agreement).leads);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_levels),
        cmocka_unit_test_setup_teardown(test_proposed_when_all_know_it, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_newer_log_is_not_passed_over, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
