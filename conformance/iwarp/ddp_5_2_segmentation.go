package iwarp

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// complete ends the case unless segments have these octets.
func (c *conn) complete(segments []iwarp.ReceivedFPDU, want []byte) {
	got := joined(segments)
	c.Check(string(got) == string(want), fmt.Sprintf("the %d octets of the message", len(want)), "%d octets, or others", len(got))
}

// whole is complete where each segment must fit into one of TCP's.
func (c *conn) whole(segments []iwarp.ReceivedFPDU, want []byte) {
	most := mulpdu(c.tcp.MSS(), false)
	for _, g := range segments {
		c.Check(len(g.ULPDU) <= most, fmt.Sprintf("segments of at most %d octets in TCP segments of %d", most, c.tcp.MSS()), "%d", len(g.ULPDU))
	}
	c.complete(segments, want)
}

// tooLong is 4 GiB and a little more of memory that nobody ever looks at.
func (c *conn) tooLong() []verbs.SGE {
	const piece = 1 << 30
	m, err := c.PD.RegMR(verbs.MRInit{Buf: make([]byte, piece), Access: verbs.AccessLocalWrite})
	c.Must("a region of 1 GiB", err)
	sgl := make([]verbs.SGE, 4, 5)
	for i := range sgl {
		sgl[i] = verbs.SGEOf(m, 0, piece)
	}
	return append(sgl, verbs.SGEOf(m, 0, 16))
}

