// Package dgwire makes a sound datagram-iWARP NIC misbehave at its wire: between the
// engine and the link, packets are changed, dropped, doubled and cut, and answers
// are made up, so that what a peer sees is a NIC with a defect. The engine knows
// nothing of it. Defects that a packet does not show are mutants, in emu/defects/mutants.
//
// A packet that comes in is shown to the engine as one that passes the check which
// the defective NIC lacks; its CRC is made right for what it has become, but only if
// it was right before. A packet that goes out is a copy of the engine's.
//
// The package is as pure as an engine: no clock, no I/O. An Edge belongs to whom
// its NIC belongs to. It is made for tests and allocates as it likes; a NIC without
// defects has no Edge.
package dgwire

import (
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// NIC is the sound device behind an Edge.
type NIC interface {
	Input(now mono.Time, d *link.Datagram)
	Output(now mono.Time, ds []link.Datagram) int
	// QPs lists the queue pairs, in the order of their numbers.
	QPs() []QP
}

// QP is what an Edge knows about a queue pair.
type QP struct {
	Num      uint32
	Key      uint32
	Reliable bool
}

// Edge is a NIC with defects.
type Edge struct {
	nic NIC
	q   Defects

	checks []step // what is done to every packet that comes in, octets as it is
	in     []step // and to those that are intact and well formed
	out    []step // and to those that go out

	batch    []link.Datagram // what the NIC fills
	queue    []packet        // what is still to leave
	flows    map[peer]*flow
	numbers  map[peer]*numbers  // NumbersByPeer
	messages map[message]uint32 // SegmentsInOrder: where the next segment begins
	writes   map[target]uint64
}

// peer is a queue pair elsewhere, as one of the NIC's own sees it.
type peer struct {
	addr     netip.AddrPort
	own, its uint32
}

// step is one defect at work on a packet. It reports whether the packet goes on.
type step func(e *Edge, p *packet) bool

// batchLen is how many packets are fetched from the NIC at once.
const batchLen = 64

// New puts the defects q around a NIC.
func New(q Defects, n NIC) *Edge {
	e := &Edge{
		nic: n, q: q, batch: make([]link.Datagram, batchLen), flows: map[peer]*flow{}, numbers: map[peer]*numbers{},
		messages: map[message]uint32{}, writes: map[target]uint64{},
	}
	e.plan()
	return e
}

// plan lines up the steps of the defects that are on: what decides whether a packet
// is looked at before what changes it, and what makes two of one last.
func (e *Edge) plan() {
	q := &e.q
	for _, f := range []struct {
		on   bool
		list *[]step
		do   step
	}{
		{q.CRCUnchecked, &e.checks, takeAnyCRC},
		{q.CRCCoversPorts, &e.checks, checkPorts},
		{q.StrangePacketsTaken, &e.checks, makeOrdinary},

		{q.ReservedLookedAt, &e.in, nothingReserved},
		{q.ZeroUnknown, &e.in, numbered},
		{q.NumberIgnored, &e.in, toTheFirst},
		{q.KeysUnused, &e.in, withKey},
		{q.KeyOnEverything, &e.in, keyed},
		{q.QueueNumberIgnored, &e.in, queueOfOpcode},
		{q.NumbersByPeer, &e.in, nextNumber},
		{q.SegmentsInOrder, &e.in, follows},
		{q.ErrorsFlood, &e.in, answerError},
		{q.ChallengeIgnored, &e.in, noChallenge},
		{q.RefusalIgnored, &e.in, noRefusal},
		{q.IncarnationsIgnored, &e.in, sameLife},
		{q.RefusesEverything, &e.in, refuse},
		{q.GhostAckTaken, &e.in, withinSent},
		{q.RepeatsUnheeded, &e.in, noRepeats},
		{q.MarksIgnored, &e.in, noMarks},

		{true, &e.out, noteFlow},
		{q.UnknownFlowSilent, &e.out, knowsEverything},
		{q.StartFlagOnce, &e.out, startOnce},
		{q.AckRidesStale, &e.out, staleAck},
		{q.NeverAsksNow, &e.out, noAckNow},
		{q.MarksIgnored, &e.out, noMarks},
		{q.NumbersGoOn, &e.out, goOn},
		{q.NumbersByPeer, &e.out, numberByPeer},
		{q.RecordFieldsSwapped, &e.out, swapRecord},
		{q.ErrorWithoutHeader, &e.out, bareError},
		{q.KeysUnused, &e.out, withoutKey},
		{q.ReservedSent, &e.out, setReserved},
		{q.CutsAtRandom, &e.out, cut},
		{q.ErrorsFlood, &e.out, twice},
	} {
		if f.on {
			*f.list = append(*f.list, f.do)
		}
	}
}

// Input handles one datagram, as the NIC's does.
func (e *Edge) Input(now mono.Time, d *link.Datagram) {
	p := packet{Datagram: *d, now: now}
	p.Payload = append([]byte(nil), d.Payload...)
	if !e.pass(&p, e.checks) {
		return
	}
	if !wire.CheckCRC(p.Payload) || p.Parse(p.Payload) != nil {
		e.nic.Input(now, &p.Datagram) // which drops and counts it
		return
	}
	if e.pass(&p, e.in) {
		p.Payload = p.Packet.Append(nil)
		e.nic.Input(now, &p.Datagram)
	}
}

func (e *Edge) pass(p *packet, steps []step) bool {
	for _, s := range steps {
		if !s(e, p) {
			return false
		}
	}
	return true
}

// Output fills ds with what is to leave, as the NIC's does.
func (e *Edge) Output(now mono.Time, ds []link.Datagram) int {
	for len(e.queue) < len(ds) {
		k := e.nic.Output(now, e.batch)
		for i := range k {
			p := packet{Datagram: e.batch[i], now: now}
			p.Payload = append([]byte(nil), e.batch[i].Payload...)
			if p.Parse(p.Payload) == nil && e.pass(&p, e.out) {
				e.queue = append(e.queue, p)
			}
		}
		if k < len(e.batch) {
			break
		}
	}
	n := min(len(ds), len(e.queue))
	for i := range n {
		e.finish(&e.queue[i])
		ds[i] = e.queue[i].Datagram
	}
	e.queue = e.queue[n:]
	return n
}

// qp returns the queue pair with a number of a packet. 0 stands for the only queue pair.
func (e *Edge) qp(num uint32) (QP, bool) {
	all := e.nic.QPs()
	if num == 0 && len(all) == 1 {
		return all[0], true
	}
	for _, q := range all {
		if q.Num == num {
			return q, true
		}
	}
	return QP{}, false
}
