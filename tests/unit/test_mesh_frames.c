/* mesh, the pure parts: frames, hellos, pings, who stays when two dial, waiting, what probes know,
 * classes. */
#include "base/limits.h"
#include "base/random.h"
#include "mesh/backoff.h"
#include "mesh/frame.h"
#include "mesh/hello.h"
#include "mesh/interface_class.h"
#include "mesh/ping.h"
#include "mesh/probe.h"
#include "mesh/resolve.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- frames -------------------------------------------------------------------------------- */

static void test_a_header_survives(void **state)
{
    const struct frame_header header = {
        .type = 0x1234, .flags = 0x5678, .length = 0x0abcdef0, .tag = 0xfedcba98};
    uint8_t bytes[FRAME_HEADER_BYTES];
    struct frame_header back;
    frame_header_write(&header, bytes);
    const uint8_t expected[] = {'M',  'd',  1,    0,    0x34, 0x12, 0x78, 0x56,
                                0xf0, 0xde, 0xbc, 0x0a, 0x98, 0xba, 0xdc, 0xfe};
    assert_memory_equal(bytes, expected, sizeof expected);
    assert_int_equal(frame_header_read(bytes, UINT32_MAX, &back, NULL), ERROR_NONE);
    assert_memory_equal(&back, &header, sizeof back);
    bytes[3] = 77; /* reserved */
    assert_int_equal(frame_header_read(bytes, UINT32_MAX, &back, NULL), ERROR_NONE);
}

static void test_a_bad_header_is_refused(void **state)
{
    uint8_t bytes[FRAME_HEADER_BYTES];
    struct frame_header back;
    struct error err = {0};
    frame_header_write(&(struct frame_header){.type = 40, .length = 1001}, bytes);
    assert_int_equal(frame_header_read(bytes, 1000, &back, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "1001"));
    assert_int_equal(frame_header_read(bytes, 1001, &back, &err), ERROR_NONE);
    bytes[2] = 2;
    assert_int_equal(frame_header_read(bytes, 1001, &back, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "format 2"));
    memcpy(bytes, "GET / HTTP/1.1\r\n", sizeof bytes);
    assert_int_equal(frame_header_read(bytes, 1001, &back, &err), ERROR_INVALID);
}

/* Feeds bytes in pieces; returns how many frames were complete, with their payloads' sum. */
static int feed(struct frame_reader *reader, const uint8_t *bytes, size_t size, uint64_t seed,
                uint64_t *sum)
{
    static uint8_t payload[4096];
    int n_frames = 0;
    uint64_t n_pieces = 0;
    while (size > 0 && reader->state != FRAME_BROKEN) {
        void *into;
        size_t room, n = 1 + (size_t)(random_at(seed, n_pieces++) % 40);
        frame_reader_want(reader, &into, &room);
        assert_true(room > 0);
        n = n < room ? n : room;
        n = n < size ? n : size;
        memcpy(into, bytes, n);
        bytes += n;
        size -= n;
        switch (frame_reader_took(reader, n, NULL)) {
        case FRAME_BEGUN:
            frame_reader_payload(reader, payload);
            break;
        case FRAME_COMPLETE:
            for (uint32_t i = 0; i < reader->header.length; i++)
                *sum += reader->payload[i] * (uint64_t)(i + 1) * reader->header.tag;
            n_frames++;
            frame_reader_next(reader);
            assert_false(frame_reader_is_inside(reader));
            break;
        case FRAME_MORE:
        case FRAME_BROKEN:
            break;
        }
    }
    return n_frames;
}

