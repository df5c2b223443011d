package iwarp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// peerFault is an invalid frame of the peer, and the valid causes of the Terminate for it.
type peerFault struct {
	name   string
	causes []iwarp.Cause
	frame  makeSegment
	// The Terminate quotes the DDP header, and that of a Read Request.
	quotesDDP, quotesRDMAP bool
}

// ddpFault returns a fault whose Terminate must have the cause and quote the DDP header.
func ddpFault(name string, cause iwarp.Cause, segment makeSegment) peerFault {
	return peerFault{name: name, causes: []iwarp.Cause{cause}, frame: segment, quotesDDP: true}
}

var (
	crcFault = peerFault{
		name: "a wrong CRC", causes: []iwarp.Cause{iwarp.MPACRC},
		frame: func(c *conn) iwarp.Segment { return c.peerWrite(0, data(16)).BadCRC() },
	}
	taggedFault = ddpFault("a Write to an unknown key", iwarp.DDPTaggedInvalidSTag,
		func(*conn) iwarp.Segment { return iwarp.Write(unknownSTag, 0, data(16)) })
	untaggedFault = ddpFault("a Send to an unknown queue", iwarp.DDPUntaggedInvalidQN, sendToQueue(4))
	readFault     = peerFault{
		name: "a Read Request with an unknown key", causes: []iwarp.Cause{iwarp.RDMAPInvalidSTag},
		frame:     func(c *conn) iwarp.Segment { return c.readFrom(iwarp.At(unknownSTag, 0), 16) },
		quotesDDP: true, quotesRDMAP: true,
	}
	readNumberFault = ddpFault("a Read Request with a wrong MSN", iwarp.DDPUntaggedMSNRange,
		func(c *conn) iwarp.Segment { return c.peerRead(0, 16).MSN(c.nextRequestMSN() + 1) })
	// readFaults are the errors of a Read Request for which a Terminate quotes all headers.
	readFaults = []peerFault{
		readFault,
		readProtectionFault("out of bounds", iwarp.RDMAPBounds, func(c *conn) iwarp.Addr { return c.targetAddr(len(c.targetMem.Buf) - 15) }),
		readProtectionFault("for memory without the right", iwarp.RDMAPAccess, func(c *conn) iwarp.Addr { return addrOf(c.Memory(64, verbs.AccessLocalWrite), 0) }),
		readProtectionFault("for memory of another domain", iwarp.RDMAPSTagNotAssociated, func(c *conn) iwarp.Addr { return addrOf(c.otherPDMemory(allAccess), 0) }),
		readProtectionFault("that wraps around", iwarp.RDMAPTOWrap, func(c *conn) iwarp.Addr { return iwarp.At(c.targetAddr(0).STag, ^uint64(0)-7) }),
	}
	opcodeFault = ddpFault("a message of opcode 13", iwarp.RDMAPUnexpectedOpcode,
		func(c *conn) iwarp.Segment { return iwarp.Send(c.nextSendMSN(), data(16)).Opcode(13) })
	versionFault = ddpFault("a Send of version 0", iwarp.RDMAPInvalidVersion,
		func(c *conn) iwarp.Segment { return iwarp.Send(c.nextSendMSN(), data(16)).RV(0) })
	invalidateFault = ddpFault("a Send that invalidates an unknown key", iwarp.RDMAPCannotInvalidate,
		func(c *conn) iwarp.Segment { return iwarp.SendInvalidate(c.nextSendMSN(), unknownSTag, data(16)) })
)

// readProtectionFault returns a Read Request for 16 octets at a wrong address. Devices may report
// an unknown key or the bounds in place of a more exact cause.
func readProtectionFault(name string, cause iwarp.Cause, at func(*conn) iwarp.Addr) peerFault {
	return peerFault{
		name: "a Read Request " + name, causes: []iwarp.Cause{cause, iwarp.RDMAPInvalidSTag, iwarp.RDMAPBounds},
		frame:     func(c *conn) iwarp.Segment { return c.readFrom(at(c), 16) },
		quotesDDP: true, quotesRDMAP: true,
	}
}

