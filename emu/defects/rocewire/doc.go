// Package rocewire makes a sound soft-RoCE NIC misbehave at its wire: between the
// engine and the link, packets are changed, dropped, doubled and reordered, and
// answers are made up, so that what a peer sees is a NIC with a defect. The
// engine knows nothing of it. Defects that no packet shows are
// mutants, or for the profiles of rxe policies of the engine (package defects).
//
// A packet that comes in is shown to the engine as one that passes the check
// which the defective NIC lacks; its ICRC is made right for what it has become, but
// only if it was right before. A packet that goes out is a copy of the engine's.
//
// The package is as pure as an engine: no clock, no I/O. An Edge belongs to whom
// its NIC belongs to. It is made for tests and allocates as it likes; a NIC
// without defects has no Edge.
package rocewire

import (
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// NIC is the sound device behind an Edge.
type NIC interface {
	Input(now mono.Time, d *link.Datagram)
	Output(now mono.Time, ds []link.Datagram) int
	// QPs lists the queue pairs, in the order of their numbers.
	QPs() []QP
	// GIDs is the port's table.
	GIDs() []verbs.GIDEntry
	// Dropped counts the packets that were not executed, for whatever reason, and
	// those among them for which no receive was there.
	Dropped() (all, noReceive uint64)
}

// QP is what an Edge knows about a queue pair.
type QP struct {
	Num      uint32
	Service  wire.Transport
	State    verbs.QPState
	Own      netip.Addr // the ends of its path; not valid if it has none
	Peer     netip.Addr
	PeerQPN  uint32
	MTU      int
	TClass   uint8 // of the path
	Access   verbs.Access
	Expected wire.PSN // of the next request
	Armed    bool     // for migration
	Ready    bool     // it has a receive
}

// Edge is a NIC with defects.
type Edge struct {
	nic  NIC
	q    Defects
	icrc bool // packets carry one

	checks []step // what is done to every packet that comes in
	in     []step // and to those that are intact
	out    []step // and to those that go out

	batch []link.Datagram // what the NIC fills
	queue []packet        // what is still to leave
	ahead int             // how many more than asked for are looked at
	talks map[peer]*talk
	dgram map[sender]wire.PSN // UDPSNChecked
	wait  []packet            // UDWaitsForReceive
	late  []packet            // NAKLate, CNPLate
	ports uint16              // SourcePortPerPacket
	marks map[netip.Addr]uint32
}

// step is one defect at work on a packet. It reports whether the packet goes on.
type step func(e *Edge, p *packet) bool

// New puts the defects q around a NIC. icrc says whether its packets carry one.
func New(q Defects, n NIC, icrc bool) *Edge {
	e := &Edge{
		nic: n, q: q, icrc: icrc, batch: make([]link.Datagram, 64),
		talks: map[peer]*talk{}, dgram: map[sender]wire.PSN{}, marks: map[netip.Addr]uint32{},
	}
	for i := range e.batch {
		e.batch[i].Payload = make([]byte, 0, wire.MaxPacketLen)
	}
	if q.AckOvertakesRead || q.Interleaves {
		e.ahead = 1 << 10
	}
	e.plan()
	return e
}

// plan lines up the steps of the defects that are on: addresses before contents,
// and whatever changes a packet's length last.
func (e *Edge) plan() {
	q := &e.q
	for _, f := range []struct {
		on   bool
		list *[]step
		do   step
	}{
		{q.IPv6Dead, &e.checks, onlyIPv4},
		{q.FrameEndICRC, &e.checks, unpadded},
		{q.UDPChecksumRequired, &e.checks, checksummed},
		{q.DFUnchecked, &e.checks, withDF},
		{q.ICRCUnchecked, &e.checks, lenient},
		{q.FlushICRCDoubled, &e.checks, checkDoubledICRC},
		{q.ICRCCheckUnmasked, &e.checks, unchanged},

		{q.IPUnchecked, &e.in, addressed},
		{q.NoCongestion, &e.in, ignoreCongestion},
		{q.ReservedOpSilent, &e.in, dropReserved},
		{q.RaggedAccepted, &e.in, padRagged},
		{q.NoCreditHeeding, &e.in, removeCredits},
		{q.QPNLoose, &e.in, toSomeQP},
		{q.BTHUnchecked, &e.in, asExpected},
		{q.ResponseTVerUnchecked, &e.in, versionOfAnswers},
		{q.MissingHeadersZero, &e.in, completed},
		{q.ReservedBitsChecked, &e.in, nothingReserved},
		{q.SolicitedInverted, &e.in, invertSolicited},
		{q.MigrationIgnored, &e.in, noMigration},
		{q.CNPReservedUsed, &e.in, emptyCNP},
		{q.CNPTakesPSN, &e.in, judgeCNP},
		{q.CNPMisaddressed, &e.in, noteMark},
		{q.PadDelivered, &e.in, padIsData},
		{q.ByteOrderWrong, &e.in, reverse},
		{q.EarlyAckCounts, &e.in, noteEarlyAck},
		{q.ReservedNAKIsAck, &e.in, reservedNAK},
		{q.NAKWaitsForTimer, &e.in, sequenceNAK},
		{q.ResponseLengthUnchecked, &e.in, stretched},
		{q.DupReadDropped, &e.in, noDuplicateRead},
		{q.SubReadWhole, &e.in, wholeRead},
		{q.ReplayKeepsOne, &e.in, lastAtomicOnly},
		{q.ReadNeedsAckReq, &e.in, noteUnasked},
		{q.HugeLengthIsAccess, &e.in, noteHuge},
		{q.AccessNAKsSwapped, &e.in, noteNeed},
		{q.ReadTakesOnePSN, &e.in, stretchPSN},
		{q.UCLikeRC, &e.in, onlyPositive},
		{q.UDPSNChecked, &e.in, newDatagram},
		{q.UDWaitsForReceive, &e.in, waitForReceive},

		{q.IPv6Dead, &e.out, onlyIPv4},
		{q.ReadNeedsAckReq, &e.out, onlyAsked},
		{q.NoAcks, &e.out, noAck},
		{q.RNRSilent, &e.out, noRNR},
		{q.HugeLengthIsAccess, &e.out, hugeNAK},
		{q.AccessNAKsSwapped, &e.out, swapNAK},
		{q.BadRecvKeyIsAccess, &e.out, operationalNAK},
		{q.RNRTimerIgnored, &e.out, fixedRNR},
		{q.CreditsInvented, &e.out, inventCredits},
		{q.MSNLate, &e.out, lateMSN},
		{q.AckPSNOff, &e.out, nextPSN},
		{q.ReadPSNStuck, &e.out, samePSN},
		{q.ReadTakesOnePSN, &e.out, shrinkPSN},
		{q.AckSolicited, &e.out, solicit},
		{q.AckPKeyLimited, &e.out, limited},
		{q.AckBECN, &e.out, warn},
		{q.AckReqNever, &e.out, askNothing},
		{q.UnreliableAckReq, &e.out, askAnyway},
		{q.ByteOrderWrong, &e.out, reverse},
		{q.GSIQKeyZero, &e.out, zeroQKey},
		{q.CNPMisaddressed, &e.out, misaddress},
		{q.CNPReservedUsed, &e.out, fillCNP},
		{q.EarlyAckCounts, &e.out, ackEarly},
		{q.AnswersNoDSCP, &e.out, noDSCP},
		{q.NoCongestion, &e.out, clearECT},
		{q.ECNFromTClass, &e.out, copyECN},
		{q.FixedHopLimit, &e.out, fixHopLimit},
		{q.MigReqZero, &e.out, clearMigReq},
		{q.GSIAckReq, &e.out, requestMADAck},
		{q.NoCreditReporting, &e.out, removeCredits},
		{q.FetchAddLeaks, &e.out, leakCompare},
		{q.PrimaryAddressUsed, &e.out, fromFirst},
		{q.SourcePortPerPacket, &e.out, nextPort},
		{q.AETHInMiddle, &e.out, aethInMiddle},
		{q.AckPayload, &e.out, loadAck},
		{q.RETHPerPacket, &e.out, rethInEach},
		{q.XRCETHMisplaced, &e.out, moveXRCETH},
		{q.PadSloppy, &e.out, padToTwo},
		{q.ReservedBitsSent, &e.out, setReserved},
		{q.TrailingBytes, &e.out, trail},
		{q.PlainSocket, &e.out, plainly},
		{q.NAKLate, &e.out, holdNAK},
		{q.CNPLate, &e.out, holdCNP},
	} {
		if f.on {
			*f.list = append(*f.list, f.do)
		}
	}
}

// Input handles one datagram, as the NIC's does.
func (e *Edge) Input(now mono.Time, d *link.Datagram) {
	e.deliverWaiting(now)
	p := packet{Datagram: *d, now: now}
	p.Payload = append([]byte(nil), d.Payload...)
	if !e.pass(&p, e.checks) {
		return
	}
	if len(p.Payload) < wire.BTHLen+wire.ICRCLen || !e.intact(&p) {
		e.nic.Input(now, &p.Datagram) // which drops and counts it
		return
	}
	if e.pass(&p, e.in) {
		e.hand(&p)
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

// hand gives a packet to the NIC.
func (e *Edge) hand(p *packet) {
	if p.changed {
		e.seal(p)
	}
	if e.q.UCLikeRC {
		e.handUC(p)
		return
	}
	e.nic.Input(p.now, &p.Datagram)
}

// Output fills ds with what is to leave, as the NIC's does.
func (e *Edge) Output(now mono.Time, ds []link.Datagram) int {
	e.deliverWaiting(now)
	e.releaseLate(now)
	for len(e.queue) < len(ds)+e.ahead {
		k := e.nic.Output(now, e.batch)
		if k == 0 {
			break
		}
		for i := range k {
			e.send(now, &e.batch[i])
		}
	}
	if e.q.AckOvertakesRead {
		e.acksFirst()
	}
	if e.q.Interleaves {
		e.interleave()
	}
	n := min(len(ds), len(e.queue))
	for i := range n {
		e.finish(&e.queue[i])
		ds[i] = e.queue[i].Datagram
	}
	e.queue = e.queue[n:]
	return n
}

// send queues a packet of the NIC's.
func (e *Edge) send(now mono.Time, d *link.Datagram) {
	p := packet{Datagram: *d, now: now, outgoing: true}
	p.Payload = append(make([]byte, 0, len(d.Payload)+wire.MaxHeaderLen), d.Payload...)
	if e.pass(&p, e.out) {
		e.queue = append(e.queue, p)
	}
}

// finish makes the ICRC of a packet right that leaves otherwise than the NIC
// made it.
func (e *Edge) finish(p *packet) {
	if p.changed {
		e.seal(p)
	}
	if e.q.FlushICRCDoubled {
		e.doubleICRC(p)
	}
	if p.trailer > 0 {
		p.Payload = append(p.Payload, make([]byte, p.trailer)...)
	}
}