static void test_any_cut_gives_the_same_frames(void **state)
{
    enum { FRAMES = 20 };
    uint8_t bytes[FRAMES * (FRAME_HEADER_BYTES + 500)];
    size_t size = 0;
    uint64_t expected = 0;
    for (uint32_t i = 0; i < FRAMES; i++) {
        const struct frame_header header = {.type = 40, .length = i % 4 ? i * 20 : 0, .tag = i};
        frame_header_write(&header, bytes + size);
        size += FRAME_HEADER_BYTES;
        for (uint32_t j = 0; j < header.length; j++) {
            bytes[size++] = (uint8_t)(i + j);
            expected += (uint64_t)(uint8_t)(i + j) * (j + 1) * i;
        }
    }
    for (uint64_t seed = 0; seed < 50; seed++) {
        struct frame_reader reader;
        uint64_t sum = 0;
        frame_reader_init(&reader, 4096);
        assert_int_equal(feed(&reader, bytes, size, seed, &sum), FRAMES);
        assert_true(sum == expected);
    }
    /* Cut short: inside, and no frame too many. */
    struct frame_reader reader;
    uint64_t sum = 0;
    frame_reader_init(&reader, 4096);
    assert_int_equal(feed(&reader, bytes, size - 1, 3, &sum), FRAMES - 1);
    assert_true(frame_reader_is_inside(&reader));
}

static void test_a_broken_reader_wants_nothing(void **state)
{
    struct frame_reader reader;
    struct error err = {0};
    void *into;
    size_t size;
    frame_reader_init(&reader, 100);
    frame_reader_want(&reader, &into, &size);
    assert_int_equal(size, FRAME_HEADER_BYTES);
    memset(into, 0xff, size);
    assert_int_equal(frame_reader_took(&reader, size, &err), FRAME_BROKEN);
    assert_int_equal(err.code, ERROR_INVALID);
    frame_reader_want(&reader, &into, &size);
    assert_int_equal(size, 0);
}

/* ---- hellos -------------------------------------------------------------------------------- */

static struct hello a_hello(void)
{
    struct hello hello = {
        .version = {LINK_MAJOR, 7},
        .channel = 2,
        .n_channels = 3,
        .session = 0x1122334455667788,
        .boot = 42,
        .software = "medley 9",
        .n_greeting = 3,
        .greeting = {1, 0, 255},
    };
    return hello;
}

static void test_a_hello_survives(void **state)
{
    const struct hello hello = a_hello();
    struct hello back;
    uint8_t bytes[LIMIT_HELLO_BYTES];
    const size_t size = hello_write(&hello, bytes);
    assert_int_equal(hello_read(bytes, size, &back, NULL), ERROR_NONE);
    assert_memory_equal(&back, &hello, sizeof back);
    /* Field 999 of a newer node. */
    const uint8_t more[] = {0xba, 0x3e, 2, 'h', 'i'};
    memcpy(bytes + size, more, sizeof more);
    assert_int_equal(hello_read(bytes, size + sizeof more, &back, NULL), ERROR_NONE);
    assert_memory_equal(&back, &hello, sizeof back);
    for (size_t cut = 0; cut < size; cut++) { /* never more than an error */
        if (hello_read(bytes, cut, &back, NULL) == ERROR_NONE)
            assert_true(back.n_channels >= 2 && back.channel < back.n_channels);
    }
}

static void expect_bad_hello(struct hello hello)
{
    uint8_t bytes[LIMIT_HELLO_BYTES];
    struct hello back;
    struct error err = {0};
    assert_int_equal(hello_read(bytes, hello_write(&hello, bytes), &back, &err), ERROR_INVALID);
    assert_true(err.text[0] != '\0');
}

static void test_hellos_that_make_no_sense(void **state)
{
    struct hello hello = a_hello();
    hello.channel = 3;
    expect_bad_hello(hello);
    hello = a_hello();
    hello.n_channels = LIMIT_LINK_CHANNELS + 1;
    expect_bad_hello(hello);
    hello.n_channels = 1;
    expect_bad_hello(hello);
    hello = a_hello();
    hello.version.major = 0;
    expect_bad_hello(hello);
    /* Another major version's hello is only looked at for its version. */
    hello.version.major = 2;
    hello.n_channels = 0;
    uint8_t bytes[LIMIT_HELLO_BYTES];
    struct hello back;
    assert_int_equal(hello_read(bytes, hello_write(&hello, bytes), &back, NULL), ERROR_NONE);
    assert_int_equal(back.version.major, 2);
}