var ddpSegmentCases = []conformance.Case{
	{
		ID:    "ddp/segment/all-data-in-segments-that-fit",
		Title: "A message is sent whole, in segments no longer than MPA takes",
		Cite:  cite(rfc5041, "5.2", "rfc5041/5.2/1", "rfc5044/3/3"), Level: conformance.Must, Needs: needed,
		Sends:   "Read Requests; the device sends and writes messages that end just before, at and behind the end of a segment",
		Expects: "all octets of each, in segments that fit into those of TCP",
		Defects: []string{"MSSIgnored"},
		Run: onLong(func(c *conn) {
			most := mulpdu(c.tcp.MSS(), false)
			for i, n := range []int{most - 22, most - 18, most - 14, most - 10, 2 * (most - 18), c.long()} {
				c.PostSend(c.qp, c.sendWR(uint64(2*i), 0, n))
				c.whole(c.message(iwarp.OpSend), c.own.Buf[:n])
				c.PostSend(c.qp, c.writeWR(uint64(2*i+1), 8, n))
				c.whole(c.message(iwarp.OpWrite), c.own.Buf[8:][:n])
				c.send(c.reads(8, n))
				c.whole(c.message(iwarp.OpReadResponse), c.mem.Buf[8:][:n])
			}
		}),
	},
	{
		ID:    "ddp/segment/offset-within-the-message",
		Title: "The offset of an untagged segment is where in the message it is",
		Cite:  cite(rfc5041, "5.2", "rfc5041/5.2/2"), Level: conformance.Must, Needs: needed,
		Sends:   "nothing: the device sends a message of several segments",
		Expects: "offsets that count the octets before",
		Defects: []string{"OffsetsStandStill"},
		Run: onLong(func(c *conn) {
			c.PostSend(c.qp, c.sendWR(1, 0, c.long()))
			at := 0
			for _, g := range c.pieces(c.long()) {
				c.same(iwarp.Send(1, c.own.Buf[at:][:len(g.Payload)]).MO(uint32(at)), g)
				at += len(g.Payload)
			}
		}),
	},
	{
		ID:    "ddp/segment/tagged-offset-goes-on",
		Title: "The offset of a tagged segment is that of the message, and where in it the segment is",
		Cite:  cite(rfc5041, "5.2", "rfc5041/5.2/3"), Level: conformance.Must, Needs: needed,
		Sends:   "a Read Request of several segments; the device writes as much",
		Expects: "offsets that go on from segment to segment",
		Defects: []string{"OffsetsStandStill"},
		Run: onLong(func(c *conn) {
			goesOn := func(op iwarp.Opcode, want []byte) {
				at := 0
				for _, g := range c.pieces(len(want)) {
					c.same(iwarp.Op(op).STag(peerSTag).TO(peerTO+uint64(at)).WithPayload(want[at:][:len(g.Payload)]), g)
					at += len(g.Payload)
				}
			}
			c.PostSend(c.qp, c.writeWR(1, 0, c.long()))
			goesOn(iwarp.OpWrite, c.own.Buf[:c.long()])
			c.send(c.reads(16, c.long()))
			goesOn(iwarp.OpReadResponse, c.mem.Buf[16:][:c.long()])
		}),
	},
	{
		ID:    "ddp/segment/message-below-4-gib",
		Title: "A message of 4 GiB or more is not sent, nor any part of it",
		Cite:  cite(rfc5041, "5.2", "rfc5041/5.2/4"), Level: conformance.Must, Needs: needed,
		Sends:   "nothing: the device's program sends 4 GiB and 16 octets",
		Expects: "a request that is refused or fails, and no Send",
		Defects: []string{"LengthModulo"},
		Run: on(setup{caps: verbs.QPCaps{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 5, MaxRecvSGE: 1}}, func(c *conn) {
			wr := c.sendWR(1, 0, 0)
			wr.SGL = c.tooLong()
			posted, err := c.qp.PostSend([]verbs.SendWR{wr})
			c.Note("post: %d taken, %v", posted, err)
			c.allFail(posted)
			c.unheeded()
		}),
	},
	{
		ID:    "ddp/segment/empty-message-is-one-segment",
		Title: "A message of no octets is one segment without payload",
		Cite:  cite(rfc5041, "5.2", "rfc5041/5.2/5"), Level: conformance.Must, Needs: needed,
		Sends:   "a Read Request for nothing; the device sends and writes nothing",
		Expects: "one FPDU for each, of 18, 14 and 14 octets, and L in it",
		Defects: []string{"ZeroLengthSkipped"},
		Run: onConn(func(c *conn) {
			send, write := c.sendWR(1, 0, 0), c.writeWR(2, 0, 0)
			send.SGL, write.SGL = nil, nil
			c.PostSend(c.qp, send, write, c.sendWR(3, 0, 16))
			c.expect(iwarp.Send(1, nil).Last(true).ULPDULength(18))
			c.expect(iwarp.Op(iwarp.OpWrite).Last(true).WithPayload(nil).ULPDULength(14))
			c.expect(iwarp.Send(2, c.own.Buf[:16]))
			c.send(c.reads(0, 0))
			c.expect(iwarp.Op(iwarp.OpReadResponse).Last(true).WithPayload(nil).ULPDULength(14))
			c.fence()
		}),
	},
	{
		ID:    "ddp/segment/empty-write-needs-no-key",
		Title: "A Write of no octets may name any memory",
		Cite:  cite(rfc5041, "5.2", "rfc5041/5.2/6", "rfc5040/5.1/4"), Level: conformance.Must, Needs: needed,
		Sends:   "a Send, a Write of nothing to an unknown key, a Send",
		Expects: "both Sends are delivered, and no memory changes",
		Defects: []string{"ZeroLengthChecked"},
		Run: onConn(func(c *conn) {
			c.send(iwarp.Send(c.nextSend(), data(16)))
			c.send(iwarp.Write(unknownSTag, ^uint64(0), nil), iwarp.Send(c.nextSend(), data(32)))
			c.ExpectRecv(1, 16)
			c.ExpectRecv(2, 32)
			c.fence()
			c.ExpectUnchanged(c.mem, 0, 0)
		}),
	},
	{
		ID:    "ddp/segment/empty-response-needs-no-key",
		Title: "A Read Response of no octets may name any memory",
		Cite:  cite(rfc5041, "5.2", "rfc5041/5.2/6"), Level: conformance.Should, Needs: needed,
		Sends:   "a Read Response of nothing with an unknown key, to a read of nothing",
		Expects: "a read that completes",
		Defects: []string{"ZeroResponseChecked"},
		// RFC 5040 section 5.2.2 allows to hold a Response against its request. What is in
		// the way of that here is that there is nothing to place: a device that refuses is
		// within its rights by one document, and not by the other.
		Run: onConn(func(c *conn) {
			read := c.readWR(1, 0, 0)
			read.SGL = nil
			c.PostSend(c.qp, read)
			c.expect(iwarp.Op(iwarp.OpReadRequest))
			c.send(iwarp.ReadResponse(unknownSTag, 0x77, nil))
			c.ExpectCompletion(1, verbs.WCSuccess)
			c.fence()
		}),
	},
}
