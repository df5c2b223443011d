package iwarp

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// counterCase returns a case about some counters, which runs body and checks the counters against
// the recorded streams. body returns the counts that the record does not show.
func counterCase(name, title, sends string, about []*rig.Counter, body func(*host) rig.Counts) conformance.Case {
	return rig.CounterCase(conformance.Case{
		ID: "counters/iwarp/" + name, Title: title, Labels: []string{"service:rc"},
		Sends: sends, Expects: "counters that agree with the recorded stream",
		Run: onHost(func(h *host) {
			check := h.StartCounterCheck(counters, about)
			counts := make(rig.Counts)
			counts.AddAll(body(h))
			for _, hs := range h.accepts {
				if hs.deviceConn != nil && hs.endErr == nil {
					hs.syncByLastRead() // now the device has counted all frames
				}
			}
			streams := make(map[int]*iwarp.ConnDeframer)
			for _, e := range check.Events() {
				if e.Stream == 0 || e.Kind != conformance.EventSent && e.Kind != conformance.EventReceived {
					continue // stream 0 has raw TCP packets, whose octets are in another stream too
				}
				if streams[e.Stream] == nil {
					streams[e.Stream] = new(iwarp.ConnDeframer)
				}
				side := peerSide
				if e.Kind == conformance.EventReceived {
					side = deviceSide
				}
				for _, frame := range streams[e.Stream].Feed(side, e.Data) {
					addFrame(counts, &frame)
				}
			}
			check.Expect(counts, nil) // nil: no counters of bytes
		}),
	}, about)
}

// connectForCounters makes a connection for a case about counters: it has posted receives, and
// every request is signaled. Wrong padding, CRCs and markers do not fail the case; other cases
// check them.
func (h *host) connectForCounters(receives int) *conn {
	c := h.connect(setup{receives: receives, signalAll: true})
	c.allowBadFrames = true
	return c
}

// lastTO is the address of the last Read of a connection.
const lastTO = peerTO + 1<<20

// syncByLastRead sends a Read Request, and reads frames up to its response, the only one with the
// offset lastTO. The response shows that the device has processed all earlier frames.
func (c *conn) syncByLastRead() {
	c.send(iwarp.ReadRequest(c.nextRequestMSN(), iwarp.At(peerSTag, lastTO), 8, c.targetAddr(0)))
	for to := uint64(0); to != lastTO; {
		if g := c.mustNextFPDU("a response to a Read"); g.Op() == iwarp.OpReadResponse {
			to = iwarp.Val(g.DDP.TO)
		}
	}
}

// readToEnd reads until the stream ends. It fails the case if no end arrives.
func (c *conn) readToEnd() {
	for more := true; more; {
		_, more = c.nextFPDU(c.ResponseTimeout())
	}
	c.Check(c.endErr != nil, "the end of the stream", "%s", c.describeMissing())
}

// addFrame adds a recorded frame to the expected counts. A message counts at its last segment;
// start-up frames of the device and FPDUs with a wrong CRC do not count.
func addFrame(counts rig.Counts, frame *iwarp.ParsedFrame) {
	add := func(counters ...*rig.Counter) {
		for _, c := range counters {
			counts.Add(c, rig.Exactly(1))
		}
	}
	fromDevice := frame.Side == deviceSide
	switch {
	case frame.Startup != nil:
		if !fromDevice {
			add(cntRequestsRcvd)
		}
	case frame.FPDU.MPA.CRCStatus != nil && *frame.FPDU.MPA.CRCStatus == iwarp.CRCWrong: // not counted
	case fromDevice:
		add(cntFPDUsSent, cntSegmentsSent)
		if frame.FPDU.Op() == iwarp.OpTerminate {
			add(cntTerminatesSent)
		}
	default:
		add(cntFPDUsRcvd, cntSegmentsRcvd)
		if c := messagesRcvd[frame.FPDU.Op()]; c != nil && iwarp.Val(frame.FPDU.DDP.Last) {
			add(c)
		}
	}
}

// The sides of a recorded connection.
const (
	peerSide = iota
	deviceSide
)

// messagesRcvd are the counters of received messages by opcode.
var messagesRcvd = map[iwarp.Opcode]*rig.Counter{
	iwarp.OpSend: cntSendsRcvd, iwarp.OpSendSE: cntSendsRcvd,
	iwarp.OpSendInvalidate: cntSendsRcvd, iwarp.OpSendSEInvalidate: cntSendsRcvd,
	iwarp.OpWrite: cntWritesRcvd, iwarp.OpReadRequest: cntReadsRcvd, iwarp.OpAtomicRequest: cntAtomicsRcvd,
	iwarp.OpReadResponse: cntResponsesRcvd, iwarp.OpAtomicResponse: cntResponsesRcvd, iwarp.OpTerminate: cntTerminatesRcvd,
}

