package counters

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// What devices of iWARP count.
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

// iwarpNames are the names. siw has no counters.
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

// still are quantities that stand still unless something went wrong.
var still = map[quantity]bool{
	terminatesSent: true, terminatesRcvd: true, badCRCs: true, badSTagSent: true, badSTagRcvd: true, allTerminates: true,
	rejected: true, overruns: true,
}

// countingIWARP is a case about some quantities, in its usual form.
func countingIWARP(name, title, sends string, about []quantity, body func(*iwarpHost) found) conformance.Case {
	return conformance.Case{
		ID: "counters/iwarp/" + name, Title: title, Cite: countUp,
		Level: conformance.Should, Needs: verbs.CapRC | verbs.CapCM, Labels: []string{"service:rc"},
		Sends: sends, Expects: "counters that have gone as far as the record of the stream says",
		Defects: iwarpNames.stuck(about...),
		Run:     onIWARP(about, body),
	}
}

// countUp is where it says that counters count what happens.
var countUp = conformance.Cite{Doc: "package verbs", Rows: []string{"verbs/counters/3"}}

// IWARP returns the cases for devices of iWARP.
func IWARP() []conformance.Case { return iwarpCases }

var iwarpCases = []conformance.Case{
	countingIWARP("what-is-received", "FPDUs, segments and messages of each kind that are received are counted",
		"three Sends, two Writes and two Reads", []quantity{fpdusRcvd, segmentsRcvd, sendsRcvd, writesRcvd, readsRcvd, fpdusSent, segmentsSent},
		func(h *iwarpHost) found {
			s := h.connect(3)
			s.put(s.send(8), s.send(16), s.send(24), iwarp.Write(s.at(0).STag, s.at(0).TO, make([]byte, 16)), s.read(8), s.read(40))
			return nil
		}),
	countingIWARP("receives", "Receives that are filled are counted, and nothing else is",
		"three Sends, a Write and a Read", []quantity{receives},
		func(h *iwarpHost) found {
			s := h.connect(3)
			s.put(s.send(8), s.send(16), s.send(24), iwarp.Write(s.at(0).STag, s.at(0).TO, make([]byte, 16)), s.read(8))
			for i, n := range []int{8, 16, 24} {
				h.ExpectRecv(uint64(i+1), n)
			}
			return found{receives: exactly(3)}
		}),
	atomic(countingIWARP("atomics", "Atomic Requests that are received are counted",
		"three FetchAdds", []quantity{atomicsRcvd},
		func(h *iwarpHost) found {
			s := h.connect(0)
			for i := range uint32(3) {
				s.requests++
				s.put(iwarp.FetchAdd(s.requests, i+1, s.at(0), 1))
			}
			return nil
		})),
	countingIWARP("what-is-sent", "FPDUs and segments that are sent, and responses to them, are counted",
		"answers to three Sends and two Reads of the device's", []quantity{fpdusSent, segmentsSent, responsesRcvd},
		func(h *iwarpHost) found {
			sendingIWARP(h)
			return nil
		}),
	countingIWARP("sends", "Sends of the device's are counted, and no other requests",
		"answers to three Sends and two Reads of the device's", []quantity{sends},
		func(h *iwarpHost) found { return found{sends: exactly(sendingIWARP(h))} }),
	countingIWARP("connections", "Requests for connections that come, and are accepted or rejected, are counted",
		"three Requests that the device's program accepts, and two that it rejects", []quantity{requestsRcvd, accepted, rejected, established},
		func(h *iwarpHost) found {
			for range 3 {
				h.connect(0).settle()
			}
			for range 2 {
				s := &iwarpStream{iwarpHost: h}
				h.dial(s, func(r verbs.ConnRequest) error { return r.Reject(nil) })
				s.ended = true
			}
			return found{accepted: exactly(3), rejected: exactly(2), established: exactly(3)}
		}),
	countingIWARP("wrong-crcs", "A stream that ends by a wrong CRC is counted, and so is the Terminate",
		"on each of two connections, a Send with a wrong CRC", []quantity{badCRCs, terminatesSent, allTerminates},
		func(h *iwarpHost) found {
			for range 2 {
				s := h.connect(1)
				if !s.out.CRC {
					return found{}
				}
				s.put(s.send(8).BadCRC())
				s.untilEnd()
			}
			return found{badCRCs: exactly(2), allTerminates: exactly(2)}
		}),
	countingIWARP("terminates-sent", "Terminates that are sent are counted, by their cause",
		"on each of two connections, a Write to a key that opens nothing", []quantity{terminatesSent, badSTagSent},
		func(h *iwarpHost) found {
			for range 2 {
				s := h.connect(0)
				s.put(iwarp.Write(^s.at(0).STag, s.at(0).TO, make([]byte, 8)))
				s.untilEnd()
			}
			return found{badSTagSent: exactly(2)}
		}),
	countingIWARP("terminates-received", "Terminates that are received are counted, by their cause",
		"on each of two connections, a Terminate for an invalid STag, in answer to a Write", []quantity{terminatesRcvd, badSTagRcvd},
		func(h *iwarpHost) found {
			for i := range 2 {
				s := h.connect(0)
				s.settle()
				s.PostSend(s.qp, verbs.SendWR{
					WRID: uint64(i + 1), Opcode: verbs.OpRDMAWrite, SGL: s.own.SGL(0, 8),
					Remote: verbs.Remote{Addr: theirSink.TO, RKey: verbs.RKey(theirSink.STag)},
				})
				g, ok := s.next()
				s.Check(ok, "a Write", "the end of the stream")
				s.put(iwarp.Terminate(iwarp.DDPTaggedInvalidSTag).About(g.Segment))
				s.untilEnd()
			}
			return found{badSTagRcvd: exactly(2)}
		}),
}

// sendingIWARP has the device send, and returns how many of its requests are Sends.
func sendingIWARP(h *iwarpHost) int {
	s := h.connect(0)
	s.settle()
	send := func(id uint64) verbs.SendWR {
		return verbs.SendWR{WRID: id, Opcode: verbs.OpSend, SGL: s.own.SGL(0, 16)}
	}
	read := func(id uint64) verbs.SendWR {
		return verbs.SendWR{
			WRID: id, Opcode: verbs.OpRDMARead, SGL: s.own.SGL(0, 16),
			Remote: verbs.Remote{Addr: theirSink.TO, RKey: verbs.RKey(theirSink.STag)},
		}
	}
	s.PostSend(s.qp, send(1), read(2), send(3), read(4), send(5))
	for seen := 0; seen < 5; seen++ {
		g, ok := s.next()
		s.Check(ok, "five messages", "the end of the stream behind %d", seen)
		if g.Segment.Op() == iwarp.OpReadRequest {
			s.put(iwarp.ReadResponseTo(g.Segment, make([]byte, 16)))
		}
	}
	for range 5 {
		wc := s.NextCompletion() // in which order is not the question here
		s.Check(wc.Status == verbs.WCSuccess, "a success", "%v", wc.Status)
	}
	return 3
}

// atomic makes a case one for devices with atomics.
func atomic(c conformance.Case) conformance.Case {
	c.Needs |= verbs.CapAtomics
	c.Expects = fmt.Sprintf("%s, and others that stand still", c.Expects)
	return c
}
