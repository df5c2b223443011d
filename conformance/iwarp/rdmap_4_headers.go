package iwarp

import (
	"encoding/binary"
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// rdmapControlOctets are the RDMAP control octets of devices: version, reserved bits, opcode.
var rdmapControlOctets = map[byte]string{
	0x40: "Write", 0x41: "Read Request", 0x42: "Read Response", 0x43: "Send", 0x44: "Send with Invalidate",
	0x45: "Send with solicited event", 0x46: "Send with solicited event and Invalidate",
	0x48: "immediate data", 0x49: "immediate data with solicited event", 0x4a: "Atomic Request", 0x4b: "Atomic Response",
}

// inOtherHeader returns the message with a valid untagged header if its opcode is tagged, and with
// a valid tagged header if it is not.
func (c *conn) inOtherHeader(s iwarp.Segment) iwarp.Segment {
	if s.Op().Tagged() {
		return iwarp.Op(s.Op()).QN(0).MSN(c.nextSendMSN()).WithPayload(s.Payload)
	}
	at := c.targetAddr(0)
	s.DDP.QN, s.DDP.MSN, s.DDP.MO, s.RDMAP.InvalidateSTag = nil, nil, nil, nil
	return s.STag(at.STag).TO(at.TO)
}

var rdmapHeaderCases = []conformance.Case{{
	ID: "rdmap/header/queue-of-each-opcode", Cite: cite("rfc5040/3.1/1", "rfc5040/5.3/1", "rfc5040/5.2.1/1"),
	Title:   "Sends go to queue 0, Read and Atomic Requests to queue 1",
	Sends:   "a Read Request; the device sends a message of every kind",
	Expects: "the queue of the opcode",
	Defects: []string{"QueuesMixed"}, Run: onConn(func(c *conn) {
		for _, g := range c.exchangeAllKinds() {
			if !g.Op().Tagged() {
				c.checkFPDU(iwarp.Op(g.Op()).QN(g.Op().Queue()), g)
			}
		}
	}),
}, {
	ID: "rdmap/header/control-octet", Cite: cite("rfc5040/4.1/1"),
	Title:   "The RDMAP control octet has two bits of version, two reserved bits and the opcode",
	Sends:   "a Read Request; the device sends a message of every kind",
	Expects: "the octets 40 to 46 and 48 to 4b, as the kind of the message requires",
	Defects: []string{"RDMAPVersion0"}, Run: onConn(func(c *conn) {
		seen := make(map[byte]bool)
		for _, g := range c.exchangeAllKinds() {
			c.Check(rdmapControlOctets[g.ULPDU[1]] != "", "a valid RDMAP control octet", "% x", head(g.ULPDU))
			seen[g.ULPDU[1]] = true
		}
		for _, b := range []byte{0x40, 0x41, 0x42, 0x43, 0x45} {
			c.Check(seen[b], fmt.Sprintf("%s with the octet %02x", rdmapControlOctets[b], b), "no such message")
		}
	}),
}, {
	ID: "rdmap/header/write-without-tagged-flag", Cite: cite("rfc5040/4.1/2", "rfc5041/4.1/2"),
	Title:   "A Write with T clear is not executed",
	Sends:   "a Write with T clear, otherwise valid",
	Expects: "the end of the stream, and memory unchanged",
	Defects: []string{"TaggedFlagIgnored"}, Run: onConn(func(c *conn) {
		c.expectAbortBy(c.peerWrite(0, data(16)).Tagged(false))
		c.ExpectUntouched(c.targetMem)
	}),
}, {
	ID: "rdmap/header/tagged-flag-of-every-opcode", Cite: cite("rfc5040/4.1/2", "rfc5041/4.1/2"),
	Title:   "A message whose T flag does not belong to its opcode is not executed",
	Sends:   "each kind of message with the other T flag: with the header of its opcode, and with the header that the flag announces",
	Expects: "the end of the stream, no completion, and memory unchanged",
	Defects: []string{"TaggedFlagIgnored"}, Run: onHost(func(h *host) {
		for _, k := range append(h.kinds(), terminateKind) {
			for _, swapHeader := range []bool{false, true} {
				c := h.connectFor(k)
				wrong := k.valid(c).Tagged(!k.op.Tagged())
				if swapHeader {
					wrong = c.inOtherHeader(wrong)
				}
				c.expectAbortBy(wrong)
				c.ExpectNoSuccess()
				c.ExpectUntouched(c.localMem, c.targetMem)
			}
		}
	}),
}, {
	ID: "rdmap/header/version-is-one", Cite: cite("rfc5040/4.1/3"),
	Title:   "RDMAP's version is 1 in every message",
	Sends:   "a Read Request, and an invalid Write; the device sends a message of every kind",
	Expects: "version 1 in each, the Terminate included",
	Defects: []string{"RDMAPVersion0"}, Run: onConn(func(c *conn) {
		all := c.exchangeAllKinds()
		c.send(iwarp.Write(unknownSTag, 0, data(16)))
		for _, g := range append(all, c.nextFPDUs(1)...) {
			c.checkFPDU(iwarp.Op(g.Op()).RV(1), g)
		}
	}),
}, {
	ID: "rdmap/header/reserved-bits-are-ignored", Cite: cite("rfc5040/4.1/4"),
	Title:   "The reserved bits of the RDMAP control octet are ignored",
	Sends:   "each kind of message with both reserved bits set, in one segment and in two",
	Expects: "each is accepted",
	Defects: []string{"DDPReservedChecked"},
	Run:     onAcceptedWith(func(s iwarp.Segment) iwarp.Segment { return s.RDMAPReserved(3) }),
}, {
	ID: "rdmap/header/reserved-bits-are-zero", Cite: cite("rfc5040/4.1/4"),
	Title:   "The reserved bits of the RDMAP control octet are sent as zeros",
	Sends:   "a Read Request; the device sends a message of every kind",
	Expects: "zeros in the two bits of each",
	Defects: []string{"UnusedFieldsStale"}, Run: onConn(func(c *conn) {
		for _, g := range c.exchangeAllKinds() {
			c.Check(g.ULPDU[1]&0x30 == 0, fmt.Sprintf("%v without reserved bits", g.Op()), "% x", head(g.ULPDU))
		}
	}),
}, {
	ID: "rdmap/header/invalidate-field-is-zero", Cite: cite("rfc5040/4.1/5"),
	Title:   "The Invalidate STag field is zero in messages that invalidate nothing",
	Sends:   "nothing: the device sends a message of every kind",
	Expects: "four zeros in untagged messages other than Sends with Invalidate, which have their STag there",
	Defects: []string{"UnusedFieldsStale"}, Run: onConn(func(c *conn) {
		for _, g := range c.exchangeAllKinds() {
			switch op := g.Op(); {
			case op.Tagged():
			case op == iwarp.OpSendInvalidate || op == iwarp.OpSendSEInvalidate:
				c.checkFPDU(iwarp.Op(op).InvalidateSTag(peerSTag), g)
			default:
				c.checkFPDU(iwarp.Op(op).InvalidateSTag(0), g)
			}
		}
	}),
}, {
	ID: "rdmap/header/invalidate-field-of-a-plain-send-is-ignored", Cite: cite("rfc5040/4.1/5"),
	Needs:   verbs.CapMWType2 | verbs.CapSendInv,
	Title:   "A Send without Invalidate does not invalidate the STag in its header",
	Sends:   "each kind of untagged message that invalidates nothing, in one segment and in two, with the STag of a window in the Invalidate STag field, and a Write to the window",
	Expects: "each is accepted, and the window stays valid",
	Defects: []string{"AnySendInvalidates"}, Run: onHost(func(h *host) {
		c := h.connect(setup{receives: 8})
		m, at := c.newWindow(verbs.AccessRemoteWrite)
		c.send(iwarp.Send(c.nextSendMSN(), data(16)).InvalidateSTag(at.STag))
		c.send(iwarp.SendSE(c.nextSendMSN(), data(16)).InvalidateSTag(at.STag).Segments(18 + 8)...)
		for id := range uint64(2) {
			wc := c.ExpectRecv(id+1, 16)
			c.Check(wc.Flags&verbs.WCWithInv == 0, "a receive without an invalidated key", "one with WC_WITH_INV")
		}
		for _, k := range h.kinds() {
			if k.op.Tagged() || k.op == iwarp.OpSendInvalidate || k.op == iwarp.OpSendSEInvalidate {
				continue
			}
			s := k.valid(c)
			c.send(s.InvalidateSTag(at.STag))
			k.expectEffect(c, s)
		}
		c.sendAndSync(writeTo(at, data(32)))
		c.ExpectBytes(m, 0, data(32))
	}),
}, {
	ID: "rdmap/read/request-with-payload-is-refused", Cite: cite("rfc5040/4.2/1"),
	Title:   "A Read Request with octets after its header is not executed",
	Sends:   "Read Requests with 1, 4 and 28 extra octets, for some octets and for none; and in two segments, with one extra octet",
	Expects: "the end of the stream, and no Read Response",
	Defects: []string{"BadSegmentsDropped", "LongInPartsTaken"}, Run: onHost(func(h *host) {
		for _, n := range []int{1, 4, 28} {
			for _, size := range []int{16, 0} {
				c := h.connect(setup{})
				c.expectAbortBy(c.peerRead(0, size).WithPayload(data(n)))
			}
		}
		c := h.connect(setup{})
		c.expectAbortByLong(c.peerRead(0, 16))
	}),
}, {
	ID:   "rdmap/read/request-with-payload-is-terminated",
	Cite: citeSection("RFC 5040", "6.2.1", "rfc5040/4.2/1", "rfc5040/6.2.1/1", "rfc5040/4.8/2"), Level: conformance.Should,
	Title:   "A Read Request with octets after its header causes a Terminate",
	Sends:   "a Read Request with four extra octets",
	Expects: "a Terminate with any listed cause, since no code is specified",
	Defects: []string{"ReadPayloadSilent", "UnlistedCodes"}, Run: onConn(func(c *conn) {
		c.expectRefusal(c.peerRead(0, 16).WithPayload(data(4)))
	}),
}, {
	ID: "rdmap/read/request-layout", Cite: cite("rfc5040/4.4/1", "rfc5040/4.2/1"),
	Title:   "A Read Request has sink, size and source in this order, and no payload",
	Sends:   "a Read Response to the sink in the first twelve octets; the device reads 100 octets, and then 16 to other memory",
	Expects: "28 octets of header, another sink in the second Read Request, and reads that complete",
	Defects: []string{"FieldsSwapped"}, Run: onConn(func(c *conn) {
		g := c.expectSent(c.readWR(1, 512, 100), iwarp.Any())
		c.Check(len(g.ULPDU) == ddpUntaggedLen+28, "a ULPDU of 46 octets", "%d", len(g.ULPDU))
		header := g.ULPDU[ddpUntaggedLen:]
		want := binary.BigEndian.AppendUint32(nil, 100)
		want = binary.BigEndian.AppendUint32(want, peerSTag)
		want = binary.BigEndian.AppendUint64(want, peerTO)
		c.Check(string(header[12:]) == string(want), fmt.Sprintf("% x after the sink", want), "% x", header[12:])
		other := c.deviceRead(2, 1024, 16) // while the first is outstanding
		c.Check(*other.Read.SinkSTag != binary.BigEndian.Uint32(header) || *other.Read.SinkTO != binary.BigEndian.Uint64(header[4:]),
			"another sink for other memory", "the same, % x", header[:12])
		c.send(iwarp.ReadResponse(binary.BigEndian.Uint32(header), binary.BigEndian.Uint64(header[4:]), data(100)), iwarp.ReadResponseTo(other, data(16)))
		c.ExpectCompletions(verbs.WCSuccess, 1, 2)
		c.ExpectBytes(c.localMem, 512, data(100))
		c.ExpectBytes(c.localMem, 1024, data(16))
	}),
}, {
	ID: "rdmap/read/sink-is-copied", Cite: cite("rfc5040/4.4/2"),
	Title:   "A Read Response has the sink of its request, even if unknown to the device",
	Sends:   "Read Requests with an unknown key as sink, and with a key of the device",
	Expects: "the same sinks in the Read Responses",
	Defects: []string{"SinkChecked"}, Run: onConn(func(c *conn) {
		for _, sink := range []iwarp.Addr{iwarp.At(0xaaaa5555, 0x1122334455667788), c.targetAddr(5), iwarp.At(0, ^uint64(0)-63)} {
			c.send(iwarp.ReadRequest(c.nextRequestMSN(), sink, 20, c.targetAddr(40)))
			c.expect(iwarp.ReadResponse(sink.STag, sink.TO, c.targetMem.Buf[40:60]))
		}
		c.ExpectUntouched(c.targetMem)
	}),
}, {
	ID: "rdmap/read/sizes", Cite: cite("rfc5040/4.4/3"),
	Title:   "Reads of any size are answered in full",
	Sends:   "Read Requests for 0, 1, 65535, 65536, 65540 and 1048576 octets; the device reads as much",
	Expects: "Read Responses, and Read Requests of the device, of the same sizes",
	Defects: []string{"ReadSize16"}, Run: onSetup(setup{memLen: 1 << 20}, func(c *conn) {
		c.allowBadFrames = true // the case does not check the pad
		for _, n := range []int{0, 1, 65535, 65536, 65540, 1 << 20} {
			c.send(c.peerRead(0, n))
			c.expectReadResponse(c.targetMem.Buf[:n])
			got := *c.deviceRead(uint64(n), 0, n).Read.Size
			c.Check(int(got) == n, fmt.Sprintf("a Read Request for %d octets", n), "%d", got)
		}
	}),
}, {
	ID: "rdmap/read/every-bit-of-the-size", Cite: cite("rfc5040/4.4/3", "rfc5040/5.2.1/7"),
	Title:   "All 32 bits of the size of a Read Request count",
	Sends:   "Read Requests for 16 octets and one bit more, each of 2^11 to 2^31, from a region of 1024 octets",
	Expects: "a Terminate: base or bounds, or TO wrap; no Read Response",
	Defects: []string{"ReadSize16", "ReadSize31"}, Run: onHost(func(h *host) {
		for bit := 11; bit < 32; bit++ {
			c := h.connect(setup{memLen: 1024})
			c.expectRefusalWithoutEffect(c.peerRead(0, 16|1<<bit), iwarp.RDMAPBounds, iwarp.RDMAPTOWrap)
		}
	}),
}, {
	ID: "rdmap/read/one-request-one-response", Cite: cite("rfc5040/5.2/1"),
	Title:   "A Read Request is answered by one message of any length",
	Sends:   "two Read Requests of several segments",
	Expects: "two messages, each with one last segment",
	Defects: []string{"LastOnEvery"}, Run: onLongMessages(func(c *conn) {
		n := c.longLen()
		c.send(c.peerRead(0, n))
		c.send(c.peerRead(16, n))
		for _, off := range []int{0, 16} {
			segments := c.nextPayload(n)
			c.expectLastFlagOnce(segments)
			c.expectPayload(segments, c.targetMem.Buf[off:][:n])
		}
		c.syncByRead()
	}),
}, {
	ID: "rdmap/read/takes-no-receive", Cite: cite("rfc5040/5.2.1/3"),
	Title:   "A Read Request consumes no receive",
	Sends:   "Read Requests for 16 octets and for none, and a Send",
	Expects: "Read Responses and no completion, then a completion for the Send",
	Defects: []string{"EverythingTakesReceive"}, Run: onConn(func(c *conn) {
		for _, n := range []int{16, 0} {
			c.expectAnswer(c.peerRead(0, n), iwarp.Op(iwarp.OpReadResponse))
		}
		c.syncByRead()
		c.ExpectNoCompletion()
		c.expectSendDelivered(1, 16)
	}),
}, {
	ID: "rdmap/read/requests-in-order", Cite: cite("rfc5040/5.2.1/4"),
	Title:   "Read Requests are sent in the order in which they were posted",
	Sends:   "nothing: the application posts four reads at once",
	Expects: "their sizes in that order, with MSNs 1 to 4",
	Defects: []string{"LIFOQueue"}, Run: onConn(func(c *conn) {
		c.PostSend(c.qp, c.readWR(1, 0, 16), c.readWR(2, 64, 8), c.readWR(3, 128, 32), c.readWR(4, 192, 4))
		for i, n := range []uint32{16, 8, 32, 4} {
			c.expect(iwarp.Op(iwarp.OpReadRequest).MSN(uint32(i + 1)).EditRead(func(h *iwarp.ReadRequestHeader) { h.Size = &n }))
		}
	}),
}}