// The counters of iWARP devices. siw has none. All cases check the counters of errors.
var (
	cntFPDUsSent        = rig.NewAmbiguousCounter("FPDUs sent", "mpa_sent_fpdus")
	cntFPDUsRcvd        = rig.NewAmbiguousCounter("FPDUs received", "mpa_rcvd_fpdus")
	cntSegmentsSent     = rig.NewAmbiguousCounter("segments sent", "sent_segments")
	cntSegmentsRcvd     = rig.NewAmbiguousCounter("segments received", "rcvd_segments")
	cntSends            = rig.NewAmbiguousCounter("SENDs sent, or acknowledged", "rdma_sends")
	cntReceives         = rig.NewAmbiguousCounter("completed receives", "rdma_recvs")
	cntSendsRcvd        = rig.NewAmbiguousCounter("Sends received", "rcvd_sends")
	cntWritesRcvd       = rig.NewAmbiguousCounter("Writes received", "rcvd_writes")
	cntReadsRcvd        = rig.NewAmbiguousCounter("Read Requests received", "rcvd_reads")
	cntAtomicsRcvd      = rig.NewAmbiguousCounter("Atomic Requests received", "rcvd_atomics")
	cntResponsesRcvd    = rig.NewAmbiguousCounter("responses received", "rcvd_responses")
	cntTerminatesSent   = rig.NewCounter("Terminates sent", "sent_terminates")
	cntTerminatesRcvd   = rig.NewCounter("Terminates received", "rcvd_terminates")
	cntRequestsRcvd     = rig.NewAmbiguousCounter("start-up Requests received", "mpa_requests_rcvd")
	cntAccepted         = rig.NewAmbiguousCounter("Requests accepted", "mpa_accepted")
	cntRejected         = rig.NewCounter("Requests rejected", "mpa_rejected")
	cntBadCRCs          = rig.NewCounter("streams ended by a wrong CRC", "mpa_bad_crcs")
	cntEstablished      = rig.NewAmbiguousCounter("connections made", "conns_established")
	cntBadSTagSent      = rig.NewCounter("Terminates sent for an invalid STag", "sent_terminate_1_1_00")
	cntBadSTagRcvd      = rig.NewCounter("Terminates received for an invalid STag", "rcvd_terminate_1_1_00")
	cntBadCRCTerminates = rig.NewCounter("Terminates sent for a wrong CRC", "sent_terminate_2_0_02")
	cntOverruns         = rig.NewCounter("CQ overruns", "cq_overrun")
)

// counters are all counters of iWARP devices.
var counters = []*rig.Counter{
	cntFPDUsSent, cntFPDUsRcvd, cntSegmentsSent, cntSegmentsRcvd, cntSends, cntReceives, cntSendsRcvd,
	cntWritesRcvd, cntReadsRcvd, cntAtomicsRcvd, cntResponsesRcvd, cntTerminatesSent, cntTerminatesRcvd,
	cntRequestsRcvd, cntAccepted, cntRejected, cntBadCRCs, cntEstablished, cntBadSTagSent, cntBadSTagRcvd,
	cntBadCRCTerminates, cntOverruns,
}

