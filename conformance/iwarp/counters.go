package iwarp

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// counterCase returns a case that runs body and checks the counters against the recorded
// streams. body returns the counts that the record does not show.
func counterCase(name, title, sends string, about []*rig.Counter, body func(*host) rig.Counts) conformance.Case {
	return rig.CounterCase(conformance.Case{
		ID: "counters/iwarp/" + name, Title: title, Needs: verbs.CapRC | verbs.CapCM, Labels: []string{"service:rc"},
		Sends:   sends,
		Expects: "counters that agree with the recorded stream",
		Run: onHost(func(h *host) {
			check := h.StartCounterCheck(counters, about)
			f := make(rig.Counts)
			f.AddAll(body(h))
			for _, hs := range h.accepts {
				if hs.deviceConn != nil && hs.endErr == nil {
					hs.readResponses()
				}
			}
			streams := make(map[int]*iwarp.ConnDeframer)
			for _, e := range check.Events() {
				if e.Stream == 0 || e.Kind != conformance.EventSent && e.Kind != conformance.EventReceived {
					continue // the packets of a raw TCP repeat the stream
				}
				if streams[e.Stream] == nil {
					streams[e.Stream] = new(iwarp.ConnDeframer)
				}
				side := 0 // the peer's
				if e.Kind == conformance.EventReceived {
					side = 1
				}
				for _, frame := range streams[e.Stream].Feed(side, e.Data) {
					addMessage(f, &frame)
				}
			}
			check.Expect(f, nil)
		}),
	}, about)
}

// connectCounted makes a connection with posted receives. Cases about counters accept
// frames that are not as they should be.
func (h *host) connectCounted(receives int) *conn {
	c := h.connect(setup{receives: receives, signalAll: true})
	c.allowBadFrames = true
	return c
}

// lastTO is the address of the last Read of a connection.
const lastTO = peerTO + 1<<20

// readResponses waits until the device has processed all frames and reads its responses, up
// to that to another Read.
func (c *conn) readResponses() {
	c.send(iwarp.ReadRequest(c.nextRequestMSN(), iwarp.At(peerSTag, lastTO), 8, c.targetAddr(0)))
	for {
		g, ok := c.nextFPDU(c.ResponseTimeout())
		c.Check(ok, "a response to a Read", "%s", c.describeMissing())
		if g.Segment.Op() == iwarp.OpReadResponse && iwarp.Val(g.DDP.TO) == lastTO {
			return
		}
	}
}

// readToEnd reads until the stream ends.
func (c *conn) readToEnd() {
	for more := true; more; {
		_, more = c.nextFPDU(c.ResponseTimeout())
	}
	c.Check(c.endErr != nil, "the end of the stream", "%s", c.describeMissing())
}

// addMessage counts a recorded frame. A message counts with its last segment.
func addMessage(f rig.Counts, h *iwarp.ParsedFrame) {
	device := h.Side == 1
	add := func(c *rig.Counter) { f.Add(c, rig.Exactly(1)) }
	which := func(sent, rcvd *rig.Counter) *rig.Counter {
		if device {
			return sent
		}
		return rcvd
	}
	if h.Startup != nil {
		if !device {
			add(cntRequestsRcvd)
		}
		return
	}
	if h.FPDU.MPA.CRCStatus != nil && *h.FPDU.MPA.CRCStatus == iwarp.CRCWrong {
		return // not counted
	}
	add(which(cntFPDUsSent, cntFPDUsRcvd))
	add(which(cntSegmentsSent, cntSegmentsRcvd))
	s := h.FPDU.Segment
	if device || !iwarp.Val(s.DDP.Last) {
		if device && s.Op() == iwarp.OpTerminate {
			add(cntTerminatesSent)
		}
		return
	}
	switch s.Op() {
	case iwarp.OpSend, iwarp.OpSendSE, iwarp.OpSendInvalidate, iwarp.OpSendSEInvalidate:
		add(cntSendsRcvd)
	case iwarp.OpWrite:
		add(cntWritesRcvd)
	case iwarp.OpReadRequest:
		add(cntReadsRcvd)
	case iwarp.OpAtomicRequest:
		add(cntAtomicsRcvd)
	case iwarp.OpReadResponse, iwarp.OpAtomicResponse:
		add(cntResponsesRcvd)
	case iwarp.OpTerminate:
		add(cntTerminatesRcvd)
	}
}
