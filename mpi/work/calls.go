package work

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/mpi"
)

// Errors are fatal in a workload, as with MPI_ERRORS_ARE_FATAL: a failed call or check
// panics with a fatalError, which Workload.Run returns as its error.
type fatalError struct{ err error }

// check ends the workload if a call failed.
func check(err error) {
	if err != nil {
		panic(fatalError{err})
	}
}

// must returns the result of a call, and ends the workload if it failed.
func must[T any](result T, err error) T {
	check(err)
	return result
}

// catch stores the error that ended a workload. Defer it.
func catch(err *error) {
	switch p := recover().(type) {
	case nil:
	case fatalError:
		*err = p.err
	default:
		panic(p)
	}
}

// annotate adds a prefix to the error that ends the calling function. Defer it.
func annotate(format string, args ...any) {
	switch p := recover().(type) {
	case nil:
	case fatalError:
		panic(fatalError{fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), p.err)})
	default:
		panic(p)
	}
}

func (j *job) Rank() int               { return j.world.Rank() }
func (j *job) Size() int               { return j.world.Size() }
func (j *job) Wtime() time.Duration    { return j.world.Wtime() }
func (j *job) Compute(d time.Duration) { j.world.Compute(d) }

func (j *job) Send(buf []byte, dest, tag int)  { check(j.world.Send(buf, dest, tag)) }
func (j *job) Ssend(buf []byte, dest, tag int) { check(j.world.Ssend(buf, dest, tag)) }

func (j *job) Isend(buf []byte, dest, tag int) *mpi.Request {
	return must(j.world.Isend(buf, dest, tag))
}

func (j *job) Issend(buf []byte, dest, tag int) *mpi.Request {
	return must(j.world.Issend(buf, dest, tag))
}

func (j *job) Recv(buf []byte, source, tag int) mpi.Status {
	return must(j.world.Recv(buf, source, tag))
}

func (j *job) Irecv(buf []byte, source, tag int) *mpi.Request {
	return must(j.world.Irecv(buf, source, tag))
}

func (j *job) Probe(source, tag int) mpi.Status { return must(j.world.Probe(source, tag)) }

// Sendrecv exchanges messages of a tag.
func (j *job) Sendrecv(send []byte, dest int, recv []byte, source, tag int) {
	must(j.world.Sendrecv(send, dest, tag, recv, source, tag))
}

func (j *job) Barrier()                                    { check(j.world.Barrier()) }
func (j *job) Bcast(buf []byte, root int)                  { check(j.world.Bcast(buf, root)) }
func (j *job) Alltoall(send, recv []byte)                  { check(j.world.Alltoall(send, recv)) }
func (j *job) Allgather(local, all []byte)                 { check(j.world.Allgather(local, all)) }
func (j *job) Allreduce(buf []byte, t mpi.Type, op mpi.Op) { check(j.world.Allreduce(buf, t, op)) }
