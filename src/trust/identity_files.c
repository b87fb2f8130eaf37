#include "trust/identity_files.h"

#include "trust/openssl_error.h"
#include "trust/secret_files.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <string.h>

static const char key_file[] = "node.key", membership_file[] = "membership.pem";

/* ---- the text: RFC 7468 -------------------------------------------------------------------- */

/* One block. A password is never asked for: an encrypted block is refused by its label. */
struct pem_block {
    char *label, *header;
    uint8_t *der;
    long size;
};

static void block_wipe(struct pem_block *block)
{
    OPENSSL_free(block->label);
    OPENSSL_free(block->header);
    OPENSSL_clear_free(block->der, block->size > 0 ? (size_t)block->size : 0);
    *block = (struct pem_block){0};
}

static bool block_is(const struct pem_block *block, const char *label)
{
    return block->label && strcmp(block->label, label) == 0;
}

/* Nothing may follow the key in its block. NULL: it is none. */
static EVP_PKEY *block_key(const struct pem_block *block)
{
    const uint8_t *at = block->der;
    EVP_PKEY *key =
        block_is(block, "PRIVATE KEY") ? d2i_AutoPrivateKey(NULL, &at, block->size) : NULL;
    if (key && at != block->der + block->size) {
        EVP_PKEY_free(key);
        key = NULL;
    }
    return key;
}

static X509 *block_certificate(const struct pem_block *block)
{
    return block_is(block, "CERTIFICATE") && block->size > 0
               ? certificate_decode(block->der, (size_t)block->size)
               : NULL;
}

static EVP_PKEY *identity_files_read_key(BIO *text)
{
    struct pem_block block = {0};
    EVP_PKEY *key = NULL;
    if (PEM_read_bio(text, &block.label, &block.header, &block.der, &block.size) == 1)
        key = block_key(&block);
    block_wipe(&block);
    return key;
}

/* ---- the blocks of a membership ---- */

/* Twice an authority, this node's certificate by it, and its key. The last is never used: one that
 * is there is one too many. */
enum { BLOCKS_MAX = 6 };
struct pem_blocks {
    struct pem_block list[BLOCKS_MAX + 1];
    int n, at;
};

/* False: something is there that is no whole block. */
static bool blocks_read(BIO *text, struct pem_blocks *blocks)
{
    while (blocks->n <= BLOCKS_MAX && BIO_pending(text) > 0) {
        struct pem_block *block = &blocks->list[blocks->n];
        if (PEM_read_bio(text, &block->label, &block->header, &block->der, &block->size) != 1)
            return false;
        blocks->n++;
    }
    return BIO_pending(text) == 0 && blocks->n <= BLOCKS_MAX;
}

/* `whole`: the node's own certificate is there for sure. */
static bool parse_one(struct pem_blocks *blocks, bool whole, struct authority *authority,
                      X509 **certificate)
{
    authority->certificate = block_certificate(&blocks->list[blocks->at++]);
    if (!authority->certificate ||
        !certificate_cluster(authority->certificate, authority->cluster_id))
        return false;
    if (block_is(&blocks->list[blocks->at], "CERTIFICATE") &&
        !(*certificate = block_certificate(&blocks->list[blocks->at++])))
        return false;
    if (block_is(&blocks->list[blocks->at], "PRIVATE KEY") &&
        !(authority->key = block_key(&blocks->list[blocks->at++])))
        return false;
    return *certificate || !whole;
}

static bool parse_membership(BIO *text, struct membership *out)
{
    struct pem_blocks blocks = {0};
    bool good =
        blocks_read(text, &blocks) && parse_one(&blocks, true, &out->authority, &out->certificate);
    if (good && blocks.at < blocks.n)
        good = parse_one(&blocks, false, &out->next, &out->next_certificate) &&
               X509_cmp(out->next.certificate, out->authority.certificate) != 0;
    good = good && blocks.at == blocks.n;
    for (int i = 0; i <= BLOCKS_MAX; i++)
        block_wipe(&blocks.list[i]);
    return good;
}

/* The secret's bytes, as something OpenSSL reads. */
static BIO *open_text(const struct secret *secret)
{
    return BIO_new_mem_buf(secret->bytes, (int)secret->size);
}

/* ---- the node's key ------------------------------------------------------------------------- */

static enum error_code load_key(const struct secret_folder *folder, struct identity *out,
                                struct error *err)
{
    struct secret secret;
    enum error_code code = secret_read(folder, key_file, &secret, err);
    if (code)
        return code;
    BIO *text = open_text(&secret);
    EVP_PKEY *key = text ? identity_files_read_key(text) : NULL;
    if (!key)
        code = error_set(err, ERROR_INVALID,
                         "%s/%s is damaged: it holds no private key; restore it from a backup, or "
                         "remove it and let this machine join again",
                         folder->path, key_file);
    BIO_free(text);
    secret_wipe(&secret);
    ERR_clear_error();
    if (!code) {
        code = identity_of_key(key, out, err);
        if (code)
            error_wrap(err, "%s/%s", folder->path, key_file);
    }
    return code;
}

