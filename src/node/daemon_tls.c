/* The API's certificate: signed by the cluster's authority, where this node holds its key. */
#include "node/daemon_state.h"

#include "trust/pair_keeper.h"

/* Derived once for each authority that this node has had. */
static bool daemon_tls_derive(struct daemon *daemon, struct error *err)
{
    const struct authority *cluster = &daemon->membership.authority;
    if (!daemon->is_member || !cluster->key)
        return false;
    const uint64_t version = api_authority_version(cluster->certificate);
    if (daemon->api_authority.certificate && daemon->api_authority_of == version)
        return true;
    api_authority_deinit(&daemon->api_authority);
    if (api_authority_of_cluster(cluster, &daemon->api_authority, err))
        return false;
    daemon->api_authority_of = version;
    return true;
}

static uint64_t daemon_tls_version(void *self)
{
    struct daemon *daemon = self;
    struct error err;
    return daemon_tls_derive(daemon, &err)
               ? api_authority_version(daemon->api_authority.certificate)
               : 0;
}

static enum error_code daemon_tls_issue(void *self, const struct served_names *names,
                                        uint64_t now_unix_s, struct tls_pair *out,
                                        struct error *err)
{
    struct daemon *daemon = self;
    error_set(err, ERROR_UNSUPPORTED, "this node does not have the authority's key");
    return daemon_tls_derive(daemon, err)
               ? api_authority_issue(&daemon->api_authority, names, now_unix_s, out, err)
               : err->code;
}

struct pair_source daemon_api_source(struct daemon *daemon)
{
    return (struct pair_source){
        .version = daemon_tls_version, .issue = daemon_tls_issue, .self = daemon};
}

const char *daemon_own_name(const struct daemon *daemon)
{
    return daemon->name;
}
