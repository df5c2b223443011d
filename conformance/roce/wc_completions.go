package roce

import (
	"bytes"
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var completionCases = []conformance.Case{
	{
		ID:    "wc/order/sends-complete-as-posted",
		Title: "Requests complete in the order of posting, whatever their opcodes and the order of the responses",
		Cite:  ibta("", "roce/cq/1"), Needs: verbs.CapRC, Labels: []string{"service:rc"},
		Defects: []string{"CompletionsOvertake"},
		Sends:   "an ACK for the requests after a READ, then the READ's response and the ACK again",
		Expects: "no completion before the READ's; then those of the signaled requests, in order",
		Run: onConn(setup{}, func(c *conn) {
			to := verbs.Remote{Addr: 0x1000, RKey: 7}
			c.PostSend(c.qp,
				verbs.SendWR{WRID: 1, Opcode: verbs.OpRDMARead, Flags: verbs.SendSignaled, SGL: c.localMem.SGL(0, 16), Remote: to},
				verbs.SendWR{WRID: 2, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: c.localMem.SGL(64, 8)},
				verbs.SendWR{WRID: 3, Opcode: verbs.OpRDMAWrite, SGL: c.localMem.SGL(64, 8), Remote: to},
				verbs.SendWR{WRID: 4, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: c.localMem.SGL(64, 8)},
			)
			c.nextPackets(4)
			c.send(ib.Ack(c.devicePSN(3), 4))
			// The ACK implies that the READ response was lost: the device may retransmit
			// the READ and later requests at once.
			c.Sync()
			c.ExpectNoCompletion()
			c.send(ib.ReadResponseOnly(c.devicePSN(0), 1, data(16)), ib.Ack(c.devicePSN(3), 4))
			for _, id := range []uint64{1, 2, 4} {
				c.ExpectCompletion(id, verbs.WCSuccess)
			}
		}),
	},
	{
		ID:    "wc/order/receives-complete-as-messages-came",
		Title: "Receives complete in the order in which the messages were sent",
		Cite:  ibta("", "roce/cq/2"), Needs: verbs.CapRC, Labels: []string{"service:rc"}, Defects: []string{"ReceivesSwapped"},
		Sends:   "SENDs of one packet and of several, WRITEs with immediate data between them",
		Expects: "their completions in this order",
		Run: onConn(setup{receives: 6, recvLen: 2 << 10}, func(c *conn) {
			long := ib.Send(c.peerPSN(2), data(pathMTU.Bytes()+9), pathMTU.Bytes())
			c.send(ib.SendOnly(c.peerPSN(0), data(11)), ib.WriteOnlyImm(c.peerPSN(1), c.reth(0, 12), 1, data(12)))
			c.send(long...)
			c.send(ib.SendOnly(c.peerPSN(4), data(14)), ib.SendOnlyImm(c.peerPSN(5), 2, data(15)), ib.SendOnly(c.peerPSN(6), data(16)).AckReq())
			for i, n := range []int{11, 12, pathMTU.Bytes() + 9, 14, 15, 16} {
				c.ExpectRecv(uint64(i+1), n)
			}
		}),
	},
	fenceCase("reads", verbs.OpRDMARead, verbs.CapRC, func(psn ib.PSN) ib.Packet {
		return ib.ReadResponseOnly(psn, 1, data(8))
	}),
	fenceCase("atomics", verbs.OpAtomicFetchAdd, verbs.CapRC|verbs.CapAtomics, func(psn ib.PSN) ib.Packet {
		return ib.AtomicAck(psn, 1, 5)
	}),
	{
		ID:    "wc/fence/unfenced-send-passes-a-read",
		Title: "A request without a fence does not wait for responses to earlier READs",
		Cite:  ibta("", "roce/cq/4"), Needs: verbs.CapRC, Labels: []string{"service:rc"}, Defects: []string{"AlwaysFenced"},
		Sends:   "no response until a READ, a SEND and a WRITE have arrived; then their responses",
		Expects: "all three before any answer",
		Run: onConn(setup{signalAll: true}, func(c *conn) {
			to := verbs.Remote{Addr: 0x1000, RKey: 7}
			c.PostSend(c.qp,
				verbs.SendWR{WRID: 1, Opcode: verbs.OpRDMARead, SGL: c.localMem.SGL(0, 16), Remote: to},
				verbs.SendWR{WRID: 2, Opcode: verbs.OpSend, SGL: c.localMem.SGL(64, 8)},
				verbs.SendWR{WRID: 3, Opcode: verbs.OpRDMAWrite, SGL: c.localMem.SGL(64, 8), Remote: to},
			)
			c.expect(ib.ReadRequest(c.devicePSN(0), ib.At(0x1000, 7, 16)))
			c.expect(ib.SendOnly(c.devicePSN(1), nil))
			c.expect(ib.WriteOnly(c.devicePSN(2), ib.At(0x1000, 7, 8), nil))
			c.send(ib.ReadResponseOnly(c.devicePSN(0), 1, data(16)), ib.Ack(c.devicePSN(2), 3))
			for id := uint64(1); id <= 3; id++ {
				c.ExpectCompletion(id, verbs.WCSuccess)
			}
		}),
	},
	{
		ID:    "wc/signal/all-signaled-all-complete",
		Title: "On a queue pair with sq_sig_all every request completes",
		Cite:  ibta("", "roce/cq/5"), Needs: verbs.CapRC, Labels: []string{"service:rc"}, Defects: []string{"SignalAllIgnored"},
		Sends:   "answers to a SEND, a WRITE and a READ that are not marked as signaled; on another queue pair the same",
		Expects: "three completions; on a queue pair that does not signal all, none",
		Run: onPort(func(p *port) {
			for _, all := range []bool{true, false} {
				c := p.connect(setup{signalAll: all})
				to := verbs.Remote{Addr: 0x1000, RKey: 7}
				c.PostSend(c.qp,
					verbs.SendWR{WRID: 1, Opcode: verbs.OpSend, SGL: c.localMem.SGL(64, 8)},
					verbs.SendWR{WRID: 2, Opcode: verbs.OpRDMAWrite, SGL: c.localMem.SGL(64, 8), Remote: to},
					verbs.SendWR{WRID: 3, Opcode: verbs.OpRDMARead, SGL: c.localMem.SGL(0, 16), Remote: to},
				)
				c.nextPackets(3)
				c.send(ib.Ack(c.devicePSN(1), 2), ib.ReadResponseOnly(c.devicePSN(2), 3, data(16)))
				for id := uint64(1); all && id <= 3; id++ {
					c.ExpectCompletion(id, verbs.WCSuccess)
				}
				c.Sync()
				c.ExpectNoCompletion()
			}
		}),
	},
	{
		ID:    "wc/len/read-has-its-length",
		Title: "The completion of a READ has the length read, that of a WRITE with immediate data the length written",
		Cite:  ibta("", "roce/cq/9"), Needs: verbs.CapRC, Labels: []string{"service:rc"}, Defects: []string{"SparseCompletions"},
		Sends:   "responses to READs of 5 bytes and of three packets into two pieces of memory; a WRITE with immediate data of 100 bytes",
		Expects: "these lengths in the completions",
		Run: onConn(setup{receives: 1, signalAll: true}, func(c *conn) {
			psn := 0
			for i, n := range []int{5, 2*pathMTU.Bytes() + 1} {
				c.PostSend(c.qp, verbs.SendWR{
					WRID: uint64(100 + i), Opcode: verbs.OpRDMARead, Remote: verbs.Remote{Addr: 0x1000, RKey: 7},
					SGL: []verbs.SGE{c.localMem.SGE(1024, 2), c.localMem.SGE(4096, n-2)},
				})
				c.expect(ib.ReadRequest(c.devicePSN(psn), ib.At(0x1000, 7, n)))
				c.send(ib.ReadResponses(c.devicePSN(psn), uint32(i+1), data(n), pathMTU.Bytes())...)
				psn += ib.Packets(n, pathMTU.Bytes())
				wc := c.ExpectCompletion(uint64(100+i), verbs.WCSuccess)
				c.Check(int(wc.ByteLen) == n, fmt.Sprintf("a READ of %d bytes", n), "%d", wc.ByteLen)
				c.ExpectBytes(c.localMem, 1024, data(n)[:2])
				c.ExpectBytes(c.localMem, 4096, data(n)[2:])
			}
			c.send(ib.WriteOnlyImm(c.peerPSN(0), c.reth(0, 100), 1, data(100)).AckReq())
			c.ExpectRecv(1, 100)
		}),
	},
	{
		ID:    "wc/flags/connected-receives-claim-no-header-area",
		Title: "The completion of a receive of a connected queue pair has no GRH flag, and its data start at the first byte",
		Cite:  ibta("", "roce/cq/9"), Needs: verbs.CapRC, Labels: []string{"service:rc"}, Defects: []string{"GRHFlagOnConnected"},
		Sends:   "a SEND and a WRITE with immediate data",
		Expects: "completions without the flag of the header area",
		Run: onRC(func(c *conn) {
			c.send(ib.SendOnly(c.peerPSN(0), data(16)), ib.WriteOnlyImm(c.peerPSN(1), c.reth(0, 8), 1, data(8)).AckReq())
			for i, n := range []int{16, 8} {
				wc := c.ExpectRecv(uint64(i+1), n)
				c.Check(wc.Flags&verbs.WCWithGRH == 0, "no GRH flag", "flags %#x", uint32(wc.Flags))
			}
			c.ExpectBytes(c.localMem, 0, data(16))
		}),
	},
	{
		ID:    "wc/data/none-before-its-data",
		Title: "When a completion is polled, the data of its message are in memory",
		Cite:  ibta("", "roce/cq/10"), Level: conformance.Should, Needs: verbs.CapRC, Labels: []string{"service:rc"},
		Defects: []string{"LatePlacement"},
		Sends:   "SENDs and WRITEs with immediate data of one and of three packets, and responses to READs",
		Expects: "the data in memory at the very moment of the completion event",
		Run: onPort(func(p *port) {
			events := p.useCompChannel(64)
			c := p.connect(setup{receives: 4, recvLen: 3 << 10, signalAll: true})
			psn := 0
			for i, n := range []int{100, 2*pathMTU.Bytes() + 100} {
				c.armCQ(false)
				msg := ib.Send(c.peerPSN(psn), rig.Pattern(n, byte(i+1)), pathMTU.Bytes())
				c.send(msg...)
				c.expectCompletionEvent(events, uint64(2*i+1))
				c.expectBytesNow(c.localMem, 2*i*3<<10, rig.Pattern(n, byte(i+1)))
				psn += len(msg)
				c.armCQ(false)
				c.send(writeImmPackets(c, psn, rig.Pattern(n, byte(i+3)))...)
				c.expectCompletionEvent(events, uint64(2*i+2))
				c.expectBytesNow(c.targetMem, 0, rig.Pattern(n, byte(i+3)))
				psn += len(msg)
			}
			c.armCQ(false)
			c.PostSend(c.qp, verbs.SendWR{WRID: 100, Opcode: verbs.OpRDMARead, SGL: c.localMem.SGL(0, 3<<10), Remote: verbs.Remote{Addr: 0x1000, RKey: 7}})
			c.expectReadRequest()
			c.send(ib.ReadResponses(c.devicePSN(0), 1, rig.Pattern(3<<10, 9), pathMTU.Bytes())...)
			c.expectCompletionEvent(events, 100)
			c.expectBytesNow(c.localMem, 0, rig.Pattern(3<<10, 9))
		}),
	},
	{
		ID:    "wc/data/read-completes-with-its-data-only",
		Title: "An ACK does not complete a READ",
		Cite:  ibta("", "roce/cq/10"), Level: conformance.Should, Needs: verbs.CapRC, Labels: []string{"service:rc"},
		Defects: []string{"AckCompletesRead"},
		Sends:   "an ACK with the PSN of a READ; if the READ is retransmitted, the correct response",
		Expects: "no success before the answer; and success only with its data",
		Run:     plainAckToRead,
	},
}

// fenceCase returns the case of a fenced SEND after READs or atomics.
func fenceCase(what string, op verbs.WROpcode, needs verbs.Caps, answer func(ib.PSN) ib.Packet) conformance.Case {
	return conformance.Case{
		ID:    "wc/fence/waits-for-earlier-" + what,
		Title: fmt.Sprintf("A request with a fence is not sent before all earlier %s are answered", what),
		Cite:  ibta("10.8.3.3", "roce/cq/3"), Needs: needs, Labels: []string{"service:rc"}, Defects: []string{"FenceIgnored"},
		Sends:   "the answers to two requests, late",
		Expects: "the fenced SEND after the second answer, and not before",
		Run: onConn(setup{signalAll: true}, func(c *conn) {
			for id := range uint64(2) {
				c.PostSend(c.qp, verbs.SendWR{WRID: 1 + id, Opcode: op, SGL: c.localMem.SGL(0, 8), Remote: verbs.Remote{Addr: 0x1000, RKey: 7}})
			}
			c.PostSend(c.qp, verbs.SendWR{WRID: 3, Opcode: verbs.OpSend, Flags: verbs.SendFence, SGL: c.localMem.SGL(64, 8)})
			c.nextPackets(2)
			c.expectSilence(silencePeriod)
			c.send(answer(c.devicePSN(0)))
			c.ExpectCompletion(1, verbs.WCSuccess)
			c.expectSilence(silencePeriod)
			c.send(answer(c.devicePSN(1)).WithMSN(2))
			c.ExpectCompletion(2, verbs.WCSuccess)
			c.expect(ib.SendOnly(c.devicePSN(2), c.localMem.Buf[64:72]))
			c.send(ib.Ack(c.devicePSN(2), 3))
			c.ExpectCompletion(3, verbs.WCSuccess)
		}),
	}
}

// writeImmPackets returns a WRITE with immediate data to the start of targetMem.
func writeImmPackets(c *conn, psn int, payload []byte) []ib.Packet {
	all := ib.Write(c.peerPSN(psn), c.reth(0, 0), payload, pathMTU.Bytes())
	last := &all[len(all)-1]
	op := ib.OpWriteLastImm
	if len(all) == 1 {
		op = ib.OpWriteOnlyImm
	}
	*last = last.WithOpcode(op).WithImm(5)
	return all
}

// expectReadRequest waits for the device's first packet, a READ request. ACKs may come
// before it.
func (c *conn) expectReadRequest() {
	for {
		pkt, ok := c.nextPacket(c.ResponseTimeout())
		switch {
		case !ok:
			c.Fail("a READ request", "nothing in %v", c.ResponseTimeout())
		case !pkt.IsAck(ib.AckPositive):
			c.checkPacket(ib.Op(ib.OpReadRequest).WithPSN(c.devicePSN(0)), pkt)
			return
		}
	}
}

// expectCompletionEvent waits for a completion event, and fails the case unless the next
// completion is a success of this request.
func (c *conn) expectCompletionEvent(events verbs.CompChannel, id uint64) {
	c.expectCQEvent(events)
	c.ExpectCompletion(id, verbs.WCSuccess)
}

// expectBytesNow is ExpectBytes without synchronizing with the device first: an
// application only waits for the completion.
func (c *conn) expectBytesNow(m *rig.Memory, off int, want []byte) {
	c.Check(bytes.Equal(m.Buf[off:][:len(want)], want), fmt.Sprintf("the %d bytes of the message in memory with its completion", len(want)), "other bytes")
}
