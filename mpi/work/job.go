package work

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/fabrictest/fabrictest/mpi"
)

// job is one rank's run of a workload.
type job struct {
	world      *mpi.World
	name       string
	p          Params
	iterations int

	measured      bool // between start and stop
	startedAt     time.Duration
	computations  uint64 // number of computations so far
	elapsed       time.Duration
	inCalls       callTimes
	checks        uint64
	verified      uint64
	digestBalance uint64 // digests of messages sent minus those received
	figures       []Figure
	collectives   []CollectiveTime

	scalar [8]byte
}

// callTimes are times that a rank spends in calls, during a measurement.
type callTimes struct{ sending, receiving, waiting, collective time.Duration }

// Run runs the workload as one rank of the world. All ranks get the same result.
func (wl *Workload) Run(w *mpi.World, p Params) (r Result, err error) {
	if err := wl.Check(w.Size(), p); err != nil {
		return Result{}, err
	}
	p.setDefaults()
	j := &job{world: w, name: wl.Name, p: p}
	defer catch(&err)
	wl.do(j)
	return j.result(), nil
}

// setIterations sets and returns the number of iterations: that of the parameters, or else
// ofClass, that of the class.
func (j *job) setIterations(ofClass int) int {
	j.iterations = cmp.Or(j.p.Iterations, ofClass)
	return j.iterations
}

// messageSizes returns the message size of the parameters, or the sizes of the class if it is 0.
func (j *job) messageSizes(byClass map[Class][]int) []int {
	if j.p.Bytes > 0 {
		return []int{j.p.Bytes}
	}
	return byClass[j.p.Class]
}

// start starts the measurement after a barrier.
func (j *job) start() {
	j.Barrier()
	j.measured, j.startedAt = true, j.Wtime()
}

// stop ends the measurement and returns its time. Several measurements add up.
func (j *job) stop() time.Duration {
	took := j.Wtime() - j.startedAt
	j.measured, j.elapsed = false, j.elapsed+took
	return took
}

// addCallTime adds the time from since until now to total, one of j.inCalls, during a measurement.
func (j *job) addCallTime(total *time.Duration, since time.Duration) {
	if j.measured {
		*total += j.Wtime() - since
	}
}

// spendComputePart keeps the CPU busy for one of a number of equal parts of Params.Compute, the
// computation of a step, with a random deviation of up to Params.Variation per cent.
func (j *job) spendComputePart(of int) {
	if j.p.Compute <= 0 {
		return
	}
	d := j.p.Compute / time.Duration(of)
	j.computations++
	deviation := float64(j.p.Variation) / 100 * uniform(key(j.p.Seed, uint64(j.Rank()), j.computations))
	j.Compute(d + time.Duration(deviation*float64(d)))
}

// wait and waitAll wait for requests, and count the wait time.
func (j *job) wait(r *mpi.Request) mpi.Status {
	from := j.Wtime()
	s := must(r.Wait())
	j.addCallTime(&j.inCalls.waiting, from)
	return s
}

func (j *job) waitAll(rs ...*mpi.Request) {
	from := j.Wtime()
	must(mpi.WaitAll(rs))
	j.addCallTime(&j.inCalls.waiting, from)
}

// exchangeWith exchanges messages with a peer: it posts the receive, sends, and waits.
func (j *job) exchangeWith(send, recv []byte, peer, tag int) {
	r := j.Irecv(recv, peer, tag)
	j.sendWithDigest(send, peer, tag)
	j.wait(r)
	j.digestReceived(peer, recv)
}

// sendWithDigest and recvWithDigest add the message's digest to those that result compares.
func (j *job) sendWithDigest(buf []byte, dest, tag int) {
	j.digestSent(dest, buf)
	j.Send(buf, dest, tag)
}

func (j *job) recvWithDigest(buf []byte, source, tag int) {
	j.Recv(buf, source, tag)
	j.digestReceived(source, buf)
}

// sumAll returns the sum of x over all ranks, and maxAll the maximum.
func (j *job) sumAll(x float64) float64 { return j.allreduceFloat(x, mpi.Sum) }
func (j *job) maxAll(x float64) float64 { return j.allreduceFloat(x, mpi.Max) }

func (j *job) allreduceFloat(x float64, op mpi.Op) float64 {
	return j.allreduceFloats(op, x)[0]
}

// allreduceFloats returns the combination of each number over all ranks.
func (j *job) allreduceFloats(op mpi.Op, xs ...float64) []float64 {
	b := make([]byte, 8*len(xs))
	putFloats(b, xs)
	j.Allreduce(mpi.InPlace, b, mpi.Float64, op)
	getFloats(xs, b)
	return xs
}

