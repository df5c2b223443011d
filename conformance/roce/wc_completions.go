package roce

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var completionCases = mostlyRC.Cases(slices.Concat([]conformance.Case{{
	ID: "wc/order/sends-complete-as-posted", Cite: ibta("", "cq/1"),
	Title:   "Requests complete in the order of posting, whatever their opcodes and the order of the responses",
	Sends:   "an ACK for the requests after a READ, then the READ's response and the ACK again",
	Expects: "no completion before the READ's; then those of the signaled requests, in order",
	Defects: []string{"CompletionsOvertake"}, Run: onConn(Setup{}, func(c *Conn) {
		c.request(0, c.ReadWR(1, 16), c.SendWR(2, 8), unsignaled(c.WriteWR(3, 8)), c.SendWR(4, 8))
		c.Send(c.peerAck(3, 4))
		// The ACK implies that the READ response was lost: the device may retransmit
		// the READ and later requests at once.
		c.expectNoCompletion()
		c.Send(ib.ReadResponseOnly(c.DevicePSN(0), 1, Data(16)), c.peerAck(3, 4))
		c.ExpectCompletions(verbs.WCSuccess, 1, 2, 4)
	}),
}, {
	ID: "wc/order/receives-complete-as-messages-came", Cite: ibta("", "cq/2"),
	Title:   "Receives complete in the order in which the messages were sent",
	Sends:   "SENDs of one packet and of several, WRITEs with immediate data between them",
	Expects: "their completions in this order",
	Defects: []string{"ReceivesSwapped"}, Run: onConn(Setup{Receives: 6, recvLen: 2 << 10}, func(c *Conn) {
		long := ib.Send(c.PeerPSN(2), Data(MTU+9), MTU)
		c.Send(ib.SendOnly(c.PeerPSN(0), Data(11)), ib.WriteOnlyImm(c.PeerPSN(1), c.RETH(0, 12), 1, Data(12)))
		c.Send(long...)
		c.Send(ib.SendOnly(c.PeerPSN(4), Data(14)), ib.SendOnlyImm(c.PeerPSN(5), 2, Data(15)), c.peerSend(6, 16))
		for i, n := range []int{11, 12, MTU + 9, 14, 15, 16} {
			c.ExpectRecv(uint64(i+1), n)
		}
	}),
}}, []conformance.Case{
	fenceCase("reads", verbs.OpRDMARead, 0, func(psn ib.PSN) ib.Packet {
		return ib.ReadResponseOnly(psn, 1, Data(8))
	}),
	fenceCase("atomics", verbs.OpAtomicFetchAdd, verbs.CapAtomics, func(psn ib.PSN) ib.Packet {
		return ib.AtomicAck(psn, 1, 5)
	}),
}, []conformance.Case{{
	ID: "wc/fence/unfenced-send-passes-a-read", Cite: ibta("", "cq/4"),
	Title:   "A request without a fence does not wait for responses to earlier READs",
	Sends:   "no response until a READ, a SEND and a WRITE have arrived; then their responses",
	Expects: "all three before any answer",
	Defects: []string{"AlwaysFenced"}, Run: onConn(Setup{}, func(c *Conn) {
		c.request(0, c.ReadWR(1, 16), c.SendWR(2, 8), c.WriteWR(3, 8))
		c.Send(ib.ReadResponseOnly(c.DevicePSN(0), 1, Data(16)), c.peerAck(2, 3))
		c.ExpectCompletions(verbs.WCSuccess, 1, 2, 3)
	}),
}, {
	ID: "wc/signal/all-signaled-all-complete", Cite: ibta("", "cq/5"),
	Title:   "On a queue pair with sq_sig_all every request completes",
	Sends:   "answers to a SEND, a WRITE and a READ that are not marked as signaled; on another queue pair the same",
	Expects: "three completions; on a queue pair that does not signal all, none",
	Defects: []string{"SignalAllIgnored"}, Run: OnPort(func(p *Port) {
		for _, all := range []bool{true, false} {
			c := p.connect(Setup{signalAll: all})
			c.request(0, unsignaled(c.SendWR(1, 8)), unsignaled(c.WriteWR(2, 8)), unsignaled(c.ReadWR(3, 16)))
			c.Send(c.peerAck(1, 2), ib.ReadResponseOnly(c.DevicePSN(2), 3, Data(16)))
			if all {
				c.ExpectCompletions(verbs.WCSuccess, 1, 2, 3)
			}
			c.expectNoCompletion()
		}
	}),
}, {
	ID: "wc/len/read-has-its-length", Cite: ibta("", "cq/9"),
	Title:   "The completion of a READ has the length read, that of a WRITE with immediate data the length written",
	Sends:   "responses to READs of 5 bytes and of three packets into two pieces of memory; a WRITE with immediate data of 100 bytes",
	Expects: "these lengths in the completions",
	Defects: []string{"SparseCompletions"}, Run: onConn(Setup{Receives: 1}, func(c *Conn) {
		for i, n := range []int{5, 2*MTU + 1} {
			wr := c.ReadWR(100, 0)
			wr.SGL = []verbs.SGE{c.LocalMem.SGE(1024, 2), c.LocalMem.SGE(4096, n-2)}
			c.request(i, wr)
			c.Send(ib.ReadResponses(c.DevicePSN(i), uint32(i+1), Data(n), MTU)...)
			wc := c.ExpectCompletion(100, verbs.WCSuccess)
			c.Check(int(wc.ByteLen) == n, fmt.Sprintf("a READ of %d bytes", n), "%d", wc.ByteLen)
			c.ExpectBytes(c.LocalMem, 1024, Data(n)[:2])
			c.ExpectBytes(c.LocalMem, 4096, Data(n)[2:])
		}
		c.Send(ib.WriteOnlyImm(c.PeerPSN(0), c.RETH(0, 100), 1, Data(100)).AckReq())
		c.ExpectRecv(1, 100)
	}),
}, {
	ID: "wc/flags/connected-receives-claim-no-header-area", Cite: ibta("", "cq/9"),
	Title:   "The completion of a receive of a connected queue pair has no GRH flag, and its data start at the first byte",
	Sends:   "a SEND and a WRITE with immediate data",
	Expects: "completions without the flag of the header area",
	Defects: []string{"GRHFlagOnConnected"}, Run: onRC(func(c *Conn) {
		c.Send(ib.SendOnly(c.PeerPSN(0), Data(16)), ib.WriteOnlyImm(c.PeerPSN(1), c.RETH(0, 8), 1, Data(8)).AckReq())
		for i, n := range []int{16, 8} {
			wc := c.ExpectRecv(uint64(i+1), n)
			c.Check(wc.Flags&verbs.WCWithGRH == 0, "no GRH flag", "flags %#x", uint32(wc.Flags))
		}
		c.ExpectBytes(c.LocalMem, 0, Data(16))
	}),
}, {
	ID: "wc/data/none-before-its-data", Cite: ibta("", "cq/10"), Level: conformance.Should,
	Title:   "When a completion is polled, the data of its message are in memory",
	Sends:   "SENDs and WRITEs with immediate data of one and of three packets, and responses to READs",
	Expects: "the data in memory at the very moment of the completion event",
	Defects: []string{"LatePlacement"}, Run: OnPort(func(p *Port) {
		c, events := p.connectWithChannel(Setup{Receives: 4, recvLen: 3 << 10, memLen: 32 << 10})
		psn := 0
		for i, n := range []int{100, 2*MTU + 100} {
			c.armCQ(false)
			msg := ib.Send(c.PeerPSN(psn), rig.Pattern(n, byte(i+1)), MTU)
			c.Send(msg...)
			c.expectCompletionEvent(events, uint64(2*i+1))
			c.expectBytesNow(c.LocalMem, 2*i*3<<10, rig.Pattern(n, byte(i+1)))
			psn += len(msg)
			c.armCQ(false)
			c.Send(writeImmPackets(c, psn, rig.Pattern(n, byte(i+3)))...)
			c.expectCompletionEvent(events, uint64(2*i+2))
			c.expectBytesNow(c.TargetMem, 0, rig.Pattern(n, byte(i+3)))
			psn += len(msg)
		}
		c.armCQ(false)
		c.PostSend(c.QP, c.ReadWR(100, 3<<10))
		read := c.expectAfter(func(a *Arrival) bool { return a.IsAck(ib.AckPositive) }, "a READ request")
		c.checkPacket(ib.Op(ib.OpReadRequest).WithPSN(c.DevicePSN(0)), read)
		c.Send(ib.ReadResponses(c.DevicePSN(0), 1, rig.Pattern(3<<10, 9), MTU)...)
		c.expectCompletionEvent(events, 100)
		c.expectBytesNow(c.LocalMem, SinkOffset, rig.Pattern(3<<10, 9))
	}),
}, {
	ID: "wc/data/read-completes-with-its-data-only", Cite: ibta("", "cq/10"), Level: conformance.Should,
	Title:   "An ACK does not complete a READ",
	Sends:   "an ACK with the PSN of a READ; if the READ is retransmitted, the correct response",
	Expects: "no success before the answer; and success only with its data",
	Defects: []string{"AckCompletesRead"}, Run: plainAckToRead,
}}))

