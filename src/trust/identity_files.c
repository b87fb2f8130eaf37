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

static bool block_read(BIO *text, const char *label, struct pem_block *out)
{
    *out = (struct pem_block){0};
    if (PEM_read_bio(text, &out->label, &out->header, &out->der, &out->size) != 1)
        return false;
    if (strcmp(out->label, label) == 0)
        return true;
    block_wipe(out);
    return false;
}

static EVP_PKEY *identity_files_read_key(BIO *text)
{
    struct pem_block block;
    if (!block_read(text, "PRIVATE KEY", &block))
        return NULL;
    const uint8_t *at = block.der;
    EVP_PKEY *key = d2i_AutoPrivateKey(NULL, &at, block.size);
    if (key && at != block.der + block.size) {
        EVP_PKEY_free(key);
        key = NULL;
    }
    block_wipe(&block);
    return key;
}

static X509 *read_certificate(BIO *text)
{
    struct pem_block block;
    if (!block_read(text, "CERTIFICATE", &block))
        return NULL;
    const uint8_t *at = block.der;
    X509 *certificate = d2i_X509(NULL, &at, block.size);
    if (certificate && at != block.der + block.size) {
        X509_free(certificate);
        certificate = NULL;
    }
    block_wipe(&block);
    return certificate;
}

static bool parse_membership(BIO *text, struct membership *out)
{
    out->authority.certificate = read_certificate(text);
    out->certificate = out->authority.certificate ? read_certificate(text) : NULL;
    if (!out->certificate ||
        !certificate_cluster(out->authority.certificate, out->authority.cluster_id))
        return false;
    bool more = BIO_pending(text) > 0;
    if (more)
        out->authority.key = identity_files_read_key(text);
    return (out->authority.key || !more) && BIO_pending(text) == 0;
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

static bool fill_membership(BIO *text, const void *what)
{
    const struct membership *membership = what;
    return PEM_write_bio_X509(text, membership->authority.certificate) == 1 &&
           PEM_write_bio_X509(text, membership->certificate) == 1 &&
           (!membership->authority.key || PEM_write_bio_PrivateKey(text, membership->authority.key,
                                                                   NULL, NULL, 0, NULL, NULL) == 1);
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
