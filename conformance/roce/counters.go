package roce

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// counterCase returns a case that runs body and checks the counters against the recorded
// packets. body returns the counts that the record does not show.
func counterCase(name, title, sends string, about []*rig.Counter, body func(*Port) rig.Counts) conformance.Case {
	return rig.CounterCase(conformance.Case{
		ID: "counters/roce/" + name, Title: title, Needs: verbs.CapRC, Labels: labelRC, Sends: sends,
		Expects: "counters that agree with the recorded packets, and no other counter changed",
		Run: OnPort(func(p *Port) {
			p.Sync() // the first Sync makes a connection
			check := p.StartCounterCheck(counters, about)
			t := tally{counts: body(p), next: make(map[uint32]ib.PSN)}
			if t.counts == nil {
				t.counts = make(rig.Counts)
			}
			p.Drain(0) // received packets are recorded when they are read
			for _, e := range check.Events() {
				t.addEvent(&e)
			}
			check.Expect(t.counts, map[*rig.Counter][]uint64{cntSentBytes: t.out[:], cntRcvdBytes: t.in[:]})
		}),
	}, about)
}

// byteTotals are the lengths of packets in the units that devices may count: payloads of
// UDP, IP packets and Ethernet frames.
type byteTotals [3]uint64

func (o *byteTotals) add(ip []byte, p *ib.Packet) {
	headers := 40 + 8
	if p.IP.Src.Is4() {
		headers = 20 + 8
	}
	for i, n := range [...]int{len(ip) - headers, len(ip), len(ip) + 14} {
		o[i] += uint64(n)
	}
}

// tally counts recorded packets.
type tally struct {
	counts  rig.Counts
	in, out byteTotals
	// next is the PSN after the last request packet of the device, for each QPN of the
	// peer.
	next map[uint32]ib.PSN
}

func (t *tally) add(c *rig.Counter) { t.counts.Add(c, rig.Exactly(1)) }

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
		t.add(cntRcvdPackets)
		t.in.add(e.Data, &p)
	} else {
		t.add(cntSentPackets)
		t.out.add(e.Data, &p)
	}
	if err == nil && p.CheckICRC() == nil {
		t.classify(&p, e.Kind == conformance.EventReceived)
	}
}

// classify counts a valid packet by its kind.
func (t *tally) classify(p *ib.Packet, fromDevice bool) {
	if !fromDevice && *p.IP.TClass&3 == 3 {
		t.add(cntMarksSeen)
	}
	which := func(sent, rcvd *rig.Counter) *rig.Counter {
		if fromDevice {
			return sent
		}
		return rcvd
	}
	info, _ := p.Info()
	if info.Response && info.Transport == ib.RC {
		t.addResponse(p, which(cntAcksSent, cntAcksRcvd))
	}
	switch {
	case p.Opcode() == ib.OpCNP:
		t.add(which(cntCNPsSent, cntCNPsHandled))
	case info.Transport == ib.UD && p.DestQP() == ib.GSIQPN:
		t.add(which(cntMADsSent, cntMADsRcvd))
	case p.IsAck(ib.AckRNR):
		t.add(which(cntRNRNAKsSent, cntRNRNAKsRcvd))
	case p.IsNak(ib.NakSequence):
		t.add(which(cntSeqNAKsSent, cntSeqNAKsRcvd))
	case p.IsAck(ib.AckNegative):
		t.add(which(cntFatalSent, cntFatalRcvd))
	case fromDevice && !info.Response && info.Transport == ib.RC:
		t.addRequest(p, info)
	}
}

// addResponse counts a response. It is not specified whether other responses count as
// ACKs.
func (t *tally) addResponse(p *ib.Packet, c *rig.Counter) {
	n := rig.Between(0, 1)
	if p.IsAck(ib.AckPositive) {
		n = rig.Exactly(1)
	}
	t.counts.Add(c, n)
}

// addRequest counts a request packet of the device if it is a retransmission.
func (t *tally) addRequest(p *ib.Packet, info ib.OpInfo) {
	n := 1
	if info.Kind == ib.KindReadRequest {
		n = ib.Packets(int(*p.RETH.Len), MTU)
	}
	next, begun := t.next[p.DestQP()]
	if begun && p.PSN().Less(next) {
		t.add(cntResentPkts)
	}
	if end := p.PSN().Add(n); !begun || next.Less(end) {
		t.next[p.DestQP()] = end
	}
}
