package roce

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// annexA19 cites a compliance statement of IBTA Annex A19 (FLUSH, ATOMIC WRITE).
func annexA19(section string, rows ...string) conformance.Cite {
	return cite("Annex A19", section, rows)
}

// flushSetup grants FLUSHes for global visibility, besides all other access.
var flushSetup = Setup{Receives: 1, access: allAccess | verbs.AccessFlushGlobal}

// Placement types and selectivity of a FLUSH.
const (
	flushGlobal, flushPersistent = uint8(verbs.FlushGlobal), uint8(verbs.FlushPersistent)
	flushRange, flushRegion      = uint8(verbs.FlushRange), uint8(verbs.FlushMR)
)

var flushCases = conformance.Group{Needs: verbs.CapRC | verbs.CapFlush, Labels: labelRC}.Cases([]conformance.Case{{
	ID: "rc/flush/answered-after-placement", Cite: annexA19("oA19-1", "rc/flush/1"),
	Title:   "When the answer to a FLUSH arrives, the data of earlier WRITEs are in place",
	Sends:   "four times, a WRITE of 16 packets without AckReq and a FLUSH of its range",
	Expects: "a READ response without payload with the PSN of the FLUSH, and all bytes in memory",
	Defects: []string{"LatePlacement"}, Run: onConn(flushSetup, func(c *Conn) {
		for i := range 4 {
			data, first := rig.Pattern(memLen, byte(i+1)), c.PeerPSN(17*i)
			for _, pkt := range ib.Write(first, c.RETH(0, memLen), data, MTU) {
				c.Send(pkt.NoAckReq())
			}
			c.Send(ib.Flush(first.Add(16), flushGlobal, flushRange, c.RETH(0, memLen)))
			c.awaitFlushed(first.Add(16))
			c.ExpectBytes(c.TargetMem, 0, data)
		}
	}),
}, {
	ID: "rc/flush/answered-by-an-empty-read-response", Cite: annexA19("oA19-2, oA19-5", "rc/flush/2"),
	Title:   "A FLUSH is answered by one READ response without payload, with and without AckReq",
	Sends:   "FLUSHes of 64 bytes, of one and of the whole region, with and without AckReq; then a SEND",
	Expects: "a READ_RESPONSE_ONLY of no bytes with the PSN of each, an ACK that counts four messages, and memory unchanged",
	Defects: []string{"FlushICRCDoubled"}, Run: onConn(flushSetup, func(c *Conn) {
		for i, n := range []int{64, 1, memLen} {
			flush := ib.Flush(c.PeerPSN(i), flushGlobal, flushRange, c.RETH(0, n))
			flush.BTH.AckReq = new(i%2 == 0)
			c.exchange(flush, flushed(c.PeerPSN(i)))
		}
		c.exchange(c.peerSend(3, 16), c.deviceAck(3, 4))
		c.ExpectUntouched(c.TargetMem)
	}),
}, {
	ID: "rc/flush/request-is-one-packet", Cite: annexA19("oA19-2, oA19-5", "rc/flush/2", "rc/ack/5"),
	Title:   "A requester sends a FLUSH as one packet without payload, and its answer acknowledges earlier WRITEs",
	Sends:   "a READ response without payload to a WRITE and a FLUSH of a range, then to a FLUSH of a region; to others first an ACK or response of a later request",
	Expects: "opcode 0x1C with the FETH and RETH of the request and SE 0; completions of the WRITE and the FLUSHes, in order, by their own answer only",
	Defects: []string{"ReadAckIgnored"}, Run: onConn(flushSetup, func(c *Conn) {
		c.request(0, c.WriteWR(1, 2500))
		c.PostSend(c.QP, flushWR(2, verbs.FlushRange, 2500))
		c.expect(ib.Flush(c.DevicePSN(3), flushGlobal, flushRange, peerMemoryRETH(2500)).WithPayload([]byte{}).NoSE())
		c.Send(flushed(c.DevicePSN(3)).WithMSN(2))
		c.ExpectCompletion(1, verbs.WCSuccess)
		wc := c.ExpectCompletion(2, verbs.WCSuccess)
		c.Check(wc.Opcode == verbs.WCOpFlush, "a completion of a FLUSH", "%s", rig.Describe(&wc))
		c.PostSend(c.QP, flushWR(3, verbs.FlushMR, 0))
		want := ib.Flush(c.DevicePSN(4), flushGlobal, flushRegion, peerMemoryRETH(0)).WithPayload([]byte{}).NoSE()
		want.RETH.Len = nil // it has no meaning
		c.expect(want)
		c.completeWith(flushed(c.DevicePSN(4)).WithMSN(3), 3)
		c.expectOwnAnswerOnly(flushWR(2, verbs.FlushRange, 8))
	}),
}, {
	ID: "rc/flush/payload-is-no-success", Cite: annexA19("oA19-2", "rc/flush/3"), Level: conformance.Should,
	Title:   "A FLUSH with payload is not answered as a success",
	Sends:   "FLUSHes with 1, 8 and 1024 bytes of payload",
	Expects: "a NAK, or nothing",
	Defects: []string{"AckPSNOff"}, Run: onEachConn(flushSetup, []int{1, 8, MTU}, func(c *Conn, payload int) {
		c.Send(ib.Flush(c.PeerPSN(0), flushGlobal, flushRange, c.RETH(0, 64)).WithPayload(Data(payload)).AckReq())
		if got, ok := c.NextAfterSync(silencePeriod); ok {
			c.Check(got.IsAck(ib.AckNegative), "a NAK, or nothing", "%v", got)
		}
	}),
}, {
	ID: "rc/flush/placement-needs-the-right-of-the-region", Cite: annexA19("oA19-13", "rc/flush/4"),
	Title:   "A FLUSH for a placement type that its region does not grant is a remote access error",
	Sends:   "FLUSHes for global visibility, for persistence and for both, of a range and of the whole region, of regions that grant neither, either or both",
	Expects: "a NAK for a remote access error; an answer where all rights are granted",
	Defects: []string{"AccessNAKsSwapped", "FlushICRCDoubled", "FlushOfBothNeedsOne", "RegionFlushNeedsOne"}, Run: onEachConn(flushSetup, flushRights(), func(c *Conn, f flushRight) {
		if f.placement&flushPersistent != 0 && !c.allowPersistentFlush() {
			return
		}
		m, err := c.PD.RegMR(verbs.MRInit{Buf: make([]byte, 64), Access: allAccess | f.region})
		if err != nil && f.region&verbs.AccessFlushPersistent != 0 {
			return // the device has no persistent memory
		}
		c.Must("a memory region", err)
		flush := ib.Flush(c.PeerPSN(0), f.placement, f.selectivity, ib.At(m.Addr(), m.RKey(), 64))
		if f.granted() {
			c.exchange(flush, flushed(c.PeerPSN(0)))
			return
		}
		c.expectRefused(flush, ib.NakRemoteAccess)
	}),
}, {
	ID: "rc/flush/range-outside-the-region-refused", Cite: annexA19("oA19-13", "rc/flush/4"),
	Title:   "A FLUSH of a range that leaves the region, or with an unknown or foreign key, is a remote access error",
	Sends:   "FLUSHes of one byte more than the region at either end; with a key that no region has; with that of a region of another PD",
	Expects: "a NAK for a remote access error for each",
	Defects: []string{"RangeSlack", "IgnorePD"}, Run: onEachConn(flushSetup, badFlushRanges, func(c *Conn, f badFlushRange) {
		c.expectRefused(ib.Flush(c.PeerPSN(0), flushGlobal, flushRange, f.reth(c)), ib.NakRemoteAccess)
	}),
}, {
	ID: "rc/flush/duplicate-answered-again", Cite: annexA19("oA19-14, oA19-15", "rc/flush/5"),
	Title:   "A duplicate FLUSH is answered again, and counts as no new message",
	Sends:   "a FLUSH, a WRITE and a FLUSH; both FLUSHes again; then a SEND",
	Expects: "the same answers again; an ACK that counts four messages",
	Defects: []string{"MSNCountsPackets"}, Run: onConn(flushSetup, func(c *Conn) {
		first := ib.Flush(c.PeerPSN(0), flushGlobal, flushRange, c.RETH(0, 64))
		second := ib.Flush(c.PeerPSN(2), flushGlobal, flushRange, c.RETH(0, 64))
		c.exchange(first, flushed(c.PeerPSN(0)))
		c.exchange(c.peerWrite(1, 64), c.deviceAck(1, 2))
		c.exchange(second, flushed(c.PeerPSN(2)))
		c.exchange(first, flushed(c.PeerPSN(0)))
		c.exchange(second, flushed(c.PeerPSN(2)))
		c.exchange(c.peerSend(3, 16), c.deviceAck(3, 4))
		c.ExpectRecv(1, 16)
		c.ExpectBytes(c.TargetMem, 0, Data(64))
	}),
}, {
	ID: "rc/flush/whole-region-ignores-the-range", Cite: annexA19("", "rc/flush/6"),
	Title:   "A FLUSH of the whole region ignores its address and length",
	Sends:   "FLUSHes with selectivity 1 and an address before the region, after it, and a length beyond it",
	Expects: "an answer to each",
	Defects: []string{"ReadNeedsAckReq"}, Run: onConn(flushSetup, func(c *Conn) {
		for i, at := range []ib.RETH{c.RETH(-4096, 16), c.RETH(memLen+4096, 16), c.RETH(0, 2*memLen)} {
			c.exchange(ib.Flush(c.PeerPSN(i), flushGlobal, flushRegion, at), flushed(c.PeerPSN(i)))
		}
	}),
}})