// addFigure adds a measured value to the result. Infinite rates, of operations that take no
// simulated time, are omitted.
func (j *job) addFigure(name string, value float64, unit string) {
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return
	}
	j.figures = append(j.figures, Figure{name, value, unit})
}

// result returns the counters of all ranks: the longest time, the mean times in calls and the sums of
// checks. It checks that all messages with digests were received unchanged.
func (j *job) result() Result {
	le := binary.LittleEndian
	longest := le.AppendUint64(nil, uint64(j.elapsed))
	j.Allreduce(mpi.InPlace, longest, mpi.Int64, mpi.Max)
	c := &j.inCalls
	sums := [...]uint64{uint64(c.waiting), j.checks, j.verified, j.digestBalance, uint64(c.sending), uint64(c.sending + c.receiving + c.waiting), uint64(c.collective)}
	j.sumCounters(sums[:])
	mean := func(sum uint64) time.Duration { return time.Duration(sum) / time.Duration(j.Size()) }
	if balance := sums[3]; balance != 0 {
		j.failVerification(0, balance, "digests of all messages sent, minus those of all received")
	}
	return Result{
		Workload: j.name, Class: j.p.Class, Ranks: j.Size(), Iterations: j.iterations,
		Time:   time.Duration(le.Uint64(longest)),
		Waited: mean(sums[0]), Sending: mean(sums[4]), Communicating: mean(sums[5]), InCollectives: mean(sums[6]),
		Checks: sums[1], Verified: sums[2],
		Figures: j.figures, Collectives: j.collectives,
	}
}

// sumCounters replaces each counter by its sum over all ranks.
func (j *job) sumCounters(counters []uint64) {
	b := must(binary.Append(nil, binary.LittleEndian, counters))
	j.Allreduce(mpi.InPlace, b, mpi.Uint64, mpi.Sum)
	must(binary.Decode(b, binary.LittleEndian, counters))
}

// bcastFromRoot returns the x of rank 0 on all ranks.
func (j *job) bcastFromRoot(x float64) float64 {
	putFloats(j.scalar[:], []float64{x})
	j.Bcast(j.scalar[:], 0)
	return getFloat(j.scalar[:])
}

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

// annotateError adds a prefix to the error that ends the calling function. Defer it.
func annotateError(format string, args ...any) {
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

// Send, Isend, Recv, Irecv and Sendrecv call the runtime and count the time in the call.
func (j *job) Send(buf []byte, dest, tag int) {
	from := j.Wtime()
	check(j.world.Send(buf, dest, tag))
	j.addCallTime(&j.inCalls.sending, from)
}

func (j *job) Isend(buf []byte, dest, tag int) *mpi.Request {
	from := j.Wtime()
	r := must(j.world.Isend(buf, dest, tag))
	j.addCallTime(&j.inCalls.sending, from)
	return r
}

func (j *job) Recv(buf []byte, source, tag int) mpi.Status {
	from := j.Wtime()
	s := must(j.world.Recv(buf, source, tag))
	j.addCallTime(&j.inCalls.receiving, from)
	return s
}

func (j *job) Irecv(buf []byte, source, tag int) *mpi.Request {
	from := j.Wtime()
	r := must(j.world.Irecv(buf, source, tag))
	j.addCallTime(&j.inCalls.receiving, from)
	return r
}

// Sendrecv exchanges messages of a tag. Its time counts as that of a receive.
func (j *job) Sendrecv(send []byte, dest int, recv []byte, source, tag int) {
	from := j.Wtime()
	must(j.world.Sendrecv(send, dest, tag, recv, source, tag))
	j.addCallTime(&j.inCalls.receiving, from)
}

// Barrier and the functions after it call the runtime, and those with data count the time in the call.
func (j *job) Barrier() { check(j.world.Barrier()) }

func (j *job) Bcast(buf []byte, root int) {
	j.callCollective(func() error { return j.world.Bcast(buf, root) })
}

func (j *job) Alltoall(send, recv []byte) {
	j.callCollective(func() error { return j.world.Alltoall(send, recv) })
}

// Alltoallv exchanges blocks that follow each other in both buffers.
func (j *job) Alltoallv(send []byte, sendCounts []int, recv []byte, recvCounts []int) {
	j.callCollective(func() error { return j.world.Alltoallv(send, sendCounts, nil, recv, recvCounts, nil) })
}

func (j *job) Allgather(local, all []byte) {
	j.callCollective(func() error { return j.world.Allgather(local, all) })
}

func (j *job) Allreduce(send, recv []byte, t mpi.Type, op mpi.Op) {
	j.callCollective(func() error { return j.world.Allreduce(send, recv, t, op) })
}

func (j *job) callCollective(call func() error) {
	from := j.Wtime()
	check(call())
	j.addCallTime(&j.inCalls.collective, from)
}
