package counters

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/dg"
	"github.com/fabrictest/fabrictest/verbs"
)

// What devices of datagram-iWARP count besides.
const (
	dgSendsRcvd  quantity = "messages received"
	dgWrites     quantity = "segments of Writes received"
	badCRC       quantity = "packets with a wrong CRC"
	malformed    quantity = "packets that are none"
	badKey       quantity = "packets with a wrong key"
	badSegment   quantity = "segments that fit nowhere"
	errorsFound  quantity = "errors that were found"
	errorsRcvd   quantity = "errors that a peer told of"
	wrongService quantity = "packets of another service"
)

// dgNames are the names.
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

// countingDG is a case about some quantities, in its usual form.
func countingDG(name, title, sends string, about []quantity, body func(*dgHost) found) conformance.Case {
	return conformance.Case{
		ID: "counters/dg/" + name, Title: title, Cite: countUp,
		Level: conformance.Should, Needs: verbs.CapUD, Labels: []string{"service:ud"},
		Sends: sends, Expects: "counters that have gone as far as the record of the wire says, and others that stand still",
		Defects: dgNames.stuck(about...),
		Run:     onDG(about, body),
	}
}

// DatagramIWARP returns the cases for devices of datagram-iWARP.
func DatagramIWARP() []conformance.Case { return append(dgCases(), rdCase()) }

func dgCases() []conformance.Case {
	all := []conformance.Case{
		countingDG("what-is-received", "Packets that are received are counted",
			"three Sends and two Writes", []quantity{rcvdPackets},
			func(h *dgHost) found {
				q := h.queuePair(3)
				q.put(q.send(8), q.send(16), q.send(24), q.write(8), q.write(16))
				return nil
			}),
		countingDG("messages", "Sends and Writes that are received are counted",
			"three Sends and two Writes", []quantity{dgSendsRcvd, dgWrites},
			func(h *dgHost) found {
				q := h.queuePair(3)
				q.put(q.send(8), q.send(16), q.send(24), q.write(8), q.write(16))
				return found{dgSendsRcvd: exactly(3), dgWrites: exactly(2)}
			}),
		countingDG("receives", "Receives that are filled are counted, and nothing else is",
			"three Sends and two Writes", []quantity{receives},
			func(h *dgHost) found {
				q := h.queuePair(3)
				q.put(q.send(8), q.send(16), q.send(24), q.write(8), q.write(16))
				for i, n := range []int{8, 16, 24} {
					q.ExpectRecv(uint64(i+1), verbs.GRHLen+n)
				}
				return found{receives: exactly(3)}
			}),
		countingDG("what-is-sent", "Packets that are sent are counted",
			"nothing: the device sends three Sends and two Writes", []quantity{sentPackets},
			func(h *dgHost) found {
				h.queuePair(0).posts()
				return nil
			}),
		countingDG("sends", "Sends of the device's are counted, and no other requests",
			"nothing: the device sends three Sends and two Writes", []quantity{sends},
			func(h *dgHost) found { return found{sends: exactly(h.queuePair(0).posts())} }),
	}
	for _, d := range []struct {
		name    string
		why     quantity
		of      string
		changed func(*dgQueue, dg.Packet) dg.Packet
	}{
		{"wrong-crc", badCRC, "a wrong CRC", func(_ *dgQueue, p dg.Packet) dg.Packet { return p.BadCRC() }},
		{"cut-short", malformed, "only half of its header", func(_ *dgQueue, p dg.Packet) dg.Packet { return p.Cut(8) }},
		{"no-queue-pair", badQPN, "the number of no queue pair", func(_ *dgQueue, p dg.Packet) dg.Packet { return p.ToQP(0xfedcba) }},
		{"wrong-key", badKey, "a wrong key", func(_ *dgQueue, p dg.Packet) dg.Packet { return p.WithKey(qKey ^ 1) }},
		{"no-receive", noReceive, "no receive to go to", func(_ *dgQueue, p dg.Packet) dg.Packet { return p }},
	} {
		all = append(all, countingDG("drop-"+d.name, fmt.Sprintf("Packets with %s are dropped, and counted", d.of),
			fmt.Sprintf("%d Sends with %s", dropped, d.of), []quantity{d.why},
			func(h *dgHost) found {
				q := h.queuePair(0)
				for range dropped {
					q.put(d.changed(q, q.send(8)))
				}
				return found{d.why: exactly(dropped)}
			}))
	}
	return all
}
