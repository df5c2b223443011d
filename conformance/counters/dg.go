package counters

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/dg"
	"github.com/fabrictest/fabrictest/verbs"
)

// Quantities that only datagram-iWARP devices count.
const (
	dgSendsRcvd  quantity = "messages received"
	dgWrites     quantity = "segments of Writes received"
	badCRC       quantity = "packets with a wrong CRC"
	malformed    quantity = "malformed packets"
	badKey       quantity = "packets with a wrong key"
	badSegment   quantity = "invalid segments"
	errorsFound  quantity = "errors detected"
	errorsRcvd   quantity = "errors reported by a peer"
	wrongService quantity = "packets of another service"
)

// dgNames are the counter names of datagram-iWARP devices.
var dgNames = table{
	sentPackets:  {"sent_packets"},
	rcvdPackets:  {"rcvd_packets"},
	sends:        {"rdma_sends"},
	receives:     {"rdma_recvs"},
	dgSendsRcvd:  {"rcvd_sends"},
	dgWrites:     {"rcvd_writes"},
	badCRC:       {"drop_crc"},
	malformed:    {"drop_malformed"},
	badQPN:       {"drop_qpn"},
	badKey:       {"drop_key"},
	badState:     {"drop_state"},
	noReceive:    {"drop_no_receive"},
	badSegment:   {"drop_segment"},
	wrongService: {"drop_service"},
	errorsFound:  {"errors_found"},
	errorsRcvd:   {"errors_rcvd"},
	overruns:     {"cq_overrun"},
}

// dgCase returns a case about these quantities.
func dgCase(name, title, sends string, about []quantity, body func(*dgHost) counts) conformance.Case {
	return conformance.Case{
		ID:    "counters/dg/" + name,
		Title: title,
		Cite:  countersCite, Level: conformance.Should, Needs: verbs.CapUD, Labels: []string{"service:ud"},
		Defects: dgNames.stuckDefects(about...),
		Sends:   sends,
		Expects: "counters that agree with the recorded packets, and no other counter changed",
		Run:     onDG(about, body),
	}
}

// DatagramIWARP returns the cases for datagram-iWARP devices.
func DatagramIWARP() []conformance.Case { return append(dgCases(), rdCase()) }

func dgCases() []conformance.Case {
	all := []conformance.Case{
		dgCase("what-is-received", "Received packets are counted",
			"three Sends and two Writes", []quantity{rcvdPackets},
			func(h *dgHost) counts {
				q := h.queuePair(3)
				q.sendPackets(q.send(8), q.send(16), q.send(24), q.write(8), q.write(16))
				return nil
			}),
		dgCase("messages", "Received Sends and Writes are counted",
			"three Sends and two Writes", []quantity{dgSendsRcvd, dgWrites},
			func(h *dgHost) counts {
				q := h.queuePair(3)
				q.sendPackets(q.send(8), q.send(16), q.send(24), q.write(8), q.write(16))
				return counts{dgSendsRcvd: exactly(3), dgWrites: exactly(2)}
			}),
		dgCase("receives", "Completed receives are counted, and nothing else",
			"three Sends and two Writes", []quantity{receives},
			func(h *dgHost) counts {
				q := h.queuePair(3)
				q.sendPackets(q.send(8), q.send(16), q.send(24), q.write(8), q.write(16))
				for i, n := range []int{8, 16, 24} {
					q.ExpectRecv(uint64(i+1), verbs.GRHLen+n)
				}
				return counts{receives: exactly(3)}
			}),
		dgCase("what-is-sent", "Sent packets are counted",
			"nothing: the device sends three Sends and two Writes", []quantity{sentPackets},
			func(h *dgHost) counts {
				h.queuePair(0).sendRequests()
				return nil
			}),
		dgCase("sends", "Sends of the device are counted, and no other requests",
			"nothing: the device sends three Sends and two Writes", []quantity{sends},
			func(h *dgHost) counts { return counts{sends: exactly(h.queuePair(0).sendRequests())} }),
	}
	for _, d := range []struct {
		name        string
		quantity    quantity
		description string
		modify      func(*dgQueue, dg.Packet) dg.Packet
	}{
		{"wrong-crc", badCRC, "a wrong CRC", func(_ *dgQueue, p dg.Packet) dg.Packet { return p.BadCRC() }},
		{"cut-short", malformed, "only half of its header", func(_ *dgQueue, p dg.Packet) dg.Packet { return p.Cut(8) }},
		{"no-queue-pair", badQPN, "an unknown QPN", func(_ *dgQueue, p dg.Packet) dg.Packet { return p.ToQP(0xfedcba) }},
		{"wrong-key", badKey, "a wrong key", func(_ *dgQueue, p dg.Packet) dg.Packet { return p.WithKey(qKey ^ 1) }},
		{"no-receive", noReceive, "no posted receive", func(_ *dgQueue, p dg.Packet) dg.Packet { return p }},
	} {
		all = append(all, dgCase("drop-"+d.name, fmt.Sprintf("Packets with %s are dropped, and counted", d.description),
			fmt.Sprintf("%d Sends with %s", dropsPerCase, d.description), []quantity{d.quantity},
			func(h *dgHost) counts {
				q := h.queuePair(0)
				for range dropsPerCase {
					q.sendPackets(d.modify(q, q.send(8)))
				}
				return counts{d.quantity: exactly(dropsPerCase)}
			}))
	}
	return all
}
