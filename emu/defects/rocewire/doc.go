// Package rocewire gives a soft-RoCE NIC defects of Linux's rxe, and a few others that scenarios
// and tests need, in its packets: a Filter between the engine and the link changes, drops and
// delays them. The engine knows nothing of it. Package softroce makes the Filter. Defects that need
// more than a packet are policies of the engine or mutants (package defects).
//
// A received packet that the defective NIC accepts and the engine does not is changed so that the
// engine accepts it. The ICRC is computed again for a changed packet, if it was right before.
//
// The package has no clock and no I/O, like an engine. The caller serializes the calls of a Filter.
package rocewire

import (
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
)

// NIC is the engine behind a Filter.
type NIC interface {
	Input(now mono.Time, d *link.Datagram)
	Output(now mono.Time, ds []link.Datagram) int
	// QPs lists the queue pairs, in the order of their numbers.
	QPs() []QP
}

// QP describes a queue pair of the NIC.
type QP struct {
	Num     uint32
	Service wire.Transport
	Peer    netip.Addr // not valid if the QP is not connected
	PeerQPN uint32
	TClass  uint8    // traffic class of the path
	NextPSN wire.PSN // PSN of the next request of the peer
	Armed   bool     // path migration is armed
}

// Filter is a NIC with defects.
type Filter struct {
	nic     NIC
	defects Defects
	hasICRC bool // packets carry an ICRC

	beforeICRC []step // of received packets, before their ICRC is checked
	received   []step // of received packets with a right ICRC
	sent       []step

	batch   []link.Datagram       // buffers for NIC.Output
	queue   []packet              // packets to send
	delayed []packet              // NAKLate: packets to queue later
	hugeAt  map[remoteQP]wire.PSN // HugeLengthIsAccess: the last request of each connection that was too long
}

// remoteQP identifies a connection by the peer's address and QP number.
type remoteQP struct {
	addr netip.Addr
	qpn  uint32
}

// step applies a defect to a packet. It returns false if the packet is dropped or delayed.
type step func(f *Filter, p *packet) (pass bool)

// New returns a Filter that gives nic the defects, each by steps: functions that change, drop or
// delay a packet. hasICRC says whether packets carry an ICRC.
func New(defects Defects, nic NIC, hasICRC bool) *Filter {
	f := &Filter{nic: nic, defects: defects, hasICRC: hasICRC, batch: make([]link.Datagram, 64), hugeAt: map[remoteQP]wire.PSN{}}
	for i := range f.batch {
		f.batch[i].Payload = make([]byte, 0, wire.MaxPacketLen)
	}
	d := &f.defects
	for _, s := range []struct { // in the order in which the steps of a list apply
		enabled bool
		list    *[]step
		do      step
	}{
		{d.DFUnchecked, &f.beforeICRC, acceptWithoutDF},
		{d.FlushICRCDoubled, &f.beforeICRC, checkDoubledICRC}, // the ICRC of a FLUSH covers the packet twice

		{d.NoCongestion, &f.received, ignoreCongestion},
		{d.ReservedOpSilent, &f.received, dropReservedOpcode},
		{d.RaggedAccepted, &f.received, addPad},
		{d.NoCreditHeeding, &f.received, removeCredits},
		{d.ReservedBitsChecked, &f.received, dropReservedBits},
		{d.MigrationIgnored, &f.received, hideMigReq},
		{d.NAKWaitsForTimer, &f.received, hideSequenceNAK},
		{d.HugeLengthIsAccess, &f.received, recordHugeLength},

		{d.HugeLengthIsAccess, &f.sent, changeHugeNAK},
		{d.AckPSNOff, &f.sent, incrementAckPSN},
		{d.NoCongestion, &f.sent, clearECN},
		{d.ECNFromTClass, &f.sent, copyECN},
		{d.FixedHopLimit, &f.sent, fixHopLimit},
		{d.MigReqZero, &f.sent, clearMigReq},
		{d.GSIAckReq, &f.sent, requestMADAck},
		{d.NoCreditReporting, &f.sent, removeCredits},
		{d.FetchAddLeaks, &f.sent, fillCompare}, // the unused operand of a FETCH_ADD is not 0
		{d.NAKLate, &f.sent, delayNAK},
	} {
		if s.enabled {
			*s.list = append(*s.list, s.do)
		}
	}
	return f
}

// apply applies the steps to a packet until one drops or delays it. pass is false if one did.
func (f *Filter) apply(steps []step, p *packet) (pass bool) {
	for _, s := range steps {
		if !s(f, p) {
			return false
		}
	}
	return true
}

// Input applies the steps for received packets to a copy of a datagram, and passes the copy to the
// NIC unless a step drops it. If the ICRC is wrong or the packet too short for one, only the steps
// of beforeICRC apply. Otherwise the ICRC of a changed packet is computed again.
func (f *Filter) Input(now mono.Time, d *link.Datagram) {
	p := packet{Datagram: *d, now: now}
	p.Payload = append([]byte(nil), d.Payload...)
	f.apply(f.beforeICRC, &p) // these steps drop no packet
	if len(p.Payload) >= wire.BTHLen+wire.ICRCLen && f.checkICRC(&p) {
		if !f.apply(f.received, &p) {
			return
		}
		if p.changed {
			f.setICRC(&p)
		}
	}
	f.nic.Input(now, &p.Datagram)
}

// Output fills ds with datagrams to send, and returns their number: delayed packets that are due,
// then packets of the NIC, to each of which it has applied f.sent, the steps of the defects. A step may
// change, delay or drop the packet. With the defect FlushICRCDoubled, the ICRC of a FLUSH covers the
// packet twice.
func (f *Filter) Output(now mono.Time, ds []link.Datagram) int {
	for len(f.delayed) > 0 && f.Deadline() <= now {
		f.queue = append(f.queue, f.delayed[0])
		f.delayed = f.delayed[1:]
	}
	for len(f.queue) < len(ds) {
		filled := f.nic.Output(now, f.batch)
		if filled == 0 {
			break
		}
		for i := range filled {
			p := packet{Datagram: f.batch[i], now: now}
			p.Payload = append([]byte(nil), p.Payload...)
			if f.apply(f.sent, &p) {
				f.queue = append(f.queue, p)
			}
		}
	}
	n := min(len(ds), len(f.queue))
	for i := range n {
		p := &f.queue[i]
		if p.changed {
			f.setICRC(p)
		}
		if f.defects.FlushICRCDoubled && f.hasICRC && p.isReliable(wire.OpFlush) {
			body, right := p.splitICRC()
			p.replaceICRC(doubledICRC(right, body))
		}
		ds[i] = p.Datagram
	}
	f.queue = f.queue[n:]
	return n
}

// Deadline returns when the first delayed packet must be sent; mono.Never if none is delayed.
func (f *Filter) Deadline() mono.Time {
	if len(f.delayed) == 0 {
		return mono.Never
	}
	return f.delayed[0].now.Add(nakDelay)
}

// findQP returns the NIC's QP with the number num; ok is false if there is none.
func (f *Filter) findQP(num uint32) (q QP, ok bool) {
	for _, q := range f.nic.QPs() {
		if q.Num == num {
			return q, true
		}
	}
	return QP{}, false
}
