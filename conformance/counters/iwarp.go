package counters

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// Quantities that iWARP devices count.
const (
	fpdusSent      quantity = "FPDUs sent"
	fpdusRcvd      quantity = "FPDUs received"
	segmentsSent   quantity = "segments sent"
	segmentsRcvd   quantity = "segments received"
	sendsRcvd      quantity = "Sends received"
	writesRcvd     quantity = "Writes received"
	readsRcvd      quantity = "Read Requests received"
	atomicsRcvd    quantity = "Atomic Requests received"
	responsesRcvd  quantity = "responses received"
	terminatesSent quantity = "Terminates sent"
	terminatesRcvd quantity = "Terminates received"
	requestsRcvd   quantity = "start-up Requests received"
	accepted       quantity = "Requests accepted"
	rejected       quantity = "Requests rejected"
	badCRCs        quantity = "streams ended by a wrong CRC"
	established    quantity = "connections made"
	badSTagSent    quantity = "Terminates sent for an invalid STag"
	badSTagRcvd    quantity = "Terminates received for an invalid STag"
	allTerminates  quantity = "Terminates sent for a wrong CRC"
)

// iwarpNames are the counter names of iWARP devices. siw has no counters.
var iwarpNames = table{
	fpdusSent:      {"mpa_sent_fpdus"},
	fpdusRcvd:      {"mpa_rcvd_fpdus"},
	segmentsSent:   {"sent_segments"},
	segmentsRcvd:   {"rcvd_segments"},
	sends:          {"rdma_sends"},
	receives:       {"rdma_recvs"},
	sendsRcvd:      {"rcvd_sends"},
	writesRcvd:     {"rcvd_writes"},
	readsRcvd:      {"rcvd_reads"},
	atomicsRcvd:    {"rcvd_atomics"},
	responsesRcvd:  {"rcvd_responses"},
	terminatesSent: {"sent_terminates"},
	terminatesRcvd: {"rcvd_terminates"},
	requestsRcvd:   {"mpa_requests_rcvd"},
	accepted:       {"mpa_accepted"},
	rejected:       {"mpa_rejected"},
	badCRCs:        {"mpa_bad_crcs"},
	established:    {"conns_established"},
	badSTagSent:    {"sent_terminate_1_1_00"},
	badSTagRcvd:    {"rcvd_terminate_1_1_00"},
	allTerminates:  {"sent_terminate_2_0_02"},
	overruns:       {"cq_overrun"},
}

// errorQuantities are quantities that stay 0 unless an error happens.
var errorQuantities = map[quantity]bool{
	terminatesSent: true, terminatesRcvd: true, badCRCs: true, badSTagSent: true, badSTagRcvd: true, allTerminates: true,
	rejected: true, overruns: true,
}

// iwarpCase returns a case about these quantities.
func iwarpCase(name, title, sends string, about []quantity, body func(*iwarpHost) counts) conformance.Case {
	return conformance.Case{
		ID:    "counters/iwarp/" + name,
		Title: title,
		Cite:  countersCite, Level: conformance.Should, Needs: verbs.CapRC | verbs.CapCM, Labels: []string{"service:rc"},
		Defects: iwarpNames.stuckDefects(about...),
		Sends:   sends,
		Expects: "counters that agree with the recorded stream",
		Run:     onIWARP(about, body),
	}
}

// countersCite is the requirement that counters count events.
var countersCite = conformance.Cite{Doc: "package verbs", Rows: []string{"verbs/counters/3"}}

// IWARP returns the cases for iWARP devices.
func IWARP() []conformance.Case { return iwarpCases }

