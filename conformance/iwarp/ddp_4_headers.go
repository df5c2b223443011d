package iwarp

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// expectLastFlagOnce fails the case unless only the last segment of a message has L set.
func (c *conn) expectLastFlagOnce(segments []iwarp.ReceivedFPDU) {
	for i, g := range segments {
		want := i == len(segments)-1
		c.Check(iwarp.Val(g.DDP.Last) == want, fmt.Sprintf("L=%t in segment %d of %d", want, i+1, len(segments)), "%v", g)
	}
	c.Check(len(segments) > 1, "a message of several segments", "one")
}

// onAcceptedWith makes the body of a case that fails unless messages of every kind are accepted
// with headers changed by edit: in one segment, and in two.
func onAcceptedWith(edit func(iwarp.Segment) iwarp.Segment) func(*conformance.Bench) error {
	return onHost(func(h *host) {
		for _, k := range append(h.kinds(), terminateKind) {
			c := h.connectFor(k)
			const wholeMessage, halfMessage = 100, ddpUntaggedLen + kindLen/2
			for _, ulpduLen := range []int{wholeMessage, halfMessage} {
				s := k.valid(c)
				parts := s.Segments(ulpduLen)
				if ulpduLen == halfMessage && len(parts) == 1 {
					continue // a message without payload cannot be split
				}
				for _, part := range parts {
					c.send(edit(part))
				}
				k.expectEffect(c, s)
			}
		}
	})
}

// expectConstantOctets expects several segments whose ULPDUs have the same octets [from:to].
func (c *conn) expectConstantOctets(from, to int, segments []iwarp.ReceivedFPDU) {
	c.Check(len(segments) > 1, "a message of several segments", "one")
	want := segments[0].ULPDU[from:to]
	for _, g := range segments {
		c.Check(bytes.Equal(g.ULPDU[from:to], want), fmt.Sprintf("% x as in the first segment", want), "% x", g.ULPDU[from:to])
	}
}

// expectHeaderOctets fails the case unless a ULPDU begins with want.
func (c *conn) expectHeaderOctets(g iwarp.ReceivedFPDU, want []byte) {
	got := g.ULPDU[:min(len(want), len(g.ULPDU))]
	c.Check(bytes.Equal(got, want), fmt.Sprintf("% x", want), "% x", got)
}

// Headers built without package packet/iwarp, to find errors that its encoder and parser share.

// taggedHeader returns the header of a single-segment tagged message with an RDMAP control octet.
func taggedHeader(rdmap byte, stag uint32, to uint64) []byte {
	const ddp = 0xc1 // tagged, last, DDP version 1
	b := binary.BigEndian.AppendUint32([]byte{ddp, rdmap}, stag)
	return binary.BigEndian.AppendUint64(b, to)
}

