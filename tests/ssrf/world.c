/* The internet, for one process: preloaded, it answers for DNS and for routes.
 *
 * In the folder $WORLD,
 *   names      has lines "NAME ANSWER ANSWER…", an answer being addresses with commas
 *              between them: the first time a name is asked for, it gets the first
 *              answer, and so on; the last answer stays. Other names do not exist.
 *   routes     has lines "ADDRESS PORT LOCAL": who connects to that address and port
 *              gets to port LOCAL of this machine. Other addresses cannot be reached,
 *              but for those of this machine, which are themselves.
 *   asked      gets a line for each name that was asked for,
 *   connected  one for each "ADDRESS PORT" that somebody wanted to connect to.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static FILE *file(const char *name, const char *mode) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", getenv("WORLD"), name);
    return fopen(path, mode);
}

static void note(const char *name, const char *line) {
    FILE *out = file(name, "a");
    if (!out) return;
    fprintf(out, "%s\n", line);
    fclose(out);
}

/* How often a name was asked for. */
static int times(const char *name) {
    char line[1024];
    int count = 0;
    FILE *in = file("asked", "r");
    while (in && fgets(line, sizeof line, in)) {
        line[strcspn(line, "\n")] = 0;
        count += strcmp(line, name) == 0;
    }
    if (in) fclose(in);
    return count;
}

/* The answer a name gets this time. */
static int answer(const char *name, char *found, size_t size) {
    char line[1024], *rest, *word;
    int turn = times(name), there = 0;
    FILE *in = file("names", "r");
    note("asked", name);
    while (in && fgets(line, sizeof line, in)) {
        word = strtok_r(line, " \n", &rest);
        if (!word || strcmp(word, name) != 0) continue;
        while ((word = strtok_r(NULL, " \n", &rest)) && there <= turn) {
            snprintf(found, size, "%s", word);
            there++;
        }
    }
    if (in) fclose(in);
    return there;
}

typedef int (*getaddrinfo_t)(const char *, const char *, const struct addrinfo *, struct addrinfo **);

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                struct addrinfo **result) {
    getaddrinfo_t real = (getaddrinfo_t)dlsym(RTLD_NEXT, "getaddrinfo");
    char found[1024], *rest, *word;
    struct addrinfo numeric, **end = result;
    if (!node || !getenv("WORLD")) return real(node, service, hints, result);
    memset(&numeric, 0, sizeof numeric);
    if (hints) numeric = *hints;
    numeric.ai_flags |= AI_NUMERICHOST;
    /* What is written as an address is one, also in the spellings of old. */
    if (real(node, service, &numeric, result) == 0) return 0;
    *result = NULL;
    if (!answer(node, found, sizeof found)) return EAI_NONAME;
    for (word = strtok_r(found, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        if (real(word, service, &numeric, end) != 0) return EAI_FAIL;
        while (*end) end = &(*end)->ai_next;
    }
    return 0;
}

typedef int (*connect_t)(int, const struct sockaddr *, socklen_t);

int connect(int fd, const struct sockaddr *to, socklen_t length) {
    connect_t real = (connect_t)dlsym(RTLD_NEXT, "connect");
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)to;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)to;
    char shown[INET6_ADDRSTRLEN], line[1024], address[512];
    int port, wanted, local;
    FILE *in;
    if (!getenv("WORLD") || (to->sa_family != AF_INET && to->sa_family != AF_INET6))
        return real(fd, to, length);
    if (to->sa_family == AF_INET) {
        inet_ntop(AF_INET, &v4->sin_addr, shown, sizeof shown);
        port = ntohs(v4->sin_port);
    } else {
        inet_ntop(AF_INET6, &v6->sin6_addr, shown, sizeof shown);
        port = ntohs(v6->sin6_port);
    }
    snprintf(line, sizeof line, "%s %d", shown, port);
    note("connected", line);
    in = file("routes", "r");
    while (in && fgets(line, sizeof line, in)) {
        if (sscanf(line, "%511s %d %d", address, &wanted, &local) != 3) continue;
        if (strcmp(address, shown) != 0 || wanted != port) continue;
        fclose(in);
        if (to->sa_family == AF_INET) {
            struct sockaddr_in there = *v4;
            there.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
            there.sin_port = htons(local);
            return real(fd, (struct sockaddr *)&there, sizeof there);
        }
        struct sockaddr_in6 there = *v6;
        inet_pton(AF_INET6, "::ffff:127.0.0.1", &there.sin6_addr);
        there.sin6_port = htons(local);
        return real(fd, (struct sockaddr *)&there, sizeof there);
    }
    if (in) fclose(in);
    if (strncmp(shown, "127.", 4) == 0 || strcmp(shown, "::1") == 0) return real(fd, to, length);
    errno = ENETUNREACH;
    return -1;
}
