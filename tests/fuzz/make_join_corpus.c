/* Writes the corpus of fuzz_join: the messages of good joins, each for the moment in which it
 * comes. `make-join-corpus FOLDER` */
#include "mesh/join.h"

#include <openssl/crypto.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *folder;

static void write_input(const char *name, int moment, const void *bytes, size_t size)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    if (!file || fputc(moment, file) == EOF || fwrite(bytes, 1, size, file) != size ||
        fclose(file) != 0) {
        perror(path);
        exit(1);
    }
}

static void keep(const char *name, int moment, const struct buffer *message)
{
    write_input(name, moment, message->data, message->size);
}

static void join(const struct identity *member, const struct membership *membership,
                 enum join_mode mode)
{
    static const struct identity none;
    struct identity newcomer = none;
    struct invite invite = {0};
    struct joiner joiner;
    struct inviter inviter;
    struct buffer up = {0}, down = {0};
    struct error err;
    struct join_pace pace = {0};
    char code[JOIN_CODE_TEXT];
    bool by_code = mode == JOIN_BY_CODE;
    identity_make(&newcomer, NULL);
    invite_make(&invite, 0, 0, code, NULL);
    struct joiner_settings a = {
        .identity = &newcomer, .name = "tower", .mode = mode, .pace = &pace};
    struct inviter_settings b = {.identity = member,
                                 .authority = &membership->authority,
                                 .name = "laptop",
                                 .invite = &invite};
    memcpy(a.code, invite.digits, sizeof a.code);
    if (joiner_start(&joiner, &a, 0, &up, &err) || inviter_init(&inviter, &b, 0, &err))
        exit(1);
    keep(by_code ? "hello-code" : "hello-hand", 0, &up);
    inviter_step(&inviter, 0, up.data, up.size, &down, &err);
    keep(by_code ? "answer-code" : "answer-hand", by_code ? 3 : 4, &down);
    joiner_step(&joiner, 0, down.data, down.size, &up, &err);
    keep(by_code ? "proof-code" : "proof-hand", by_code ? 1 : 2, &up);
    inviter_step(&inviter, 0, up.data, up.size, &down, &err);
    if (by_code) {
        keep("accept", 5, &down);
        inviter_grant(&inviter,
                      &(struct join_grant){.with_key = true, .payload = "hi", .payload_size = 2}, 0,
                      AUTHORITY_EPOCH_UNIX_S, &down, &err);
        keep("grant", 6, &down);
    }
    inviter_refuse(&inviter, "the name is taken", &down, &err);
    keep(by_code ? "refuse-code" : "refuse-hand", by_code ? 5 : 4, &down);
    joiner_deinit(&joiner);
    inviter_deinit(&inviter);
    buffer_deinit(&up);
    buffer_deinit(&down);
    identity_deinit(&newcomer);
}

int main(int argc, char **argv)
{
    struct identity member;
    struct membership membership;
    if (argc != 2 || identity_make(&member, NULL) ||
        membership_found(&member, AUTHORITY_EPOCH_UNIX_S, &membership, NULL))
        return 1;
    folder = argv[1];
    join(&member, &membership, JOIN_BY_CODE);
    join(&member, &membership, JOIN_BY_HAND);
    write_input("inside", 7,
                "\x02\x00"
                "ab\x01\x00"
                "c\x00\x00\x02\x00"
                "de",
                14);
    write_input("typed", 8, "k7qm-4xzd", 9);
    uint8_t *der = NULL;
    int size = i2d_X509(membership.certificate, &der);
    write_input("certificate", 9, der, (size_t)size);
    OPENSSL_free(der);
    membership_deinit(&membership);
    identity_deinit(&member);
    return 0;
}