// untaggedHeaderOctets returns a header of the first message of queue qn, with both control octets.
func untaggedHeaderOctets(ddp, rdmap byte, qn, mo uint32) []byte {
	b := []byte{ddp, rdmap, 0, 0, 0, 0}
	const msn = 1
	for _, v := range []uint32{qn, msn, mo} {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	return b
}

var ddpHeaderCases = []conformance.Case{{
	ID: "ddp/control/tagged-flag-of-what-is-sent", Cite: cite("rfc5041/4.1/1", "rfc5040/4.1/2", "rfc5040/5.2.1/1", "rfc5040/5.2.2/1"),
	Title:   "T is set in Writes and Read Responses, and in nothing else",
	Sends:   "Read Requests and an invalid Write; the device sends a message of every kind, in one segment and in several",
	Expects: "T as the opcode requires in every segment, the Terminate included",
	Defects: []string{"TaggedFlagInverted", "TaggedFirstOnly"}, Run: onLongMessages(func(c *conn) {
		for _, g := range c.exchangeAllSegments() {
			c.Check(iwarp.Val(g.DDP.Tagged) == g.Op().Tagged(), fmt.Sprintf("%v with T=%t", g.Op(), g.Op().Tagged()), "% x", head(g.ULPDU))
		}
	}),
}, {
	ID: "ddp/control/tagged-send-is-refused", Cite: cite("rfc5041/4.1/2", "rfc5040/4.1/2"),
	Title:   "A Send with T set is not delivered",
	Sends:   "a Send with T set, otherwise valid",
	Expects: "the end of the stream, and no receive",
	// Parsed as a tagged segment it has an unknown STag, which is also a valid cause.
	Defects: []string{"TaggedFlagIgnored"}, Run: onConn(func(c *conn) {
		c.expectAbortBy(iwarp.Send(c.nextSendMSN(), data(16)).Tagged(true))
		c.ExpectNoSuccess()
		c.ExpectUntouched(c.localMem)
	}),
}, {
	ID: "ddp/control/last-flag-of-a-send", Cite: cite("rfc5041/4.1/3", "rfc5041/4.1/4"),
	Title:   "L is set in the last segment of a Send, and in no other",
	Sends:   "nothing: the device sends a message of several segments, with each kind of Send",
	Expects: "L in the last segment, which has the highest offset",
	Defects: []string{"LastOnEvery", "SolicitedLastOnEvery"}, Run: onLongMessages(func(c *conn) {
		wrs, ops := c.everySendWR(c.longLen())
		c.PostSend(c.qp, wrs...)
		for range ops {
			segments := c.nextPayload(c.longLen())
			c.expectLastFlagOnce(segments)
			last := segments[len(segments)-1]
			for _, g := range segments {
				c.Check(iwarp.Val(g.DDP.MO) <= iwarp.Val(last.DDP.MO), "the highest offset in the segment with L", "%v after %v", last, g)
			}
		}
	}),
}, {
	ID: "ddp/control/last-flag-of-a-write", Cite: cite("rfc5041/4.1/3"),
	Title:   "L is set in the last segment of a Write and of a Read Response, and in messages of one segment",
	Sends:   "Read Requests for one segment and for several, and an invalid Write; the device writes as much, and sends a message of every kind",
	Expects: "L in the last segment of each, and in no other",
	Defects: []string{"LastOnEvery", "LastMissing"}, Run: onLongMessages(func(c *conn) {
		for _, g := range c.exchangeAllKinds() {
			c.Check(iwarp.Val(g.DDP.Last), fmt.Sprintf("%v with L", g.Op()), "%v", g)
		}
		c.PostSend(c.qp, c.writeWR(1, 0, c.longLen()))
		c.expectLastFlagOnce(c.nextPayload(c.longLen()))
		c.send(c.peerRead(0, c.longLen()))
		c.expectLastFlagOnce(c.nextPayload(c.longLen()))
		c.expectAnswer(iwarp.Write(unknownSTag, 0, data(16)), iwarp.Op(iwarp.OpTerminate).Last(true))
	}),
}, {
	ID: "ddp/control/delivery-waits-for-the-last-segment", Cite: cite("rfc5041/4.1/5", "rfc5041/5.4/1"),
	Title:   "A Send or a Read Response is delivered after its last segment has arrived, not before",
	Sends:   "two of three segments of each kind of Send and of a Read Response, and later the third",
	Expects: "a receive or a read that completes after the third",
	Defects: []string{"DeliversFirstSegment"}, Run: onHost(func(h *host) {
		for _, k := range append(h.sendKinds(), responseKind) {
			c := h.connectFor(k)
			s := k.valid(c)
			parts := s.Segments(s.Len() - kindLen + kindLen/2 - 2) // 6, 6 and 4 octets
			c.send(parts[0], parts[1])
			c.expectIdle()
			c.send(parts[2])
			k.expectEffect(c, s)
		}
	}),
}, {
	ID: "ddp/control/delivery-waits-for-earlier-messages", Cite: cite("rfc5041/4.1/5", "rfc5041/5.3/4"),
	Title:   "A single-segment Send is delivered after an earlier Send or Write of several segments",
	Sends:   "a Send of three segments, a Send of one segment; a Write of three segments, and a Send of one",
	Expects: "the Sends in the order in which they were sent, the last after the Write is placed",
	Defects: []string{"LongDeliveredLate", "WritesPlacedLate"}, Run: onConn(func(c *conn) {
		c.send(iwarp.Send(c.nextSendMSN(), data(48)).Segments(18 + 16)...)
		c.send(iwarp.Send(c.nextSendMSN(), data(16)))
		c.expectRecvs(48, 16)
		c.sendCoalesced(append(c.peerWrite(0, data(48)).Segments(14+16), iwarp.Send(c.nextSendMSN(), data(20)))...)
		c.ExpectRecv(3, 20)
		c.ExpectBytes(c.targetMem, 0, data(48))
	}),
}, {
	ID: "ddp/control/reserved-bits-are-zero", Cite: cite("rfc5041/4.1/6"),
	Title:   "The reserved bits of DDP's control octet are sent as zeros",
	Sends:   "Read Requests and an invalid Write; the device sends a message of every kind, in one segment and in several",
	Expects: "zeros in the four bits of each segment, the Terminate included",
	Defects: []string{"UnusedFieldsStale"}, Run: onLongMessages(func(c *conn) {
		for _, g := range c.exchangeAllSegments() {
			c.Check(g.ULPDU[0]&0x3c == 0, fmt.Sprintf("%v without reserved bits", g.Op()), "% x", head(g.ULPDU))
		}
	}),
}, {
	ID: "ddp/control/reserved-bits-are-ignored", Cite: cite("rfc5041/4.1/7"),
	Title:   "The reserved bits of DDP's control octet are ignored",
	Sends:   "each kind of message with all reserved bits set, in one segment and in two",
	Expects: "each is accepted",
	Defects: []string{"DDPReservedChecked"},
	Run:     onAcceptedWith(func(s iwarp.Segment) iwarp.Segment { return s.DDPReserved(0xf) }),
}, {
	ID: "ddp/control/version-on-every-segment", Cite: cite("rfc5041/4.1/8", "rfc5041/4.1/6", "rfc5044/C.1/1"),
	Title:   "Every segment of a message has DDP's version 1",
	Sends:   "Read Requests and an invalid Write; the device sends a message of every kind, in one segment and in several",
	Expects: "DV 1 in each segment, including the later ones and the Terminate, and no reserved bit",
	Defects: []string{"ControlFirstOnly", "TerminateVersion0"}, Run: onLongMessages(func(c *conn) {
		for _, g := range c.exchangeAllSegments() {
			c.Check(g.ULPDU[0]&0x3f == 1, "DV 1, and no reserved bit", "% x", head(g.ULPDU))
		}
	}),
}, {
	ID: "ddp/tagged/header-layout", Cite: cite("rfc5041/4.2/1"),
	Title:   "A tagged header is two octets of control, the STag and the offset",
	Sends:   "a Read Request; the device writes too",
	Expects: "14 octets of header, then the payload",
	Defects: []string{"FieldsSwapped"}, Run: onConn(func(c *conn) {
		g := c.expectSent(c.writeWR(1, 0, 100), iwarp.Any())
		c.expectHeaderOctets(g, append(taggedHeader(0x40, peerSTag, peerTO), c.localMem.Buf[:100]...))
		c.Check(len(g.ULPDU) == 14+100, "a ULPDU of 114 octets", "%d", len(g.ULPDU))
		c.send(c.peerRead(0, 100))
		c.expectHeaderOctets(c.nextFPDUs(1)[0], append(taggedHeader(0x42, peerSTag, peerTO), c.targetMem.Buf[:100]...))
	}),
}, {
	ID: "ddp/tagged/constant-within-a-message", Cite: cite("rfc5041/4.2/2"),
	Title:   "STag and RDMAP control octet are the same in every segment of a tagged message",
	Sends:   "a Read Request of several segments; the device writes as much",
	Expects: "one STag and one opcode in each message",
	Defects: []string{"ControlFirstOnly"}, Run: onLongMessages(func(c *conn) {
		c.PostSend(c.qp, c.writeWR(1, 0, c.longLen()))
		c.expectConstantOctets(1, 6, c.nextPayload(c.longLen()))
		c.send(c.peerRead(0, c.longLen()))
		c.expectConstantOctets(1, 6, c.nextPayload(c.longLen()))
	}),
}, {
	ID: "ddp/tagged/any-offset", Cite: cite("rfc5041/4.2/3"), Level: conformance.May,
	Title:   "A tagged message may begin at any octet",
	Sends:   "Writes and Read Responses to odd offsets, and Read Requests from and to them; the device writes to odd offsets and reads from them",
	Expects: "each is placed at its offset; Writes, Read Requests and Read Responses of the device have their offsets",
	Defects: []string{"OddOffsetRefused", "OddSinkRefused"}, Run: onConn(func(c *conn) {
		for i := range uint64(4) {
			local := 65 + 2*int(i)
			write, read := c.writeWR(1, 0, 20), c.readWR(2, local, 20)
			write.Remote.Addr, read.Remote.Addr = peerTO+2*i+1, peerTO+2*i+1
			c.expectSent(write, iwarp.Write(peerSTag, write.Remote.Addr, c.localMem.Buf[:20]))
			g := c.expectSent(read, iwarp.Op(iwarp.OpReadRequest).EditRead(func(h *iwarp.ReadRequestHeader) { h.SrcTO = &read.Remote.Addr }))
			c.send(iwarp.ReadResponseTo(g.Segment, data(20)))
			c.ExpectCompletions(verbs.WCSuccess, 1, 2)
			c.ExpectBytes(c.localMem, local, data(20))
		}
		for _, off := range []int{101, 202, 303} {
			c.sendAndSync(c.peerWrite(off, data(20)))
			c.ExpectBytes(c.targetMem, off, data(20))
		}
		for _, sink := range []uint64{peerTO, peerTO + 1, peerTO + 3} {
			c.expectAnswer(iwarp.ReadRequest(c.nextRequestMSN(), iwarp.At(peerSTag, sink), 16, c.targetAddr(203)), iwarp.ReadResponse(peerSTag, sink, data(20)[1:17]))
		}
	}),
}, {
	ID: "ddp/untagged/header-layout", Cite: cite("rfc5041/4.3/1"),
	Title:   "An untagged header is the control octets, four octets of RDMAP, queue number, MSN and offset",
	Sends:   "nothing: the device sends a message of several segments, and reads",
	Expects: "18 octets of header, then the payload",
	Defects: []string{"FieldsSwapped"}, Run: onLongMessages(func(c *conn) {
		c.PostSend(c.qp, c.sendWR(1, 0, c.longLen()), c.readWR(2, 0, 64))
		segments := c.nextPayload(c.longLen())
		at := 0
		for i, g := range segments {
			ctrl := byte(0x01)
			if i == len(segments)-1 {
				ctrl = 0x41
			}
			n := len(g.ULPDU) - ddpUntaggedLen
			c.expectHeaderOctets(g, append(untaggedHeaderOctets(ctrl, 0x43, 0, uint32(at)), c.localMem.Buf[at:][:n]...))
			at += n
		}
		c.expectHeaderOctets(c.nextFPDUs(1)[0], untaggedHeaderOctets(0x41, 0x41, 1, 0))
	}),
}, {
	ID: "ddp/untagged/constant-within-a-message", Cite: cite("rfc5041/4.3/2"),
	Title:   "Queue number, MSN and the RDMAP fields are the same in every segment of an untagged message",
	Sends:   "nothing: the device sends a message of several segments, with each kind of Send",
	Expects: "one queue number, one MSN, one opcode and one Invalidate STag",
	Defects: []string{"SegmentsCounted", "InvalidateFirstOnly"}, Run: onLongMessages(func(c *conn) {
		wrs, ops := c.everySendWR(c.longLen())
		c.PostSend(c.qp, wrs...)
		for _, op := range ops {
			c.expectConstantOctets(1, 14, c.nextMessage(op))
		}
	}),
}, {
	ID: "ddp/untagged/numbers-begin-at-one", Cite: cite("rfc5041/4.3/3"),
	Title:   "The MSN of a queue's first message is 1, and increases by 1",
	Sends:   "nothing: the device sends four messages, the second in several segments, and one of each kind of Send",
	Expects: "MSNs 1 to 4, and the next ones",
	Defects: []string{"MSNShared", "LongSendSkipsNumber"}, Run: onLongMessages(func(c *conn) {
		for i, n := range []int{16, c.longLen(), 16, 16} {
			c.PostSend(c.qp, c.sendWR(uint64(i), 0, n))
			for _, g := range c.nextPayload(n) {
				c.checkFPDU(iwarp.Op(iwarp.OpSend).QN(0).MSN(uint32(i+1)), g)
			}
		}
		wrs, ops := c.everySendWR(16)
		c.PostSend(c.qp, wrs...)
		for i, op := range ops {
			c.expect(iwarp.Op(op).QN(0).MSN(uint32(i + 5)).WithPayload(c.localMem.Buf[:16]))
		}
	}),
}, {
	ID: "ddp/untagged/numbers-of-each-queue-for-itself", Cite: cite("rfc5041/4.3/3"),
	Title:   "Sends and Read Requests have separate MSNs",
	Sends:   "nothing: the device sends and reads in turn",
	Expects: "MSN 1 in both queues, then MSN 2",
	Defects: []string{"MSNShared"}, Run: onConn(func(c *conn) {
		c.PostSend(c.qp, c.sendWR(1, 0, 16), c.readWR(2, 64, 16), c.sendWR(3, 16, 16), c.readWR(4, 128, 16))
		for _, msn := range []uint32{1, 2} {
			c.expect(iwarp.Op(iwarp.OpSend).MSN(msn))
			c.expect(iwarp.Op(iwarp.OpReadRequest).MSN(msn))
		}
	}),
}, {
	ID: "ddp/untagged/offsets-begin-at-zero", Cite: cite("rfc5041/4.3/5"),
	Title:   "Every untagged message begins at offset 0",
	Sends:   "a Read Request; the device sends three messages, of which the second has several segments, and a message of every kind",
	Expects: "offset 0 in the first segment of each untagged message",
	Defects: []string{"SegmentsCounted"}, Run: onLongMessages(func(c *conn) {
		for _, g := range c.exchangeAllKinds() {
			c.Check(iwarp.Val(g.DDP.MO) == 0, fmt.Sprintf("%v at offset 0", g.Op()), "%v", g)
		}
		for i, n := range []int{16, c.longLen(), 16} {
			c.PostSend(c.qp, c.sendWR(uint64(i), 0, n))
			first := c.nextPayload(n)[0]
			c.Check(iwarp.Val(first.DDP.MO) == 0, fmt.Sprintf("message %d to begin at offset 0", i+1), "%v", first)
		}
	}),
}}
