#include "mesh/discovery_state.h"

#include "base/log.h"

#include <avahi-common/alternative.h>
#include <avahi-common/error.h>
#include <avahi-common/malloc.h>
#include <avahi-core/log.h>

int responder_take_another_host_name(struct discovery *discovery)
{
    char *other = avahi_alternative_host_name(avahi_server_get_host_name(discovery->server));
    int problem =
        other ? avahi_server_set_host_name(discovery->server, other) : AVAHI_ERR_NO_MEMORY;
    avahi_free(other);
    return problem < 0 ? problem : 0;
}

static void on_server(AvahiServer *server, AvahiServerState state, void *userdata)
{
    struct discovery *discovery = userdata;
    discovery->server = server; /* it may be called before avahi_server_new() returns */
    switch (state) {
    case AVAHI_SERVER_RUNNING:
        discovery_on_state(discovery, DISCOVERY_READY, NULL);
        break;
    case AVAHI_SERVER_COLLISION:
        discovery_on_state(discovery, DISCOVERY_HOST_NAME_TAKEN, NULL);
        break;
    case AVAHI_SERVER_FAILURE:
        discovery_on_state(discovery, DISCOVERY_FAILED, avahi_strerror(avahi_server_errno(server)));
        break;
    case AVAHI_SERVER_INVALID:
    case AVAHI_SERVER_REGISTERING:
        break;
    }
}

static void on_log(AvahiLogLevel level, const char *text)
{
    (void)level; /* much of what it calls an error is an interface that comes or goes */
    log_line(LOG_DEBUG, "mdns", "%s", text);
}

int responder_start(struct discovery *discovery)
{
    AvahiServerConfig config;
    int problem = 0;
    avahi_set_log_function(on_log);
    avahi_server_config_init(&config);
    config.publish_hinfo = config.publish_workstation = config.publish_domain = 0;
    config.use_iff_running = 1;
    AvahiServer *server =
        avahi_server_new(&discovery->avahi_loop.poll, &config, on_server, discovery, &problem);
    avahi_server_config_free(&config);
    discovery->server = server;
    return server ? 0 : problem ? problem : AVAHI_ERR_FAILURE;
}

static void on_group(AvahiServer *server, AvahiSEntryGroup *group, AvahiEntryGroupState state,
                     void *userdata)
{
    (void)group;
    if (state == AVAHI_ENTRY_GROUP_COLLISION)
        discovery_on_state(userdata, DISCOVERY_NAME_TAKEN, NULL);
    else if (state == AVAHI_ENTRY_GROUP_FAILURE)
        discovery_on_state(userdata, DISCOVERY_FAILED, avahi_strerror(avahi_server_errno(server)));
}

int responder_publish(struct discovery *discovery, AvahiStringList *txt)
{
    AvahiServer *server = discovery->server;
    if (!discovery->group)
        discovery->group = avahi_s_entry_group_new(server, on_group, discovery);
    if (!discovery->group)
        return avahi_server_errno(server);
    avahi_s_entry_group_reset(discovery->group);
    int problem = avahi_server_add_service_strlst(
        server, discovery->group, AVAHI_IF_UNSPEC, AVAHI_PROTO_UNSPEC, 0, discovery->name,
        DISCOVERY_SERVICE, NULL, NULL, discovery->own.port, txt);
    return problem < 0 ? problem : avahi_s_entry_group_commit(discovery->group);
}

static void on_browse(AvahiSServiceBrowser *browser, AvahiIfIndex interface, AvahiProtocol protocol,
                      AvahiBrowserEvent event, const char *name, const char *type,
                      const char *domain, AvahiLookupResultFlags flags, void *userdata)
{
    (void)browser, (void)type, (void)domain, (void)flags;
    discovery_on_browse(userdata, event, interface, protocol, name);
}

int responder_browse(struct discovery *discovery)
{
    discovery->browser =
        avahi_s_service_browser_new(discovery->server, AVAHI_IF_UNSPEC, AVAHI_PROTO_UNSPEC,
                                    DISCOVERY_SERVICE, NULL, 0, on_browse, discovery);
    return discovery->browser ? 0 : avahi_server_errno(discovery->server);
}

static void discovery_responder_on_resolved(AvahiSServiceResolver *resolver, AvahiIfIndex interface,
                                            AvahiProtocol protocol, AvahiResolverEvent event,
                                            const char *name, const char *type, const char *domain,
                                            const char *host, const AvahiAddress *address,
                                            uint16_t port, AvahiStringList *txt,
                                            AvahiLookupResultFlags flags, void *userdata)
{
    (void)resolver, (void)protocol, (void)type, (void)domain, (void)host, (void)flags;
    if (event == AVAHI_RESOLVER_FOUND)
        discovery_on_resolved(userdata, interface, name, address, port, txt);
}

AvahiSServiceResolver *responder_resolve(struct discovery *discovery, AvahiIfIndex interface,
                                         AvahiProtocol protocol, const char *name)
{
    return avahi_s_service_resolver_new(discovery->server, interface, protocol, name,
                                        DISCOVERY_SERVICE, NULL, protocol, 0,
                                        discovery_responder_on_resolved, discovery);
}

void responder_stop(struct discovery *discovery)
{
    if (discovery->server)
        avahi_server_free(discovery->server); /* and what was made with it */
    discovery->server = NULL;
    discovery->group = NULL;
    discovery->browser = NULL;
}
