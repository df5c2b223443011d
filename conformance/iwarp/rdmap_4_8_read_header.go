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

// expectQuotedReadHeader fails the case unless a Terminate quotes the header of a Read Request, with
// done octets of it answered.
func (c *conn) expectQuotedReadHeader(t, request iwarp.Segment, done uint32) {
	request = request.EditRead(func(h *iwarp.ReadRequestHeader) {
		h.SinkTO, h.SrcTO = new(*h.SinkTO+uint64(done)), new(*h.SrcTO+uint64(done))
		h.Size = new(*h.Size - done)
	})
	want := iwarp.Terminate(0).About(request).Terminate.RDMAPHeader
	got := t.Terminate.RDMAPHeader
	c.Check(bytes.Equal(got, want), fmt.Sprintf("the RDMA header % x in the Terminate", want), "% x", got)
}

var rdmapReadHeaderCases = []conformance.Case{
	{
		ID:    "rdmap/terminate/read-header-advanced",
		Title: "The Terminate of a read that was half answered says how far that went",
		Cite:  cite(rfc5040, "4.8", "rfc5040/4.8/6"), Level: conformance.Must, Needs: needsConn,
		Sends:   "a Read Request for 16 MiB; the application closes the region when as much has been sent as TCP holds",
		Expects: "a Terminate with sink, source and size as they are after the last octet that came",
		Defects: []string{"TermReadStale"},
		Run: onSetup(setup{}, func(c *conn) {
			m := c.Memory(tcpBufferBytes, allAccess)
			request := c.readFrom(addrOf(m, 0), tcpBufferBytes)
			c.send(request)
			c.waitForDevice()
			c.Must("a region that can be closed", m.Close())
			done := 0
			for done < tcpBufferBytes {
				g := c.nextFPDUs(1)[0]
				if g.Op() == iwarp.OpTerminate {
					t := parseTerminate(g)
					c.checkCause(t, []iwarp.Cause{iwarp.RDMAPInvalidSTag, iwarp.RDMAPAccess, iwarp.RDMAPSTagNotAssociated})
					c.expectQuotedReadHeader(t, request, uint32(done))
					return
				}
				c.checkFPDU(iwarp.Op(iwarp.OpReadResponse), g)
				done += len(g.Payload)
			}
			rig.Abort(fmt.Errorf("a device that has made up an answer of %d octets before any of them has left: %w", tcpBufferBytes, conformance.ErrBenchCannot))
		}),
	},
	{
		ID:    "rdmap/terminate/number-of-the-read",
		Title: "The Terminate of a read quotes the number that the Read Request had",
		Cite:  cite(rfc5040, "4.8", "rfc5040/4.8/6", "rfc5040/7.1/4"), Level: conformance.Must, Needs: needsConn,
		Sends:   "three good Read Requests, and one with an unknown key",
		Expects: "the DDP header of the last in the Terminate, with its number and not its size",
		Defects: []string{"TermReadStale"},
		Run: onConn(func(c *conn) {
			for range 3 {
				c.sync()
			}
			wrong := c.readFrom(iwarp.At(unknownSTag, 0x100), 1000)
			c.send(wrong)
			t := c.expectTerminateAndEnd(iwarp.RDMAPInvalidSTag)
			quoted := t.Terminate.DDPHeader
			c.Check(len(quoted) == ddpUntaggedLen, "a DDP header in the Terminate", "% x", quoted)
			msn := binary.BigEndian.Uint32(quoted[10:])
			c.Check(msn == *wrong.DDP.MSN, fmt.Sprintf("number %d in it", *wrong.DDP.MSN), "%d", msn)
		}),
	},
	{
		ID:    "rdmap/terminate/read-header-is-there",
		Title: "The Terminate of a Read Request quotes all of its headers",
		Cite:  cite(rfc5040, "7.1", "rfc5040/7.1/4", "rfc5040/4.8/5"), Level: conformance.Must, Needs: needsConn,
		Sends:   "a good Read Request, and one with an unknown key",
		Expects: "the 18 and the 28 octets of the second in the Terminate",
		Defects: []string{"TermHeaderStale"},
		Run: onConn(func(c *conn) {
			c.sync()
			wrong := iwarp.ReadRequest(c.nextRequestMSN(), iwarp.At(0x11223344, 0x5566778899aabbcc), 16, iwarp.At(unknownSTag, 0x100))
			c.send(wrong)
			t := c.expectTerminateAndEnd(iwarp.RDMAPInvalidSTag)
			c.expectQuotedReadHeader(t, wrong, 0)
			c.Check(len(t.Terminate.DDPHeader) == ddpUntaggedLen, "a DDP header in the Terminate", "% x", t.Terminate.DDPHeader)
		}),
	},
	{
		ID:    "rdmap/terminate/header-of-a-send",
		Title: "The Terminate of a Send quotes its header",
		Cite:  cite(rfc5040, "7.1", "rfc5040/7.1/3"), Level: conformance.Must, Needs: needsConn,
		Sends:   "a valid Send, and one to an unknown queue",
		Expects: "the header of the second in the Terminate",
		Defects: []string{"TermHeaderStale"},
		Run: onConn(func(c *conn) {
			c.send(iwarp.Send(c.nextSendMSN(), data(16)))
			wrong := iwarp.Send(c.nextSendMSN(), data(20)).QN(4)
			c.send(wrong)
			c.expectQuotedDDPHeader(c.expectTerminateAndEnd(iwarp.DDPUntaggedInvalidQN), wrong)
		}),
	},
	{
		ID:    "rdmap/terminate/header-of-a-response",
		Title: "The Terminate of a Read Response quotes its header",
		Cite:  cite(rfc5040, "7.1", "rfc5040/7.1/3"), Level: conformance.Must, Needs: needsConn,
		Sends:   "a valid Write, and a Read Response that nobody asked for",
		Expects: "the header of the second in the Terminate, whatever it is called",
		Defects: []string{"TermHeaderStale"},
		Run: onConn(func(c *conn) {
			wrong := iwarp.ReadResponse(unknownSTag, 0x1234, data(16))
			c.send(c.peerWrite(0, data(16)), wrong)
			c.expectQuotedDDPHeader(c.expectAnyTerminate(), wrong)
			c.expectEnd()
		}),
	},
	{
		ID:    "rdmap/terminate/first-error-wins",
		Title: "Of two errors that come together the first is told, and nothing else",
		Cite:  cite(rfc5040, "7.1", "rfc5040/7.1/5"), Level: conformance.Must, Needs: needsConn,
		Sends:   "a Send to an unknown queue and a Write to an unknown key, in one segment of TCP",
		Expects: "a Terminate for the Send, and the end of the stream",
		Defects: []string{"TermRepeated"},
		Run: onConn(func(c *conn) {
			first := iwarp.Send(c.nextSendMSN(), data(16)).QN(4)
			c.sendCoalesced(first, iwarp.Write(unknownSTag, 0, data(16)))
			c.expectTerminateAndEnd(iwarp.DDPUntaggedInvalidQN)
		}),
	},
	{
		ID:    "rdmap/terminate/local-error-has-no-header",
		Title: "A request that cannot be carried out here is told to the peer, without a header",
		Cite:  cite(rfc5040, "7.1", "rfc5040/7.1/2"), Level: conformance.Must, Needs: needsConn,
		Sends:   "nothing: the application sends from memory of another domain",
		Expects: "a completion in error, and a Terminate of RDMAP's local errors that quotes nothing",
		Defects: []string{"LocalErrorSilent"},
		Run: onConn(func(c *conn) {
			m := c.otherPDMemory(verbs.AccessLocalWrite)
			wr := c.sendWR(9, 0, 0)
			wr.SGL = m.SGL(0, 16)
			if n, err := c.qp.PostSend([]verbs.SendWR{wr}); n == 0 {
				rig.Abort(fmt.Errorf("a device that does not take a request with a wrong key (%w): %w", err, conformance.ErrBenchCannot))
			}
			t := c.expectAnyTerminate()
			cause := iwarp.Val(t.Terminate.Cause)
			c.Check(cause.Layer() == 0 && cause.Type() == 0, "TERMINATE rdmap/local", "%v", t)
			c.Check(!iwarp.Val(t.Terminate.HasDDP) && !iwarp.Val(t.Terminate.HasRDMAP), "a Terminate without headers", "%v", t)
			c.expectEnd()
			wc := c.NextCompletion()
			c.Check(wc.WRID == 9 && wc.Status != verbs.WCSuccess, "a request that fails", "%s", rig.Describe(&wc))
		}),
	},
}