/* Writes what `fill` puts into memory that OpenSSL wipes. */
static enum error_code store_text(const struct secret_folder *folder, const char *name,
                                  bool (*fill)(BIO *text, const void *what), const void *what,
                                  struct error *err)
{
    BIO *text = BIO_new(BIO_s_secmem());
    char *bytes = NULL;
    enum error_code code;
    if (!text || !fill(text, what)) {
        code = openssl_error(err, "writing a key");
    } else {
        long size = BIO_get_mem_data(text, &bytes);
        code = secret_replace(folder, name, bytes, (size_t)size, err);
    }
    BIO_free(text);
    return code;
}

static bool fill_key(BIO *text, const void *what)
{
    const struct identity *identity = what;
    return PEM_write_bio_PrivateKey(text, identity->key, NULL, NULL, 0, NULL, NULL) == 1;
}

static enum error_code identity_files_open_identity(const struct secret_folder *folder,
                                                    struct identity *out, bool *made,
                                                    struct error *err)
{
    enum error_code code = load_key(folder, out, err);
    if (code != ERROR_NOT_FOUND)
        return code;
    code = identity_make(out, err);
    if (!code)
        code = store_text(folder, key_file, fill_key, out, err);
    if (code)
        identity_deinit(out);
    else
        *made = true;
    return code;
}

enum error_code identity_open(const char *path, struct identity *out, bool *made, struct error *err)
{
    *out = (struct identity){0};
    *made = false;
    if (!path || !path[0]) {
        *made = true;
        return identity_make(out, err);
    }
    struct secret_folder folder;
    enum error_code code = secret_folder_open(path, &folder, err);
    if (!code) {
        code = identity_files_open_identity(&folder, out, made, err);
        secret_folder_close(&folder);
    }
    return code;
}

/* ---- the membership -------------------------------------------------------------------------- */

static enum error_code load_membership(const struct secret_folder *folder,
                                       const struct identity *identity, struct membership *out,
                                       struct error *err)
{
    struct secret secret;
    struct error local;
    err = err ? err : &local;
    enum error_code code = secret_read(folder, membership_file, &secret, err);
    if (code)
        return code == ERROR_NOT_FOUND ? ERROR_NONE : code;
    BIO *text = open_text(&secret);
    if (!text || !parse_membership(text, out))
        code = error_set(err, ERROR_INVALID, "it is damaged");
    else
        code = membership_check(out, identity, err);
    BIO_free(text);
    secret_wipe(&secret);
    ERR_clear_error();
    if (code) {
        membership_deinit(out);
        error_wrap(err,
                   "%s/%s (restore it from a backup, or remove it and let this machine join again)",
                   folder->path, membership_file);
    }
    return code;
}

enum error_code membership_load(const char *path, const struct identity *identity,
                                struct membership *out, struct error *err)
{
    *out = (struct membership){0};
    if (!path || !path[0])
        return ERROR_NONE;
    struct secret_folder folder;
    enum error_code code = secret_folder_open(path, &folder, err);
    if (!code) {
        code = load_membership(&folder, identity, out, err);
        secret_folder_close(&folder);
    }
    return code;
}

static bool fill_one(BIO *text, const struct authority *authority, X509 *certificate)
{
    return PEM_write_bio_X509(text, authority->certificate) == 1 &&
           (!certificate || PEM_write_bio_X509(text, certificate) == 1) &&
           (!authority->key ||
            PEM_write_bio_PrivateKey(text, authority->key, NULL, NULL, 0, NULL, NULL) == 1);
}

static bool fill_membership(BIO *text, const void *what)
{
    const struct membership *membership = what;
    return fill_one(text, &membership->authority, membership->certificate) &&
           (!membership->next.certificate ||
            fill_one(text, &membership->next, membership->next_certificate));
}

enum error_code membership_store(const char *path, const struct membership *membership,
                                 struct error *err)
{
    if (!path || !path[0])
        return ERROR_NONE;
    struct secret_folder folder;
    enum error_code code = secret_folder_open(path, &folder, err);
    if (!code) {
        code = store_text(&folder, membership_file, fill_membership, membership, err);
        secret_folder_close(&folder);
    }
    return code;
}

/* The membership goes first: a key without one is a node that has not joined yet, which is a state
 * of its own. */
enum error_code identity_forget(const char *path, struct error *err)
{
    if (!path || !path[0])
        return ERROR_NONE;
    struct secret_folder folder;
    enum error_code code = secret_folder_open(path, &folder, err);
    if (!code) {
        code = secret_remove(&folder, membership_file, err);
        if (!code)
            code = secret_remove(&folder, key_file, err);
        secret_folder_close(&folder);
    }
    return code;
}
