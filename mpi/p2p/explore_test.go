package p2p

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/explore"
	"github.com/fabrictest/fabrictest/mpi/wire"
)

// machine is a small program of several ranks, whose calls, message deliveries and transfers occur
// in every order. Calls of a rank and messages between two ranks stay in order; all else may be
// reordered, including messages that early progress delivers. One rank may die at any time, if
// mayDie is set, and every other rank then notices that at any time.
type machine struct {
	prog   program
	mayDie bool
	sum    *Stats       // of the runs that have ended
	log    func(...any) // for the messages of a failure; nil while exploring

	w           *world
	pc          []int
	reqs        [][]*Request // by rank and act
	arrivedFrom [][]int      // by rank: the senders of messages, in order of arrival
	mprobed     [][]*Message // by rank and act
	dead        int          // the rank that has died; -1 if none has
	chooser     explore.Chooser
	deliverErr  error // of a delivery during a call
	scratch     []byte
}

func newMachine(cfg Config, prog program, mayDie bool, sum *Stats) *machine {
	size := len(prog)
	m := &machine{
		prog: prog, mayDie: mayDie, sum: sum, w: newWorld(nil, size, cfg), pc: make([]int, size), dead: -1,
		reqs: make([][]*Request, size), arrivedFrom: make([][]int, size), mprobed: make([][]*Message, size),
	}
	for rank, n := range m.w.ranks {
		m.reqs[rank], m.mprobed[rank] = make([]*Request, len(prog[rank])), make([]*Message, len(prog[rank]))
		n.progress = func() { m.progress(rank) }
	}
	return m
}

// act is a call of a rank in a program.
type act struct {
	kind     actKind
	peer     int // of sends and receives; Any in receives
	tag      int // the same
	size     int // of the message or the buffer
	noCredit bool
	mode     Mode
	// noMemory makes registration fail during the call: a send fails, a receive sends no RTR.
	noMemory   bool
	advertised bool
	target     int // index of the act that is waited for, cancelled or received
}

type actKind uint8

const (
	sendAct actKind = iota
	recvAct
	waitAct
	cancelAct
	mprobeAct // waits for a message
	mrecvAct
)

func (a act) String() string {
	envelope := fmt.Sprintf("%d tag %d of %d B", a.peer, a.tag, a.size)
	switch a.kind {
	case sendAct:
		return "send to " + envelope + map[Mode]string{Synchronous: ", synchronous", Ready: ", ready"}[a.mode] + map[bool]string{true: ", without credit"}[a.noCredit] + map[bool]string{true: ", without memory"}[a.noMemory]
	case recvAct:
		return "receive from " + envelope + map[bool]string{true: ", without memory"}[a.noMemory]
	case waitAct:
		return fmt.Sprintf("wait for %d", a.target)
	case mprobeAct:
		return "mprobe from " + envelope
	case mrecvAct:
		return fmt.Sprintf("receive message %d", a.target)
	}
	return fmt.Sprintf("cancel %d", a.target)
}

// program lists the acts of each rank.
type program [][]act

func (p program) String() string {
	var s strings.Builder
	for rank, acts := range p {
		for i, a := range acts {
			fmt.Fprintf(&s, "rank %d, %d: %v\n", rank, i, a)
		}
	}
	return s.String()
}

// The kinds of steps. A is the rank.
const (
	callStep     = "call"
	deliverStep  = "deliver"  // the next message from B
	transferStep = "transfer" // number B
	dieStep      = "die"
	noticeStep   = "notice" // that B has died
)

// Enabled implements explore.Machine.
func (m *machine) Enabled(can []explore.Step) []explore.Step {
	for rank, acts := range m.prog {
		if m.pc[rank] < len(acts) && rank != m.dead && !m.blocked(rank, &acts[m.pc[rank]]) {
			can = append(can, explore.Step{Kind: callStep, A: int32(rank)})
		}
	}
	for rank, n := range m.w.ranks {
		if rank == m.dead {
			continue
		}
		can = m.arrivals(can, rank)
		for i := range n.transfers {
			can = append(can, explore.Step{Kind: transferStep, A: int32(rank), B: int32(i)})
		}
		if m.mayDie && m.dead < 0 {
			can = append(can, explore.Step{Kind: dieStep, A: int32(rank)})
		}
	}
	return can
}

// arrivals appends what may arrive at a rank: messages, and the news that a rank has died.
func (m *machine) arrivals(can []explore.Step, rank int) []explore.Step {
	for from, n := range m.w.ranks {
		if len(n.outgoing[rank]) > 0 {
			can = append(can, explore.Step{Kind: deliverStep, A: int32(rank), B: int32(from)})
		}
	}
	if m.dead >= 0 && !m.noticed(rank) {
		can = append(can, explore.Step{Kind: noticeStep, A: int32(rank), B: int32(m.dead)})
	}
	return can
}

// dropLost drops the messages to a rank that has died.
func (m *machine) dropLost() {
	if m.dead >= 0 {
		for _, n := range m.w.ranks {
			n.outgoing[m.dead] = nil
		}
	}
}

// noticed reports whether a rank knows that one has died.
func (m *machine) noticed(rank int) bool { return m.w.ranks[rank].e.lost[m.dead] != nil }

