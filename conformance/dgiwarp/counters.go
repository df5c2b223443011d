package dgiwarp

import (
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// counterCase returns a case that runs body and checks the counters against the recorded
// packets. body returns the counts that the record does not show.
func counterCase(name, title, sends string, about []*rig.Counter, body func(*host) rig.Counts) conformance.Case {
	return rig.CounterCase(conformance.Case{
		ID: "counters/dg/" + name, Title: title, Needs: verbs.CapUD, Labels: []string{"service:ud"},
		Sends:   sends,
		Expects: "counters that agree with the recorded packets, and no other counter changed",
		Run: onHost(func(h *host) {
			check := h.StartCounterCheck(counters, about)
			f := make(rig.Counts)
			f.AddAll(body(h))
			f.AddAll(h.receiveOnOtherQP())
			wait := time.Duration(0)
			if !h.Virtual {
				wait = 10 * time.Millisecond
			}
			for more := true; more; { // packets are recorded when they are read
				_, more = h.nextOnWire(wait)
			}
			for _, e := range check.Events() {
				switch e.Kind {
				case conformance.EventSent:
					f.Add(cntRcvdPackets, rig.Exactly(1))
				case conformance.EventReceived:
					f.Add(cntSentPackets, rig.Exactly(1))
				}
			}
			check.Expect(f, nil)
		}),
	}, about)
}

// receiveOnOtherQP waits until the device has processed all earlier packets: another queue
// pair receives a later one. It returns the counts of that.
func (h *host) receiveOnOtherQP() rig.Counts {
	cq, err := h.Device.CreateCQ(verbs.CQInit{Depth: 4})
	h.Must("a completion queue", err)
	h.newQP(setup{cq: cq, receives: 1}).peer(0).sendSegments(iwarp.Send(1, data(8)))
	_, ok := h.PollCQ(cq, h.ResponseTimeout())
	h.Check(ok, "a receive of the other queue pair", "nothing in %v", h.ResponseTimeout())
	return rig.Counts{cntReceives: rig.Exactly(1), cntSendsRcvd: rig.Exactly(1)}
}

// sendRequests sends three Sends and two Writes to a queue pair with three receives.
func (h *host) sendRequests() {
	p := h.newQP(setup{receives: 3}).peer(0)
	for i, n := range []int{8, 16, 24} {
		p.sendSegments(iwarp.Send(uint32(i+1), data(n)))
	}
	p.sendSegments(p.writeToTarget(0, data(8)), p.writeToTarget(0, data(16)))
}

// postRequests has the device send three Sends and two Writes, and returns the number of
// Sends.
func (h *host) postRequests() (sent int) {
	p := h.newQP(setup{}).peer(0)
	for i, op := range []verbs.WROpcode{verbs.OpSend, verbs.OpRDMAWrite, verbs.OpSend, verbs.OpRDMAWrite, verbs.OpSend} {
		p.PostSend(p.qp, p.wr(uint64(100+i), op, 0, 16))
		p.ExpectCompletion(uint64(100+i), verbs.WCSuccess)
		if op == verbs.OpSend {
			sent++
		}
	}
	return sent
}
