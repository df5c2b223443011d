package mpi

import (
	"math/bits"
	"time"

	"github.com/fabrictest/fabrictest/mpi/p2p"
)

// Arrivals are the times at which a rank called collective operations.
type Arrivals struct {
	Comms []CommArrivals `json:"comms"`
	// Messages, of rank 0, are the times of messages of 1, 2, 4, … bytes to the last rank.
	Messages []time.Duration `json:"messages_ns,omitempty"`
	// NotRecorded is the number of calls beyond maxArrivals.
	NotRecorded uint64 `json:"not_recorded,omitempty"`
}

// CommArrivals are the calls of a communicator, in order. Context and First identify it: communicators of one
// Split have the same context, and different first ranks.
type CommArrivals struct {
	Context uint32          `json:"context"`
	First   int             `json:"first"` // world rank of its rank 0
	Size    int             `json:"size"`
	Calls   []CollectiveLog `json:"calls"`
}

// CollectiveLog is a call of a collective operation.
type CollectiveLog struct {
	Op    string        `json:"op"`
	Bytes int           `json:"bytes"` // of a block, or of the vector
	At    time.Duration `json:"at_ns"` // by World.Wtime, which all ranks of a job share
}

// maxArrivals limits the calls that a rank records.
const maxArrivals = 1 << 16

// arrivals is the record of a rank.
type arrivals struct {
	comms    []*CommArrivals
	byComm   map[*Comm]*CommArrivals
	messages []time.Duration
	calls    uint64
}

// recordArrival records a call of the program, which alone calls it.
func (c *Comm) recordArrival(a *collectiveCall) {
	k := c.rank
	if !k.opts.RecordArrivals {
		return
	}
	r := &k.arrivals
	if r.calls++; r.calls > maxArrivals {
		return
	}
	x := r.byComm[c]
	if x == nil {
		x = &CommArrivals{Context: c.context, First: c.worldRank(0), Size: c.size}
		if r.byComm == nil {
			r.byComm = map[*Comm]*CommArrivals{}
		}
		r.byComm[c], r.comms = x, append(r.comms, x)
	}
	x.Calls = append(x.Calls, CollectiveLog{Op: a.Op.String(), Bytes: a.Bytes, At: k.env.Proc.Now()})
}

// stats returns the record; nil if there is none.
func (r *arrivals) stats() *Arrivals {
	if r.calls == 0 {
		return nil
	}
	s := &Arrivals{Messages: r.messages, NotRecorded: r.calls - min(r.calls, maxArrivals)}
	for _, x := range r.comms {
		s.Comms = append(s.Comms, *x)
	}
	return s
}

const (
	tagMeasure = tagFailed - 1 // of messages that are measured
	// measuredRounds is the number of round trips of each size; the first one connects.
	measuredRounds = 3
	// maxMeasured is the largest message that is measured.
	maxMeasured = 8 << 20
)

// measureMessages measures, when the program has ended, how long messages between the first and the last
// rank take, up to the largest size that rank 0 recorded. The caller holds the lock.
func (k *rank) measureMessages() error {
	last := k.env.Size - 1
	if !k.opts.RecordArrivals || last == 0 || k.env.Rank != 0 && k.env.Rank != last {
		return nil
	}
	size := []byte{byte(bits.Len(uint(max(1, min(k.arrivals.largest(), maxMeasured)) - 1)))} // its logarithm
	if err := k.roundTrip(last, size); err != nil {
		return err
	}
	buf := make([]byte, 1<<size[0])
	for n := 1; n <= len(buf); n *= 2 {
		began := time.Duration(0)
		for i := range measuredRounds {
			if i == 1 {
				began = k.env.Proc.Now()
			}
			if err := k.roundTrip(last, buf[:n]); err != nil {
				return err
			}
		}
		if k.env.Rank == 0 {
			k.arrivals.messages = append(k.arrivals.messages, (k.env.Proc.Now()-began)/(2*(measuredRounds-1)))
		}
	}
	return nil
}

// largest returns the size of the largest operation.
func (r *arrivals) largest() (n int) {
	for _, x := range r.comms {
		for i := range x.Calls {
			n = max(n, x.Calls[i].Bytes)
		}
	}
	return n
}

// roundTrip sends a message from rank 0 to the last rank and back.
func (k *rank) roundTrip(last int, buf []byte) error {
	c := k.world
	for i := range 2 {
		r := k.allocP2P()
		m := message{buf, last - k.env.Rank, tagMeasure}
		if (i == 0) == (k.env.Rank == 0) {
			c.startBlockingSend(r, c.context|collective, m, p2p.Standard)
			k.carrier.Flush()
		} else {
			c.startRecv(r, c.context|collective, m)
		}
		if _, err := c.await(r); err != nil {
			return err
		}
	}
	return nil
}