// flushed is the answer to a FLUSH or ATOMIC WRITE: a READ response without payload.
func flushed(psn ib.PSN) ib.Packet { return ib.ReadResponseOnly(psn, ib.AnyMSN, []byte{}) }

// expectOwnAnswerOnly fails the case if an ACK or READ response to a later request completes a
// FLUSH or ATOMIC WRITE with ID 2, instead of the response to it.
func (c *Conn) expectOwnAnswerOnly(wr verbs.SendWR) {
	s := Setup{Modify: withTimeoutAndRetries(timeout67ms, 7)}
	ackPastUnanswered(c.secondConn(s), wr, flushed(c.DevicePSN(1)).WithMSN(2))
	answerPastUnanswered(c.secondConn(s), wr, flushed(c.DevicePSN(0)).WithMSN(1))
}

// awaitFlushed waits for the answer to a FLUSH with this PSN, and skips ACKs of earlier requests.
func (c *Conn) awaitFlushed(psn ib.PSN) {
	got := c.expectAfter(func(a *Arrival) bool {
		return a.IsAck(ib.AckPositive) && a.PSN().Less(psn) && a.Opcode() == ib.OpAcknowledge
	},
		fmt.Sprintf("the answer to the FLUSH with PSN %d", psn))
	c.checkPacket(c.fromDevice(flushed(psn)), got)
}

