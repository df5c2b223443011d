package work

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/mpi"
)

// overlap measures how much computing a message hides, as Thesis §3.6.1 and Overlap §6
// do: as much is inserted between the call that begins a send or a receive and the
// wait for it as makes the whole no more than a tenth longer, a tenth more each time.
// The other side only sends or receives, synchronously, so that both end together.
// Which side is first matters where either can start (Thesis §4.4.1), so that both
// orders are measured, and sends also with both at the same time (§3.6.1).
func overlap() *Workload {
	return runner(&Workload{
		Name: "overlap", Title: "how much computing hides behind a message", Paper: "Thesis §3.6.1, §4.4.1; Overlap §6",
		MinRanks: 2, RankRule: AnyCount, Sized: true,
	}, func(j *job) error {
		return eachHidden(j, func(h *hidden) error {
			ratio, err := h.overlap()
			if err != nil {
				return err
			}
			j.figure(fmt.Sprintf("%s overlap %d B", h.side, len(h.buf)), 100*ratio, "%")
			return nil
		})
	})
}

// progress measures whether a message makes its way while the program is busy, as
// Thesis §3.6.2 and Overlap §7 do: behind the call that begins a send or a receive
// there is a delay much longer than the message takes. If a sender's delay makes the
// message come later by as much, nothing has moved before the next call; of a
// receiver's, it is how much of the message's time is left behind the delay that
// tells.
func progress() *Workload {
	return runner(&Workload{
		Name: "progress", Title: "whether a message moves while the program is busy", Paper: "Thesis §3.6.2; Overlap §7",
		MinRanks: 2, RankRule: AnyCount, Sized: true,
	}, func(j *job) error {
		return eachHidden(j, func(h *hidden) error {
			alone, delay, delayed, err := h.delayed()
			if h.side.busy() == 0 {
				j.figure(fmt.Sprintf("%s shifted %d B", h.side, len(h.buf)), 100*(delayed-alone)/delay, "%")
			} else {
				j.figure(fmt.Sprintf("%s left %d B", h.side, len(h.buf)), 100*(delayed-delay)/alone, "%")
			}
			return err
		})
	})
}

// side is what is done in the background, and who is first.
type side string

const (
	sending       side = "send"
	sendingThen   side = "send, sent first,"
	sendingLate   side = "send, posted first,"
	receivingThen side = "receive, posted first,"
	receivingLate side = "receive, sent first,"
)

func sides() []side { return []side{sending, sendingThen, sendingLate, receivingThen, receivingLate} }

// busy is the rank that computes.
func (s side) busy() int {
	if s == receivingThen || s == receivingLate {
		return 1
	}
	return 0
}

// late is the rank that begins by as much later as a message takes; -1 if there is none.
// Of a receive that is posted first it is told by a word.
func (s side) late() int {
	switch s {
	case sendingThen, receivingLate:
		return 1
	case sendingLate:
		return 0
	}
	return -1
}

// hidden is a message from rank 0 to rank 1 behind which computing hides.
type hidden struct {
	j      *job
	side   side
	buf    []byte
	tag    int // its own: what an envelope has seen before may matter
	number int // of messages so far
	// lead is by how much the other is first.
	lead time.Duration
}

// eachHidden does something for all sizes and sides, by the first two ranks; the others
// wait.
func eachHidden(j *job, do func(*hidden) error) error {
	sizes := map[Class][]int{
		ClassT: {1 << 10, 64 << 10},
		ClassS: {1 << 10, 8 << 10, 64 << 10, 256 << 10},
		ClassW: {64, 1 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 1 << 20},
		ClassA: {64, 256, 1 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20},
	}[j.p.Class]
	if j.p.Bytes > 0 {
		sizes = []int{j.p.Bytes}
	}
	j.steps(map[Class]int{ClassT: 2, ClassS: 5, ClassW: 20, ClassA: 100}[j.p.Class])
	if err := j.start(); err != nil {
		return err
	}
	tag := 0
	for _, n := range sizes {
		for _, s := range sides() {
			tag++
			if err := do(&hidden{j: j, side: s, buf: make([]byte, n), tag: tag}); err != nil {
				return err
			}
		}
	}
	j.stop()
	return nil
}

