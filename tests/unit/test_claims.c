/* What a member may say, and in whose name. */
#include "agreement/claims.h"

#include "base/limits.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static char me[] = "me", other[] = "other";
static struct error err;

static Cluster__Event event_of(Cluster__Event__KindCase kind)
{
    Cluster__Event event = CLUSTER__EVENT__INIT;
    event.by = me;
    event.kind_case = kind;
    return event;
}

static void test_names(void **state)
{
    Cluster__Event event = event_of(CLUSTER__EVENT__KIND_MODEL_REGISTERED);
    assert_true(claims_event(&event, "me"));
    assert_false(claims_event(&event, "other"));
    event.by = NULL;
    assert_false(claims_event(&event, "me"));
}

static void test_own(void **state)
{
    Cluster__StageReport report = CLUSTER__STAGE_REPORT__INIT;
    Cluster__Event event = event_of(CLUSTER__EVENT__KIND_STAGE_REPORTED);
    event.stage_reported = &report;
    assert_false(claims_event(&event, "me"));
    report.node = other;
    assert_false(claims_event(&event, "me"));
    report.node = me;
    assert_true(claims_event(&event, "me"));

    Cluster__MemoryStep step = CLUSTER__MEMORY_STEP__INIT;
    event = event_of(CLUSTER__EVENT__KIND_MEMORY_STEPPED);
    event.memory_stepped = &step;
    assert_false(claims_event(&event, "me"));
    step.node = other;
    assert_false(claims_event(&event, "me"));
    step.node = me;
    assert_true(claims_event(&event, "me"));

    Cluster__Link mine = CLUSTER__LINK__INIT, theirs = CLUSTER__LINK__INIT,
                  *list[] = {&mine, &theirs};
    Cluster__Links links = CLUSTER__LINKS__INIT;
    mine.from = theirs.to = me;
    mine.to = theirs.from = other;
    links.links = list;
    links.n_links = 1;
    event = event_of(CLUSTER__EVENT__KIND_LINKS_MEASURED);
    event.links_measured = &links;
    assert_true(claims_event(&event, "me"));
    links.n_links = 2;
    assert_false(claims_event(&event, "me"));

    Cluster__Node node = CLUSTER__NODE__INIT;
    node.id = other;
    event = event_of(CLUSTER__EVENT__KIND_NODE_UPDATED);
    event.node_updated = &node;
    assert_false(claims_event(&event, "me"));
    node.id = me;
    assert_true(claims_event(&event, "me"));

    event = event_of(CLUSTER__EVENT__KIND_AUDITED); /* what it has seen, in its own name */
    assert_true(claims_event(&event, "me"));
    assert_false(claims_event(&event, "other"));
}

static void test_leaders(void **state)
{
    static const Cluster__Event__KindCase kinds[] = {
        CLUSTER__EVENT__KIND_INSTANCE_PLACED, CLUSTER__EVENT__KIND_INSTANCE_ABANDONED,
        CLUSTER__EVENT__KIND_REFOUNDED, CLUSTER__EVENT__KIND_ALERT_RAISED,
        CLUSTER__EVENT__KIND_ALERT_CLEARED};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        Cluster__InstancePlaced placed = CLUSTER__INSTANCE_PLACED__INIT;
        Cluster__Placement placement = CLUSTER__PLACEMENT__INIT;
        Cluster__Event event = event_of(kinds[i]);
        event.instance_placed = &placed;
        assert_false(claims_event(&event, "me"));
        placed.placement = &placement;
        assert_false(claims_event(&event, "me"));
        placement.by_hand = true;
        assert_true(claims_event(&event, "me") ==
                    (kinds[i] == CLUSTER__EVENT__KIND_INSTANCE_PLACED));
    }
}

enum { DEVICES = LIMIT_DEVICES + 1 };

static void test_about(void **state)
{
    static Cluster__Device devices[DEVICES], *list[DEVICES];
    static char ids[DEVICES][8], name[] = "tower", bad[] = "to\x1b[31mwer";
    Cluster__Node node = CLUSTER__NODE__INIT;
    for (int i = 0; i < DEVICES; i++) {
        cluster__device__init(&devices[i]);
        snprintf(ids[i], sizeof ids[i], "d%d", i);
        devices[i].id = ids[i];
        list[i] = &devices[i];
    }
    node.id = me;
    node.name = name;
    node.has_member = true;
    node.member = 5;
    node.devices = list;
    node.n_devices = LIMIT_DEVICES;
    assert_int_equal(claims_about(&node, 1000, "me", &err), ERROR_NONE);
    assert_int_equal(claims_about(&node, 1000, "other", &err), ERROR_INVALID);
    assert_int_equal(claims_about(&node, 1 << 20, "me", &err), ERROR_INVALID);
    node.n_devices = DEVICES;
    assert_int_equal(claims_about(&node, 1000, "me", &err), ERROR_INVALID);
    node.n_devices = 2;
    devices[1].id = ids[0];
    assert_int_equal(claims_about(&node, 1000, "me", &err), ERROR_INVALID);
    devices[1].id = NULL;
    assert_int_equal(claims_about(&node, 1000, "me", &err), ERROR_INVALID);
    node.n_devices = 1;
    node.n_addresses = 1000;
    assert_int_equal(claims_about(&node, 1000, "me", &err), ERROR_INVALID);
    node.n_addresses = 0;
    node.member = 0;
    assert_int_equal(claims_about(&node, 1000, "me", &err), ERROR_INVALID);
    node.member = 5;
    node.name = bad;
    assert_int_equal(claims_about(&node, 1000, "me", &err), ERROR_INVALID);
    node.name = NULL;
    assert_int_equal(claims_about(&node, 1000, "me", &err), ERROR_INVALID);
    node.name = name;
    assert_int_equal(claims_about(&node, 1000, "me", &err), ERROR_NONE);
}

