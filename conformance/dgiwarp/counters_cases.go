package dgiwarp

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
)

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

// counters are all of them.
var counters = []*rig.Counter{
	cntSentPackets, cntRcvdPackets, cntSends, cntReceives, cntSendsRcvd, cntWritesRcvd, cntBadCRC, cntMalformed,
	cntBadQPN, cntBadKey, cntBadState, cntNoReceive, cntBadSegment, cntWrongService, cntErrorsFound,
	cntErrorsRcvd, cntOverruns,
}

// dropsPerCase is how many packets of each kind are sent.
const dropsPerCase = 3

// counterCases returns the cases about counters.
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
					h.ExpectRecv(uint64(i+1), areaLen+n)
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
	return append(all, rdCounterCase())
}