// blocked reports whether a call would block.
func (m *machine) blocked(rank int, a *act) bool {
	switch a.kind {
	case waitAct:
		return !m.reqs[rank][a.target].Done()
	case mprobeAct:
		e := m.w.ranks[rank].e
		_, _, _, found := e.Probe(a.envelope())
		return !found && e.ProbeError(a.envelope()) == nil
	}
	return false
}

func (a *act) envelope() Envelope {
	return Envelope{Source: int32(a.peer), Tag: int32(a.tag)}
}

// SetChooser implements explore.ChoosingMachine: early progress chooses what arrives.
func (m *machine) SetChooser(c explore.Chooser) { m.chooser = c }

// Take implements explore.Machine.
func (m *machine) Take(s explore.Step) error {
	rank := int(s.A)
	n := m.w.ranks[rank]
	defer m.dropLost()
	switch s.Kind {
	case callStep:
		m.call(rank, &m.prog[rank][m.pc[rank]])
		return m.deliverErr
	case transferStep:
		j := &n.transfers[s.B]
		m.note("rank %d transfers %d bytes with rank %d", rank, j.n, j.peer)
		if j.peer == m.dead {
			n.failTransfer(int(s.B))
			return nil
		}
		return m.w.tryTransfer(rank, int(s.B))
	case dieStep:
		m.note("rank %d dies", rank)
		m.dead, n.transfers = rank, nil
		return nil
	default:
		return m.arrive(s, "")
	}
}

// errDead is the error of transfers with a rank that has died.
var errDead = errors.New("dead")

// failTransfer completes a transfer with a rank that has died.
func (n *node) failTransfer(i int) {
	j := n.transfers[i]
	n.transfers = slices.Delete(n.transfers, i, i+1)
	if j.read {
		n.e.ReadDone(j.owner, errDead)
	} else {
		n.e.WriteDone(j.owner, errDead)
	}
}

// arrive delivers a message, or the news that a rank has died.
func (m *machine) arrive(s explore.Step, when string) error {
	rank, from := int(s.A), int(s.B)
	if s.Kind == noticeStep {
		m.note("%srank %d notices that %d has died", when, rank, from)
		m.w.ranks[from].outgoing[rank] = nil
		m.w.ranks[rank].e.Lost(from, errDead)
		return nil
	}
	h := &m.w.ranks[from].outgoing[rank][0].h
	m.note("%srank %d receives %v from %d (flags %d)", when, rank, h.Kind, from, h.Flags)
	if h.Kind == wire.Eager || h.Kind == wire.RTS {
		m.arrivedFrom[rank] = append(m.arrivedFrom[rank], from)
	}
	_, err := m.w.tryDeliver(from, rank)
	return err
}

// progress delivers any of what may arrive, in any order.
func (m *machine) progress(rank int) {
	n := m.w.ranks[rank]
	defer func(was bool) { n.noMemory = was }(n.noMemory)
	n.noMemory = false // registration fails only for the call itself
	for m.deliverErr == nil {
		can := m.arrivals(nil, rank)
		c := m.chooser.Choose("early", len(can)+1)
		if c == 0 {
			return
		}
		m.deliverErr = m.arrive(can[c-1], "during its call ")
	}
}

// note logs an event.
func (m *machine) note(format string, args ...any) {
	if m.log != nil {
		m.log(fmt.Sprintf(format, args...))
	}
}

// call executes the next act of a rank.
func (m *machine) call(rank int, a *act) {
	n, i := m.w.ranks[rank], m.pc[rank]
	m.pc[rank]++
	m.note("rank %d, %d: %v", rank, i, a)
	n.noMemory = a.noMemory
	defer func() { n.noMemory = false }()
	q := &Request{Peer: a.peer, Tag: int32(a.tag), Advertised: a.advertised, Mode: a.mode}
	switch a.kind {
	case sendAct:
		n.noCredit = a.noCredit
		q.Buf = testMessage(1+rank*16+i, a.size)
		m.reqs[rank][i] = q
		n.e.Isend(q)
	case recvAct:
		q.Buf = make([]byte, a.size)
		m.reqs[rank][i] = q
		n.e.Irecv(q)
	case cancelAct:
		n.e.Cancel(m.reqs[rank][a.target])
	case mprobeAct:
		m.mprobed[rank][i] = n.e.Improbe(a.envelope())
	case mrecvAct:
		if message := m.mprobed[rank][a.target]; message != nil { // the probe has not failed
			q = &Request{Buf: make([]byte, a.size)}
			m.reqs[rank][i] = q
			n.e.Imrecv(q, message)
		}
	case waitAct:
	}
}

// merge adds the statistics that the tests check.
func (s *Stats) merge(o *Stats) {
	s.RTRsReceived += o.RTRsReceived
	s.Advertisements += o.Advertisements
	s.RTRsUsed += o.RTRsUsed
	s.RTRsDropped += o.RTRsDropped
	s.RTRsCrossed += o.RTRsCrossed
	s.Mispredicted += o.Mispredicted
	s.SpeculationStopped += o.SpeculationStopped
	s.SpeculationResumed += o.SpeculationResumed
	s.CreditFallbacks += o.CreditFallbacks
	for k := range s.ControlMessages {
		s.ControlMessages[k] += o.ControlMessages[k]
	}
}
