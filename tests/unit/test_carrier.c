/* A pipeline over real links: driver and runners on the toy machine (fake_pipeline.h), each behind
 * a mesh of its own, over loopback with TLS. */
#include "driver_world.h"
#include "hosting/carrier.h"
#include "link_world.h"
#include "pipeline/runner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { CONTEXT = 300 };

static const struct driver_options OPTIONS = {.n_slots = 4, .context = CONTEXT, .batch_rows = 40};

struct machine {
    struct net *net;
    int node;
    struct carrier *carrier;
    struct device *device;
    struct driver *driver; /* machine 0 */
    struct runner *runner; /* the others */
    uint32_t n_lost;
    struct far far;
};

struct net {
    struct link_world *links;
    struct machine machines[WORLD_NODES];
    const char *split; /* a digit for each stage */
    uint32_t n_stages;
};

static void on_frame(void *self, struct link *link, uint32_t channel,
                     const struct frame_header *header, const uint8_t *payload)
{
    struct machine *machine = ((struct link_world_node *)self)->data;
    assert_int_equal(channel, LINK_DATA);
    carrier_frame(machine->carrier, link, header, payload);
}

static void on_lost(void *arg, const uint8_t node_id[NODE_ID_BYTES], const struct error *why)
{
    struct machine *machine = arg;
    (void)node_id;
    machine->n_lost++;
    if (machine->driver)
        driver_lost(machine->driver, why);
}

static void send_message(void *arg, uint32_t stage, struct buffer *message)
{
    struct machine *machine = arg;
    struct net *net = machine->net;
    int to = stage < net->n_stages ? net->split[stage] - '0' : 0;
    carrier_send(machine->carrier, net->links->nodes[to].identity.node_id, message);
}

static enum error_code to_driver(void *arg, const void *bytes, size_t size, struct error *err)
{
    return driver_receive(arg, bytes, size, err);
}

static enum error_code to_runner(void *arg, const void *bytes, size_t size, struct error *err)
{
    return runner_receive(arg, bytes, size, err);
}

static void open_machine(struct net *net, int index)
{
    struct machine *machine = &net->machines[index];
    struct link_world_node *node = &net->links->nodes[index];
    struct carrier_handlers handlers = {on_lost, machine};
    struct stage_plan plan[FAKE_LAYERS];
    char id[16];
    snprintf(id, sizeof id, "toy%d", index);
    *machine =
        (struct machine){.net = net, .node = index, .device = fake_device_open(id, 1000000, 0)};
    machine->far = (struct far){
        .instance = 5, .epoch = 1, .type = ACTIVATION_F16, .send = send_message, .arg = machine};
    node->data = machine;
    node->options.events.frame = on_frame;
    link_world_open(net->links, index);
    assert_int_equal(
        carrier_open(&net->links->loop, node->mesh, &handlers, &machine->carrier, NULL),
        ERROR_NONE);
    uint32_t left = FAKE_LAYERS;
    for (uint32_t i = 0; i < net->n_stages; i++) {
        uint32_t n_layers = i + 1 == net->n_stages ? left : FAKE_LAYERS / net->n_stages;
        plan[i] =
            (struct stage_plan){net->split[i] - '0' == index ? machine->device : NULL, n_layers};
        left -= n_layers;
    }
    struct error err = {0};
    if (index == 0) {
        if (driver_open_far(fake_model(), plan, net->n_stages, &OPTIONS, &machine->far,
                            &machine->driver, &err))
            fail_msg("%s", err.text);
        carrier_attach(machine->carrier, 5, to_driver, machine->driver, NULL);
    } else {
        if (runner_open(fake_model(), plan, net->n_stages, &OPTIONS, &machine->far,
                        &machine->runner, &err))
            fail_msg("%s", err.text);
        carrier_attach(machine->carrier, 5, to_runner, machine->runner, NULL);
    }
}

static bool all_linked(void *arg)
{
    struct net *net = arg;
    for (int i = 0; i < WORLD_NODES; i++) {
        for (int k = 0; k < WORLD_NODES; k++) {
            if (i != k &&
                !mesh_find(net->links->nodes[i].mesh, net->links->nodes[k].identity.node_id))
                return false;
        }
    }
    return true;
}

