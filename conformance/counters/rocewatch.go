package counters

import (
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rcpeer"
	"github.com/fabrictest/fabrictest/conformance/rig"
)

// rocePort is a port whose packets are counted.
type rocePort struct {
	*rcpeer.Port
	about  []quantity
	before values
	first  int // of the events of the record that count
}

// onRoCE makes the body of a case that is about some quantities. It returns what has
// happened besides what the packets of the record tell by themselves.
func onRoCE(about []quantity, body func(*rocePort) found) func(*conformance.Bench) error {
	return rcpeer.Body(func(p *rcpeer.Port) {
		roce.has(p.Rig, about...)
		p.Sync() // it makes a connection of its own at the first time
		events, _ := p.Record.Events()
		w := &rocePort{p, about, look(p.Rig), len(events)}
		w.judge(body(w))
	})
}

// judge holds the counters against the record, and what the case says besides.
func (w *rocePort) judge(happened found) {
	w.Drain(0) // what has come is in the record when it is read
	events, beyond := w.Record.Events()
	if beyond > 0 {
		rig.Abort(fmt.Errorf("the record lacks %d events", beyond))
	}
	t := newTally()
	for i := range events[w.first:] {
		t.take(&events[w.first+i])
	}
	for q, n := range happened {
		t.found[q] = t.found[q].plus(n)
	}
	strange := map[quantity]func(uint64) bool{sentBytes: t.out.oneOf, rcvdBytes: t.in.oneOf}
	judged := func(q quantity) bool { return !busy[q] || slices.Contains(w.about, q) }
	roce.agree(w.Rig, judged, w.before, look(w.Rig), t.found, strange)
}

// busy are quantities that grow with whatever is done, and whose names leave a choice:
// whether what is dropped was received, and a NAK is an ACK. They are judged by cases
// that are about them.
var busy = map[quantity]bool{
	sentPackets: true, rcvdPackets: true, sentBytes: true, rcvdBytes: true,
	sends: true, receives: true, acksSent: true, acksRcvd: true,
	dgSendsRcvd: true, dgWrites: true,
}

// octets are the lengths of packets in the units in which they may be counted.
type octets struct{ payloads, packets, frames uint64 }

func (o *octets) add(ip []byte, p *ib.Packet) {
	headers := 40 + 8
	if p.IP.Src.Is4() {
		headers = 20 + 8
	}
	o.payloads += uint64(len(ip) - headers)
	o.packets += uint64(len(ip))
	o.frames += uint64(len(ip) + 14)
}

func (o *octets) oneOf(n uint64) bool { return oneOf(o.payloads, o.packets, o.frames)(n) }

// tally counts what packets tell by themselves.
type tally struct {
	found   found
	in, out octets
	// next is the PSN behind the last that the device has sent in a request, for each
	// of the peer's queue pairs.
	next map[uint32]ib.PSN
}

func newTally() *tally { return &tally{found: make(found), next: make(map[uint32]ib.PSN)} }

func (t *tally) add(q quantity) { t.found[q] = t.found[q].plus(exactly(1)) }

// take counts an event of the record.
func (t *tally) take(e *conformance.Event) {
	if e.Kind != conformance.EventSent && e.Kind != conformance.EventReceived {
		return
	}
	p, err := ib.Parse(e.Data)
	if p.UDP.DstPort == nil || *p.UDP.DstPort != ib.Port {
		return
	}
	if e.Kind == conformance.EventSent {
		t.add(rcvdPackets)
		t.in.add(e.Data, &p)
	} else {
		t.add(sentPackets)
		t.out.add(e.Data, &p)
	}
	if err == nil && p.CheckICRC() == nil {
		t.classify(&p, e.Kind == conformance.EventReceived)
	}
}

// classify counts a sound packet for what it is.
func (t *tally) classify(p *ib.Packet, came bool) {
	if !came && *p.IP.TClass&3 == 3 {
		t.add(marksSeen)
	}
	which := func(sent, rcvd quantity) quantity {
		if came {
			return sent
		}
		return rcvd
	}
	info, _ := p.Info()
	if info.Response && info.Transport == ib.RC {
		t.answer(p, which(acksSent, acksRcvd))
	}
	switch {
	case p.Opcode() == ib.OpCNP:
		t.add(which(cnpsSent, cnpsHandled))
	case info.Transport == ib.UD && p.DestQP() == ib.GSIQPN:
		t.add(which(madsSent, madsRcvd))
	case p.IsAck(ib.AckRNR):
		t.add(which(rnrNAKsSent, rnrNAKsRcvd))
	case p.IsNak(ib.NakSequence):
		t.add(which(seqNAKsSent, seqNAKsRcvd))
	case p.IsAck(ib.AckNegative):
		t.add(which(fatalSent, fatalRcvd))
	case came && !info.Response && info.Transport == ib.RC:
		t.request(p, info)
	}
}

// answer counts an answer. Whether what counts ACKs counts others as well, nobody says.
func (t *tally) answer(p *ib.Packet, q quantity) {
	n := between(0, 1)
	if p.IsAck(ib.AckPositive) {
		n = exactly(1)
	}
	t.found[q] = t.found[q].plus(n)
}

// request counts a request of the device's that it has sent before.
func (t *tally) request(p *ib.Packet, info ib.OpInfo) {
	n := 1
	if info.Kind == ib.KindReadRequest {
		n = ib.Packets(int(*p.RETH.Len), rcpeer.MTU)
	}
	next, begun := t.next[p.DestQP()]
	if begun && p.PSN().Less(next) {
		t.add(resentPkts)
	}
	if end := p.PSN().Add(n); !begun || next.Less(end) {
		t.next[p.DestQP()] = end
	}
}
