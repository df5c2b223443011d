package iwarp

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// expectQuotedReadHeader fails the case unless a Terminate quotes the header of a Read Request,
// advanced by the done octets that were answered.
func (c *conn) expectQuotedReadHeader(t, request iwarp.Segment, done uint32) {
	request = request.EditRead(func(h *iwarp.ReadRequestHeader) {
		h.SinkTO, h.SrcTO = new(*h.SinkTO+uint64(done)), new(*h.SrcTO+uint64(done))
		h.Size = new(*h.Size - done)
	})
	want := iwarp.Terminate(0).About(request).Terminate.RDMAPHeader
	got := t.Terminate.RDMAPHeader
	c.Check(bytes.Equal(got, want), fmt.Sprintf("the RDMA header % x in the Terminate", want), "% x", got)
}

var rdmapReadHeaderCases = []conformance.Case{{
	ID: "rdmap/terminate/read-header-advanced", Cite: cite("rfc5040/4.8/6"),
	Title:   "The Terminate of a partly answered read quotes the remaining range",
	Sends:   "a Read Request for 16 MiB; the application deregisters the region when TCP's buffers are full",
	Expects: "a Terminate with sink, source and size of the octets not received",
	Defects: []string{"TermReadStale"}, Run: onSetup(setup{}, func(c *conn) {
		m := c.Memory(tcpBufferBytes, allAccess)
		request := c.readFrom(addrOf(m, 0), tcpBufferBytes)
		c.send(request)
		c.waitForDevice()
		c.Must("a region that can be deregistered", m.Close())
		done := 0
		for done < tcpBufferBytes {
			g := c.nextFPDUs(1)[0]
			if g.Op() == iwarp.OpTerminate {
				t := c.checkTerminate(g, []iwarp.Cause{iwarp.RDMAPInvalidSTag, iwarp.RDMAPAccess, iwarp.RDMAPSTagNotAssociated})
				c.expectQuotedReadHeader(t, request, uint32(done))
				return
			}
			c.checkFPDU(iwarp.Op(iwarp.OpReadResponse), g)
			done += len(g.Payload)
		}
		rig.Abort(fmt.Errorf("the device has read all %d octets of the response before it sent the first: %w", tcpBufferBytes, conformance.ErrBenchCannot))
	}),
}, {
	ID: "rdmap/terminate/number-of-the-read", Cite: cite("rfc5040/4.8/6", "rfc5040/7.1/4"),
	Title:   "The Terminate of a read quotes the MSN of the Read Request",
	Sends:   "three valid Read Requests, and one with an unknown key",
	Expects: "the DDP header of the last in the Terminate, with its MSN",
	Defects: []string{"TermReadStale"}, Run: onConn(func(c *conn) {
		for range 3 {
			c.sync()
		}
		wrong := c.readFrom(iwarp.At(unknownSTag, 0x100), 1000)
		c.send(wrong)
		t := c.expectTerminateAndEnd(iwarp.RDMAPInvalidSTag)
		quoted := t.Terminate.DDPHeader
		c.Check(len(quoted) == ddpUntaggedLen, "a DDP header in the Terminate", "% x", quoted)
		msn := binary.BigEndian.Uint32(quoted[10:])
		c.Check(msn == *wrong.DDP.MSN, fmt.Sprintf("MSN %d in the quoted header", *wrong.DDP.MSN), "%d", msn)
	}),
}, {
	ID: "rdmap/terminate/read-header-is-there", Cite: cite("rfc5040/7.1/4", "rfc5040/4.8/5"),
	Title:   "The Terminate of a Read Request quotes all of its headers",
	Sends:   "a valid Read Request, and one with an unknown key",
	Expects: "the 18 and the 28 octets of the second in the Terminate",
	Defects: []string{"TermHeaderStale"}, Run: onConn(func(c *conn) {
		c.sync()
		wrong := iwarp.ReadRequest(c.nextRequestMSN(), iwarp.At(0x11223344, 0x5566778899aabbcc), 16, iwarp.At(unknownSTag, 0x100))
		c.send(wrong)
		t := c.expectTerminateAndEnd(iwarp.RDMAPInvalidSTag)
		c.expectQuotedReadHeader(t, wrong, 0)
		c.Check(len(t.Terminate.DDPHeader) == ddpUntaggedLen, "a DDP header in the Terminate", "% x", t.Terminate.DDPHeader)
	}),
}, {
	ID: "rdmap/terminate/header-of-a-send", Cite: cite("rfc5040/7.1/3"),
	Title:   "The Terminate of a Send quotes its header",
	Sends:   "a valid Send, and one to an unknown queue",
	Expects: "the header of the second in the Terminate",
	Defects: []string{"TermHeaderStale"}, Run: onConn(func(c *conn) {
		c.send(iwarp.Send(c.nextSendMSN(), data(16)))
		wrong := iwarp.Send(c.nextSendMSN(), data(20)).QN(4)
		c.send(wrong)
		c.expectQuotedDDPHeader(c.expectTerminateAndEnd(iwarp.DDPUntaggedInvalidQN), wrong)
	}),
}, {
	ID: "rdmap/terminate/header-of-a-response", Cite: cite("rfc5040/7.1/3"),
	Title:   "The Terminate of a Read Response quotes its header",
	Sends:   "a valid Write, and an unsolicited Read Response",
	Expects: "the header of the second in the Terminate, with any cause",
	Defects: []string{"TermHeaderStale"}, Run: onConn(func(c *conn) {
		wrong := iwarp.ReadResponse(unknownSTag, 0x1234, data(16))
		c.send(c.peerWrite(0, data(16)), wrong)
		c.expectQuotedDDPHeader(c.expectTerminate(), wrong)
		c.expectEnd()
	}),
}, {
	ID: "rdmap/terminate/first-error-wins", Cite: cite("rfc5040/7.1/5"),
	Title:   "Of two errors in one TCP segment only the first is reported",
	Sends:   "a Send to an unknown queue and a Write to an unknown key, in one TCP segment",
	Expects: "a Terminate for the Send, and the end of the stream",
	Defects: []string{"TermRepeated"}, Run: onConn(func(c *conn) {
		first := iwarp.Send(c.nextSendMSN(), data(16)).QN(4)
		c.sendCoalesced(first, iwarp.Write(unknownSTag, 0, data(16)))
		c.expectTerminateAndEnd(iwarp.DDPUntaggedInvalidQN)
	}),
}, {
	ID: "rdmap/terminate/local-error-has-no-header", Cite: cite("rfc5040/7.1/2"),
	Title:   "A local error of a request is reported to the peer in a Terminate without headers",
	Sends:   "nothing: the application sends from memory of another domain",
	Expects: "an error completion, and a Terminate for a local RDMAP error that quotes nothing",
	Defects: []string{"LocalErrorSilent"}, Run: onConn(func(c *conn) {
		m := c.otherPDMemory(verbs.AccessLocalWrite)
		wr := c.sendWR(9, 0, 0)
		wr.SGL = m.SGL(0, 16)
		if n, err := c.qp.PostSend([]verbs.SendWR{wr}); n == 0 {
			rig.Abort(fmt.Errorf("the device refuses to post a request with a wrong key (%w): %w", err, conformance.ErrBenchCannot))
		}
		t := c.expectTerminate()
		cause := iwarp.Val(t.Terminate.Cause)
		c.Check(cause.Layer() == 0 && cause.Type() == 0, "TERMINATE rdmap/local", "%v", t)
		c.Check(!iwarp.Val(t.Terminate.HasDDP) && !iwarp.Val(t.Terminate.HasRDMAP), "a Terminate without headers", "%v", t)
		c.expectEnd()
		wc := c.NextCompletion()
		c.Check(wc.WRID == 9 && wc.Status != verbs.WCSuccess, "a request that fails", "%s", rig.Describe(&wc))
	}),
}}
