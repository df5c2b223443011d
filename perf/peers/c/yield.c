/*
 * epoll_wait that yields the processor if it finds nothing, for programs over UCX: it polls its TCP
 * sockets with it. MPICH 4 over UCX has no option to yield while it waits.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
#include <sys/epoll.h>

int epoll_wait(int fd, struct epoll_event *events, int max, int timeout)
{
    static int (*next)(int, struct epoll_event *, int, int);
    if (next == NULL)
        next = (int (*)(int, struct epoll_event *, int, int))dlsym(RTLD_NEXT, "epoll_wait");
    int found = next(fd, events, max, timeout);
    if (found == 0 && timeout == 0)
        sched_yield();
    return found;
}