// measure returns how long messages take on average, from their beginning to the end of
// the wait for them, with some computing in between. It is the time of one of the ranks,
// and all ranks get it.
func (h *hidden) measure(compute time.Duration, of int) (time.Duration, error) {
	j, total := h.j, time.Duration(0)
	for range j.iterations {
		if j.Rank() < 2 {
			t, err := h.once(compute)
			if err != nil {
				return 0, err
			}
			total += t
		}
	}
	mean := (total / time.Duration(j.iterations)).Seconds()
	if j.Rank() != of {
		mean = 0
	}
	mean, err := j.sum(mean)
	return time.Duration(mean * float64(time.Second)), err
}

// once carries one message, and returns how long that took here.
func (h *hidden) once(compute time.Duration) (time.Duration, error) {
	j, me := h.j, h.j.Rank()
	h.number++
	contents := j.message(0, 1, h.number)
	if me == 0 {
		fill(h.buf, contents)
	} else {
		clear(h.buf)
	}
	if _, err := j.Sendrecv(nil, 1-me, tagReady, nil, 1-me, tagReady); err != nil {
		return 0, err
	}
	if h.side.late() == me {
		j.Compute(h.lead) // without a look at what has come
	}
	began := j.Wtime()
	carry := h.wait
	if me == h.side.busy() {
		carry = func() error { return h.hide(compute) }
	}
	if err := carry(); err != nil {
		return 0, err
	}
	took := j.Wtime() - began
	if me == 1 {
		return took, j.contents(h.buf, contents, "message %d of %d bytes", h.number, len(h.buf))
	}
	return took, nil
}

// wait is what the rank does that does not compute. Where receives are posted first, a
// word comes behind each.
func (h *hidden) wait() error {
	if h.side.busy() == 0 {
		_, err := h.j.Recv(h.buf, 0, h.tag)
		return err
	}
	if h.side == receivingThen {
		if _, err := h.j.Recv(nil, 1, tagReady); err != nil {
			return err
		}
	}
	return h.j.Ssend(h.buf, 1, h.tag)
}

// hide is what the other does.
func (h *hidden) hide(compute time.Duration) error {
	j := h.j
	var r *mpi.Request
	var err error
	if h.side.busy() == 0 {
		r, err = j.Issend(h.buf, 1, h.tag)
	} else {
		r, err = j.Irecv(h.buf, 0, h.tag)
	}
	if err == nil && h.side == receivingThen {
		err = j.Send(nil, 0, tagReady)
	}
	if err != nil {
		return err
	}
	j.Compute(compute)
	_, err = j.wait(r)
	return err
}

// settle measures a message alone, the second time round: by then the two come from the
// same as they will, and who is first is so by as much as a message takes.
func (h *hidden) settle(of int) (time.Duration, error) {
	alone, err := h.measure(0, of)
	if err != nil {
		return 0, err
	}
	h.lead = alone
	return h.measure(0, of)
}

// mostSteps ends a search where a tenth more of nothing is nothing.
const mostSteps = 100

// overlap is the share of a message's time that computing can hide behind, at most 1.
func (h *hidden) overlap() (float64, error) {
	busy := h.side.busy()
	alone, err := h.settle(busy)
	if err != nil {
		return 0, err
	}
	best := 0.0
	compute := alone / 20
	for range mostSteps {
		l, err := h.measure(compute, busy)
		if err != nil || l >= alone+alone/10 || compute > 2*alone {
			return min(best, 1), err
		}
		best = max(best, (compute-(l-alone)).Seconds()/alone.Seconds())
		compute += max(compute/10, 1)
	}
	return min(best, 1), nil
}

// delayed is how long a message takes to the receiver, alone and with a long delay.
func (h *hidden) delayed() (alone, delay, delayed float64, err error) {
	l, err := h.settle(1)
	if err != nil {
		return 0, 0, 0, err
	}
	d := 10 * l
	with, err := h.measure(d, 1)
	return l.Seconds(), d.Seconds(), with.Seconds(), err
}