var iwarpCases = []conformance.Case{
	iwarpCase("what-is-received", "Received FPDUs, segments and messages of each kind are counted",
		"three Sends, two Writes and two Reads", []quantity{fpdusRcvd, segmentsRcvd, sendsRcvd, writesRcvd, readsRcvd, fpdusSent, segmentsSent},
		func(h *iwarpHost) counts {
			s := h.connect(3)
			s.sendFrames(s.send(8), s.send(16), s.send(24), iwarp.Write(s.at(0).STag, s.at(0).TO, make([]byte, 16)), s.read(8), s.read(40))
			return nil
		}),
	iwarpCase("receives", "Completed receives are counted, and nothing else",
		"three Sends, a Write and a Read", []quantity{receives},
		func(h *iwarpHost) counts {
			s := h.connect(3)
			s.sendFrames(s.send(8), s.send(16), s.send(24), iwarp.Write(s.at(0).STag, s.at(0).TO, make([]byte, 16)), s.read(8))
			for i, n := range []int{8, 16, 24} {
				h.ExpectRecv(uint64(i+1), n)
			}
			return counts{receives: exactly(3)}
		}),
	needsAtomics(iwarpCase("atomics", "Received Atomic Requests are counted",
		"three FetchAdds", []quantity{atomicsRcvd},
		func(h *iwarpHost) counts {
			s := h.connect(0)
			for i := range uint32(3) {
				s.requests++
				s.sendFrames(iwarp.FetchAdd(s.requests, i+1, s.at(0), 1))
			}
			return nil
		})),
	iwarpCase("what-is-sent", "Sent FPDUs and segments, and the responses to them, are counted",
		"responses to three Sends and two Reads of the device", []quantity{fpdusSent, segmentsSent, responsesRcvd},
		func(h *iwarpHost) counts {
			sendIWARPRequests(h)
			return nil
		}),
	iwarpCase("sends", "Sends of the device are counted, and no other requests",
		"responses to three Sends and two Reads of the device", []quantity{sends},
		func(h *iwarpHost) counts { return counts{sends: exactly(sendIWARPRequests(h))} }),
	iwarpCase("connections", "Received, accepted and rejected connection requests are counted",
		"three requests that the application accepts, and two that it rejects", []quantity{requestsRcvd, accepted, rejected, established},
		func(h *iwarpHost) counts {
			for range 3 {
				h.connect(0).sync()
			}
			for range 2 {
				s := &iwarpStream{iwarpHost: h}
				h.dial(s, func(r verbs.ConnRequest) error { return r.Reject(nil) })
				s.ended = true
			}
			return counts{accepted: exactly(3), rejected: exactly(2), established: exactly(3)}
		}),
	iwarpCase("wrong-crcs", "Streams that end because of a wrong CRC, and their Terminates, are counted",
		"on each of two connections, a Send with a wrong CRC", []quantity{badCRCs, terminatesSent, allTerminates},
		func(h *iwarpHost) counts {
			for range 2 {
				s := h.connect(1)
				if !s.out.CRC {
					return counts{}
				}
				s.sendFrames(s.send(8).BadCRC())
				s.readToEnd()
			}
			return counts{badCRCs: exactly(2), allTerminates: exactly(2)}
		}),
	iwarpCase("terminates-sent", "Sent Terminates are counted by their cause",
		"on each of two connections, a Write with an invalid STag", []quantity{terminatesSent, badSTagSent},
		func(h *iwarpHost) counts {
			for range 2 {
				s := h.connect(0)
				s.sendFrames(iwarp.Write(^s.at(0).STag, s.at(0).TO, make([]byte, 8)))
				s.readToEnd()
			}
			return counts{badSTagSent: exactly(2)}
		}),
	iwarpCase("terminates-received", "Received Terminates are counted by their cause",
		"on each of two connections, a Terminate for an invalid STag, in answer to a Write", []quantity{terminatesRcvd, badSTagRcvd},
		func(h *iwarpHost) counts {
			for i := range 2 {
				s := h.connect(0)
				s.sync()
				s.PostSend(s.qp, verbs.SendWR{
					WRID: uint64(i + 1), Opcode: verbs.OpRDMAWrite, SGL: s.localMem.SGL(0, 8),
					Remote: verbs.Remote{Addr: peerSink.TO, RKey: verbs.RKey(peerSink.STag)},
				})
				g, ok := s.next()
				s.Check(ok, "a Write", "the end of the stream")
				s.sendFrames(iwarp.Terminate(iwarp.DDPTaggedInvalidSTag).About(g.Segment))
				s.readToEnd()
			}
			return counts{badSTagRcvd: exactly(2)}
		}),
}

// sendIWARPRequests has the device send three Sends and two Reads, and returns the number
// of Sends.
func sendIWARPRequests(h *iwarpHost) int {
	s := h.connect(0)
	s.sync()
	send := func(id uint64) verbs.SendWR {
		return verbs.SendWR{WRID: id, Opcode: verbs.OpSend, SGL: s.localMem.SGL(0, 16)}
	}
	read := func(id uint64) verbs.SendWR {
		return verbs.SendWR{
			WRID: id, Opcode: verbs.OpRDMARead, SGL: s.localMem.SGL(0, 16),
			Remote: verbs.Remote{Addr: peerSink.TO, RKey: verbs.RKey(peerSink.STag)},
		}
	}
	s.PostSend(s.qp, send(1), read(2), send(3), read(4), send(5))
	for seen := 0; seen < 5; seen++ {
		g, ok := s.next()
		s.Check(ok, "five messages", "the end of the stream after %d", seen)
		if g.Segment.Op() == iwarp.OpReadRequest {
			s.sendFrames(iwarp.ReadResponseTo(g.Segment, make([]byte, 16)))
		}
	}
	for range 5 {
		wc := s.NextCompletion() // the order is not checked here
		s.Check(wc.Status == verbs.WCSuccess, "a success", "%v", wc.Status)
	}
	return 3
}

// needsAtomics restricts a case to devices with atomics.
func needsAtomics(c conformance.Case) conformance.Case {
	c.Needs |= verbs.CapAtomics
	c.Expects = fmt.Sprintf("%s, and no other counter changed", c.Expects)
	return c
}
