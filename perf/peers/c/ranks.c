/*
 * The measurements of package main's ranks (ranks.go), for MPICH and Open MPI: the two programs do
 * the same, call by call, so that what differs is the runtimes. Change both or none.
 *
 *     ranks SLICE-MS KIND:BYTES...
 *
 * is run by two ranks. For each measurement the first one prints a line "KIND:BYTES S",
 * S being the seconds that one message took: of pingpong half the way there and back, the
 * median of batches of round trips, of stream the mean time of a window by its messages.
 */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TAG_DATA = 1, TAG_COUNT = 2, TAG_DONE = 3, MAX_WINDOW = 64, WINDOW_BYTES = 16 << 20, BATCH_TRIPS = 16,
       FIRST_COUNT = 16, FIRST_BATCHES = 128 };

static int me;
static char *buffer; /* a window of messages, one behind the other */

static void fail(const char *what, const char *of)
{
    fprintf(stderr, "rank %d: %s: %s\n", me, of, what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* window is how many messages are under way at once: as many as 16 MiB hold, 4 to 64. */
static int window(int bytes)
{
    int n = bytes > 0 ? WINDOW_BYTES / bytes : MAX_WINDOW;
    return n < 4 ? 4 : n > MAX_WINDOW ? MAX_WINDOW : n;
}

static char expected(size_t at) { return (char)(at * 31 + (at >> 8) * 7 + 1); }

static double *batch_times; /* of pingpong: the seconds of each batch */

/* pingpong sends a message there and back, so many batches of round trips. */
static void pingpong(int bytes, long batches)
{
    double began = MPI_Wtime();
    batch_times = realloc(batch_times, batches * sizeof *batch_times);
    if (batch_times == NULL)
        fail("no memory", "pingpong");
    for (long i = 0; i < batches * BATCH_TRIPS; i++) {
        if (me == 0) {
            MPI_Send(buffer, bytes, MPI_BYTE, 1, TAG_DATA, MPI_COMM_WORLD);
            MPI_Recv(buffer, bytes, MPI_BYTE, 1, TAG_DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(buffer, bytes, MPI_BYTE, 0, TAG_DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(buffer, bytes, MPI_BYTE, 0, TAG_DATA, MPI_COMM_WORLD);
        }
        if (i % BATCH_TRIPS == BATCH_TRIPS - 1) {
            double now = MPI_Wtime();
            batch_times[i / BATCH_TRIPS] = now - began;
            began = now;
        }
    }
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* median sorts the times of n batches and returns the middle one. */
static double median(long n)
{
    qsort(batch_times, n, sizeof *batch_times, ascending);
    return n % 2 ? batch_times[n / 2] : (batch_times[n / 2 - 1] + batch_times[n / 2]) / 2;
}

/* stream sends so many windows one way; each is answered by an empty message. */
static void stream(int bytes, long windows)
{
    MPI_Request under_way[MAX_WINDOW];
    int many = window(bytes);
    for (long i = 0; i < windows; i++) {
        for (int k = 0; k < many; k++) {
            char *message = buffer + (size_t)k * bytes;
            if (me == 0)
                MPI_Isend(message, bytes, MPI_BYTE, 1, TAG_DATA, MPI_COMM_WORLD, &under_way[k]);
            else
                MPI_Irecv(message, bytes, MPI_BYTE, 0, TAG_DATA, MPI_COMM_WORLD, &under_way[k]);
        }
        MPI_Waitall(many, under_way, MPI_STATUSES_IGNORE);
        if (me == 0)
            MPI_Recv(NULL, 0, MPI_BYTE, 1, TAG_DONE, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else
            MPI_Send(NULL, 0, MPI_BYTE, 0, TAG_DONE, MPI_COMM_WORLD);
    }
}

/*
 * measure runs a measurement twice, with more and more repetitions until a run takes the time asked
 * for, and prints the result of the last run: those before are the warm-up.
 */
static void measure(const char *name, void (*run)(int, long), int bytes, int per_run, double slice)
{
    size_t all = (size_t)window(bytes) * bytes;
    for (size_t i = 0; i < all; i++)
        buffer[i] = me == 0 ? expected(i) : 0;
    long count = run == pingpong ? FIRST_BATCHES : FIRST_COUNT;
    for (int is_warm_up = 1;; is_warm_up = 0) {
        if (me == 0)
            MPI_Send(&count, 1, MPI_LONG, 1, TAG_COUNT, MPI_COMM_WORLD);
        else
            MPI_Recv(&count, 1, MPI_LONG, 0, TAG_COUNT, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (count == 0)
            break;
        double began = MPI_Wtime();
        run(bytes, count);
        double took = MPI_Wtime() - began;
        if (me != 0)
            continue;
        if (!is_warm_up && took >= slice) {
            printf("%s %.12g\n", name, (run == pingpong ? median(count) : took / count) / per_run);
            count = 0;
        } else {
            double more = took > 0 ? 1.5 * slice / took : 8;
            count = (long)(count * (more < 1 ? 1 : more > 8 ? 8 : more));
        }
    }
    size_t arrived = run == stream ? all : (size_t)bytes;
    for (size_t i = 0; i < arrived; i++)
        if (buffer[i] != expected(i))
            fail("a message arrived with wrong contents", name);
}

static void leave(int signal)
{
    (void)signal;
    _exit(0);
}

int main(int argc, char **argv)
{
    int ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks != 2 || argc < 3)
        fail("usage: ranks SLICE-MS KIND:BYTES..., by two ranks", argv[0]);
    double slice = atof(argv[1]) / 1e3;
    for (int i = 2; i < argc; i++) {
        char kind[16];
        int bytes;
        if (sscanf(argv[i], "%15[a-z]:%d", kind, &bytes) != 2 || bytes < 0)
            fail("not KIND:BYTES", argv[i]);
        buffer = malloc((size_t)window(bytes) * bytes + 1);
        if (buffer == NULL)
            fail("no memory", argv[i]);
        if (strcmp(kind, "pingpong") == 0)
            measure(argv[i], pingpong, bytes, 2 * BATCH_TRIPS, slice);
        else if (strcmp(kind, "stream") == 0)
            measure(argv[i], stream, bytes, window(bytes), slice);
        else
            fail("there are pingpong and stream", argv[i]);
        free(buffer);
    }
    fflush(stdout);
    /*
     * With MPICH 4.0 over UCX one rank at times waits in MPI_Finalize for the other to
     * answer over the connection, while that waits for it in PMI. All is measured by now.
     */
    MPI_Barrier(MPI_COMM_WORLD);
    signal(SIGALRM, leave);
    alarm(1);
    MPI_Finalize();
    return 0;
}
