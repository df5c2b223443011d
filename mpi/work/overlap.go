package work

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/mpi"
)

// overlap measures how much computation overlaps with a message, as Rashti 2010 §3.6.1 and
// Rashti 2007 §6 do: the computation between the start of a send or receive and its wait grows
// by a tenth each time, until the total time has grown by a tenth. The peer sends or
// receives synchronously. The order of send and receive matters (Rashti 2010 §4.4.1), therefore
// both orders are measured, and sends also without an order (§3.6.1).
func overlap(j *job) {
	eachOverlapTest(j, func(h *overlapTest) {
		ratio := h.overlap()
		j.addFigure(fmt.Sprintf("%s overlap %d B", h.side.name, len(h.buf)), 100*ratio, "%")
	})
}

// progress measures whether a message progresses while the program computes, as Rashti 2010
// §3.6.2 and Rashti 2007 §7 do: a delay much longer than the message follows the start of a
// send or receive. It reports the share of the message's time that remains after the delay and, for
// a sender, how late the message is as a share of the delay.
func progress(j *job) {
	eachOverlapTest(j, func(h *overlapTest) {
		const receiver, delays = 1, 10 // rank 1 receives; the delay is ten times as long as the message
		message := h.calibrate(receiver)
		alone, delay := message.Seconds(), (delays * message).Seconds()
		delayed := h.measure(delays*message, receiver).Seconds()
		addFigure := func(name string, share float64) {
			j.addFigure(fmt.Sprintf("%s %s %d B", h.side.name, name, len(h.buf)), 100*share, "%")
		}
		if h.side.computingRank == receiver {
			addFigure("left", (delayed-delay)/alone)
			return
		}
		addFigure("shifted", (delayed-alone)/delay)
		later := 0.0 // the receiver has waited for a sender that starts later
		if h.side.laterRank != receiver && h.side.laterRank >= 0 {
			later = h.startDelay.Seconds()
		}
		addFigure("left", max(0, delayed-later-delay)/(alone-later))
	})
}

// side is the overlapped operation of ranks 0 (the sender) and 1, and which starts first.
type side struct {
	name          string
	computingRank int  // the rank that computes
	laterRank     int  // the rank that starts later by the time of a message; -1 if none does
	announced     bool // the receiver tells the sender that its receive is posted
}

var sides = []side{
	{name: "send", computingRank: 0, laterRank: -1},
	{name: "send, sent first,", computingRank: 0, laterRank: 1},
	{name: "send, posted first,", computingRank: 0, laterRank: 0},
	{name: "receive, posted first,", computingRank: 1, laterRank: -1, announced: true},
	{name: "receive, sent first,", computingRank: 1, laterRank: 1},
}

// overlapTest is a message from rank 0 to rank 1 that overlaps with computation.
type overlapTest struct {
	j      *job
	side   side
	buf    []byte
	tag    int // one per test, because the history of an envelope may matter
	number int // messages so far
	// startDelay is how much later side.laterRank starts than the other rank.
	startDelay time.Duration
}

// eachOverlapTest runs do for all message sizes and sides: whether the sender or the receiver
// computes, and which of them starts first. Only the first two ranks take part.
func eachOverlapTest(j *job, do func(*overlapTest)) {
	sizes := j.messageSizes(map[Class][]int{
		ClassT: {1 << 10, 64 << 10},
		ClassS: {1 << 10, 8 << 10, 64 << 10, 256 << 10},
		ClassW: {64, 1 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 1 << 20},
		ClassA: {64, 256, 1 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20},
	})
	j.setIterations(map[Class]int{ClassT: 2, ClassS: 5, ClassW: 20, ClassA: 100}[j.p.Class])
	j.start()
	tag := 0
	for _, n := range sizes {
		for _, s := range sides {
			tag++
			do(&overlapTest{j: j, side: s, buf: make([]byte, n), tag: tag})
		}
	}
	j.stop()
}

// measure returns the mean time of messages from their start to the end of their wait, with
// computation in between. It is the time on the given rank; all ranks get the same.
func (h *overlapTest) measure(compute time.Duration, rank int) time.Duration {
	j, total := h.j, time.Duration(0)
	for range j.iterations {
		if j.Rank() < 2 {
			total += h.transferOne(compute)
		}
	}
	mean := (total / time.Duration(j.iterations)).Seconds()
	if j.Rank() != rank {
		mean = 0
	}
	return time.Duration(j.sumAll(mean) * float64(time.Second))
}

// transferOne sends one message from rank 0 to rank 1, and returns the time on this rank. If the
// test has a later rank, that rank starts h.startDelay after the other.
func (h *overlapTest) transferOne(compute time.Duration) time.Duration {
	j, me := h.j, h.j.Rank()
	h.number++
	contents := j.messageKey(0, 1, h.number)
	if me == 0 {
		fill(h.buf, contents)
	} else {
		clear(h.buf)
	}
	j.Sendrecv(nil, 1-me, nil, 1-me, tagReady) // synchronises both ranks
	if h.side.laterRank == me {
		j.Compute(h.startDelay) // without progress
	}
	began := j.Wtime()
	if me == h.side.computingRank {
		h.runComputing(compute)
	} else {
		h.runWaiting()
	}
	took := j.Wtime() - began
	if me == 1 {
		j.checkContents(h.buf, contents, "message %d of %d bytes", h.number, len(h.buf))
	}
	return took
}

// runWaiting sends or receives without computation. If receives are posted first, a send waits
// until the peer announces its receive.
func (h *overlapTest) runWaiting() {
	if h.side.computingRank == 0 {
		h.j.Recv(h.buf, 0, h.tag)
		return
	}
	if h.side.announced {
		h.j.Recv(nil, 1, tagReady)
	}
	check(h.j.world.Ssend(h.buf, 1, h.tag))
}

// runComputing starts the send or receive, announces a receive to a peer that waits for that,
// computes, and waits.
func (h *overlapTest) runComputing(compute time.Duration) {
	j := h.j
	var r *mpi.Request
	if h.side.computingRank == 0 {
		r = must(j.world.Issend(h.buf, 1, h.tag))
	} else {
		r = j.Irecv(h.buf, 0, h.tag)
	}
	if h.side.announced {
		j.Send(nil, 0, tagReady)
	}
	j.Compute(compute)
	j.wait(r)
}

// calibrate returns the time of a message on a rank, without computation. It measures twice: the
// first result becomes h.startDelay, by which the later rank delays its start from then on.
func (h *overlapTest) calibrate(rank int) time.Duration {
	h.startDelay = h.measure(0, rank)
	return h.measure(0, rank)
}

// maxSearchSteps ends the search if computation does not grow.
const maxSearchSteps = 100

// overlap returns the share of a message's time that computation can use, at most 1. It starts with
// 1/20 of the message's time, and increases the computation by a tenth until the total time is a
// tenth longer than the message alone, or the computation takes twice as long as the message.
func (h *overlapTest) overlap() float64 {
	busy := h.side.computingRank
	alone := h.calibrate(busy)
	best := 0.0
	compute := alone / 20
	for range maxSearchSteps {
		total := h.measure(compute, busy)
		if total >= alone+alone/10 || compute > 2*alone {
			break
		}
		best = max(best, (compute-(total-alone)).Seconds()/alone.Seconds())
		compute += max(compute/10, 1)
	}
	return min(best, 1)
}