// fenceCase returns the case of a fenced SEND after READs or atomics.
func fenceCase(what string, op verbs.WROpcode, needs verbs.Caps, answer func(ib.PSN) ib.Packet) conformance.Case {
	return conformance.Case{
		ID:    "wc/fence/waits-for-earlier-" + what,
		Title: fmt.Sprintf("A request with a fence is not sent before all earlier %s are answered", what),
		Cite:  ibta("10.8.3.3", "cq/3"), Needs: needs, Labels: labelRC, Defects: []string{"FenceIgnored"},
		Sends:   "the answers to two requests, late",
		Expects: "the fenced SEND after the second answer, and not before",
		Run: onConn(Setup{signalAll: true}, func(c *Conn) {
			first, second, send := c.ReadWR(1, 8), c.ReadWR(2, 8), c.SendWR(3, 8)
			first.Opcode, second.Opcode, send.Flags = op, op, verbs.SendFence
			c.PostSend(c.QP, first, second, send)
			c.nextPackets(2)
			c.expectSilence(silencePeriod)
			c.completeWith(answer(c.DevicePSN(0)), 1)
			c.expectSilence(silencePeriod)
			c.completeWith(answer(c.DevicePSN(1)).WithMSN(2), 2)
			c.expectAll(c.wantSend(2, 8))
			c.completeWith(c.peerAck(2, 3), 3)
		}),
	}
}

// writeImmPackets returns a WRITE with immediate data to TargetMem, from the peer's k-th PSN on.
func writeImmPackets(c *Conn, k int, payload []byte) []ib.Packet {
	all := ib.Write(c.PeerPSN(k), c.RETH(0, len(payload)), payload, MTU)
	last := &all[len(all)-1]
	op := ib.OpWriteLastImm
	if len(all) == 1 {
		op = ib.OpWriteOnlyImm
	}
	*last = last.WithOpcode(op).WithImm(5)
	return all
}

// expectCompletionEvent waits for a completion event, and for the success of this request.
func (c *Conn) expectCompletionEvent(events verbs.CompChannel, id uint64) {
	c.expectCQEvent(events)
	c.ExpectCompletion(id, verbs.WCSuccess)
}

// expectBytesNow is ExpectBytes without synchronizing with the device first: an
// application only waits for the completion.
func (c *Conn) expectBytesNow(m *rig.Memory, off int, want []byte) {
	c.Check(bytes.Equal(m.Buf[off:][:len(want)], want), fmt.Sprintf("the %d bytes of the message in memory with its completion", len(want)), "other bytes")
}