static void test_words_from_the_wire_are_safe(void **state)
{
    struct refusal refusal = {.reason = REFUSAL_BUSY, .version = {1, 2}}, back;
    strcpy(refusal.text, "a\x1b[31m\nb");
    uint8_t bytes[LIMIT_HELLO_BYTES];
    const size_t size = refusal_write(&refusal, bytes);
    assert_int_equal(refusal_read(bytes, size, &back, NULL), ERROR_NONE);
    assert_string_equal(back.text, "a?[31m?b");
    assert_int_equal(back.reason, REFUSAL_BUSY);
    bytes[1] = 99; /* a reason of a newer node */
    assert_int_equal(refusal_read(bytes, size, &back, NULL), ERROR_NONE);
    assert_int_equal(back.reason, REFUSAL_UNKNOWN);
}

static void test_versions(void **state)
{
    struct link_version agreed;
    struct error err = {0};
    assert_int_equal(
        version_agree((struct link_version){1, 3}, (struct link_version){1, 2}, &agreed, &err),
        ERROR_NONE);
    assert_int_equal(agreed.minor, 2);
    assert_int_equal(
        version_agree((struct link_version){1, 2}, (struct link_version){1, 3}, &agreed, &err),
        ERROR_NONE);
    assert_int_equal(agreed.minor, 2);
    assert_int_equal(
        version_agree((struct link_version){1, 2}, (struct link_version){1, 4}, &agreed, &err),
        ERROR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "1.4 of the protocol, this node 1.2: update the medley here"));
    assert_int_equal(version_agree((struct link_version){1, UINT32_MAX},
                                   (struct link_version){1, 0}, &agreed, &err),
                     ERROR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "update the medley there"));
    assert_int_equal(
        version_agree((struct link_version){1, 9}, (struct link_version){2, 0}, &agreed, &err),
        ERROR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "update the medley here"));
    assert_int_equal(
        version_agree((struct link_version){2, 0}, (struct link_version){1, 0}, &agreed, &err),
        ERROR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "update the medley there"));
}

static void test_fixed_payloads(void **state)
{
    uint8_t bytes[64];
    struct ping ping;
    struct pong pong;
    struct burst burst;
    struct burst_report report;
    ping_write(&(struct ping){5, UINT64_MAX}, bytes);
    assert_int_equal(ping_read(bytes, 64, &ping, NULL),
                     ERROR_NONE); /* a longer one is a newer node's */
    assert_true(ping.number == 5 && ping.sent_ns == UINT64_MAX);
    assert_int_equal(ping_read(bytes, PING_BYTES - 1, &ping, NULL), ERROR_INVALID);
    pong_write(&(struct pong){1, 2, 3, 4}, bytes);
    assert_int_equal(pong_read(bytes, PONG_BYTES, &pong, NULL), ERROR_NONE);
    assert_true(pong.number == 1 && pong.sent_ns == 2 && pong.received_ns == 3 &&
                pong.answered_ns == 4);
    assert_int_equal(pong_read(bytes, PING_BYTES, &pong, NULL), ERROR_INVALID);
    burst_write(&(struct burst){9, 3, 4}, bytes);
    assert_int_equal(burst_read(bytes, BURST_BYTES_MIN, &burst, NULL), ERROR_NONE);
    assert_true(burst.number == 9 && burst.place == 3 && burst.n_frames == 4);
    burst_write(&(struct burst){9, 4, 4}, bytes);
    assert_int_equal(burst_read(bytes, BURST_BYTES_MIN, &burst, NULL), ERROR_INVALID);
    burst_report_write(&(struct burst_report){9, 1000, 77}, bytes);
    assert_int_equal(burst_report_read(bytes, BURST_REPORT_BYTES, &report, NULL), ERROR_NONE);
    assert_true(report.number == 9 && report.bytes == 1000 && report.ns == 77);
    assert_int_equal(burst_report_read(bytes, 0, &report, NULL), ERROR_INVALID);
}

/* ---- who stays ------------------------------------------------------------------------------ */

