package experiment

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/perf"
	"github.com/fabrictest/fabrictest/verbs"
)

// A GateCase is a small measurement in virtual time whose result is compared exactly with a record.
type GateCase struct {
	Platform string
	Provider string // "" for that of the platform
	// Unreliable is for NICs that have reliable datagrams, too.
	Unreliable bool
	Verbs      *VerbsMessage // either this or MPI
	MPI        *MPIMessage
	Bytes      int

	messages int    // in turn, and at once; 0 means gateMessages
	seed     uint64 // of the simulation
}

// VerbsMessage is a message over verbs. It is a datagram with UD, or if the NIC has nothing else.
type VerbsMessage struct {
	Op verbs.WROpcode
	UD bool
}

// MPIMessage is a message between two ranks.
type MPIMessage struct {
	Op     string // send, put, get or accumulate
	Design carrier.Design
	RPUT   bool // large messages by RDMA write, and not by RDMA read
	Shared bool // the ranks share a host
}

// gateMessages is the number of messages in turn, and of those at once. Go allocations are counted
// with allocationMessages, so that those of the Go runtime do not matter.
const gateMessages, allocationMessages = 8, 512

// Name returns the name of the case, in which the platform comes first.
func (c *GateCase) Name() string {
	name := c.Platform + ", "
	if v := c.Verbs; v != nil {
		service := map[bool]string{false: cmp.Or(c.Provider, "verbs"), true: "verbs UD"}[v.UD]
		if c.Unreliable {
			service += ", unreliable"
		}
		op := map[verbs.WROpcode]string{verbs.OpSend: "send", verbs.OpRDMAWrite: "write", verbs.OpRDMARead: "read", verbs.OpAtomicFetchAdd: "fetch and add"}[v.Op]
		return fmt.Sprintf("%s%s, %s of %d B", name, service, op, c.Bytes)
	}
	m := c.MPI
	how := string(m.Design)
	switch {
	case m.Shared:
		how = "shared memory"
	case m.RPUT:
		how += ", RPUT"
	}
	return fmt.Sprintf("%smpi %s, %s of %d B", name, how, m.Op, c.Bytes)
}

// GateCases returns all cases: messages over verbs and over MPI, most of them on the RoCE platform,
// a selection on the others. Messages over verbs are short (8 B), long (64 KiB), or just below and
// above the limits of inline data (64 B) and of the MTU (4096 B); those over MPI have sizes at the
// eager limit instead.
func GateCases() (all []GateCase) {
	const roce, iwarp, software = "connectx7-ndr", "iwarp-25g", "emulator-netns"
	sizes, few := []int{8, 64, 65, 4096, 4097, 64 << 10}, []int{8, 4096, 64 << 10}
	overVerbs := func(c GateCase, sizes []int, ud bool, ops ...verbs.WROpcode) {
		for _, op := range ops {
			for _, n := range sizes {
				c.Verbs, c.Bytes = &VerbsMessage{Op: op, UD: ud}, n
				all = append(all, c)
			}
		}
	}
	overMPI := func(platform string, m MPIMessage, sizes []int, ops ...string) {
		for _, op := range ops {
			for _, n := range sizes {
				m.Op = op
				copied := m
				all = append(all, GateCase{Platform: platform, MPI: &copied, Bytes: n})
			}
		}
	}
	const ud = true
	for _, platform := range []string{roce, iwarp} {
		overVerbs(GateCase{Platform: platform}, sizes, !ud, verbs.OpSend, verbs.OpRDMAWrite, verbs.OpRDMARead)
	}
	overVerbs(GateCase{Platform: roce}, []int{8}, !ud, verbs.OpAtomicFetchAdd)
	overVerbs(GateCase{Platform: roce}, []int{8, 64, 65, 4096}, ud, verbs.OpSend)
	overVerbs(GateCase{Platform: software}, few, !ud, verbs.OpSend, verbs.OpRDMAWrite)
	overVerbs(GateCase{Platform: software, Provider: "dgiwarp"}, few, !ud, verbs.OpSend)
	overVerbs(GateCase{Platform: software, Provider: "dgiwarp", Unreliable: true}, few, !ud, verbs.OpSend)

	edges := []int{8, gateEager, gateEager + 1, 64 << 10}
	for _, d := range carrier.Designs() {
		overMPI(roce, MPIMessage{Design: d}, edges, "send")
	}
	overMPI(roce, MPIMessage{Design: carrier.SRQ, RPUT: true}, edges[2:], "send")
	overMPI(roce, MPIMessage{Design: carrier.SRQ}, few, "put", "get")
	overMPI(roce, MPIMessage{Design: carrier.SRQ}, few[:2], "accumulate")
	overMPI(roce, MPIMessage{Shared: true}, edges, "send")
	overMPI(roce, MPIMessage{Shared: true}, []int{8, 4096}, "put")
	for _, platform := range []string{iwarp, software} {
		overMPI(platform, MPIMessage{Design: carrier.SRQ}, edges, "send")
	}
	return all
}

