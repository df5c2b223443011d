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

// counterCase returns a case about some counters, which runs body and then checks all counters: of
// packets by the recorded packets, of others by the values that body returns.
func counterCase(name, title, sends string, about []*rig.Counter, body func(*host) rig.Counts) conformance.Case {
	return rig.CounterCase(conformance.Case{
		ID: "counters/dg/" + name, Title: title, Sends: sends,
		Expects: "counters that agree with the recorded packets, and no other counter changed",
		Run: onHost(func(h *host) {
			check := h.StartCounterCheck(counters, about)
			counts := make(rig.Counts)
			counts.AddAll(body(h))
			counts.AddAll(h.receiveOnOtherQP())
			wait := time.Duration(0)
			if !h.Virtual {
				wait = 10 * time.Millisecond
			}
			for more := true; more; { // packets are recorded when they are read
				_, more = h.nextOnWire(wait)
			}
			for _, e := range check.Events() {
				switch e.Kind {
				case conformance.EventSent: // by the case, to the device
					counts.Add(cntRcvdPackets, rig.Exactly(1))
				case conformance.EventReceived: // from the device
					counts.Add(cntSentPackets, rig.Exactly(1))
				}
			}
			check.Expect(counts, nil) // nil: no counters of bytes
		}),
	}, about)
}