static void test_the_table_of_resolutions(void **state)
{
    struct resolve_state at = {0};
    assert_int_equal(resolve_incoming(at), RESOLVE_ACCEPT);
    at.dial_greeted = true;
    assert_int_equal(resolve_incoming(at), RESOLVE_ACCEPT); /* the higher gives way */
    at.we_are_lower = true;
    assert_int_equal(resolve_incoming(at), RESOLVE_REFUSE);
    at = (struct resolve_state){
        .has_link = true, .same_boot = true, .link_is_ours = true, .we_are_lower = true};
    assert_int_equal(resolve_incoming(at), RESOLVE_REFUSE);
    at.link_closes = true;
    assert_int_equal(resolve_incoming(at), RESOLVE_REFUSE);
    at.same_boot = false; /* it has restarted */
    assert_int_equal(resolve_incoming(at), RESOLVE_REPLACE);
    at = (struct resolve_state){.has_link = true, .same_boot = true, .we_are_lower = true};
    assert_int_equal(resolve_incoming(at), RESOLVE_REPLACE); /* it dialled the first, too */
    at = (struct resolve_state){.has_link = true, .same_boot = true, .link_is_ours = true};
    assert_int_equal(resolve_incoming(at), RESOLVE_REPLACE);
}

static void test_waiting_grows_and_differs(void **state)
{
    uint64_t sum = 0;
    for (uint64_t seed = 0; seed < 1000; seed++) {
        const uint64_t first = backoff_ms(250, 1, seed), fifth = backoff_ms(250, 5, seed);
        assert_in_range(first, 125, 250);
        assert_in_range(fifth, 2000, 4000);
        assert_in_range(backoff_ms(250, 1000000, seed), LIMIT_DIAL_WAIT_MS / 2, LIMIT_DIAL_WAIT_MS);
        sum += fifth;
    }
    assert_in_range(sum / 1000, 2900, 3100);
}

static void test_waiting_after_a_link(void **state)
{
    uint64_t at_ms = 0, n = 0;
    for (uint64_t seed = 0; seed < 1000; seed++) {
        assert_in_range(backoff_again_ms(250, 0, 1, seed), 62, 125);
        assert_in_range(backoff_again_ms(250, 8000, 1, seed), 500, 1000);
        assert_in_range(backoff_again_ms(250, 10 * LIMIT_DIAL_WAIT_MS, 1, seed),
                        LIMIT_DIAL_WAIT_MS / 2, LIMIT_DIAL_WAIT_MS);
        assert_in_range(backoff_again_ms(250, 100, 1000, seed), 2000,
                        4000); /* a thousand: 250 to 500 a second */
    }
    for (; at_ms < 3600 * 1000; n++)
        at_ms += backoff_again_ms(250, at_ms, 1, n);
    assert_in_range(n, 100, 400); /* of an hour */
    assert_int_equal(backoff_reach_ms(0), 500);
    assert_int_equal(backoff_reach_ms(16000), 2000);
}

/* ---- probes --------------------------------------------------------------------------------- */

#define MS UINT64_C(1000000)

/* 64 pings over a link of there_ns and back_ns, whose peer's clock is off and fast, each held for a
 * while. */
static struct link_probe probe_pinged(uint64_t there_ns, uint64_t back_ns, uint64_t jitter_ns,
                                      double drift)
{
    struct link_probe probe = {0};
    for (uint64_t i = 0; i < 64; i++) {
        const uint64_t sent_ns = 1000 * MS * (i + 1), late_ns = i % 2 ? jitter_ns : 0;
        const uint64_t arrived_ns = sent_ns + there_ns + late_ns, answered_ns = arrived_ns + 3 * MS;
        const uint64_t theirs_ns = (uint64_t)((double)arrived_ns * (1 + drift)) - 77777 * MS;
        const struct pong pong = {i, sent_ns, theirs_ns, theirs_ns + 3 * MS};
        link_probe_pong(&probe, &pong, answered_ns + back_ns);
        link_probe_hear_clock(&probe, &pong, answered_ns + back_ns);
    }
    return probe;
}

static void test_latency_is_half_the_round_trip(void **state)
{
    const struct link_probe probe = probe_pinged(2 * MS, 4 * MS, 0, 0);
    const struct topology_link link = link_probe_reading(&probe);
    assert_true(link.latency_ns.valid && link.jitter_ns.valid);
    assert_int_equal(link.latency_ns.value, 3 * MS);
    assert_int_equal(link.jitter_ns.value, 0);
    assert_false(link.loss_share.valid || link.bandwidth_bytes_per_s.valid);
    assert_true(link.overhead_ns.valid && link.overhead_ns.value == 0);
}

