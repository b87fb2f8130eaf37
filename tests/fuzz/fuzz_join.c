/* Fuzz target: what a stranger sends while joining. The first byte says who gets the rest, and
 * when:
 *   0 a member's first message, 1 its second (after a good HELLO by code), 2 the same by hand,
 *   3 a joiner's first (by code), 4 the same by hand, 5 its second, 6 its third (the grant);
 *   7 the inside of a grant; 8 a typed code; 9 a certificate.
 * Holds: nobody gets in, every answer is a message that can be read, and a failure has printable
 * words. */
#include "fuzz.h"

#include "base/limits.h"
#include "join/join.h"
#include "join/join_message.h"

#include <openssl/err.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    struct identity member, newcomer;
    struct membership membership;
    struct invite invite;
    struct buffer to_member, to_joiner;
    struct joiner joiner;
    struct inviter inviter;
    struct join_pace pace;
} world;

static void make_world(void)
{
    static bool made;
    if (!made && (identity_make(&world.member, NULL) || identity_make(&world.newcomer, NULL) ||
                  membership_found(&world.member, AUTHORITY_EPOCH_UNIX_S, &world.membership, NULL)))
        abort();
    made = true;
}

/* Both machines, with HELLO in to_member. */
static void start(enum join_mode mode)
{
    char code[JOIN_CODE_TEXT];
    world.invite = (struct invite){0};
    world.pace = (struct join_pace){0};
    FUZZ_CHECK(invite_make(&world.invite, 0, 0, code, NULL) == ERROR_NONE);
    struct joiner_settings joiner = {
        .identity = &world.newcomer, .name = "tower", .mode = mode, .pace = &world.pace};
    FUZZ_CHECK(join_code_parse(code, joiner.code, NULL) == ERROR_NONE);
    struct inviter_settings inviter = {.identity = &world.member,
                                       .authority = &world.membership.authority,
                                       .name = "laptop",
                                       .invite = &world.invite};
    FUZZ_CHECK(inviter_init(&world.inviter, &inviter, 0, NULL) == ERROR_NONE);
    FUZZ_CHECK(joiner_start(&world.joiner, &joiner, 0, &world.to_member, NULL) == ERROR_NONE);
}

static void to_member(void)
{
    FUZZ_CHECK(inviter_step(&world.inviter, 0, world.to_member.data, world.to_member.size,
                            &world.to_joiner, NULL) != JOIN_FAILED);
}

static void to_joiner(void)
{
    FUZZ_CHECK(joiner_step(&world.joiner, 0, world.to_joiner.data, world.to_joiner.size,
                           &world.to_member, NULL) != JOIN_FAILED);
}

static void check(enum join_result result, const struct buffer *reply, const struct error *err)
{
    struct join_message message;
    FUZZ_CHECK(result == JOIN_WAITING || result == JOIN_FAILED);
    FUZZ_CHECK(reply->size == 0 ||
               join_message_read(reply->data, reply->size, &message, NULL) == ERROR_NONE);
    FUZZ_CHECK(result != JOIN_FAILED || err->text[0]);
    for (const char *at = err->text; *at; at++)
        FUZZ_CHECK(*at >= ' ' && *at <= '~');
}

static void attack_member(const uint8_t *data, size_t size)
{
    struct error err = {0};
    check(inviter_step(&world.inviter, 0, data, size, &world.to_joiner, &err), &world.to_joiner,
          &err);
    FUZZ_CHECK(world.invite.state == INVITE_OPEN);
}

static void attack_joiner(const uint8_t *data, size_t size)
{
    struct error err = {0};
    check(joiner_step(&world.joiner, 0, data, size, &world.to_member, &err), &world.to_member,
          &err);
    FUZZ_CHECK(!world.joiner.membership.certificate);
}

static void read_grant(const uint8_t *data, size_t size)
{
    struct join_field fields[JOIN_FIELDS_MAX];
    struct error err = {0};
    if (join_grant_read(data, size, fields, &err) == ERROR_NONE) {
        for (int i = 0; i < JOIN_FIELDS_MAX; i++)
            FUZZ_CHECK(fields[i].bytes >= data && fields[i].bytes + fields[i].size <= data + size);
    } else {
        FUZZ_CHECK(err.text[0]);
    }
}

static void read_code(const uint8_t *data, size_t size)
{
    char typed[64], digits[JOIN_CODE_DIGITS];
    size_t n = size < sizeof typed ? size : sizeof typed - 1;
    memcpy(typed, data, n);
    typed[n] = 0;
    if (join_code_parse(typed, digits, NULL) == ERROR_NONE) {
        for (int i = 0; i < JOIN_CODE_DIGITS; i++)
            FUZZ_CHECK(digits[i] && strchr("0123456789ABCDEFGHJKMNPQRSTVWXYZ", digits[i]));
    }
}

static void read_certificate(const uint8_t *data, size_t size)
{
    uint8_t node_id[NODE_ID_BYTES], cluster_id[CLUSTER_ID_BYTES];
    uint64_t from, until;
    X509 *certificate = d2i_X509(NULL, &data, (long)size);
    if (certificate) {
        bool is_node = certificate_names(certificate, node_id, cluster_id);
        FUZZ_CHECK(!is_node || !certificate_cluster(certificate, cluster_id));
        certificate_period(certificate, &from, &until);
        struct membership membership = {.authority = world.membership.authority,
                                        .certificate = certificate};
        FUZZ_CHECK(membership_check(&membership, &world.newcomer, NULL) == ERROR_INVALID);
    }
    X509_free(certificate);
    ERR_clear_error();
}

/* Brings both machines to the moment, in which `who` gets the bytes. */
static void attack(uint8_t moment, const uint8_t *data, size_t size)
{
    start(moment == 2 || moment == 4 ? JOIN_BY_HAND : JOIN_BY_CODE);
    if (moment == 1 || moment == 2 || moment >= 5)
        to_member();
    if (moment >= 5)
        to_joiner();
    if (moment == 6) {
        to_member();
        to_joiner();
    }
    if (moment <= 2)
        attack_member(data, size);
    else
        attack_joiner(data, size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    make_world();
    if (data[0] == 7)
        read_grant(data + 1, size - 1);
    else if (data[0] == 8)
        read_code(data + 1, size - 1);
    else if (data[0] == 9)
        read_certificate(data + 1, size - 1);
    else if (data[0] < 7)
        attack(data[0], data + 1, size - 1);
    joiner_deinit(&world.joiner);
    inviter_deinit(&world.inviter);
    buffer_deinit(&world.to_member);
    buffer_deinit(&world.to_joiner);
    return 0;
}