static void open_net(struct net *net, const char *split)
{
    *net = (struct net){
        .links = link_world_init(MESH_TCP), .split = split, .n_stages = (uint32_t)strlen(split)};
    for (int i = 0; i < WORLD_NODES; i++)
        open_machine(net, i);
    for (int i = 0; i < WORLD_NODES; i++) {
        for (int k = i + 1; k < WORLD_NODES; k++)
            link_world_dial(net->links, i, k);
    }
    assert_true(link_world_run(net->links, all_linked, net, 5000));
}

static void close_net(struct net *net)
{
    carrier_attach(net->machines[0].carrier, 5, NULL, NULL,
                   NULL); /* what comes late is for nobody */
    driver_close(net->machines[0].driver);
    for (int i = 0; i < WORLD_NODES; i++)
        runner_close(net->machines[i].runner);
    for (int i = 0; i < WORLD_NODES; i++)
        carrier_close(net->machines[i].carrier);
    for (int i = 0; i < WORLD_NODES; i++) {
        if (!net->links->nodes[i].is_closed)
            link_world_close(net->links, i);
        fake_device_close(net->machines[i].device);
    }
    link_world_deinit(net->links);
}

static bool clients_done(void *arg)
{
    const struct client *clients = arg;
    for (int i = 0; i < 6; i++) {
        if (!client_is_done(&clients[i]))
            return false;
    }
    return true;
}

static void submit(struct net *net, struct client *clients, uint32_t n_predict)
{
    struct world world = {.driver = net->machines[0].driver};
    for (uint32_t i = 0; i < 6; i++) {
        client_init(&clients[i], i % 3, 20 + 30 * i, n_predict);
        clients[i].request.sampler.seed = i;
        clients[i].request.sampler.temperature = i & 1 ? 1.0f : 0.0f;
        clients[i].request.want_all_logits = i == 5;
        assert_int_equal(client_submit(&clients[i], &world, NULL), ERROR_NONE);
    }
}

static void check_times(const struct request_usage *usage, uint32_t n_stages)
{
    assert_true(request_times_know(&usage->times));
    assert_int_equal(usage->times.n_stages, n_stages);
    for (uint32_t i = 0; i < n_stages; i++) {
        assert_true(usage->times.stages[i].compute_ns > 0);
        assert_true(usage->times.stages[i].compute_ns <= usage->prefill_ns + usage->decode_ns);
    }
}

static void test_a_pipeline_over_links(void **state)
{
    (void)state;
    static const char *const splits[] = {"1", "01", "12", "012", "0120", "1021"};
    const size_t n_splits = sizeof splits / sizeof *splits;
    for (size_t i = 0; i < n_splits; i++) {
        static struct client clients[6];
        struct net net;
        open_net(&net, splits[i]);
        submit(&net, clients, 40);
        assert_true(link_world_run(net.links, clients_done, clients, 20000));
        for (int k = 0; k < 6; k++) {
            client_check(&clients[k], CONTEXT);
            assert_int_equal(clients[k].reason, FINISH_LENGTH);
            assert_int_equal(clients[k].n_bad_rows, 0);
            check_times(&clients[k].usage, net.n_stages);
        }
        close_net(&net);
    }
}

static bool has_tokens(void *arg)
{
    return client_has_tokens(arg, 4);
}

/* A machine that is gone ends the requests; nothing hangs. */
static void test_a_link_that_is_lost(void **state)
{
    (void)state;
    static struct client clients[6];
    struct net net;
    open_net(&net, "012");
    submit(&net, clients, 250);
    assert_true(link_world_run(net.links, has_tokens, &clients[0], 5000));
    struct link *link = mesh_find(net.links->nodes[1].mesh, net.links->nodes[0].identity.node_id);
    struct error why = {0};
    error_set(&why, ERROR_IO, "the cable is out");
    link_abort(link, &why);
    link = mesh_find(net.links->nodes[1].mesh, net.links->nodes[2].identity.node_id);
    link_abort(link, &why);
    driver_lost(net.machines[0].driver, &why);
    assert_true(link_world_run(net.links, clients_done, clients, 10000));
    assert_int_equal(clients[4].reason, FINISH_ERROR);
    close_net(&net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_pipeline_over_links),
        cmocka_unit_test(test_a_link_that_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