/* Every second ping is 1 ms late: D is ±1 ms. A clock that runs 100 ppm fast changes nothing. */
static void test_jitter_does_not_see_the_clocks(void **state)
{
    for (int i = 0; i < 3; i++) {
        const double drift = (i - 1) * 100e-6;
        const struct link_probe probe = probe_pinged(2 * MS, 2 * MS, MS, drift);
        const struct topology_link link = link_probe_reading(&probe);
        assert_in_range(link.jitter_ns.value, MS - MS / 20, MS + MS / 20);
    }
}

/* The quickest answer counts: those that were late would say 0.5 ms less. */
static void test_the_peer_s_clock(void **state)
{
    const struct link_probe probe = probe_pinged(2 * MS, 2 * MS, MS, 0), none = {0};
    int64_t ahead_ns = 0;
    assert_false(link_probe_clock(&none, &ahead_ns));
    assert_true(link_probe_clock(&probe, &ahead_ns));
    assert_int_equal(ahead_ns, -(int64_t)(77777 * MS));
}

static void test_what_a_peer_makes_up_is_not_believed(void **state)
{
    struct link_probe probe = {0};
    link_probe_pong(&probe, &(struct pong){0, 200, 10, 20}, 100); /* sent in the future */
    link_probe_pong(&probe, &(struct pong){0, 100, 20, 10}, 200); /* answered before it came */
    link_probe_pong(&probe, &(struct pong){0, 100, 0, UINT64_MAX},
                    200); /* held for longer than it took */
    assert_false(link_probe_reading(&probe).latency_ns.valid);
    link_probe_report(&probe, &(struct burst_report){0, 1000, 1000}, 10); /* of no burst */
    assert_int_equal(link_probe_began(&probe, 65536, 1000), 1);
    link_probe_report(&probe, &(struct burst_report){2, 1000, 1000}, 5000);
    assert_false(link_probe_reading(&probe).bandwidth_bytes_per_s.valid);
    link_probe_report(&probe, &(struct burst_report){1, 65537, 1000},
                      5000); /* more than was sent */
    assert_false(link_probe_reading(&probe).bandwidth_bytes_per_s.valid);
}

static void test_loss_is_of_packets(void **state)
{
    struct link_probe probe = {0};
    link_probe_packets(&probe, 1000000, 500000); /* before it was looked at */
    link_probe_packets(&probe, 1000099, 500001);
    assert_false(link_probe_reading(&probe).loss_share.valid);
    link_probe_packets(&probe, 1001000, 500010);
    assert_true(link_probe_reading(&probe).loss_share.value == 0.01);
    link_probe_packets(&probe, 5, 5); /* counters that went back */
    assert_true(link_probe_reading(&probe).loss_share.value == 0.01);
    for (uint64_t i = 1; i < 1000; i++) /* long ago is forgotten */
        link_probe_packets(&probe, 5 + i * 1000, 5);
    assert_true(link_probe_reading(&probe).loss_share.value < 0.0001);
}

/* A day at rest on links of several speeds: bursts take at most 1 % of the link, and few bytes. */
static void test_bursts_stay_below_one_per_cent(void **state)
{
    const double rates[] = {20e3, 125e3, 2.5e6, 125e6, 5e9};
    for (size_t r = 0; r < sizeof rates / sizeof rates[0]; r++) {
        struct link_probe probe = {0};
        double busy_s = 0;
        uint64_t bytes_sum = 0, now_ns = 0;
        const uint64_t day_ns = 86400 * UINT64_C(1000000000);
        while (now_ns < day_ns) {
            const uint64_t bytes = link_probe_due(&probe, now_ns);
            if (bytes) {
                assert_in_range(bytes, 1, LIMIT_BURST_BYTES);
                assert_true(busy_s <= 0.01 * (double)now_ns / 1e9);
                const double took_s = (double)bytes / rates[r];
                const uint32_t number = link_probe_began(&probe, bytes, now_ns);
                busy_s += took_s;
                bytes_sum += bytes;
                now_ns += (uint64_t)(took_s * 1e9) + MS;
                const struct burst_report report = {number, bytes / 2,
                                                    (uint64_t)(took_s * 1e9 / 2)};
                link_probe_report(&probe, &report, now_ns);
            }
            now_ns += 2000 * MS;
        }
        const struct reading found = link_probe_reading(&probe).bandwidth_bytes_per_s;
        assert_true(found.valid);
        assert_true(found.value > rates[r] * 0.98 && found.value < rates[r] * 1.02);
        assert_true((double)bytes_sum / 86400 < 1.1 * (double)PROBE_REST_BYTES_PER_S);
    }
}

