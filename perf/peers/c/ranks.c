/*
 * The measurements of package main's ranks (ranks.go, collectiveranks.go), for MPICH and Open MPI: the two programs do
 * the same, call by call, so that what differs is the runtimes. Change both or none.
 *
 *     ranks SLICE-MS KIND:BYTES...
 *
 * is run by two ranks, or more for collective operations. For each measurement the first one prints
 * a line "KIND:BYTES S", S being the seconds that one message took: of pingpong half the way there and
 * back, the median of batches of round trips, of stream the mean time of a window by its messages; of
 * a collective operation, its time at the slowest rank.
 */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TAG_DATA = 1, TAG_DONE = 2, MAX_WINDOW = 64, WINDOW_BYTES = 16 << 20, BATCH_TRIPS = 16,
       FIRST_COUNT = 16, FIRST_BATCHES = 128, COLLECTIVE_BATCHES = 8 };

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
 * Collective operations: in and out are the buffers of a rank, and want is what out has afterwards. If
 * in_place is set, in is copied to out before each operation.
 */
static int ranks, in_place, block_bytes;
static char *in, *out, *want;
static size_t in_bytes, out_bytes;
static void (*collective)(void);

static void allgather(void) { MPI_Allgather(in, block_bytes, MPI_BYTE, out, block_bytes, MPI_BYTE, MPI_COMM_WORLD); }
static void alltoall(void) { MPI_Alltoall(in, block_bytes, MPI_BYTE, out, block_bytes, MPI_BYTE, MPI_COMM_WORLD); }
static void allreduce(void) { MPI_Allreduce(MPI_IN_PLACE, out, block_bytes / 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD); }
static void reducescatter(void) { MPI_Reduce_scatter_block(in, out, block_bytes / 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD); }
static void bcast(void) { MPI_Bcast(out, block_bytes, MPI_BYTE, 0, MPI_COMM_WORLD); }

/* collectives runs batches of so many operations: each after a barrier, which is not part of the time. */
static void collectives(int bytes, long count)
{
    (void)bytes;
    batch_times = realloc(batch_times, COLLECTIVE_BATCHES * sizeof *batch_times);
    if (batch_times == NULL)
        fail("no memory", "collectives");
    for (int i = 0; i < COLLECTIVE_BATCHES; i++) {
        batch_times[i] = 0;
        for (long k = 0; k < count; k++) {
            if (in_place)
                memcpy(out, in, in_bytes);
            MPI_Barrier(MPI_COMM_WORLD);
            double began = MPI_Wtime();
            collective();
            batch_times[i] += MPI_Wtime() - began;
        }
        batch_times[i] /= count;
    }
}

/* slowest is the time of an operation at the slowest rank: the median of its batches. */
static double slowest(void)
{
    double seconds = median(COLLECTIVE_BATCHES);
    MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return seconds;
}

/* Blocks between any two ranks differ. Elements of vectors are integers, of which sums are exact. */
static void fill_block(char *to, int from_rank, int to_rank)
{
    for (int i = 0; i < block_bytes; i++)
        to[i] = expected(i) + (char)(101 * from_rank + 53 * to_rank);
}

static double contribution(int rank, size_t e) { return e % 1024 + rank * (e % 7 + 1.0); }

static void fill_vector(char *to, size_t first, size_t bytes, int from_rank, int end_rank)
{
    for (size_t e = 0; e < bytes / 8; e++) {
        double v = 0;
        for (int r = from_rank; r < end_rank; r++)
            v += contribution(r, first + e);
        memcpy(to + e * 8, &v, 8);
    }
}

/* prepare_collective sets the operation and its buffers, by its name. It returns 0 if there is none. */
static int prepare_collective(const char *kind, int bytes)
{
    size_t all = (size_t)ranks * bytes;
    block_bytes = bytes, in_place = 0;
    in = calloc(1, all + 1), out = calloc(1, all + 1), want = calloc(1, all + 1);
    if (in == NULL || out == NULL || want == NULL)
        fail("no memory", kind);
    if (strcmp(kind, "allgather") == 0) {
        collective = allgather, in_bytes = bytes, out_bytes = all;
        fill_block(in, me, 0);
        for (int r = 0; r < ranks; r++)
            fill_block(want + (size_t)r * bytes, r, 0);
    } else if (strcmp(kind, "alltoall") == 0) {
        collective = alltoall, in_bytes = out_bytes = all;
        for (int r = 0; r < ranks; r++) {
            fill_block(in + (size_t)r * bytes, me, r);
            fill_block(want + (size_t)r * bytes, r, me);
        }
    } else if (strcmp(kind, "allreduce") == 0) {
        collective = allreduce, in_bytes = out_bytes = bytes, in_place = 1;
        fill_vector(in, 0, bytes, me, me + 1);
        fill_vector(want, 0, bytes, 0, ranks);
    } else if (strcmp(kind, "reducescatter") == 0) {
        collective = reducescatter, in_bytes = all, out_bytes = bytes;
        fill_vector(in, 0, all, me, me + 1);
        fill_vector(want, me * (size_t)bytes / 8, bytes, 0, ranks);
    } else if (strcmp(kind, "bcast") == 0) {
        collective = bcast, in_bytes = me == 0 ? bytes : 0, out_bytes = bytes, in_place = 1;
        fill_block(in, 0, 0);
        fill_block(want, 0, 0);
    } else {
        return 0;
    }
    return 1;
}