static void test_now(void **state)
{
    static char text[LIMIT_CLUSTER_TEXT_BYTES + 2];
    Node__Now now = NODE__NOW__INIT;
    Node__Problem problem = NODE__PROBLEM__INIT, *problems[] = {&problem};
    assert_int_equal(claims_now(&now, &err), ERROR_NONE);
    now.n_devices = LIMIT_DEVICES + 1;
    assert_int_equal(claims_now(&now, &err), ERROR_INVALID);
    now.n_devices = 0;
    now.n_uses = LIMIT_CLUSTER_INSTANCES + 1;
    assert_int_equal(claims_now(&now, &err), ERROR_INVALID);
    now.n_uses = 0;
    now.n_held = 1 << 20;
    assert_int_equal(claims_now(&now, &err), ERROR_INVALID);
    now.n_held = 0;
    now.problems = problems;
    now.n_problems = 1;
    assert_int_equal(claims_now(&now, &err), ERROR_NONE);
    memset(text, 'x', sizeof text - 1);
    problem.text = text;
    assert_int_equal(claims_now(&now, &err), ERROR_INVALID);
}

static void test_tells(void **state)
{
    static char text[LIMIT_CLUSTER_TEXT_BYTES], kind[] = "disk_full";
    static Node__AlertTell tells[LIMIT_ALERT_TELLS + 1], *list[LIMIT_ALERT_TELLS + 1];
    Node__Now now = NODE__NOW__INIT;
    for (int i = 0; i <= LIMIT_ALERT_TELLS; i++) {
        node__alert_tell__init(&tells[i]);
        tells[i].kind = kind;
        list[i] = &tells[i];
    }
    now.tells = list;
    now.n_tells = LIMIT_ALERT_TELLS;
    assert_int_equal(claims_now(&now, &err), ERROR_NONE);
    now.n_tells++;
    assert_int_equal(claims_now(&now, &err), ERROR_INVALID);
    now.n_tells = 1;
    tells[0].has_value = true, tells[0].value = (double)INFINITY;
    assert_int_equal(claims_now(&now, &err), ERROR_INVALID);
    tells[0].value = 97;
    assert_int_equal(claims_now(&now, &err), ERROR_NONE);
    memset(text, 'x', sizeof text - 1);
    tells[0].what = text;
    assert_int_equal(claims_now(&now, &err), ERROR_INVALID);
    tells[0].what = NULL, tells[0].kind = NULL;
    assert_int_equal(claims_now(&now, &err), ERROR_INVALID);
}

static Cluster__NodeRecord *record_of(Cluster__NodeRecord *record, Cluster__Node *node, char *id,
                                      uint64_t member)
{
    cluster__node_record__init(record);
    cluster__node__init(node);
    record->node = node;
    node->id = id;
    node->has_member = true;
    node->member = member;
    return record;
}

/* The id of a log that is gone may still be on the list, with a vote. */
static void test_member(void **unused)
{
    enum { MINE = 5, THEIRS = 6, GONE = 7, NEW = 8 };
    static char stranger[] = "stranger";
    Cluster__NodeRecord records[2], *list[2];
    Cluster__Node nodes[2];
    Cluster__State root = CLUSTER__STATE__INIT;
    struct state state = {.root = NULL};
    assert_int_equal(claims_member(&state, me, GONE, true), GONE); /* nothing is known */
    list[0] = record_of(&records[0], &nodes[0], me, MINE);
    list[1] = record_of(&records[1], &nodes[1], other, THEIRS);
    root.nodes = list;
    root.n_nodes = 2;
    state.root = &root;
    assert_int_equal(claims_member(&state, me, MINE, true), MINE);
    assert_int_equal(claims_member(&state, me, THEIRS, true), 0);
    assert_int_equal(claims_member(&state, me, THEIRS, false), 0);
    assert_int_equal(claims_member(&state, me, GONE, true), 0);
    assert_int_equal(claims_member(&state, me, NEW, false), NEW);        /* it lost its disk */
    assert_int_equal(claims_member(&state, stranger, GONE, true), GONE); /* ours is older */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),  cmocka_unit_test(test_own), cmocka_unit_test(test_leaders),
        cmocka_unit_test(test_about),  cmocka_unit_test(test_now), cmocka_unit_test(test_tells),
        cmocka_unit_test(test_member),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