// layerFaults are an error of MPA, two of DDP, and one of RDMAP.
var layerFaults = []peerFault{crcFault, taggedFault, untaggedFault, readFault}

// onEachFault makes the body of a case that fails unless each fault, on a separate connection,
// causes a Terminate. It calls check with the Terminate.
func onEachFault(faults []peerFault, check func(*conn, peerFault, iwarp.ReceivedFPDU)) func(*conformance.Bench) error {
	return onEachConn(setup{receives: 4}, faults, func(c *conn, f peerFault) {
		c.send(f.frame(c))
		check(c, f, c.expect(iwarp.Op(iwarp.OpTerminate)))
	})
}

// refuseAmongReads sends a fault after a Read Request was answered, and again, on another connection,
// between two valid Read Requests in one TCP segment. It calls check for each of the two, with the
// frame and its Terminate.
func (c *conn) refuseAmongReads(f peerFault, check func(c *conn, wrong, t iwarp.Segment)) {
	c.syncByRead()
	wrong := f.frame(c)
	check(c, wrong, c.expectRefusal(wrong, f.causes...))
	other := c.connect(setup{})
	b := other.encode(other.peerRead(0, 16))
	wrong = f.frame(other)
	b = append(b, other.encode(wrong)...)
	other.write(append(b, other.encode(other.peerRead(0, 16))...))
	check(other, wrong, other.expectTerminateAfter(iwarp.OpReadResponse, f.causes...))
}

// expectQuotedReadHeader fails the case unless Terminate t quotes the header of a Read Request as
// it is after some octets (done) were answered: with later addresses and a smaller size.
func (c *conn) expectQuotedReadHeader(t, request iwarp.Segment, done uint32) {
	request = request.EditRead(func(h *iwarp.ReadRequestHeader) {
		h.SinkTO, h.SrcTO = new(*h.SinkTO+uint64(done)), new(*h.SrcTO+uint64(done))
		h.Size = new(*h.Size - done)
	})
	want := iwarp.Terminate(0).About(request).Terminate.RDMAPHeader
	got := t.Terminate.RDMAPHeader
	c.Check(bytes.Equal(got, want), fmt.Sprintf("the RDMA header % x in the Terminate", want), "% x", got)
}