// counterCases are the cases about counters.
var counterCases = []conformance.Case{
	counterCase("what-is-received", "Received FPDUs, segments and messages of each kind are counted",
		"three Sends, two Writes and two Reads", []*rig.Counter{cntFPDUsRcvd, cntSegmentsRcvd, cntSendsRcvd, cntWritesRcvd, cntReadsRcvd, cntFPDUsSent, cntSegmentsSent},
		func(h *host) rig.Counts {
			c := h.connectForCounters(3)
			sendRequests(c)
			c.send(c.peerRead(0, 40))
			return nil
		}),
	counterCase("receives", "Completed receives are counted, and nothing else",
		"three Sends, a Write and a Read", []*rig.Counter{cntReceives},
		func(h *host) rig.Counts {
			c := h.connectForCounters(3)
			sendRequests(c)
			c.expectRecvs(8, 16, 24)
			return rig.Counts{cntReceives: rig.Exactly(3)}
		}),
	atomicsCounterCase(counterCase("atomics", "Received Atomic Requests are counted",
		"three FetchAdds", []*rig.Counter{cntAtomicsRcvd},
		func(h *host) rig.Counts {
			c := h.connectForCounters(0)
			for i := range uint32(3) {
				c.send(iwarp.FetchAdd(c.nextRequestMSN(), i+1, c.targetAddr(0), 1))
			}
			return nil
		})),
	counterCase("what-is-sent", "Sent FPDUs and segments, and the responses to them, are counted",
		"responses to three Sends and two Reads of the device", []*rig.Counter{cntFPDUsSent, cntSegmentsSent, cntResponsesRcvd},
		func(h *host) rig.Counts {
			postRequests(h)
			return nil
		}),
	counterCase("sends", "Sends of the device are counted, and no other requests",
		"responses to three Sends and two Reads of the device", []*rig.Counter{cntSends},
		func(h *host) rig.Counts { return rig.Counts{cntSends: rig.Exactly(postRequests(h))} }),
	counterCase("connections", "Received, accepted and rejected connection requests are counted",
		"three requests that the application accepts, and two that it rejects", []*rig.Counter{cntRequestsRcvd, cntAccepted, cntRejected, cntEstablished},
		func(h *host) rig.Counts {
			for range 3 {
				h.connectForCounters(0).syncByLastRead()
			}
			for range 2 {
				hs := h.startPassive(setup{respond: func(r verbs.ConnRequest, _ verbs.QP) (verbs.Conn, error) { return nil, r.Reject(nil) }})
				hs.sendFrame(enhancedRequest())
				hs.recvFrame()
				hs.Must("an answer of the application", hs.awaitResult())
			}
			return rig.Counts{cntAccepted: rig.Exactly(3), cntRejected: rig.Exactly(2), cntEstablished: rig.Exactly(3)}
		}),
	counterCase("wrong-crcs", "Streams that end because of a wrong CRC, and their Terminates, are counted",
		"on each of two connections, a Send with a wrong CRC", []*rig.Counter{cntBadCRCs, cntTerminatesSent, cntBadCRCTerminates},
		func(h *host) rig.Counts {
			for range 2 {
				c := h.connectForCounters(1)
				if !c.framer.CRC {
					return rig.Counts{}
				}
				c.send(iwarp.Send(c.nextSendMSN(), data(8)).BadCRC())
				c.readToEnd()
			}
			return rig.Counts{cntBadCRCs: rig.Exactly(2), cntBadCRCTerminates: rig.Exactly(2)}
		}),
	counterCase("terminates-sent", "Sent Terminates are counted by their cause",
		"on each of two connections, a Write with an invalid STag", []*rig.Counter{cntTerminatesSent, cntBadSTagSent},
		func(h *host) rig.Counts {
			for range 2 {
				c := h.connectForCounters(0)
				c.send(iwarp.Write(^c.targetAddr(0).STag, c.targetAddr(0).TO, make([]byte, 8)))
				c.readToEnd()
			}
			return rig.Counts{cntBadSTagSent: rig.Exactly(2)}
		}),
	counterCase("terminates-received", "Received Terminates are counted by their cause",
		"on each of two connections, a Terminate for an invalid STag, in answer to a Write", []*rig.Counter{cntTerminatesRcvd, cntBadSTagRcvd},
		func(h *host) rig.Counts {
			for i := range 2 {
				c := h.connectForCounters(0)
				c.syncByLastRead()
				c.PostSend(c.qp, c.writeWR(uint64(i+1), 0, 8))
				c.send(iwarp.Terminate(iwarp.DDPTaggedInvalidSTag).About(c.expect(iwarp.Any()).Segment))
				c.readToEnd()
			}
			return rig.Counts{cntBadSTagRcvd: rig.Exactly(2)}
		}),
}

// sendRequests sends three Sends, a Write and a Read of the peer.
func sendRequests(c *conn) {
	c.sendSends(8, 16, 24)
	c.send(c.peerWrite(0, make([]byte, 16)), c.peerRead(0, 8))
}

// postRequests has the device send three Sends and two Reads, after a Read of the peer. It returns
// the number of Sends.
func postRequests(h *host) int {
	c := h.connectForCounters(0)
	c.syncByLastRead()
	c.PostSend(c.qp, c.sendWR(1, 0, 16), c.readWR(2, 0, 16), c.sendWR(3, 0, 16), c.readWR(4, 0, 16), c.sendWR(5, 0, 16))
	for _, g := range c.nextFPDUs(5) {
		if g.Segment.Op() == iwarp.OpReadRequest {
			c.send(iwarp.ReadResponseTo(g.Segment, make([]byte, 16)))
		}
	}
	const sends, reads = 3, 2
	for range sends + reads {
		wc := c.NextCompletion() // the order is not checked here
		c.Check(wc.Status == verbs.WCSuccess, "a success", "%v", wc.Status)
	}
	return sends
}

// atomicsCounterCase restricts a counter case to devices with atomics, and adds to its expected result
// that no other counter changes.
func atomicsCounterCase(c conformance.Case) conformance.Case {
	c.Needs |= verbs.CapAtomics
	c.Expects = fmt.Sprintf("%s, and no other counter changed", c.Expects)
	return c
}