/* ---- classes --------------------------------------------------------------------------------- */

static void put(const char *root, const char *path, const char *text)
{
    char name[512];
    snprintf(name, sizeof name, "%s/%s", root, path);
    for (char *at = name + strlen(root) + 1; (at = strchr(at, '/')); at++) {
        *at = '\0';
        mkdir(name, 0700);
        *at = '/';
    }
    FILE *file = fopen(name, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void test_classes_of_interfaces(void **state)
{
    char root[] = "/tmp/medley-net-XXXXXX", command[64], link[128];
    assert_non_null(mkdtemp(root));
    put(root, "class/net/eth0/type", "1\n");
    put(root, "class/net/wlan0/type", "1\n");
    put(root, "class/net/wlan0/wireless/x", "");
    put(root, "class/net/tb0/type", "1\n");
    put(root, "class/net/tb0/device/x", "");
    put(root, "class/net/ib0/device/infiniband/mlx", "");
    put(root, "class/net/ib0/type", "32\n");
    put(root, "class/net/lo/type", "772\n");
    put(root, "class/net/wg0/type", "65534\n");
    snprintf(link, sizeof link, "%s/class/net/tb0/device/driver", root);
    assert_int_equal(symlink("../../../bus/thunderbolt/drivers/thunderbolt-net", link), 0);
    assert_int_equal(interface_class_of("eth0", root), TOPOLOGY_ETHERNET);
    assert_int_equal(interface_class_of("wlan0", root), TOPOLOGY_WIFI);
    assert_int_equal(interface_class_of("tb0", root), TOPOLOGY_THUNDERBOLT);
    assert_int_equal(interface_class_of("ib0", root), TOPOLOGY_RDMA);
    assert_int_equal(interface_class_of("lo", root), TOPOLOGY_LOOPBACK);
    assert_int_equal(interface_class_of("wg0", root), TOPOLOGY_UNKNOWN);
    assert_int_equal(interface_class_of("gone", root), TOPOLOGY_UNKNOWN);
    assert_int_equal(interface_class_of("../net/eth0", root), TOPOLOGY_UNKNOWN);
    struct sockaddr_in here = {.sin_family = AF_INET}, far = here;
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    far.sin_addr.s_addr = htonl(0xc6336401); /* 198.51.100.1: nobody's (RFC 5737) */
    assert_int_equal(interface_class((struct sockaddr *)&here, (struct sockaddr *)&here, root),
                     TOPOLOGY_SAME_HOST);
    assert_int_equal(interface_class((struct sockaddr *)&far, (struct sockaddr *)&far, root),
                     TOPOLOGY_UNKNOWN);
    snprintf(command, sizeof command, "rm -r %s", root);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_header_survives),
        cmocka_unit_test(test_a_bad_header_is_refused),
        cmocka_unit_test(test_any_cut_gives_the_same_frames),
        cmocka_unit_test(test_a_broken_reader_wants_nothing),
        cmocka_unit_test(test_a_hello_survives),
        cmocka_unit_test(test_hellos_that_make_no_sense),
        cmocka_unit_test(test_words_from_the_wire_are_safe),
        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_fixed_payloads),
        cmocka_unit_test(test_the_table_of_resolutions),
        cmocka_unit_test(test_waiting_grows_and_differs),
        cmocka_unit_test(test_waiting_after_a_link),
        cmocka_unit_test(test_latency_is_half_the_round_trip),
        cmocka_unit_test(test_jitter_does_not_see_the_clocks),
        cmocka_unit_test(test_the_peer_s_clock),
        cmocka_unit_test(test_what_a_peer_makes_up_is_not_believed),
        cmocka_unit_test(test_loss_is_of_packets),
        cmocka_unit_test(test_bursts_stay_below_one_per_cent),
        cmocka_unit_test(test_classes_of_interfaces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