// flushWR returns a FLUSH of n bytes of PeerMemory for global visibility.
func flushWR(id uint64, level verbs.FlushLevel, n uint32) verbs.SendWR {
	return verbs.SendWR{
		WRID: id, Opcode: verbs.OpFlush, Flags: verbs.SendSignaled, Remote: PeerMemory,
		Flush: verbs.Flush{Length: n, Type: verbs.FlushGlobal, Level: level},
	}
}

// allowPersistentFlush grants FLUSHes for persistence on the queue pair. It returns false if the
// device refuses that, which it may without persistent memory.
func (c *Conn) allowPersistentFlush() bool {
	a := verbs.QPAttr{State: verbs.QPStateRTS, Access: allAccess&^verbs.AccessLocalWrite | verbs.AccessFlushGlobal | verbs.AccessFlushPersistent}
	return c.QP.Modify(a, verbs.QPAttrState|verbs.QPAttrAccessFlags) == nil
}

// flushRight is a FLUSH to a region.
type flushRight struct {
	region                 verbs.Access // rights of the region
	placement, selectivity uint8        // of the FLUSH
}

// flushRights returns all combinations of placement types, selectivities and rights.
func flushRights() (all []flushRight) {
	for _, placement := range []uint8{flushGlobal, flushPersistent, flushGlobal | flushPersistent} {
		for _, region := range []verbs.Access{0, verbs.AccessFlushGlobal, verbs.AccessFlushPersistent, verbs.AccessFlushGlobal | verbs.AccessFlushPersistent} {
			all = append(all, flushRight{region, placement, flushRange}, flushRight{region, placement, flushRegion})
		}
	}
	return all
}

// granted reports whether the region grants all placement types of the FLUSH.
func (f flushRight) granted() bool {
	var needed verbs.Access
	if f.placement&flushGlobal != 0 {
		needed |= verbs.AccessFlushGlobal
	}
	if f.placement&flushPersistent != 0 {
		needed |= verbs.AccessFlushPersistent
	}
	return f.region&needed == needed
}

// badFlushRange is a range for which the device must refuse a FLUSH.
type badFlushRange struct {
	name string
	reth func(*Conn) ib.RETH
}

func (f badFlushRange) String() string { return f.name }

var badFlushRanges = []badFlushRange{
	{"one byte more at the end", func(c *Conn) ib.RETH { return c.RETH(0, memLen+1) }},
	{"one byte more at the start", func(c *Conn) ib.RETH { return c.RETH(-1, 64) }},
	{"an unknown key", func(c *Conn) ib.RETH { return c.unknownKeyRETH(64) }},
	{"a region of another PD", func(c *Conn) ib.RETH {
		return rethFor(c.otherPDMemory(allAccess|verbs.AccessFlushGlobal), 0, 64)
	}},
}
