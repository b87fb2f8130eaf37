#include "trust/api_files.h"

#include "base/durable_file.h"
#include "trust/api_signed.h"
#include "trust/identity_files.h"
#include "trust/openssl_error.h"
#include "trust/secret_files.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>
#include <unistd.h>

static const char authority_file[] = "authority.pem";

static bool api_folder_path(const char *state_folder, char path[PATH_MAX])
{
    return state_folder && state_folder[0] &&
           durable_path(state_folder, "api", "", path, NULL) == ERROR_NONE;
}

/* ---- the machine's own authority -------------------------------------------------------- */

static enum error_code api_files_load(const struct secret_folder *folder, struct api_authority *out,
                                      struct error *err)
{
    struct secret secret;
    struct tls_pair pair;
    enum error_code code = secret_read(folder, authority_file, &secret, err);
    if (code)
        return code;
    code = tls_pair_parse(secret.bytes, secret.size, secret.bytes, secret.size, &pair, err);
    secret_wipe(&secret);
    if (!code && X509_check_ca(pair.certificate) != 1) {
        tls_pair_deinit(&pair);
        code = error_set(err, ERROR_INVALID, "it holds no authority");
    }
    if (code)
        return error_wrap(err,
                          "%s/%s (restore it from a backup, or remove it: clients must then trust "
                          "the new one)",
                          folder->path, authority_file);
    out->certificate = pair.certificate;
    out->key = pair.key;
    pair.certificate = NULL;
    pair.key = NULL;
    tls_pair_deinit(&pair);
    return ERROR_NONE;
}

static enum error_code api_files_store(const struct secret_folder *folder,
                                       const struct api_authority *authority, struct error *err)
{
    BIO *text = BIO_new(BIO_s_secmem());
    char *bytes = NULL;
    enum error_code code;
    if (!text || PEM_write_bio_X509(text, authority->certificate) != 1 ||
        PEM_write_bio_PrivateKey(text, authority->key, NULL, NULL, 0, NULL, NULL) != 1) {
        code = openssl_error(err, "writing a key");
    } else {
        long size = BIO_get_mem_data(text, &bytes);
        code = secret_replace(folder, authority_file, bytes, (size_t)size, err);
    }
    BIO_free(text);
    return code;
}

enum error_code api_files_own_authority(const char *state_folder, struct api_authority *out,
                                        struct error *err)
{
    char path[PATH_MAX];
    struct secret_folder folder;
    *out = (struct api_authority){0};
    if (!api_folder_path(state_folder, path))
        return api_authority_make(out, err);
    enum error_code code = secret_folder_open(path, &folder, err);
    if (code)
        return code;
    code = api_files_load(&folder, out, err);
    if (code == ERROR_NOT_FOUND) {
        code = api_authority_make(out, err);
        if (!code)
            code = api_files_store(&folder, out, err);
    }
    secret_folder_close(&folder);
    if (code)
        api_authority_deinit(out);
    return code;
}

/* ---- what clients trust ----------------------------------------------------------------- */

static bool api_files_exist(const char *state_folder, const char *folder, const char *file)
{
    char path[PATH_MAX], whole[PATH_MAX];
    return durable_path(state_folder, folder, "", path, NULL) == ERROR_NONE &&
           durable_path(path, file, "", whole, NULL) == ERROR_NONE && access(whole, F_OK) == 0;
}

static enum error_code api_files_append(const X509 *certificate, struct buffer *out,
                                        struct error *err)
{
    BIO *text = BIO_new(BIO_s_mem());
    char *bytes = NULL;
    enum error_code code = ERROR_NONE;
    if (!text || PEM_write_bio_X509(text, (X509 *)(uintptr_t)certificate) != 1) {
        code = openssl_error(err, "writing a certificate");
    } else {
        long size = BIO_get_mem_data(text, &bytes);
        buffer_append(out, bytes, (size_t)size);
        if (out->failed)
            code = error_set(err, ERROR_NO_MEMORY, "not enough memory for a certificate");
    }
    BIO_free(text);
    return code;
}

/* Of a member that cannot derive it: the one that signed for it last. */
static enum error_code api_files_find_signer(const char *state_folder,
                                             const struct membership *membership,
                                             struct api_authority *out, struct error *err)
{
    struct api_signed made;
    if (!api_files_exist(state_folder, "api", "signed.pem"))
        return ERROR_NONE;
    const enum error_code code = api_signed_load(state_folder, &made, err);
    if (!code && api_signed_is_of(&made, membership->authority.cluster_id)) {
        out->certificate = made.authority;
        made.authority = NULL;
    }
    api_signed_deinit(&made);
    return code;
}

/* Reads the node's files and changes nothing, so that it can be asked beside a node that runs. */
static enum error_code api_files_export_cluster(const char *state_folder, struct buffer *out,
                                                struct error *err)
{
    char path[PATH_MAX];
    bool made = false;
    struct identity identity = {0};
    struct membership membership = {0};
    struct api_authority authority = {0};
    if (!api_files_exist(state_folder, "identity", "membership.pem"))
        return ERROR_NONE;
    enum error_code code = durable_path(state_folder, "identity", "", path, err);
    if (!code)
        code = identity_open(path, &identity, &made, err);
    if (!code)
        code = membership_load(path, &identity, &membership, err);
    if (!code && membership.authority.key)
        code = api_authority_of_cluster(&membership.authority, &authority, err);
    else if (!code)
        code = api_files_find_signer(state_folder, &membership, &authority, err);
    if (!code && authority.certificate)
        code = api_files_append(authority.certificate, out, err);
    api_authority_deinit(&authority);
    membership_deinit(&membership);
    identity_deinit(&identity);
    return code;
}

static enum error_code api_files_export_own(const char *state_folder, struct buffer *out,
                                            struct error *err)
{
    struct api_authority authority = {0};
    if (!api_files_exist(state_folder, "api", authority_file))
        return ERROR_NONE;
    enum error_code code = api_files_own_authority(state_folder, &authority, err);
    if (!code)
        code = api_files_append(authority.certificate, out, err);
    api_authority_deinit(&authority);
    return code;
}

enum error_code api_files_export(const char *state_folder, struct buffer *out, struct error *err)
{
    enum error_code code = api_files_export_cluster(state_folder, out, err);
    if (!code)
        code = api_files_export_own(state_folder, out, err);
    if (!code && !out->size)
        code = error_set(err, ERROR_NOT_FOUND,
                         "this machine has no authority for its API yet: it is in no cluster, and "
                         "has not served with TLS; start `medley up`, or `medley serve` on an "
                         "address that other machines reach");
    return code;
}
