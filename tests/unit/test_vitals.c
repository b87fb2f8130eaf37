/* vitals/vitals.h and vitals_sample.h: what is told is what is heard, to within its noise. */
#include "base/random.h"
#include "cluster/event.h"
#include "vitals/vitals_sample.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct vitals_pair {
    struct vitals told, heard;
    size_t bytes; /* of the last message; 0: there was none */
};

static struct vitals made_vitals(uint32_t n)
{
    struct vitals made;
    vitals_clear(&made);
    for (uint32_t i = 0; i < n; i++) {
        char id[16];
        snprintf(id, sizeof id, "gpu%u", i);
        vitals_clear_device(&made.devices[made.n_devices++], id);
    }
    return made;
}

/* Over the wire. */
static bool pass_on(struct vitals_pair *pair, const struct vitals *now, bool anew)
{
    static struct vitals_room room;
    Node__Vitals said;
    struct buffer bytes = {0};
    ProtobufCMessage *message = NULL;
    struct error err;
    pair->bytes = 0;
    if (!vitals_tell(&pair->told, now, anew, &room, &said))
        return false;
    message_encode(&said.base, &bytes);
    pair->bytes = bytes.size;
    assert_int_equal(message_decode(&node__vitals__descriptor, (const uint8_t *)bytes.data,
                                    bytes.size, &message, &err),
                     ERROR_NONE);
    assert_int_equal(vitals_hear(&pair->heard, (Node__Vitals *)message, &err), ERROR_NONE);
    message_free(message);
    buffer_deinit(&bytes);
    return true;
}

static void test_all_of_it_then_what_changes(void **state)
{
    struct vitals_pair pair = {0};
    struct vitals now = made_vitals(2);
    vitals_clear(&pair.told);
    vitals_clear(&pair.heard);
    now.devices[1].temperature_dc = -35;
    now.cpu_permille = 0;
    assert_true(pass_on(&pair, &now, true));
    assert_int_equal(pair.heard.n_devices, 2);
    assert_int_equal(pair.heard.devices[1].temperature_dc, -35);
    assert_int_equal(pair.heard.devices[0].temperature_dc, VITALS_UNKNOWN);
    assert_int_equal(pair.heard.cpu_permille, 0);
    assert_int_equal(pair.heard.battery_percent, VITALS_UNKNOWN);
    assert_false(pass_on(&pair, &now, false));
    now.devices[1].temperature_dc = -31; /* noise */
    assert_false(pass_on(&pair, &now, false));
    now.devices[1].temperature_dc = -30;
    assert_true(pass_on(&pair, &now, false));
    assert_int_equal(pair.heard.devices[1].temperature_dc, -30);
    assert_in_range(pair.bytes, 1, 12);
}

static void test_what_is_lost_is_unknown(void **state)
{
    struct vitals_pair pair = {0};
    struct vitals now = made_vitals(1);
    vitals_clear(&pair.told);
    now.devices[0].power_dw = 0;
    now.devices[0].governor = THERMAL_PAUSED;
    now.uptime_s = 7;
    assert_true(pass_on(&pair, &now, true));
    assert_int_equal(pair.heard.devices[0].power_dw, 0);
    now.devices[0].power_dw = VITALS_UNKNOWN;
    now.devices[0].governor = VITALS_UNKNOWN;
    now.uptime_s = VITALS_UNKNOWN;
    assert_true(pass_on(&pair, &now, false));
    assert_int_equal(pair.heard.devices[0].power_dw, VITALS_UNKNOWN);
    assert_int_equal(pair.heard.devices[0].governor, VITALS_UNKNOWN);
    assert_int_equal(pair.heard.uptime_s, VITALS_UNKNOWN);
}