// receiveOnOtherQP waits until the device has processed all earlier packets: another queue
// pair receives a later one. It returns the counts of this packet.
func (h *host) receiveOnOtherQP() rig.Counts {
	cq := h.CreateCQ(verbs.CQInit{Depth: 4})
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

// postRequests has the device send three Sends and two Writes, and returns the number of Sends.
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

// The counters of datagram-iWARP devices.
var (
	cntSentPackets  = rig.NewAmbiguousCounter("packets sent", "sent_packets")
	cntRcvdPackets  = rig.NewAmbiguousCounter("packets received", "rcvd_packets")
	cntSends        = rig.NewAmbiguousCounter("SENDs sent, or acknowledged", "rdma_sends")
	cntReceives     = rig.NewAmbiguousCounter("completed receives", "rdma_recvs")
	cntSendsRcvd    = rig.NewAmbiguousCounter("messages received", "rcvd_sends")
	cntWritesRcvd   = rig.NewAmbiguousCounter("segments of Writes received", "rcvd_writes")
	cntBadCRC       = rig.NewCounter("packets with a wrong CRC", "drop_crc")
	cntMalformed    = rig.NewCounter("malformed packets", "drop_malformed")
	cntBadQPN       = rig.NewCounter("packets with an unknown QPN", "drop_qpn")
	cntBadKey       = rig.NewCounter("packets with a wrong key", "drop_key")
	cntBadState     = rig.NewCounter("packets for a queue pair that is not in RTR", "drop_state")
	cntNoReceive    = rig.NewCounter("messages without a posted receive", "drop_no_receive")
	cntBadSegment   = rig.NewCounter("invalid segments", "drop_segment")
	cntWrongService = rig.NewCounter("packets of another service", "drop_service")
	cntErrorsFound  = rig.NewCounter("errors detected", "errors_found")
	cntErrorsRcvd   = rig.NewCounter("errors reported by a peer", "errors_rcvd")
	cntOverruns     = rig.NewCounter("CQ overruns", "cq_overrun")
)

// counters are the counters that all cases check, but for the ambiguous ones.
var counters = []*rig.Counter{
	cntSentPackets, cntRcvdPackets, cntSends, cntReceives, cntSendsRcvd, cntWritesRcvd, cntBadCRC, cntMalformed,
	cntBadQPN, cntBadKey, cntBadState, cntNoReceive, cntBadSegment, cntWrongService, cntErrorsFound,
	cntErrorsRcvd, cntOverruns,
}

// dropsPerCase is how many packets of each kind are sent.
const dropsPerCase = 3

// counterCases returns the cases about counters. The function of a case returns the counts that it
// expects; those of sent and received packets it may leave out, because counterCase counts the
// recorded packets.
func counterCases() []conformance.Case {
	all := []conformance.Case{
		counterCase("what-is-received", "Received packets are counted",
			"three Sends and two Writes", []*rig.Counter{cntRcvdPackets},
			func(h *host) rig.Counts {
				h.sendRequests()
				return nil
			}),
		counterCase("messages", "Received Sends and Writes are counted",
			"three Sends and two Writes", []*rig.Counter{cntSendsRcvd, cntWritesRcvd},
			func(h *host) rig.Counts {
				h.sendRequests()
				return rig.Counts{cntSendsRcvd: rig.Exactly(3), cntWritesRcvd: rig.Exactly(2)}
			}),
		counterCase("receives", "Completed receives are counted, and nothing else",
			"three Sends and two Writes", []*rig.Counter{cntReceives},
			func(h *host) rig.Counts {
				h.sendRequests()
				for i, n := range []int{8, 16, 24} {
					h.ExpectRecv(uint64(i+1), grhAreaLen+n)
				}
				return rig.Counts{cntReceives: rig.Exactly(3)}
			}),
		counterCase("what-is-sent", "Sent packets are counted",
			"nothing: the device sends three Sends and two Writes", []*rig.Counter{cntSentPackets},
			func(h *host) rig.Counts {
				h.postRequests()
				return nil
			}),
		counterCase("sends", "Sends of the device are counted, and no other requests",
			"nothing: the device sends three Sends and two Writes", []*rig.Counter{cntSends},
			func(h *host) rig.Counts { return rig.Counts{cntSends: rig.Exactly(h.postRequests())} }),
	}
	for _, d := range []struct {
		name        string
		counter     *rig.Counter
		description string
		modify      func(iwarp.Packet) iwarp.Packet
	}{
		{"wrong-crc", cntBadCRC, "a wrong CRC", func(p iwarp.Packet) iwarp.Packet { return p.BadCRC() }},
		{"cut-short", cntMalformed, "only half of its header", func(p iwarp.Packet) iwarp.Packet { return p.Cut(8) }},
		{"no-queue-pair", cntBadQPN, "an unknown QPN", func(p iwarp.Packet) iwarp.Packet { return p.ToQP(0xfedcba) }},
		{"wrong-key", cntBadKey, "a wrong key", func(p iwarp.Packet) iwarp.Packet { return p.WithKey(deviceKey ^ 1) }},
		{"no-receive", cntNoReceive, "no posted receive", func(p iwarp.Packet) iwarp.Packet { return p }},
	} {
		all = append(all, counterCase("drop-"+d.name, fmt.Sprintf("Packets with %s are dropped, and counted", d.description),
			fmt.Sprintf("%d Sends with %s", dropsPerCase, d.description), []*rig.Counter{d.counter},
			func(h *host) rig.Counts {
				p := h.newQP(setup{}).peer(0)
				for i := range dropsPerCase {
					p.send(d.modify(iwarp.UD(iwarp.Send(uint32(i+1), data(8)))))
				}
				return rig.Counts{d.counter: rig.Exactly(dropsPerCase)}
			}))
	}
	// Messages go in both directions. The bench (the test setup) records all packets of the device.
	about := []*rig.Counter{cntSentPackets, cntDataSent, cntDataAgain, cntAcksSent, cntChallengesSent}
	return append(all, rig.CounterCase(conformance.Case{
		ID:      "counters/dg/reliable-datagrams",
		Title:   "Data packets, retransmissions, acknowledgements and Challenges are counted",
		Setup:   setupRD,
		Sends:   "nothing: the device and a partner send each other 40 messages, over a lossy path if the bench has one",
		Expects: "counters that agree with the recorded packets of the device",
		Run: rig.PairBody(func(p *rig.Pair) {
			check := p.DUT.StartCounterCheck(rdCounters, about)
			p.SetPath(conformance.Path{LossPPM: 100_000})
			exchangeMessages(p)
			// Wait for late packets, such as the last Ack. No counter counts bytes (nil).
			check.Expect(countSent(p.DUT, 100*time.Millisecond), nil)
		}),
	}, about))
}

// The counters of the packets that reliable-datagram devices send.
var (
	cntDataSent       = rig.NewCounter("data packets sent", "rd_sent_data")
	cntDataAgain      = rig.NewCounter("data packets retransmitted", "rd_sent_again")
	cntAcksSent       = rig.NewCounter("acknowledgements sent", "rd_sent_acks")
	cntChallengesSent = rig.NewCounter("Challenges sent", "rd_sent_challenges")
	cntRefusalsSent   = rig.NewCounter("Refusals sent", "rd_sent_refusals")
)

// rdCounters are the counters that the case about reliable datagrams checks.
var rdCounters = []*rig.Counter{
	cntSentPackets, cntDataSent, cntDataAgain, cntAcksSent, cntChallengesSent, cntRefusalsSent,
}

// exchangeMessages has the partner send 40 messages, and then the device.
func exchangeMessages(p *rig.Pair) {
	const messages, batch = 40, 8
	near, far := p.Connect()
	// The partner sends first, so that the device sends a Challenge, which the case counts.
	for _, direction := range [][2]*rig.Endpoint{{far, near}, {near, far}} {
		from, to := direction[0], direction[1]
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

// countSent counts the packets of the device, until none arrives for the duration quiet. Two counts
// are ranges: the specification leaves open whether retransmissions count as data packets, and
// whether Acks in data packets count as Acks.
func countSent(r *rig.Rig, quiet time.Duration) rig.Counts {
	counts := make(rig.Counts)
	seen := make(map[string]bool)
	for {
		frame, err := r.Wire.Recv(quiet)
		switch {
		case errors.Is(err, verbs.ErrTimeout):
			return counts
		case err != nil:
			rig.Abort(err)
		}
		g, ok := parseFrame(frame)
		if !ok || !slices.Contains(r.Local, g.IP.Src) {
			continue // neighbour discovery and similar are not counted
		}
		counts.Add(cntSentPackets, rig.Exactly(1))
		switch {
		case g.Ack != nil && g.Data != nil:
			counts.Add(cntAcksSent, rig.Between(0, 1))
		case g.Ack != nil:
			counts.Add(cntAcksSent, rig.Exactly(1))
		case g.Challenge != nil:
			counts.Add(cntChallengesSent, rig.Exactly(1))
		case g.Refusal != nil:
			counts.Add(cntRefusalsSent, rig.Exactly(1))
		}
		if g.Data == nil {
			continue
		}
		key := fmt.Sprint(iwarp.Val(g.Header.DestQP), iwarp.Val(g.Header.SourceQP), iwarp.Val(g.Data.Epoch), iwarp.Val(g.Data.Seq))
		if seen[key] {
			counts.Add(cntDataAgain, rig.Exactly(1))
			counts.Add(cntDataSent, rig.Between(0, 1))
		} else {
			counts.Add(cntDataSent, rig.Exactly(1))
		}
		seen[key] = true
	}
}
