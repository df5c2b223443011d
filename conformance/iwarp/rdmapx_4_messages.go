package iwarp

import (
	"encoding/binary"
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// wordAddr returns the address off octets after targetMem's word for atomics, eight aligned octets.
func (c *conn) wordAddr(off int) iwarp.Addr { return c.targetAddr(c.targetMem.WordOffset(0) + off) }

// wordOctets returns the octets of targetMem's word for atomics. They are in the host's byte order:
// the RFC specifies the byte order on the wire only.
func (c *conn) wordOctets() []byte { return c.targetMem.Buf[c.targetMem.WordOffset(0):][:8] }

// word returns the value of targetMem's word for atomics.
func (c *conn) word() uint64 { return binary.NativeEndian.Uint64(c.wordOctets()) }

// setWord sets targetMem's word for atomics, and the content that later checks expect unchanged.
func (c *conn) setWord(v uint64) {
	binary.NativeEndian.PutUint64(c.wordOctets(), v)
	c.targetMem.Snapshot()
}

// expectWord fails the case unless targetMem's word for atomics is want, and the rest unchanged.
func (c *conn) expectWord(want uint64) {
	// ExpectUnchangedOutside synchronizes with the device before the word is read.
	c.ExpectUnchangedOutside(c.targetMem, c.targetMem.WordOffset(0), 8)
	c.Check(c.word() == want, fmt.Sprintf("%#x in the memory", want), "%#x", c.word())
}

// peerFetchAdd returns a FetchAdd of the peer to targetMem's word for atomics.
func (c *conn) peerFetchAdd(id uint32, add uint64) iwarp.Segment {
	return iwarp.FetchAdd(c.nextRequestMSN(), id, c.wordAddr(0), add)
}

// peerCmpSwap returns a CmpSwap of the peer to targetMem's word for atomics.
func (c *conn) peerCmpSwap(id uint32, compare, swap uint64) iwarp.Segment {
	return iwarp.CompareSwap(c.nextRequestMSN(), id, c.wordAddr(0), compare, swap)
}

// atomicFaults are errors of an Atomic Request.
var atomicFaults = []peerFault{
	ddpFault("a misaligned address", iwarp.RDMAPStreamCatastrophic,
		func(c *conn) iwarp.Segment { return iwarp.FetchAdd(c.nextRequestMSN(), 1, c.wordAddr(4), 5) }),
	{name: "a wrong queue", causes: wrongQueueCauses, frame: func(c *conn) iwarp.Segment { return c.peerFetchAdd(1, 5).QN(0) }},
	ddpFault("a wrong version", iwarp.RDMAPInvalidVersion, func(c *conn) iwarp.Segment { return c.peerFetchAdd(1, 5).RV(2) }),
	ddpFault("a wrong MSN", iwarp.DDPUntaggedMSNRange, func(c *conn) iwarp.Segment { return c.peerFetchAdd(1, 5).MSN(7) }),
	{name: "an unknown operation", frame: func(c *conn) iwarp.Segment {
		return c.peerFetchAdd(1, 5).EditAtomic(func(h *iwarp.AtomicRequestHeader) { h.Operation = new(uint8(3)) })
	}},
	{name: "an unknown key", causes: atomicKeyCauses, frame: func(c *conn) iwarp.Segment {
		return iwarp.FetchAdd(c.nextRequestMSN(), 1, iwarp.At(unknownSTag, 0), 5)
	}},
	{name: "a word out of bounds", causes: boundsCauses, frame: func(c *conn) iwarp.Segment {
		return iwarp.FetchAdd(c.nextRequestMSN(), 1, c.wordAddr(memLen), 5)
	}},
}

// immediateFaults are errors of immediate data on a connection without receives.
var immediateFaults = []peerFault{
	{name: "seven octets", frame: func(c *conn) iwarp.Segment {
		return iwarp.Op(iwarp.OpImmediate).MSN(c.nextSendMSN()).WithPayload(data(7))
	}},
	{name: "a wrong queue", causes: wrongQueueCauses, frame: func(c *conn) iwarp.Segment { return iwarp.Immediate(c.nextSendMSN(), 7).QN(1) }},
	codedFault(iwarp.DDPUntaggedNoBuffer, func(c *conn) iwarp.Segment { return iwarp.ImmediateSE(c.nextSendMSN(), 7) }),
}

// expectQuotesDDPOnly fails the case unless a Terminate has the length and the DDP header of the
// wrong message, and no RDMAP header.
func (c *conn) expectQuotesDDPOnly(t, wrong iwarp.Segment) {
	c.expectQuotedDDPHeader(t, wrong)
	m, r := iwarp.Val(t.Terminate.LengthValid), iwarp.Val(t.Terminate.HasRDMAP)
	c.Check(m && !r, "M=true and R=false", "M=%t and R=%t", m, r)
}

var rdmapxMessageCases = []conformance.Case{{
	ID: "rdmapx/message/unsupported-is-told", Cite: cite("rfc7306/1.1/1", "rfc5040/7.2/1"),
	Title:   "A message with an unsupported operation causes a Terminate",
	Sends:   "a message of opcode 13, which is unassigned; immediate data, with and without solicited event, and a Read Request after it; and a FetchAdd of 0",
	Expects: "a Terminate for the first: unexpected opcode; the same for the others, or a receive or a response if the device supports them",
	Defects: []string{"BadSegmentsDropped", "ImmediateUnknown"}, Run: onHost(func(h *host) {
		c := h.connect(setup{receives: 2})
		c.expectRefusal(iwarp.Send(c.nextSendMSN(), data(16)).Opcode(13), iwarp.RDMAPUnexpectedOpcode)
		c.expectFailures(2)
		for _, op := range []iwarp.Opcode{iwarp.OpImmediate, iwarp.OpImmediateSE} {
			c := h.connect(setup{receives: 1})
			c.send(iwarp.Immediate(c.nextSendMSN(), doubled(7)).Opcode(op), c.peerRead(0, 8))
			if g := c.mustNextFPDU("TERMINATE, or READ RESPONSE"); g.Op() == iwarp.OpReadResponse {
				c.expectRecvImm(1, 7)
			} else {
				c.checkTerminate(g, []iwarp.Cause{iwarp.RDMAPUnexpectedOpcode})
				c.expectEnd()
				c.expectFailures(1)
			}
		}
		c = h.connect(setup{})
		if !c.Caps.Has(verbs.CapAtomics) {
			c.expectRefusal(c.peerFetchAdd(1, 0), iwarp.RDMAPUnexpectedOpcode)
			return
		}
		c.expectAnswer(c.peerFetchAdd(1, 0), iwarp.AtomicResponse(1, 1, c.word()))
		c.ExpectUntouched(c.targetMem)
	}),
}, {
	ID: "rdmapx/message/control-fields", Cite: cite("rfc7306/4.1/1"), Needs: verbs.CapAtomics,
	Title:   "Atomic Requests and Responses have version 1, their opcode, and an Invalidate STag of 0",
	Sends:   "a FetchAdd; the device adds too",
	Expects: "headers of queues 1 and 3 with the control octets 4a and 4b",
	Defects: []string{"RDMAPVersion0"}, Run: onConn(func(c *conn) {
		c.PostSend(c.qp, c.fetchAddWR(1, 0, 5))
		c.expectHeaderOctets(c.nextFPDUs(1)[0], untaggedHeaderOctets(0x41, 0x4a, 1, 0))
		c.send(c.peerFetchAdd(1, 5))
		c.expectHeaderOctets(c.nextFPDUs(1)[0], untaggedHeaderOctets(0x41, 0x4b, 3, 0))
	}),
}, {
	ID: "rdmapx/message/wrong-queue", Cite: cite("rfc7306/4.1/2", "rfc7306/8.2/1"), Needs: verbs.CapAtomics,
	Title:   "Atomics and immediate data on a wrong queue are refused",
	Sends:   "Atomic Requests on queues 0 and 4, immediate data on queue 1, and an Atomic Response on queue 1 to a request of the device",
	Expects: "a Terminate: invalid queue number; for existing queues also unexpected opcode",
	Defects: []string{"UntaggedUnchecked"}, Run: onHost(func(h *host) {
		h.expectEachRefused(wrongQueueCauses,
			func(c *conn) iwarp.Segment { return c.peerFetchAdd(1, 5).QN(0) },
			func(c *conn) iwarp.Segment { return c.peerFetchAdd(1, 5).QN(4) },
			func(c *conn) iwarp.Segment { return iwarp.Immediate(c.nextSendMSN(), 7).QN(1) })
		c := h.connect(setup{})
		c.expectRefusal(iwarp.AtomicResponse(1, c.deviceFetchAdd(1, 0), 7).QN(1), wrongQueueCauses...)
		c.ExpectNoSuccess()
	}),
}, {
	ID: "rdmapx/message/queue-of-every-kind", Cite: cite("rfc7306/4.1/2", "rfc7306/8.2/1"), Needs: verbs.CapAtomics,
	Title:   "Each kind of message of the extensions is refused on other queues than its own",
	Sends:   "atomics and immediate data to the queues 0 to 4 and 4294967295, and to their own with one more bit set",
	Expects: "a Terminate: invalid queue number, or unexpected opcode; no effect",
	Defects: []string{"UntaggedUnchecked", "QueueLowOctet"}, Run: onEachUntagged(extensionKinds, (*host).expectQueuesRefused),
}, {
	ID: "rdmapx/message/offset-of-every-kind", Cite: cite("rfc7306/8.2/1"), Needs: verbs.CapAtomics,
	Title:   "Each kind of message of the extensions is refused if it does not begin at MO 0",
	Sends:   "atomics and immediate data with MO 1, 4, 2^16, 2^31, and 2^32-16",
	Expects: "a Terminate: invalid MO, or message too long; no effect",
	Defects: []string{"UntaggedUnchecked"}, Run: onEachUntagged(extensionKinds, (*host).expectOffsetsRefused),
}, {
	ID: "rdmapx/message/versions-and-numbers-are-checked", Cite: cite("rfc7306/8.2/1"), Needs: verbs.CapAtomics,
	Title:   "Versions, MSN and MO of Atomic Requests are checked",
	Sends:   "Atomic Requests with DV 0 and 2, with RV 0 and 2, with an MSN that is not the next, and with MO 4",
	Expects: "a Terminate with the cause of each, and memory unchanged",
	Defects: []string{"VersionsUnchecked", "UntaggedUnchecked"}, Run: onHost(func(h *host) {
		for _, v := range []uint8{0, 2} {
			h.expectEachRefused([]iwarp.Cause{iwarp.DDPUntaggedInvalidVersion},
				func(c *conn) iwarp.Segment { return c.peerFetchAdd(1, 5).DV(v) })
			h.expectEachRefused([]iwarp.Cause{iwarp.RDMAPInvalidVersion},
				func(c *conn) iwarp.Segment { return c.peerFetchAdd(1, 5).RV(v) })
		}
		h.expectEachRefused([]iwarp.Cause{iwarp.DDPUntaggedMSNRange},
			func(c *conn) iwarp.Segment { return c.peerFetchAdd(1, 5).MSN(c.nextRequestMSN() + 1) })
		h.expectEachRefused([]iwarp.Cause{iwarp.DDPUntaggedInvalidMO, iwarp.DDPUntaggedTooLong},
			func(c *conn) iwarp.Segment { return c.peerFetchAdd(1, 5).MO(4) })
	}),
}, {
	ID: "rdmapx/message/terminate-has-the-ddp-header", Cite: cite("rfc7306/8.1/1"), Needs: verbs.CapAtomics,
	Title: "The Terminate of a message of the extensions quotes its DDP header, and no other",
	Sends: "FetchAdds to a misaligned address, on a wrong queue, of a wrong version, with a wrong MSN, of an unknown operation, with an unknown key, and out of bounds; " +
		"each alone, and between two Read Requests in a TCP segment; an Atomic Response with a wrong identifier; immediate data of seven octets, on a wrong queue, and without a receive",
	Expects: "a Terminate with M and D set, R clear, and the DDP header",
	Defects: []string{"TermAllHeaders", "TermBareOperationCode"}, Run: onHost(func(h *host) {
		for _, f := range atomicFaults {
			h.Note("%s", f.name)
			h.connect(setup{}).refuseAmongReads(f, func(c *conn, wrong, t iwarp.Segment) { c.expectQuotesDDPOnly(t, wrong) })
		}
		faults := []peerFault{{name: "a wrong identifier", frame: func(c *conn) iwarp.Segment {
			return iwarp.AtomicResponse(1, c.deviceFetchAdd(1, 64)+1, 7)
		}}}
		if h.immediateError() == nil {
			faults = append(faults, immediateFaults...)
		}
		for _, f := range faults {
			c := h.connect(setup{})
			c.Note("%s", f.name)
			wrong := f.frame(c)
			c.expectQuotesDDPOnly(c.expectRefusal(wrong, f.causes...), wrong)
		}
	}),
}, {
	ID: "rdmapx/message/both-atomics", Cite: cite("rfc7306/5/1"), Needs: verbs.CapAtomics,
	Title:   "A device that supports atomics supports FetchAdd and CmpSwap",
	Sends:   "a FetchAdd, and a CmpSwap that compares",
	Expects: "both are executed and answered",
	Defects: []string{"NoExtensions"}, Run: onConn(func(c *conn) {
		c.setWord(42)
		c.expectAnswer(c.peerFetchAdd(1, 5), iwarp.AtomicResponse(1, 1, 42))
		c.expectAnswer(c.peerCmpSwap(2, 47, 11), iwarp.AtomicResponse(2, 2, 47))
		c.expectWord(11)
	}),
}}

// deviceFetchAdd posts a FetchAdd request with the result at off in localMem, and returns the
// identifier of the device's Atomic Request.
func (c *conn) deviceFetchAdd(wrID uint64, off int) (id uint32) {
	g := c.expectSent(c.fetchAddWR(wrID, off, 5), iwarp.Op(iwarp.OpAtomicRequest))
	c.Check(g.AtomicRequest != nil, "an Atomic Request with its header", "%v", g)
	return *g.AtomicRequest.ID
}

// misaligned are offsets in a word.
var misaligned = []int{1, 2, 3, 4, 5, 6, 7}

// addInFields adds field by field: a set bit of the mask is the top of a field, out of which no
// carry goes.
func addInFields(a, b, mask uint64) (sum uint64) {
	carry := uint64(0)
	for bit := range 64 {
		s := a>>bit&1 + b>>bit&1 + carry
		sum |= s & 1 << bit
		carry = s >> 1 &^ (mask >> bit & 1)
	}
	return sum
}

var rdmapxOperationCases = conformance.Group{Needs: verbs.CapAtomics}.Cases([]conformance.Case{{
	ID: "rdmapx/fetchadd/returns-what-was-there", Cite: cite("rfc7306/5.1.1/3"),
	Title:   "A FetchAdd adds, and returns the original value",
	Sends:   "FetchAdds of 5, of 2^32, and of -1",
	Expects: "the original value in big-endian order, and the sum in memory",
	Defects: []string{"AtomicReturnsNew"}, Run: onConn(func(c *conn) {
		c.setWord(42)
		was := uint64(42)
		for i, add := range []uint64{5, 1 << 32, ^uint64(0)} {
			c.expectAnswer(c.peerFetchAdd(uint32(i+1), add), iwarp.AtomicResponse(uint32(i+1), uint32(i+1), was))
			was += add
			c.expectWord(was)
		}
	}),
}, {
	ID: "rdmapx/fetchadd/mask-stops-carries", Cite: cite("rfc7306/5.1.1/2"),
	Title:   "A FetchAdd does not carry across the field boundaries of its mask",
	Sends:   "FetchAdds without a mask, with masks of two and of eight fields, and with random operands and masks",
	Expects: "the sum of each field",
	Defects: []string{"AddMaskIsAnd"}, Run: onConn(func(c *conn) {
		type addition struct{ before, add, mask, after uint64 }
		additions := []addition{
			{0x00000000_ffffffff, 1, 0, 0x00000001_00000000},
			{0x00000007_ffffffff, 1, 0x80000000, 0x00000007_00000000},
			{0x00000007_ffffffff, 0x00000001_00000001, 0x80000000_80000000, 0x00000008_00000000},
			{0xffffffff_ffffffff, 1, 0x80000000_80000000, 0xffffffff_00000000},
			{0x01ff02ff_03ff04ff, 0x01010101_01010101, 0x80808080_80808080, 0x02000300_04000500},
		}
		for range 40 {
			a := addition{before: c.Rand.Uint64(), add: c.Rand.Uint64(), mask: c.Rand.Uint64() & c.Rand.Uint64()}
			a.after = addInFields(a.before, a.add, a.mask)
			additions = append(additions, a)
		}
		for i, a := range additions {
			c.setWord(a.before)
			request := c.peerFetchAdd(uint32(i), a.add).EditAtomic(func(h *iwarp.AtomicRequestHeader) { h.Mask = &a.mask })
			c.expectAnswer(request, iwarp.AtomicResponse(uint32(i+1), uint32(i), a.before))
			c.Note("%#x + %#x, mask %#x", a.before, a.add, a.mask)
			c.expectWord(a.after)
		}
	}),
}, {
	ID: "rdmapx/fetchadd/misaligned", Cite: cite("rfc7306/5.1.1/1"),
	Title:   "A FetchAdd to a misaligned address changes nothing and ends the stream",
	Sends:   "FetchAdds to addresses 1 to 7 octets after a multiple of eight",
	Expects: "a Terminate: catastrophic error, localized to the stream, and memory unchanged",
	Defects: []string{"AtomicAlignedTo4"}, Run: onEachConn(setup{}, misaligned, func(c *conn, off int) {
		wrong := iwarp.FetchAdd(c.nextRequestMSN(), 1, c.wordAddr(off), 5)
		c.expectRefusalWithoutEffect(wrong, iwarp.RDMAPStreamCatastrophic)
	}),
}, {
	ID: "rdmapx/fetchadd/compare-fields-are-ignored", Cite: cite("rfc7306/5.2.1/2"),
	Title:   "A FetchAdd ignores the compare fields",
	Sends:   "FetchAdds with compare fields that do not match the memory",
	Expects: "the sums in memory",
	Defects: []string{"FetchAddCompares"}, Run: onConn(func(c *conn) {
		c.setWord(100)
		for i, mask := range []uint64{^uint64(0), 0xff, 0} {
			c.send(c.peerFetchAdd(uint32(i), 7).EditAtomic(func(h *iwarp.AtomicRequestHeader) {
				h.Compare, h.CompareMask = new(uint64(0xdeadbeefcafebabe)), &mask
			}))
			c.expect(iwarp.AtomicResponse(uint32(i+1), uint32(i), uint64(100+7*i)))
			c.expectWord(uint64(107 + 7*i))
		}
	}),
}, {
	ID: "rdmapx/fetchadd/compare-fields-as-sent", Cite: cite("rfc7306/5.2.1/2"),
	Title:   "A FetchAdd is sent with compare data of zeros, a compare mask of ones, and an add mask of zeros",
	Sends:   "nothing: the device adds",
	Expects: "the zeros and ones in the fields",
	Defects: []string{"UnusedFieldsStale"}, Run: onConn(func(c *conn) {
		h := c.expectSent(c.fetchAddWR(1, 0, 5), iwarp.Op(iwarp.OpAtomicRequest)).AtomicRequest
		c.Check(h != nil, "an Atomic Request with its header", "one without")
		c.Check(*h.Compare == 0 && *h.CompareMask == ^uint64(0) && *h.Mask == 0,
			"compare data 0, a compare mask of ones and the add mask 0", "%#x, %#x and %#x", *h.Compare, *h.CompareMask, *h.Mask)
	}),
}, {
	ID: "rdmapx/cmpswap/masks", Cite: cite("rfc7306/5.1.2/1"),
	Title:   "A CmpSwap compares under one mask and swaps under the other",
	Sends:   "CmpSwaps that compare only some bits, or swap only some, and random ones, half of which differ in one bit",
	Expects: "the bits of the swap mask swapped where those of the compare mask match",
	Defects: []string{"MasksSwapped"}, Run: onConn(func(c *conn) {
		ones := ^uint64(0)
		type swap struct{ before, compare, compareMask, swap, swapMask, after uint64 }
		swaps := []swap{
			{0x11223344_55667788, 0x55667788, 0xffffffff, 0xaabbccdd_eeff0011, 0xffffffff_00000000, 0xaabbccdd_55667788},
			{0x11223344_55667788, 0x11223344_55667788, ones, 0xffff, 0xff, 0x11223344_556677ff},
			{0x11223344_55667788, 0x99999999_99999988, 0xff, 7, ones, 7},
			{0x11223344_55667788, 0, 0, 0x55, ones, 0x55},
			{0x11223344_55667788, 0x11223344_55667788, ones, 0x99, 0, 0x11223344_55667788},
		}
		for i := range 40 {
			s := swap{before: c.Rand.Uint64(), compareMask: c.Rand.Uint64(), swap: c.Rand.Uint64(), swapMask: c.Rand.Uint64()}
			s.compare = s.before ^ c.Rand.Uint64()&^s.compareMask
			s.after = s.before&^s.swapMask | s.swap&s.swapMask
			if i%2 == 1 {
				s.compare ^= s.compareMask & -s.compareMask // the lowest bit that counts
				s.after = s.before
			}
			swaps = append(swaps, s)
		}
		for i, s := range swaps {
			c.setWord(s.before)
			c.send(c.peerCmpSwap(uint32(i), s.compare, s.swap).EditAtomic(func(h *iwarp.AtomicRequestHeader) {
				h.CompareMask, h.Mask = &s.compareMask, &s.swapMask
			}))
			c.expect(iwarp.AtomicResponse(uint32(i+1), uint32(i), s.before))
			c.Note("%s", fmt.Sprintf("%+x", s))
			c.expectWord(s.after)
		}
	}),
}, {
	ID: "rdmapx/cmpswap/mismatch-changes-nothing", Cite: cite("rfc7306/5.1.2/2"),
	Title:   "A CmpSwap that does not match changes nothing, and returns the original value",
	Sends:   "CmpSwaps with another compare value, and with one that differs in a single bit",
	Expects: "the original value in the responses, and memory unchanged",
	Defects: []string{"SwapsAlways"}, Run: onConn(func(c *conn) {
		c.setWord(2)
		for i, compare := range []uint64{1, 2 ^ 1<<63} {
			c.expectAnswer(c.peerCmpSwap(uint32(i), compare, 99), iwarp.AtomicResponse(uint32(i+1), uint32(i), 2))
			c.expectWord(2)
		}
	}),
}, {
	ID: "rdmapx/cmpswap/misaligned", Cite: cite("rfc7306/5.1.2/3"),
	Title:   "A CmpSwap to a misaligned address changes nothing and ends the stream",
	Sends:   "CmpSwaps that match any value, to addresses 1 to 7 octets after a multiple of eight",
	Expects: "a Terminate: catastrophic error, localized to the stream, and memory unchanged",
	Defects: []string{"AtomicAlignedTo4"}, Run: onEachConn(setup{}, misaligned, func(c *conn, off int) {
		wrong := iwarp.CompareSwap(c.nextRequestMSN(), 1, c.wordAddr(off), 0, 99).
			EditAtomic(func(h *iwarp.AtomicRequestHeader) { h.CompareMask = new(uint64(0)) })
		c.expectRefusalWithoutEffect(wrong, iwarp.RDMAPStreamCatastrophic)
	}),
}})