static void test_other_devices_are_told_anew(void **state)
{
    struct vitals_pair pair = {0};
    struct vitals now = made_vitals(1), more = made_vitals(3);
    vitals_clear(&pair.told);
    pass_on(&pair, &now, true);
    more.devices[2].clock_mhz = 1500;
    assert_true(pass_on(&pair, &more, false));
    assert_int_equal(pair.heard.n_devices, 3);
    assert_int_equal(vitals_device_of(&pair.heard, "gpu2")->clock_mhz, 1500);
    assert_null(vitals_device_of(&pair.heard, "gpu3"));
}

/* ---- at random: whoever follows knows each value to within its noise ---- */

static int32_t walk(uint64_t seed, uint64_t *n, int32_t value, int32_t lowest, int32_t highest)
{
    const uint64_t drawn = random_at(seed, (*n)++);
    const int64_t top = highest < 1000000 ? highest : 1000000;
    if (drawn % 16 == 0)
        return VITALS_UNKNOWN;
    if (value == VITALS_UNKNOWN || drawn % 16 == 1)
        return (int32_t)(lowest + (int64_t)(drawn >> 8) % (top - lowest + 1));
    const int64_t next = value + (int64_t)(drawn >> 8) % 9 - 4;
    return (int32_t)(next < lowest ? lowest : next > top ? top : next);
}

static void check_near(uint64_t seed, int32_t heard, int32_t now, int32_t noise, int32_t permille)
{
    if (heard == VITALS_UNKNOWN || now == VITALS_UNKNOWN) {
        assert_int_equal(heard, now);
        return;
    }
    const int64_t apart = llabs((int64_t)heard - now);
    if (apart >= noise && apart * 1000 >= llabs((int64_t)heard) * permille)
        fail_msg("seed %llu: heard %d, is %d", (unsigned long long)seed, heard, now);
}

static void check_walk(uint64_t seed)
{
    struct vitals_pair pair = {0};
    struct vitals now = made_vitals((uint32_t)(1 + random_at(seed, 0) % 4));
    uint64_t n = 1;
    vitals_clear(&pair.told);
    vitals_clear(&pair.heard);
    for (uint32_t turn = 0; turn < 30; turn++) {
        for (uint32_t i = 0; i < now.n_devices; i++) {
            struct vitals_device *device = &now.devices[i];
#define WALK(name, noise, permille, lowest, highest)                                               \
    device->name = walk(seed, &n, device->name, lowest, highest);
            VITALS_OF_DEVICE(WALK)
#undef WALK
        }
#define WALK(name, noise, permille, lowest, highest)                                               \
    now.name = walk(seed, &n, now.name, lowest, highest);
        VITALS_OF_NODE(WALK)
#undef WALK
        pass_on(&pair, &now, turn == 0 || random_at(seed, n++) % 8 == 0);
        for (uint32_t i = 0; i < now.n_devices; i++) {
#define NEAR(name, noise, permille, ...)                                                           \
    check_near(seed, pair.heard.devices[i].name, now.devices[i].name, noise, permille);
            VITALS_OF_DEVICE(NEAR)
#undef NEAR
        }
#define NEAR(name, noise, permille, ...)                                                           \
    check_near(seed, pair.heard.name, now.name, noise, permille);
        VITALS_OF_NODE(NEAR)
#undef NEAR
    }
}

static void test_who_follows_knows_each_value(void **state)
{
    unsigned first = 1, last = 300;
    const char *seeds = getenv("MEDLEY_SEEDS");
    if (seeds)
        sscanf(seeds, "%u-%u", &first, &last);
    for (unsigned seed = first; seed <= last; seed++)
        check_walk(seed);
}

/* ---- of others ---- */

