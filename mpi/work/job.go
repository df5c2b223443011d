package work

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/fabrictest/fabrictest/mpi"
)

// job is one rank's run of a workload.
type job struct {
	*mpi.World
	name       string
	p          Params
	iterations int

	measured bool // from start to stop
	began    time.Duration
	took     time.Duration
	waited   time.Duration
	checks   uint64
	verified uint64
	account  uint64 // of messages that were sent less those that came
	figures  []Figure

	scalar [8]byte
}

// runner makes a workload's Run of what it does.
func runner(wl *Workload, do func(*job) error) *Workload {
	wl.Run = func(w *mpi.World, p Params) (Result, error) {
		if err := wl.Check(w.Size(), p); err != nil {
			return Result{}, err
		}
		p.setDefaults()
		j := &job{World: w, name: wl.Name, p: p}
		if err := do(j); err != nil {
			return Result{}, err
		}
		return j.result()
	}
	return wl
}

// steps says how many iterations there are, unless the parameters do.
func (j *job) steps(class int) int {
	j.iterations = class
	if j.p.Iterations > 0 {
		j.iterations = j.p.Iterations
	}
	return j.iterations
}

// start begins what is measured, when all ranks are there.
func (j *job) start() error {
	if err := j.Barrier(); err != nil {
		return err
	}
	j.measured, j.began = true, j.Wtime()
	return nil
}

// stop ends it, and returns how long it took. It may be started again; times add up.
func (j *job) stop() time.Duration {
	took := j.Wtime() - j.began
	j.measured, j.took = false, j.took+took
	return took
}

// hasWaited counts the time since a moment as waiting.
func (j *job) hasWaited(since time.Duration) {
	if j.measured {
		j.waited += j.Wtime() - since
	}
}

// compute keeps the processor busy for the share that a place has of a step's time.
func (j *job) compute(parts int) { j.computePart(1, parts) }

// computePart does so for some of as many parts.
func (j *job) computePart(n, of int) {
	if j.p.Compute > 0 {
		j.Compute(j.p.Compute * time.Duration(n) / time.Duration(of))
	}
}

// wait is Wait, whose time counts as waiting.
func (j *job) wait(r *mpi.Request) (mpi.Status, error) {
	from := j.Wtime()
	s, err := r.Wait()
	j.hasWaited(from)
	return s, err
}

func (j *job) waitAll(rs ...*mpi.Request) error {
	from := j.Wtime()
	_, err := mpi.WaitAll(rs)
	j.hasWaited(from)
	return err
}

// swap exchanges messages with a peer: the receive is posted, the message sent, and
// only then waited for.
func (j *job) swap(send, recv []byte, peer, tag int) error {
	r, err := j.Irecv(recv, peer, tag)
	if err != nil {
		return err
	}
	j.left(peer, send)
	if err := j.Send(send, peer, tag); err != nil {
		return err
	}
	if _, err = j.wait(r); err == nil {
		j.came(peer, recv)
	}
	return err
}

// sum adds up a number of all ranks.
func (j *job) sum(x float64) (float64, error) {
	putFloats(j.scalar[:], []float64{x})
	err := j.Allreduce(j.scalar[:], mpi.Float64, mpi.Sum)
	return getFloat(j.scalar[:]), err
}

// most is the largest of a number of all ranks.
func (j *job) most(x float64) (float64, error) {
	putFloats(j.scalar[:], []float64{x})
	err := j.Allreduce(j.scalar[:], mpi.Float64, mpi.Max)
	return getFloat(j.scalar[:]), err
}

// figure notes what was measured. What took no time at all, as it may in a simulated
// world, has no rate: it is left out.
func (j *job) figure(name string, value float64, unit string) {
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return
	}
	j.figures = append(j.figures, Figure{name, value, unit})
}

// result brings together what the ranks have counted.
func (j *job) result() (Result, error) {
	le := binary.LittleEndian
	longest := le.AppendUint64(nil, uint64(j.took))
	if err := j.Allreduce(longest, mpi.Int64, mpi.Max); err != nil {
		return Result{}, err
	}
	var sums []byte
	for _, x := range []uint64{uint64(j.waited), j.checks, j.verified, j.account} {
		sums = le.AppendUint64(sums, x)
	}
	if err := j.Allreduce(sums, mpi.Uint64, mpi.Sum); err != nil {
		return Result{}, err
	}
	if over := le.Uint64(sums[24:]); over != 0 {
		return Result{}, j.wrong(0, over, "digests of all messages that were sent, less those of all that came")
	}
	r := Result{
		Workload: j.name, Class: j.p.Class, Ranks: j.Size(), Iterations: j.iterations,
		Time:   time.Duration(le.Uint64(longest)),
		Waited: time.Duration(le.Uint64(sums)) / time.Duration(j.Size()),
		Checks: le.Uint64(sums[8:]), Verified: le.Uint64(sums[16:]),
		Figures: j.figures,
	}
	return r, nil
}

// fromRoot is rank 0's number.
func (j *job) fromRoot(x float64) (float64, error) {
	putFloats(j.scalar[:], []float64{x})
	err := j.Bcast(j.scalar[:], 0)
	return getFloat(j.scalar[:]), err
}