// gateEager is the largest eager message.
const gateEager = 4 << 10

// fabric returns the simulation of a case.
func (c *GateCase) fabric() (f mpihost.Fabric, err error) {
	p, err := nics.LoadPlatform(c.Platform)
	if err != nil {
		return f, err
	}
	f = mpihost.Fabric{Ranks: 2, Provider: c.Provider, Unreliable: c.Unreliable, Seed: c.seed, Limit: time.Second, Events: 5_000_000}
	f.SetPlatform(p)
	if c.MPI != nil && c.MPI.Shared {
		f.PerHost = 2
	}
	return f, nil
}

// Measure runs the case and returns the lines of its record: the time and the counts of each measured
// part (the warm-up is none, and the last message in turn counts as part of those in turn), then the
// critical path of that message, and for the smallest messages the Go allocations.
func (c *GateCase) Measure() (lines []Line, err error) {
	f, err := c.fabric()
	if err != nil {
		return nil, err
	}
	p := &probe{provider: f.Provider}
	f.Script = func(w *mpihost.World) { p.attach(w, f.Ranks/max(1, f.PerHost)) }
	if err = c.run(f, p.mark); err != nil {
		return nil, fmt.Errorf("%s: %w", c.Name(), err)
	}
	for at := setup; at < ended; at++ {
		if at == last || at == warmUp {
			continue
		}
		if took := p.started[next(at)] - p.started[at]; at != setup { // setup has no start
			lines = append(lines, Line{partNames[at] + ": time", Value{N: int(took), Unit: "ns"}})
		}
		for _, what := range slices.Sorted(maps.Keys(p.counts[at])) {
			n := p.counts[at][what]
			lines = append(lines, Line{partNames[at] + ": " + what, Value{N: n.n, Bytes: n.bytes}})
		}
	}
	lines = append(lines, p.path()...)
	if !c.smallest() {
		return lines, nil
	}
	n, err := c.allocations(f)
	return append(lines, Line{"Go allocations of a message in turn", Value{N: n}}), err
}

// smallest reports whether the messages are the smallest ones, whose Go allocations are counted.
func (c *GateCase) smallest() bool { return c.Bytes == 8 }

// allocations returns the mean number of Go allocations of the whole simulation for each message of
// the part inTurn. It runs the case again, with more messages and without the probe of f.Script.
func (c *GateCase) allocations(f mpihost.Fabric) (int, error) {
	many := *c
	many.messages = allocationMessages
	f.Script = nil
	var start, end runtime.MemStats
	err := many.run(f, func(p gatePart) {
		switch p {
		case inTurn:
			runtime.ReadMemStats(&start)
		case last: // after it, rank 1 soon starts the receives of atOnce
			runtime.ReadMemStats(&end)
		}
	})
	return int(end.Mallocs-start.Mallocs+allocationMessages/2) / allocationMessages, err
}

// next returns the part that follows a part: its start ends the time of that part. The part last is
// skipped, because it is the last message of inTurn.
func next(at gatePart) gatePart {
	if at == inTurn {
		return atOnce
	}
	return at + 1
}

// run runs the program of the case, which calls mark at the start of each part.
func (c *GateCase) run(f mpihost.Fabric, mark func(gatePart)) error {
	messages := cmp.Or(c.messages, gateMessages)
	if c.MPI != nil {
		return c.MPI.run(f, gateRank{bytes: c.Bytes, messages: messages, mark: mark})
	}
	q := perf.Sequence{Op: c.Verbs.Op, Bytes: c.Bytes, Messages: messages, Mark: func(s perf.SequencePart) {
		mark([...]gatePart{perf.InTurn: inTurn, perf.LastInTurn: last, perf.AtOnce: atOnce, perf.Ended: ended}[s])
	}}
	return runSides(f, func(s *perf.Side) error {
		if c.Verbs.UD {
			s.Service = perf.ServiceUD
		}
		return q.Run(context.Background(), s)
	})
}

