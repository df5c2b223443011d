package dgiwarp

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// The counters of the packets that reliable-datagram devices send.
var (
	cntDataSent       = rig.NewCounter("data packets sent", "rd_sent_data")
	cntDataAgain      = rig.NewCounter("data packets retransmitted", "rd_sent_again")
	cntAcksSent       = rig.NewCounter("acknowledgements sent", "rd_sent_acks")
	cntChallengesSent = rig.NewCounter("Challenges sent", "rd_sent_challenges")
	cntRefusalsSent   = rig.NewCounter("Refusals sent", "rd_sent_refusals")
)

// rdCounters are all of them.
var rdCounters = []*rig.Counter{
	cntSentPackets, cntDataSent, cntDataAgain, cntAcksSent, cntChallengesSent, cntRefusalsSent,
}

// rdCounterCase returns the case about the packets that a device sends to a partner. Messages go
// in both directions, and the bench records all packets of the device.
func rdCounterCase() conformance.Case {
	about := []*rig.Counter{cntSentPackets, cntDataSent, cntDataAgain, cntAcksSent, cntChallengesSent}
	return rig.CounterCase(conformance.Case{
		ID:    "counters/dg/reliable-datagrams",
		Title: "Data packets, retransmissions, acknowledgements and Challenges are counted",
		Needs: needsRD, Setup: setupRD, Labels: []string{"service:rd"},
		Sends:   "nothing: the device and a partner send each other 40 messages, over a lossy path if the bench has one",
		Expects: "counters that agree with the recorded packets of the device",
		Run: rig.PairBody(func(p *rig.Pair) {
			check := p.DUT.StartCounterCheck(rdCounters, about)
			p.SetPath(conformance.Path{LossPPM: 100_000})
			exchangeMessages(p)
			// Wait for late packets, such as the last Ack.
			check.Expect(countSent(p.DUT, 100*time.Millisecond), nil)
		}),
	}, about)
}

// exchangeMessages has the partner send 40 messages, and then the device.
func exchangeMessages(p *rig.Pair) {
	const messages, batch = 40, 8
	near, far := p.Connect()
	// The receiver of the first message, the device, sends a Challenge.
	for _, way := range [][2]*rig.Endpoint{{far, near}, {near, far}} {
		from, to := way[0], way[1]
		out, in := from.Memory(64, verbs.AccessLocalWrite), to.Memory(256, verbs.AccessLocalWrite)
		for range messages / batch {
			for i := range batch {
				to.PostRecv(to.QP, uint64(i), in.SGE(0, 256))
			}
			for i := range batch {
				from.PostSend(verbs.SendWR{WRID: uint64(i), Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: out.SGL(0, 64)})
			}
			for range batch {
				from.NextSuccess()
				to.NextSuccess()
			}
		}
	}
}

// countSent counts the packets of the device until it has been silent for this time.
func countSent(r *rig.Rig, quiet time.Duration) rig.Counts {
	f := make(rig.Counts)
	seen := make(map[string]bool)
	for {
		frame, err := r.Wire.Recv(quiet)
		switch {
		case errors.Is(err, verbs.ErrTimeout):
			return f
		case err != nil:
			rig.Abort(err)
		}
		if a, ok := parseFrame(frame); ok && slices.Contains(r.Local, a.IP.Src) { // neighbour discovery and similar are not counted
			addSent(f, a.ReceivedPacket, seen)
		}
	}
}

// addSent counts a packet. It is not specified whether retransmissions count as data, and
// whether an acknowledgement in a data packet counts.
func addSent(f rig.Counts, g iwarp.ReceivedPacket, seen map[string]bool) {
	f.Add(cntSentPackets, rig.Exactly(1))
	if g.Ack != nil {
		if g.Data == nil {
			f.Add(cntAcksSent, rig.Exactly(1))
		} else {
			f.Add(cntAcksSent, rig.Between(0, 1))
		}
	}
	switch iwarp.Val(g.Header.Kind) {
	case iwarp.KindChallenge:
		f.Add(cntChallengesSent, rig.Exactly(1))
	case iwarp.KindRefusal:
		f.Add(cntRefusalsSent, rig.Exactly(1))
	}
	if g.Data == nil {
		return
	}
	key := fmt.Sprint(iwarp.Val(g.Header.DestQP), iwarp.Val(g.Header.SourceQP), iwarp.Val(g.Data.Epoch), iwarp.Val(g.Data.Seq))
	if seen[key] {
		f.Add(cntDataAgain, rig.Exactly(1))
		f.Add(cntDataSent, rig.Between(0, 1))
	} else {
		f.Add(cntDataSent, rig.Exactly(1))
	}
	seen[key] = true
}
