/* Reading certificates: which node and cluster, and when. */
#include "trust/authority.h"

#include <openssl/evp.h>
#include <openssl/x509v3.h>
#include <string.h>
#include <time.h>

static const char node_urn[] = "urn:medley:node:", cluster_urn[] = "urn:medley:cluster:";

/* The id behind the prefix; false when the name is not of that form. */
static bool parse_urn(const ASN1_IA5STRING *name, const char *prefix, uint8_t *id, size_t size)
{
    const char *text = (const char *)ASN1_STRING_get0_data(name);
    size_t length = (size_t)ASN1_STRING_length(name), skip = strlen(prefix);
    char digits[NODE_ID_TEXT];
    if (length != skip + 2 * size || memcmp(text, prefix, skip) != 0)
        return false;
    memcpy(digits, text + skip, 2 * size);
    digits[2 * size] = 0;
    return id_parse(digits, id, size);
}

/* Every name must be one of the two, and each wanted one be there once. An id that is NULL must not
 * be there. */
static bool read_names(const X509 *certificate, uint8_t *node_id, uint8_t *cluster_id)
{
    int critical; /* -1: not there, -2: more than one */
    GENERAL_NAMES *names = X509_get_ext_d2i(certificate, NID_subject_alt_name, &critical, NULL);
    bool good = names != NULL, seen_node = false, seen_cluster = false;
    for (int i = 0; good && i < sk_GENERAL_NAME_num(names); i++) {
        const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);
        if (name->type != GEN_URI) {
            good = false;
        } else if (node_id && !seen_node &&
                   parse_urn(name->d.uniformResourceIdentifier, node_urn, node_id, NODE_ID_BYTES)) {
            seen_node = true;
        } else if (!seen_cluster && parse_urn(name->d.uniformResourceIdentifier, cluster_urn,
                                              cluster_id, CLUSTER_ID_BYTES)) {
            seen_cluster = true;
        } else {
            good = false;
        }
    }
    GENERAL_NAMES_free(names);
    return good && seen_cluster && (seen_node || !node_id);
}

bool certificate_names(const X509 *certificate, uint8_t node_id[NODE_ID_BYTES],
                       uint8_t cluster_id[CLUSTER_ID_BYTES])
{
    EVP_PKEY *key = X509_get0_pubkey(certificate);
    uint8_t public_key[PUBLIC_KEY_BYTES], hash[NODE_ID_BYTES];
    size_t size = sizeof public_key;
    if (!key || !EVP_PKEY_is_a(key, "ED25519") ||
        EVP_PKEY_get_raw_public_key(key, public_key, &size) != 1 || size != sizeof public_key ||
        !read_names(certificate, node_id, cluster_id))
        return false;
    node_id_of(public_key, hash);
    return memcmp(hash, node_id, sizeof hash) == 0;
}

bool certificate_cluster(const X509 *certificate, uint8_t cluster_id[CLUSTER_ID_BYTES])
{
    return read_names(certificate, NULL, cluster_id);
}

static bool unix_s_of(const ASN1_TIME *time, uint64_t *unix_s)
{
    struct tm utc;
    if (!time || ASN1_TIME_to_tm(time, &utc) != 1)
        return false;
    time_t seconds = timegm(&utc);
    *unix_s = seconds < 0 ? 0 : (uint64_t)seconds;
    return true;
}

bool certificate_period(const X509 *certificate, uint64_t *from_unix_s, uint64_t *until_unix_s)
{
    return unix_s_of(X509_get0_notBefore(certificate), from_unix_s) &&
           unix_s_of(X509_get0_notAfter(certificate), until_unix_s);
}