/* check_collective runs the operation once more, from a cleared buffer, and checks the result. */
static void check_collective(const char *name)
{
    memset(out, 0, out_bytes);
    if (in_place)
        memcpy(out, in, in_bytes);
    collective();
    if (memcmp(out, want, out_bytes) != 0)
        fail("wrong result", name);
    free(in), free(out), free(want);
}

/*
 * measure runs a measurement twice, with more and more repetitions until a run takes the time asked
 * for, and prints the result of the last run: those before are the warm-up.
 */
static void measure(const char *name, void (*run)(int, long), int bytes, double slice)
{
    long count = run == pingpong ? FIRST_BATCHES : run == stream ? FIRST_COUNT : 1;
    for (int is_warm_up = 1;; is_warm_up = 0) {
        MPI_Bcast(&count, 1, MPI_LONG, 0, MPI_COMM_WORLD);
        if (count == 0)
            break;
        double began = MPI_Wtime();
        run(bytes, count);
        double took = MPI_Wtime() - began;
        double seconds = run == collectives ? slowest() : run == stream ? took / count / window(bytes) : me == 0 ? median(count) / (2 * BATCH_TRIPS) : 0;
        if (me != 0)
            continue;
        if (!is_warm_up && took >= slice) {
            printf("%s %.12g\n", name, seconds);
            count = 0;
        } else {
            double more = took > 0 ? 1.5 * slice / took : 8;
            count = (long)(count * (more < 1 ? 1 : more > 8 ? 8 : more));
        }
    }
}

/* measure_pair measures messages between two ranks, and checks the contents of the last ones. */
static void measure_pair(const char *name, void (*run)(int, long), int bytes, double slice)
{
    size_t all = (size_t)window(bytes) * bytes;
    if (ranks != 2)
        fail("it needs two ranks", name);
    buffer = malloc(all + 1);
    if (buffer == NULL)
        fail("no memory", name);
    for (size_t i = 0; i < all; i++)
        buffer[i] = me == 0 ? expected(i) : 0;
    measure(name, run, bytes, slice);
    size_t arrived = run == stream ? all : (size_t)bytes;
    for (size_t i = 0; i < arrived; i++)
        if (buffer[i] != expected(i))
            fail("a message arrived with wrong contents", name);
    free(buffer);
}

static void leave(int signal)
{
    (void)signal;
    _exit(0);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc < 3)
        fail("usage: ranks SLICE-MS KIND:BYTES...", argv[0]);
    double slice = atof(argv[1]) / 1e3;
    for (int i = 2; i < argc; i++) {
        char kind[16];
        int bytes;
        if (sscanf(argv[i], "%15[a-z]:%d", kind, &bytes) != 2 || bytes < 0)
            fail("not KIND:BYTES", argv[i]);
        if (strcmp(kind, "pingpong") == 0)
            measure_pair(argv[i], pingpong, bytes, slice);
        else if (strcmp(kind, "stream") == 0)
            measure_pair(argv[i], stream, bytes, slice);
        else if (prepare_collective(kind, bytes)) {
            measure(argv[i], collectives, bytes, slice);
            check_collective(argv[i]);
        } else
            fail("unknown kind", argv[i]);
    }
    MPI_Barrier(MPI_COMM_WORLD); /* all ranks have checked all contents */
    if (me == 0)
        printf("end 1\n");
    fflush(stdout);
    /*
     * With MPICH 4.0 over UCX one rank at times waits in MPI_Finalize for the other to
     * answer over the connection, while that waits for it in PMI. All is measured by now. More
     * ranks than processors need more time.
     */
    MPI_Barrier(MPI_COMM_WORLD);
    signal(SIGALRM, leave);
    alarm(ranks == 2 ? 1 : 10);
    MPI_Finalize();
    return 0;
}