var rdmapTerminateCases = []conformance.Case{{
	ID: "rdmap/terminate/control-layout", Cite: cite("rfc5040/4.8/1"),
	Title:   "A Terminate has layer and type in its first octet, the code in the second, and three flags at the top of the third",
	Sends:   "a wrong CRC, a Write to an unknown key, a Send to an unknown queue, a Read Request with an unknown key",
	Expects: "the words 20020000, 1100c000, 1201c000 and 0100e000, the third octet may have fewer flags",
	Defects: []string{"TermBitsSwapped"}, Run: onEachFault(layerFaults, func(c *conn, f peerFault, g iwarp.ReceivedFPDU) {
		word, _ := g.TerminateControl()
		want := f.causes[0]
		c.Check(len(word) == 4 && word[0] == want.Layer()<<4|want.Type() && word[1] == want.Code() && word[2]&0x1f == 0 && word[3] == 0,
			fmt.Sprintf("for %s a Terminate with %04x and flags in the next three bits", f.name, uint16(want)), "% x", word)
	}),
}, {
	ID: "rdmap/terminate/listed-values-only", Cite: cite("rfc5040/4.8/2", "rfc5041/7.2/1", "rfc6580/3.1/1"),
	Title:   "A Terminate has a layer, type and code that an RFC lists",
	Sends:   "errors of every layer, with the highest codes too, each on a separate connection",
	Expects: "causes that an RFC lists",
	Defects: []string{"CodesShifted"},
	Run: onEachFault(slices.Concat(layerFaults, []peerFault{opcodeFault, versionFault}, ddpFaults), func(c *conn, f peerFault, g iwarp.ReceivedFPDU) {
		cause := iwarp.Val(c.parseTerminate(g).Terminate.Cause)
		c.Check(cause.Listed(), fmt.Sprintf("for %s a cause that is listed", f.name), "%v", cause)
	}),
}, {
	ID: "rdmap/terminate/reserved-bits-are-ignored", Cite: cite("rfc5040/4.8/3"),
	Title:   "A Terminate with reserved bits set ends the stream",
	Sends:   "a Terminate, and on another connection one with all of the thirteen bits set",
	Expects: "the end of the stream, and receives that fail; a Terminate of the device after the second only if there was one after the first",
	Defects: []string{"StrangeTerminateIgnored", "ReservedTerminateAnswered"}, Run: onHost(func(h *host) {
		var answered [2]bool
		for i, reserved := range []uint16{0, 0x1fff} {
			c := h.connect(setup{receives: 4})
			c.send(iwarp.Terminate(iwarp.RDMAPRemoteUnspecified).EditTerminate(func(h *iwarp.TerminateHeader) { h.Reserved = &reserved }))
			answered[i] = c.expectAbort()
			c.expectDisconnect()
			c.expectFailures(4)
		}
		h.Check(!answered[1] || answered[0], "no Terminate in response to reserved bits", "one")
	}),
}, {
	ID: "rdmap/terminate/flags-say-what-follows", Cite: cite("rfc5040/4.8/4"),
	Title:   "The flags of a Terminate match its headers",
	Sends:   "a Send that invalidates an unknown key, and other errors",
	Expects: "the headers that the flags announce after the control word",
	// This case accepts either bit order; rdmap/terminate/sizes-by-flags does not.
	Defects: []string{"TermInvalidateFlag"},
	Run: onEachFault(append([]peerFault{invalidateFault}, layerFaults...), func(c *conn, f peerFault, g iwarp.ReceivedFPDU) {
		t := c.parseTerminate(g).Terminate
		_, rest := g.TerminateControl()
		c.Check(len(rest) == t.ContentLen(), fmt.Sprintf("for %s a Terminate with %d octets after its control word, as its flags announce", f.name, t.ContentLen()), "%d", len(rest))
	}),
}, {
	ID: "rdmap/terminate/sizes-by-flags", Cite: cite("rfc5040/4.8/4", "rfc5040/4.8/3"),
	Title:   "A Terminate has the length that its flags announce, and its reserved bits are zero",
	Sends:   "a wrong CRC, a Write to an unknown key, a Send to an unknown queue, a Read Request with an unknown key",
	Expects: "22, 38, 42 and 70 octets, or less with fewer flags; thirteen zero bits",
	Defects: []string{"TermBitsSwapped"}, Run: onEachFault(layerFaults, func(c *conn, f peerFault, g iwarp.ReceivedFPDU) {
		word, rest := g.TerminateControl()
		c.Check(g.Terminate != nil && iwarp.Val(g.Terminate.Reserved) == 0, fmt.Sprintf("for %s a Terminate without reserved bits", f.name), "% x", word)
		c.Check(len(rest) == g.Terminate.ContentLen(), fmt.Sprintf("for %s a Terminate of %d octets", f.name, len(g.ULPDU)-len(rest)+g.Terminate.ContentLen()), "%d", len(g.ULPDU))
	}),
}, {
	ID: "rdmap/terminate/headers-by-layer", Cite: cite("rfc5040/4.8/5"), Level: conformance.Should,
	Title:   "A Terminate quotes the headers that its kind of error requires",
	Sends:   "a wrong CRC, a Write to an unknown key, a Send to an unknown queue, other errors of DDP, Read Requests with a wrong MSN and with an unknown key",
	Expects: "no header for the first, length and DDP header for the others, and the header of the Read Request with the unknown key",
	Defects: []string{"TermAllHeaders", "TermReadHeaderOfDDP"}, Run: onEachFault(slices.Concat(layerFaults, ddpFaults, []peerFault{readNumberFault}), func(c *conn, f peerFault, g iwarp.ReceivedFPDU) {
		t := c.parseTerminate(g).Terminate
		c.Check(iwarp.Val(t.LengthValid) == f.quotesDDP && iwarp.Val(t.HasDDP) == f.quotesDDP && iwarp.Val(t.HasRDMAP) == f.quotesRDMAP,
			fmt.Sprintf("for %s a Terminate with M=%t, D=%t and R=%t", f.name, f.quotesDDP, f.quotesDDP, f.quotesRDMAP), "M=%t, D=%t and R=%t", iwarp.Val(t.LengthValid), iwarp.Val(t.HasDDP), iwarp.Val(t.HasRDMAP))
	}),
}, {
	ID: "rdmap/terminate/header-for-a-wrong-opcode", Cite: cite("rfc5040/4.8/5"), Level: conformance.Should,
	Title:   "A Terminate for a wrong opcode or version quotes the DDP header",
	Sends:   "a message of opcode 13, and one of RDMAP version 0",
	Expects: "Terminates with their headers",
	Defects: []string{"TermBareOperation"},
	Run: onEachConn(setup{receives: 4}, []peerFault{opcodeFault, versionFault}, func(c *conn, f peerFault) {
		wrong := f.frame(c)
		c.send(wrong)
		t := c.expectTerminate(f.causes...)
		c.expectQuotedDDPHeader(t, wrong)
		c.Check(!iwarp.Val(t.Terminate.HasRDMAP), fmt.Sprintf("for %s a Terminate without the header of a Read Request", f.name), "%v with one", t)
	}),
}, {
	ID: "rdmap/terminate/read-header-advanced", Cite: cite("rfc5040/4.8/6"),
	Title:   "The Terminate of a partly answered read quotes the remaining range",
	Sends:   "a Read Request for 16 MiB; the application deregisters the region when TCP's buffers are full",
	Expects: "a Terminate with the DDP header, and sink, source and size of the octets not received",
	Defects: []string{"TermReadStale", "TermPartReadNumber"}, Run: onSetup(setup{}, func(c *conn) {
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
				c.expectQuotedDDPHeader(t, request)
				c.expectQuotedReadHeader(t, request, uint32(done))
				return
			}
			c.checkFPDU(iwarp.Op(iwarp.OpReadResponse), g)
			done += len(g.Payload)
		}
		rig.BenchCannot("the device has read all %d octets of the response before it sent the first", tcpBufferBytes)
	}),
}, {
	ID: "rdmap/terminate/number-of-the-read", Cite: cite("rfc5040/4.8/6", "rfc5040/7.1/4"),
	Title:   "The Terminate of a read quotes the MSN of the Read Request",
	Sends:   "three valid Read Requests, and one with an unknown key",
	Expects: "the DDP header of the last in the Terminate, with its MSN",
	Defects: []string{"TermReadStale"}, Run: onConn(func(c *conn) {
		for range 3 {
			c.syncByRead()
		}
		wrong := c.readFrom(iwarp.At(unknownSTag, 0x100), 1000)
		t := c.expectRefusal(wrong, iwarp.RDMAPInvalidSTag)
		quoted := t.Terminate.DDPHeader
		c.Check(len(quoted) == ddpUntaggedLen, "a DDP header in the Terminate", "% x", quoted)
		msn := binary.BigEndian.Uint32(quoted[10:])
		c.Check(msn == *wrong.DDP.MSN, fmt.Sprintf("MSN %d in the quoted header", *wrong.DDP.MSN), "%d", msn)
		c.expectQuotedDDPHeader(t, wrong)
	}),
}, {
	ID: "rdmap/terminate/headers-of-every-wrong-read", Cite: cite("rfc5040/7.1/4", "rfc5040/4.8/5", "rfc6580/3.1/1"),
	Title:   "The Terminate of a Read Request quotes its headers, whatever is wrong with its source",
	Sends:   "Read Requests with an unknown key, out of bounds, for memory without the right and of another domain, and one that wraps around; each alone, and between two valid ones in a TCP segment",
	Expects: "M, D and R, and both headers of the Read Request in the Terminate",
	Defects: []string{"TermHeaderStale", "TermReadStale"}, Run: onEachConn(setup{}, readFaults, func(c *conn, f peerFault) {
		c.Note("%s", f.name)
		c.refuseAmongReads(f, func(c *conn, wrong, t iwarp.Segment) {
			c.expectQuotedDDPHeader(t, wrong)
			c.expectQuotedReadHeader(t, wrong, 0)
			c.Check(iwarp.Val(t.Terminate.LengthValid), "a Terminate with M set", "%v", t)
		})
	}),
}, {
	ID: "rdmap/terminate/read-header-is-there", Cite: cite("rfc5040/7.1/4", "rfc5040/4.8/5"),
	Title:   "The Terminate of a Read Request quotes all of its headers",
	Sends:   "a valid Read Request, and one with an unknown key",
	Expects: "the 18 and the 28 octets of the second in the Terminate",
	Defects: []string{"TermHeaderStale"}, Run: onConn(func(c *conn) {
		c.syncByRead()
		wrong := iwarp.ReadRequest(c.nextRequestMSN(), iwarp.At(0x11223344, 0x5566778899aabbcc), 16, iwarp.At(unknownSTag, 0x100))
		t := c.expectRefusal(wrong, iwarp.RDMAPInvalidSTag)
		c.expectQuotedReadHeader(t, wrong, 0)
		c.Check(len(t.Terminate.DDPHeader) == ddpUntaggedLen, "a DDP header in the Terminate", "% x", t.Terminate.DDPHeader)
	}),
}, {
	ID: "rdmap/terminate/header-of-a-send", Cite: cite("rfc5040/7.1/3"),
	Title:   "The Terminate of a Send quotes its header",
	Sends:   "a valid Send, and one to an unknown queue, one that is too long for its receive, or one without a receive",
	Expects: "the header of the second in the Terminate",
	Defects: []string{"TermHeaderStale"}, Run: onEachConn(setup{receives: 2}, []makeSegment{
		sendToQueue(4),
		func(c *conn) iwarp.Segment { return iwarp.Send(c.nextSendMSN(), data(65)) },
		func(c *conn) iwarp.Segment {
			c.sendSends(16) // takes the last receive
			return iwarp.Send(c.nextSendMSN(), data(20))
		},
	}, func(c *conn, makeWrong makeSegment) {
		c.sendSends(16)
		wrong := makeWrong(c)
		c.send(wrong)
		c.expectQuotedDDPHeader(c.expectTerminateAndEnd(), wrong)
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
	Sends:   "two of a Send to an unknown queue, a Write to an unknown key and a message of opcode 13, or a Read Request for one octet with an unknown key and the Write, in one TCP segment",
	Expects: "a Terminate for the first, and the end of the stream",
	Defects: []string{"TermRepeated", "TermOfLast"}, Run: onEachConn(setup{receives: 1}, [][2]peerFault{
		{untaggedFault, taggedFault},
		{taggedFault, untaggedFault},
		{opcodeFault, untaggedFault},
		{untaggedFault, opcodeFault},
		{taggedFault, opcodeFault},
		{codedFault(iwarp.RDMAPInvalidSTag, func(c *conn) iwarp.Segment { return c.readFrom(iwarp.At(unknownSTag, 0), 1) }), taggedFault},
	}, func(c *conn, faults [2]peerFault) {
		c.sendCoalesced(faults[0].frame(c), faults[1].frame(c))
		c.expectTerminateAndEnd(faults[0].causes...)
	}),
}, {
	ID: "rdmap/terminate/local-error-has-no-header", Cite: cite("rfc5040/7.1/2", "rfc5040/4.8/5"),
	Title:   "A local error of a request is reported to the peer in a Terminate without headers",
	Sends:   "nothing: the application sends and writes from memory of another domain",
	Expects: "an error completion, and a Terminate for a local RDMAP error that quotes nothing",
	Defects: []string{"LocalErrorSilent"}, Run: onEachConn(setup{}, []verbs.WROpcode{verbs.OpSend, verbs.OpRDMAWrite}, func(c *conn, op verbs.WROpcode) {
		m := c.otherPDMemory(verbs.AccessLocalWrite)
		wr := c.wr(op, 9, 0, 0)
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