// run runs the case on two ranks in the simulation f, with the design and protocol of m. Each rank
// gets a copy of r. Rank 0 calls r.mark at the start of each part of the measurement.
func (m *MPIMessage) run(f mpihost.Fabric, r gateRank) error {
	o := mpi.Options{Carrier: carrier.Config{Design: cmp.Or(m.Design, carrier.SRQ)}}
	o.P2P.EagerLimit = gateEager
	o.Carrier.PacketSize = gateEager + packetOverhead
	o.Carrier.Ring.SlotSize = o.Carrier.PacketSize
	if m.RPUT {
		o.P2P.Protocol = p2p.RPUT
	}
	_, err := mpihost.InWorld(f, func(e *transport.Env) error {
		return mpi.Run(e, o, func(w *mpi.World) error {
			r := r
			r.World, r.buf = w, make([]byte, r.bytes)
			if w.Rank() != 0 {
				r.mark = func(gatePart) {}
			}
			if m.Op == "send" {
				return r.sends()
			}
			return r.oneSided(m.Op)
		})
	})
	return err
}

// gateRank is a rank of a case.
type gateRank struct {
	*mpi.World
	bytes, messages int
	mark            func(gatePart)
	buf             []byte
}

// warmUpMessages is the number of messages before those that are counted. Rings and connections of
// hybrid designs are there after it.
const warmUpMessages = 72

// sends is the program of both ranks for sends: they send messages back and forth, first uncounted
// ones (warmUp), then those that are measured (inTurn); then rank 0 sends several at once (atOnce),
// which rank 1 answers with one empty message.
func (r *gateRank) sends() error {
	other := 1 - r.Rank()
	r.mark(warmUp)
	for range warmUpMessages {
		if err := r.roundTrip(); err != nil {
			return err
		}
	}
	r.mark(inTurn)
	for i := range r.messages {
		if i == r.messages-1 {
			r.mark(last)
		}
		if err := r.roundTrip(); err != nil {
			return err
		}
	}
	r.mark(atOnce)
	start := r.Isend
	if r.Rank() == 1 {
		start = r.Irecv
	}
	var requests []*mpi.Request
	for i := range r.messages {
		buf := r.buf
		if r.Rank() == 1 || i > 0 { // messages under way have buffers of their own
			buf = make([]byte, r.bytes)
		}
		request, err := start(buf, other, 1)
		if err != nil {
			return err
		}
		requests = append(requests, request)
	}
	if _, err := mpi.WaitAll(requests); err != nil {
		return err
	}
	defer r.mark(ended)
	if r.Rank() == 1 {
		return r.Send(nil, other, 2)
	}
	_, err := r.Recv(nil, other, 2)
	return err
}

// roundTrip sends a message to rank 1 and back.
func (r *gateRank) roundTrip() error {
	if r.Rank() == 1 {
		if _, err := r.Recv(r.buf, 0, 1); err != nil {
			return err
		}
		return r.Send(r.buf, 0, 1)
	}
	if err := r.Send(r.buf, 1, 1); err != nil {
		return err
	}
	_, err := r.Recv(r.buf, 1, 1)
	return err
}

// oneSided is called by both ranks: rank 0 accesses the window of rank 1, which waits in a barrier.
func (r *gateRank) oneSided(op string) error {
	win, err := r.WinAllocate(max(r.bytes, 8))
	if err != nil {
		return err
	}
	if r.Rank() == 0 {
		if err := r.access(win, op); err != nil {
			return err
		}
	}
	if err := r.Barrier(); err != nil {
		return err
	}
	return win.Free()
}

// access accesses the window of rank 1 with a flush after each access, and then several times with
// one flush.
func (r *gateRank) access(win *mpi.Win, op string) error {
	do := map[string]func() error{
		"put":        func() error { return win.Put(r.buf, 1, 0) },
		"get":        func() error { return win.Get(r.buf, 1, 0) },
		"accumulate": func() error { return win.Accumulate(r.buf, 1, 0, mpi.Uint64, mpi.Sum) },
	}[op]
	if err := win.LockAll(0); err != nil {
		return err
	}
	r.mark(warmUp)
	const before = 4 // messages
	for i := range before + r.messages {
		switch i {
		case before:
			r.mark(inTurn)
		case before + r.messages - 1:
			r.mark(last)
		}
		if err := do(); err != nil {
			return err
		}
		if err := win.Flush(1); err != nil {
			return err
		}
	}
	r.mark(atOnce)
	for range r.messages {
		if err := do(); err != nil {
			return err
		}
	}
	if err := win.Flush(1); err != nil {
		return err
	}
	r.mark(ended)
	return win.UnlockAll()
}