static void test_what_no_node_can_say_is_refused(void **state)
{
    struct vitals heard;
    struct error err;
    Node__DeviceVitals device = NODE__DEVICE_VITALS__INIT, *list[] = {&device};
    Node__Vitals said = NODE__VITALS__INIT;
    said.devices = list;
    said.n_devices = 1;
    vitals_clear(&heard);
    assert_int_equal(vitals_hear(&heard, &said, &err), ERROR_INVALID); /* of which device? */
    device.has_at = true;
    assert_int_equal(vitals_hear(&heard, &said, &err), ERROR_INVALID); /* there is none */
    said.has_anew = said.anew = true;
    assert_int_equal(vitals_hear(&heard, &said, &err), ERROR_INVALID); /* without a name */
    device.id = (char *)(uintptr_t)"gpu0";
    device.has_temperature_dc = device.has_use_permille = true;
    device.temperature_dc = 900000;
    device.use_permille = -1;
    assert_int_equal(vitals_hear(&heard, &said, &err), ERROR_NONE);
    assert_int_equal(heard.devices[0].temperature_dc, VITALS_UNKNOWN); /* not believed */
    assert_int_equal(heard.devices[0].use_permille, VITALS_UNKNOWN);
}

static void test_governors_in_words(void **state)
{
    assert_string_equal(vitals_governor_text(THERMAL_FREE), "free");
    assert_string_equal(vitals_governor_text(THERMAL_PAUSED), "paused");
    assert_string_equal(vitals_governor_text(THERMAL_MODEL), "slowed");
    assert_null(vitals_governor_text(THERMAL_NO_SENSOR));
    assert_null(vitals_governor_text(VITALS_UNKNOWN));
    assert_null(vitals_governor_text(255));
}

static void test_steps(void **state)
{
    assert_int_equal(vitals_steps(true, 61.4), 61);
    assert_int_equal(vitals_steps(true, -0.6), -1);
    assert_int_equal(vitals_steps(false, 3), VITALS_UNKNOWN);
    assert_int_equal(vitals_steps(true, NAN), VITALS_UNKNOWN);
    assert_int_equal(vitals_steps(true, 1e12), VITALS_UNKNOWN);
}

/* ---- the last minute ---- */

static struct sensor_device at_degrees(double celsius)
{
    return (struct sensor_device){.temperature_mc = reading_of(UNIT_MC, celsius * 1000)};
}

static void test_the_last_minute_has_gaps_where_there_was_no_sample(void **state)
{
    static struct recent recent;
    struct recent_sample out[RECENT_SAMPLES];
    const uint64_t ms = 1000000;
    assert_int_equal(recent_list(&recent, 500, out), 0);
    assert_true(isnan(out[RECENT_SAMPLES - 1].temperature_c));
    const uint64_t times_ms[] = {10000, 10490, 12010, 12500};
    for (int i = 0; i < 4; i++) {
        const struct sensor_device readings = at_degrees(40 + i);
        recent_add(&recent, times_ms[i] * ms, &readings);
    }
    assert_int_equal(recent_list(&recent, 500, out), 12500 * ms);
    assert_float_equal(out[119].temperature_c, 43, 0.01);
    assert_float_equal(out[118].temperature_c, 42, 0.01);
    assert_true(isnan(out[117].temperature_c));
    assert_true(isnan(out[116].temperature_c));
    assert_float_equal(out[115].temperature_c, 41, 0.01);
    assert_float_equal(out[114].temperature_c, 40, 0.01);
    assert_true(isnan(out[113].temperature_c));
    assert_true(isnan(out[119].power_w));
    for (int i = 0; i < 500; i++) {
        const struct sensor_device readings = at_degrees(50 + i % 10);
        recent_add(&recent, (13000 + 500 * (uint64_t)i) * ms, &readings);
    }
    recent_list(&recent, 500, out);
    for (int i = 0; i < RECENT_SAMPLES; i++)
        assert_float_equal(out[i].temperature_c, (float)(50 + (380 + i) % 10), 0.01);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_of_it_then_what_changes),
        cmocka_unit_test(test_what_is_lost_is_unknown),
        cmocka_unit_test(test_other_devices_are_told_anew),
        cmocka_unit_test(test_who_follows_knows_each_value),
        cmocka_unit_test(test_what_no_node_can_say_is_refused),
        cmocka_unit_test(test_governors_in_words),
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_the_last_minute_has_gaps_where_there_was_no_sample),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
