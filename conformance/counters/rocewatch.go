package counters

import (
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/conformance/roce"
)

// rocePort is a port whose packets are counted.
type rocePort struct {
	*roce.Port
	about      []quantity
	before     values
	firstEvent int // index of the first recorded event that counts
}

// onRoCE makes the body of a case about these quantities. body returns the counts that
// the record does not show.
func onRoCE(about []quantity, body func(*rocePort) counts) func(*conformance.Bench) error {
	return roce.OnPort(func(p *roce.Port) {
		roceNames.requireAny(p.Rig, about...)
		p.Sync() // the first Sync makes a connection
		events, _ := p.Record.Events()
		w := &rocePort{p, about, readCounters(p.Rig), len(events)}
		w.checkCounters(body(w))
	})
}

// checkCounters compares the counters with the recorded packets and the extra counts.
func (w *rocePort) checkCounters(extra counts) {
	w.Drain(0) // received packets are recorded when they are read
	events, beyond := w.Record.Events()
	if beyond > 0 {
		rig.Abort(fmt.Errorf("the record lacks %d events", beyond))
	}
	t := newTally()
	for i := range events[w.firstEvent:] {
		t.addEvent(&events[w.firstEvent+i])
	}
	for q, n := range extra {
		t.counts[q] = t.counts[q].plus(n)
	}
	custom := map[quantity]func(uint64) bool{sentBytes: t.out.oneOf, rcvdBytes: t.in.oneOf}
	judged := func(q quantity) bool { return !ambiguous[q] || slices.Contains(w.about, q) }
	roceNames.expectIncreases(w.Rig, judged, w.before, readCounters(w.Rig), t.counts, custom)
}

// ambiguous are quantities that grow with all traffic and whose names leave a choice:
// whether dropped packets count as received, and NAKs as ACKs. Only cases about them
// check them.
var ambiguous = map[quantity]bool{
	sentPackets: true, rcvdPackets: true, sentBytes: true, rcvdBytes: true,
	sends: true, receives: true, acksSent: true, acksRcvd: true,
	dgSendsRcvd: true, dgWrites: true,
}

// byteTotals are the lengths of packets in the units that devices may count.
type byteTotals struct{ payloads, packets, frames uint64 }

func (o *byteTotals) add(ip []byte, p *ib.Packet) {
	headers := 40 + 8
	if p.IP.Src.Is4() {
		headers = 20 + 8
	}
	o.payloads += uint64(len(ip) - headers)
	o.packets += uint64(len(ip))
	o.frames += uint64(len(ip) + 14)
}

func (o *byteTotals) oneOf(n uint64) bool { return oneOf(o.payloads, o.packets, o.frames)(n) }

// tally counts recorded packets.
type tally struct {
	counts  counts
	in, out byteTotals
	// next is the PSN after the last request packet of the device, for each QPN of the
	// peer.
	next map[uint32]ib.PSN
}

func newTally() *tally { return &tally{counts: make(counts), next: make(map[uint32]ib.PSN)} }

func (t *tally) add(q quantity) { t.counts[q] = t.counts[q].plus(exactly(1)) }

// addEvent counts a recorded event.
func (t *tally) addEvent(e *conformance.Event) {
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

// classify counts a valid packet by its kind.
func (t *tally) classify(p *ib.Packet, fromDevice bool) {
	if !fromDevice && *p.IP.TClass&3 == 3 {
		t.add(marksSeen)
	}
	which := func(sent, rcvd quantity) quantity {
		if fromDevice {
			return sent
		}
		return rcvd
	}
	info, _ := p.Info()
	if info.Response && info.Transport == ib.RC {
		t.addResponse(p, which(acksSent, acksRcvd))
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
	case fromDevice && !info.Response && info.Transport == ib.RC:
		t.addRequest(p, info)
	}
}

// addResponse counts a response. It is not specified whether other responses count as
// ACKs.
func (t *tally) addResponse(p *ib.Packet, q quantity) {
	n := between(0, 1)
	if p.IsAck(ib.AckPositive) {
		n = exactly(1)
	}
	t.counts[q] = t.counts[q].plus(n)
}

// addRequest counts a request packet of the device if it is a retransmission.
func (t *tally) addRequest(p *ib.Packet, info ib.OpInfo) {
	n := 1
	if info.Kind == ib.KindReadRequest {
		n = ib.Packets(int(*p.RETH.Len), roce.MTU)
	}
	next, begun := t.next[p.DestQP()]
	if begun && p.PSN().Less(next) {
		t.add(resentPkts)
	}
	if end := p.PSN().Add(n); !begun || next.Less(end) {
		t.next[p.DestQP()] = end
	}
}
