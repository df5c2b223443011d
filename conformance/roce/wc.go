package roce

import (
	"bytes"
	"errors"
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
	Sends:   "SENDs of one packet and of several, WRITEs with immediate data between them; to UC and UD queue pairs, if supported, such messages at once",
	Expects: "their completions in this order",
	Defects: []string{"ReceivesSwapped"}, Run: OnPort(func(p *Port) {
		c := p.connect(Setup{Receives: 6, recvLen: 2 << 10})
		long := ib.Send(c.PeerPSN(2), Data(MTU+9), MTU)
		c.Send(ib.SendOnly(c.PeerPSN(0), Data(11)), ib.WriteOnlyImm(c.PeerPSN(1), c.RETH(0, 12), 1, Data(12)))
		c.Send(long...)
		c.Send(ib.SendOnly(c.PeerPSN(4), Data(14)), ib.SendOnlyImm(c.PeerPSN(5), 2, Data(15)), c.peerSend(6, 16))
		for i, n := range []int{11, 12, MTU + 9, 14, 15, 16} {
			c.ExpectRecv(uint64(i+1), n)
		}
		if p.Caps.Has(verbs.CapUC) {
			c = p.connect(ucSetup(4))
			c.Send(ucSendOnly(c.PeerPSN(0), 11), ib.WriteOnlyImm(c.PeerPSN(1), c.RETH(0, 12), 1, Data(12)).On(ib.UC))
			c.Send(append(ucSend(c.PeerPSN(2), ucMTU+9), ucSendOnly(c.PeerPSN(4), 14))...)
			for i, n := range []int{11, 12, ucMTU + 9, 14} {
				c.ExpectRecv(uint64(i+1), n)
			}
		}
		if p.Caps.Has(verbs.CapUD) {
			d := p.newUDPort(4, nil)
			for i := range 4 {
				d.SendPacket(d.datagram(Data(10 + i)))
			}
			for i := range 4 {
				d.ExpectRecv(uint64(i+1), ib.GRHLen+10+i)
			}
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
	ID: "wc/fence/bind-waits-for-earlier-reads", Cite: ibta("10.8.3.3", "cq/3"), Needs: verbs.CapMWType2,
	Title:   "A bind with a fence takes effect only after earlier READs are answered",
	Sends:   "the answer to a READ, late; a READ through a window, whose bind has a fence, before the answer, and on another connection after it",
	Expects: "a NAK for a remote access error before the answer, and the bytes of the window after it",
	Defects: []string{"FenceIgnored"}, Run: OnPort(func(p *Port) {
		for _, answered := range []bool{true, false} {
			c := p.connect(Setup{})
			m := c.bindableMemory()
			c.request(0, c.ReadWR(1, 8))
			key, err := c.postBind(c.newWindow(verbs.MWType2), verbs.SendSignaled|verbs.SendFence, bindRange(m, 1024, 256, verbs.AccessRemoteRead))
			c.Must("a window that can be bound", err)
			at := ib.At(m.Addr()+1024, key, 8)
			c.expectSilence(silencePeriod)
			if !answered {
				c.ExpectNoCompletion()
				c.expectReadRefused(0, at)
				continue
			}
			c.completeWith(ib.ReadResponseOnly(c.DevicePSN(0), 1, Data(8)), 1, bindID)
			c.expectRead(0, at, m.Buf[1024:1032])
		}
	}),
}, {
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
	Sends:   "answers to a SEND, a WRITE, a READ and a FETCH_ADD, if supported, that are not marked as signaled; nothing to SENDs and a WRITE of UC and UD queue pairs, if supported",
	Expects: "a completion of each; on queue pairs that do not signal all, none",
	Defects: []string{"SignalAllIgnored"}, Run: OnPort(func(p *Port) {
		for _, all := range []bool{true, false} {
			expect := func(c *Conn, ids ...uint64) {
				if all {
					c.ExpectCompletions(verbs.WCSuccess, ids...)
				}
				c.expectNoCompletion()
			}
			c := p.connect(Setup{signalAll: all})
			c.request(0, unsignaled(c.SendWR(1, 8)), unsignaled(c.WriteWR(2, 8)), unsignaled(c.ReadWR(3, 16)))
			c.Send(c.peerAck(1, 2), ib.ReadResponseOnly(c.DevicePSN(2), 3, Data(16)))
			expect(c, 1, 2, 3)
			if p.Caps.Has(verbs.CapAtomics) {
				c.request(3, unsignaled(c.fetchAddWR(4)))
				c.Send(ib.AtomicAck(c.DevicePSN(3), 4, 5))
				expect(c, 4)
			}
			if p.Caps.Has(verbs.CapUC) {
				c = p.connect(Setup{qpType: verbs.QPTypeUC, signalAll: all})
				c.PostSend(c.QP, unsignaled(c.SendWR(1, 8)), unsignaled(c.WriteWR(2, 8)))
				c.nextPackets(2)
				expect(c, 1, 2)
			}
			if p.Caps.Has(verbs.CapUD) {
				d := &udPort{p.connect(Setup{qpType: verbs.QPTypeUD, signalAll: all})}
				d.PostSend(d.QP, d.addressed(d.newAH(d.PD), unsignaled(d.SendWR(1, 8))))
				d.nextPackets(1)
				expect(d.Conn, 1)
			}
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
	Sends:   "a SEND and a WRITE with immediate data, to RC and, if supported, to UC",
	Expects: "completions without the flag of the header area",
	Defects: []string{"GRHFlagOnConnected"}, Run: onConnected(func(p *Port, kind verbs.QPType) {
		c, service := p.connect(Setup{qpType: kind, Receives: 2}), serviceOf[kind]
		c.Send(ib.SendOnly(c.PeerPSN(0), Data(16)).On(service), ib.WriteOnlyImm(c.PeerPSN(1), c.RETH(0, 8), 1, Data(8)).On(service))
		for i, n := range []int{16, 8} {
			wc := c.ExpectRecv(uint64(i+1), n)
			c.Check(wc.Flags&verbs.WCWithGRH == 0, "no GRH flag", "flags %#x", uint32(wc.Flags))
		}
		c.ExpectBytes(c.LocalMem, 0, Data(16))
	}),
}, {
	ID: "wc/data/none-before-its-data", Cite: ibta("", "cq/10"), Level: conformance.Should,
	Title:   "When a completion is polled, the data of its message are in memory",
	Sends:   "SENDs and WRITEs with immediate data of one and of three packets, responses to a READ and a FETCH_ADD, a SEND of UC and a datagram, where supported",
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
		if p.Caps.Has(verbs.CapAtomics) {
			c.armCQ(false)
			c.request(3, c.fetchAddWR(101))
			c.Send(ib.AtomicAck(c.DevicePSN(3), 2, 0x0102030405060708))
			c.expectCompletionEvent(events, 101)
			c.expectBytesNow(c.LocalMem, SinkOffset, hostOrder(0x0102030405060708))
		}
		if p.Caps.Has(verbs.CapUC) {
			c = p.connect(ucSetup(1))
			c.armCQ(false)
			c.Send(ucSend(c.PeerPSN(0), 3*ucMTU)...)
			c.expectCompletionEvent(events, 1)
			c.expectBytesNow(c.LocalMem, 0, Data(3*ucMTU))
		}
		if p.Caps.Has(verbs.CapUD) {
			d := p.newUDPort(1, nil)
			d.armCQ(false)
			d.SendPacket(d.datagram(Data(1000)))
			d.expectCompletionEvent(events, 1)
			d.expectBytesNow(d.LocalMem, ib.GRHLen, Data(1000))
		}
	}),
}, {
	ID: "wc/data/read-completes-with-its-data-only", Cite: ibta("", "cq/10"), Level: conformance.Should,
	Title:   "An ACK does not complete a READ",
	Sends:   "an ACK with the PSN of a READ; if the READ is retransmitted, the correct response",
	Expects: "no success before the answer; and success only with its data",
	Defects: []string{"AckCompletesRead"}, Run: plainAckToRead,
}}))

// fenceCase returns the case about a fenced SEND after two requests with opcode op, which what
// names. answer makes the response to such a request.
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

// expectCompletionEvent fails the case unless the channel has an event of the CQ, and the request
// with this ID completes with success.
func (c *Conn) expectCompletionEvent(events verbs.CompChannel, id uint64) {
	c.expectCQEvent(events)
	c.ExpectCompletion(id, verbs.WCSuccess)
}

// expectBytesNow fails the case unless memory has these bytes. It makes no verb call first, because
// an application only waits for the completion.
func (c *Conn) expectBytesNow(m *rig.Memory, off int, want []byte) {
	c.Check(bytes.Equal(m.Buf[off:][:len(want)], want), fmt.Sprintf("the %d bytes of the message in memory with its completion", len(want)), "other bytes")
}

var cqCases = overRC.Cases([]conformance.Case{{
	ID: "wc/overrun/reported-and-fatal", Cite: ibta("error class G", "cq/6"),
	Title:   "A CQ overrun raises CQ_ERR, and the queue pair goes to ERR",
	Sends:   "one SEND more than the CQ has room for, of which nothing is polled; the ACK of as many SENDs of the device; as many SENDs of UC and datagrams, if supported",
	Expects: "CQ_ERR of that CQ, and the state ERR, each time",
	Defects: []string{"CQOverrunSilent"}, Run: OnPort(func(p *Port) {
		overruns := []func() *Conn{func() *Conn { return p.overrunCQ(0, (*Conn).peerMessage) }, func() *Conn { return p.overrunCQBySends(0) }}
		for _, kind := range []verbs.QPType{verbs.QPTypeUC, verbs.QPTypeUD} {
			if p.Caps.Has(capOf[kind]) {
				overruns = append(overruns, func() *Conn { return p.overrunUnreliableCQ(kind) })
			}
		}
		for _, overrun := range overruns {
			c := overrun()
			c.expectCQError()
			c.AwaitState(c.QP, verbs.QPStateErr)
		}
	}),
}, {
	ID: "wc/overrun/reported-once", Cite: ibta("error class G", "cq/6"),
	Title:   "A CQ overrun raises one CQ_ERR, however many completions are lost",
	Sends:   "one SEND more than the CQ has room for; the queue pair has three more receives to flush; the ACK of four SENDs of the device too many",
	Expects: "CQ_ERR, once each time",
	Defects: []string{"CQErrRepeats"}, Run: OnPort(func(p *Port) {
		for _, overrun := range []func() *Conn{func() *Conn { return p.overrunCQ(3, (*Conn).peerMessage) }, func() *Conn { return p.overrunCQBySends(3) }} {
			c := overrun()
			c.expectCQError()
			c.AwaitState(c.QP, verbs.QPStateErr)
			c.Sync()
			for _, e := range p.pendingEvents() {
				p.Check(e.Type != verbs.EventCQErr, "one CQ_ERR", "another")
			}
		}
	}),
}, {
	ID: "wc/overrun/message-not-acknowledged", Cite: ibta("error class G", "cq/6"),
	Title:   "A message whose completion was lost in a CQ overrun is not acknowledged",
	Sends:   "one SEND more than the CQ has room for; to another queue pair, as many WRITEs with immediate data",
	Expects: "ACKs for all of them but the last",
	Defects: []string{"OverrunAcked"}, Run: OnPort(func(p *Port) {
		write := func(c *Conn, k int) ib.Packet {
			return ib.WriteOnlyImm(c.PeerPSN(k), c.RETH(0, 16), 7, Data(16)).AckReq()
		}
		for _, message := range []func(*Conn, int) ib.Packet{(*Conn).peerMessage, write} {
			c := p.overrunCQ(0, message)
			for _, pkt := range c.Drain(silencePeriod) {
				c.Check(!pkt.IsAck(ib.AckPositive), "no ACK for the message whose completion was lost", "%v", pkt)
			}
		}
	}),
}, {
	ID: "wc/arm/any-overrides-solicited", Cite: ibta("C11-31, C11-32", "cq/7"),
	Title:   "A CQ that is armed for any completion and for solicited ones raises an event for the next of any kind",
	Sends:   "SENDs that are not solicited, when the CQ was armed for solicited completions and for any, in either order",
	Expects: "an event for each",
	Defects: []string{"ArmLost"}, Run: OnPort(func(p *Port) {
		c, events := p.connectWithChannel(Setup{Receives: 3})
		c.armCQ(true)
		c.expectAccepted(0)
		c.expectNoCQEvent(events)
		c.armCQ(false)
		c.expectAccepted(1)
		c.expectCQEvent(events)
		c.armCQ(false)
		c.armCQ(true)
		c.expectAccepted(2)
		c.expectCQEvent(events)
	}),
}, {
	ID: "wc/arm/one-event-for-one-arm", Cite: ibta("C11-31, C11-32", "cq/7"),
	Title:   "An armed CQ raises one event until it is armed again",
	Sends:   "two solicited SENDs, and another two each time the CQ is armed again, for any completion or for solicited ones",
	Expects: "one event for each pair, at its first",
	Defects: []string{"ArmStays"}, Run: OnPort(func(p *Port) {
		c, events := p.connectWithChannel(Setup{Receives: 8})
		for i, solicited := range []bool{false, false, true, true} {
			c.armCQ(solicited)
			c.expectAccepted(2*i, ib.Packet.SE)
			c.expectCQEvent(events)
			c.expectAccepted(2*i+1, ib.Packet.SE)
			c.expectNoCQEvent(events)
		}
	}),
}, {
	ID: "wc/arm/without-a-channel-refused", Cite: ibta("C11-31, C11-32", "cq/7"), Level: conformance.Should,
	Title:   "A CQ without a channel cannot be armed",
	Sends:   "nothing",
	Expects: "a refusal",
	Defects: []string{"ArmsWithoutChannel"}, Run: OnPort(func(p *Port) {
		p.MustFail("arming a CQ without a channel", p.CQ.ReqNotify(false), nil)
		p.MustFail("arming a CQ without a channel", p.CQ.ReqNotify(true), nil)
	}),
}, {
	ID: "wc/cq/in-use-not-destroyed", Cite: ibta("C11-17", "cq/8"),
	Title:   "A CQ that a queue pair uses for sends or receives cannot be destroyed",
	Sends:   "a SEND, when closing the CQ was refused",
	Expects: "the CQ cannot be destroyed while queue pairs use it, and the SEND completes; it can be destroyed afterwards",
	Defects: []string{"InUseDestroyed"}, Run: OnPort(func(p *Port) {
		rest := p.CQ
		p.useCompChannel()
		c := p.connect(Setup{Receives: 1})
		sender := p.CreateQP(verbs.QPInit{Type: verbs.QPTypeRC, PD: p.PD, SendCQ: p.CQ, RecvCQ: rest, Caps: minQPCaps})
		receiver := p.CreateQP(verbs.QPInit{Type: verbs.QPTypeRC, PD: p.PD, SendCQ: rest, RecvCQ: p.CQ, Caps: minQPCaps})
		p.MustFail("destroying a CQ of three queue pairs", p.CQ.Close(), nil)
		c.expectAccepted(0)
		p.Must("a queue pair that can be destroyed", c.QP.Close())
		p.MustFail("destroying a CQ of a send and a receive queue", p.CQ.Close(), nil)
		p.Must("a queue pair that can be destroyed", sender.Close())
		p.MustFail("destroying a CQ of a receive queue", p.CQ.Close(), nil)
		p.Must("a queue pair that can be destroyed", receiver.Close())
		sender = p.CreateQP(verbs.QPInit{Type: verbs.QPTypeRC, PD: p.PD, SendCQ: p.CQ, RecvCQ: rest, Caps: minQPCaps})
		p.MustFail("destroying a CQ of a send queue", p.CQ.Close(), nil)
		p.Must("a queue pair that can be destroyed", sender.Close())
		p.Must("an unused CQ that can be destroyed", p.CQ.Close())
	}),
}})

// useCompChannel replaces the default CQ by one with a completion channel, and returns the channel.
func (p *Port) useCompChannel() verbs.CompChannel {
	events, err := p.Device.CreateCompChannel()
	p.Must("a completion channel", err)
	p.CQ = p.CreateCQ(verbs.CQInit{Depth: 64, Channel: events})
	return events
}

// connectWithChannel makes a connection whose CQ has a completion channel.
func (p *Port) connectWithChannel(s Setup) (*Conn, verbs.CompChannel) {
	events := p.useCompChannel()
	return p.connect(s), events
}

// armCQ requests an event for the next completion, or for the next solicited one.
func (p *Port) armCQ(solicitedOnly bool) {
	p.Must("a CQ that can be armed", p.CQ.ReqNotify(solicitedOnly))
}

// expectCQEvent fails the case unless the channel has an event of the CQ.
func (p *Port) expectCQEvent(events verbs.CompChannel) {
	cq, err := events.Wait(p.ResponseTimeout())
	p.Check(!errors.Is(err, verbs.ErrTimeout), "an event of the CQ", "none in %v", p.ResponseTimeout())
	p.Must("completion events", err)
	p.Check(cq == p.CQ, "an event of the CQ", "one of another")
}

// expectNoCQEvent fails the case if the channel has an event. The case must call Sync or wait for a
// completion before.
func (p *Port) expectNoCQEvent(events verbs.CompChannel) {
	_, err := events.Wait(0)
	p.Check(errors.Is(err, verbs.ErrTimeout), "no event of the CQ", "one (%v)", err)
}

// peerMessage is a SEND of 16 bytes with the peer's k-th PSN.
func (c *Conn) peerMessage(k int) ib.Packet { return c.peerSend(k, 16) }

// overrunCQ connects a queue pair with a small CQ, and sends one message more than the CQ has
// entries. The queue pair has a receive for each message, and this number of extra ones.
func (p *Port) overrunCQ(extra int, message func(*Conn, int) ib.Packet) *Conn {
	p.CQ = p.CreateCQ(verbs.CQInit{Depth: 1})
	room, caps := p.CQ.Depth(), minQPCaps
	caps.MaxRecvWR = room + 1 + extra
	c := p.connect(Setup{Receives: caps.MaxRecvWR, caps: caps})
	for i := range room {
		c.exchange(message(c, i), c.deviceAck(i, uint32(i+1)))
	}
	c.Send(message(c, room))
	return c
}

// overrunUnreliableCQ connects a UC or UD queue pair with a small CQ, and sends one message more
// than the CQ has entries.
func (p *Port) overrunUnreliableCQ(kind verbs.QPType) *Conn {
	p.CQ = p.CreateCQ(verbs.CQInit{Depth: 1})
	room, caps := p.CQ.Depth(), minQPCaps
	caps.MaxRecvWR = room + 1
	c := p.connect(Setup{qpType: kind, Receives: caps.MaxRecvWR, caps: caps})
	for i := range room + 1 {
		pkt := ucSendOnly(c.PeerPSN(i), 16)
		if kind == verbs.QPTypeUD {
			pkt = ib.Datagram(0, udQKey, udPeerQPN, Data(16))
		}
		c.Send(pkt)
	}
	return c
}

// overrunCQBySends connects a queue pair with a small CQ, and has it send 1 + extra more SENDs than
// the CQ has entries.
func (p *Port) overrunCQBySends(extra int) *Conn {
	p.CQ = p.CreateCQ(verbs.CQInit{Depth: 1})
	room, caps := p.CQ.Depth(), minQPCaps
	caps.MaxSendWR = room + 1 + extra
	c := p.connect(Setup{caps: caps})
	for i := range caps.MaxSendWR {
		c.request(i, c.SendWR(uint64(i), 8))
	}
	c.Send(c.peerAck(caps.MaxSendWR-1, uint32(caps.MaxSendWR)))
	return c
}

// expectCQError fails the case unless the next event is CQ_ERR of the CQ.
func (c *Conn) expectCQError() {
	e := c.nextEvent(verbs.EventCQErr)
	c.Check(e.Type == verbs.EventCQErr && e.CQ == c.CQ, "the event CQ_ERR of the CQ", "%v of %v", e.Type, e.CQ)
}

var errorCases = overRC.Cases([]conformance.Case{{
	ID: "wc/error/unsignaled-failure-completes", Cite: ibta("10.7.3.1", "err/1"),
	Title:   "A failed request completes, signaled or not",
	Sends:   "nothing for an unsignaled SEND with a bad L_Key; a NAK for an unsignaled WRITE",
	Expects: "a completion with an error for each",
	Defects: []string{"UnsignaledErrorSilent"}, Run: OnPort(func(p *Port) {
		c := p.connect(Setup{})
		c.PostSend(c.QP, unsignaled(c.badSendWR(1)))
		c.expectErrorCompletion(1)
		c = p.connect(Setup{})
		c.request(0, unsignaled(c.WriteWR(2, 8)))
		c.Send(c.peerNak(0, ib.NakRemoteAccess, 0))
		c.expectErrorCompletion(2)
	}),
}, {
	ID: "wc/error/first-names-the-cause", Cite: ibta("", "err/2"),
	Title:   "The first completion with an error has the status of the cause, and later requests are flushed",
	Sends:   "an ACK for the first of three SENDs, of which the second has a bad L_Key",
	Expects: "LOC_PROT_ERR for the second, WR_FLUSH_ERR for the third and for a receive",
	Defects: []string{"LocalErrFlushesAll", "LocalErrIsQPOp"}, Run: onConn(Setup{Receives: 1}, func(c *Conn) {
		c.PostSend(c.QP, unsignaled(c.SendWR(101, 8)), unsignaled(c.badSendWR(102)), unsignaled(c.SendWR(103, 8)))
		c.expect(ib.SendOnly(c.DevicePSN(0), nil))
		c.Send(c.peerAck(0, 1))
		// The first request is unsignaled and completes only if it fails.
		c.ExpectCompletion(102, verbs.WCLocProtErr)
		for range 2 {
			wc := c.NextCompletion()
			c.Check(wc.Status == verbs.WCWRFlushErr && (wc.WRID == 103 || wc.WRID == 1), "send 103 and receive 1 flushed", "%s", rig.Describe(&wc))
		}
	}),
}, {
	ID: "wc/error/earlier-requests-still-succeed", Cite: ibta("", "err/3"),
	Title:   "Requests before a failed one complete with success when they are answered, even if the failure was detected before",
	Sends:   "responses to a SEND, a WRITE and a READ, after the device has processed a later request with a bad L_Key",
	Expects: "success for the three, LOC_PROT_ERR for the fourth",
	Defects: []string{"LocalErrFlushesAll"}, Run: onConn(Setup{}, func(c *Conn) {
		c.PostSend(c.QP, c.SendWR(1, 8), c.WriteWR(2, 8), c.ReadWR(3, 8), c.badSendWR(4))
		c.nextPackets(3)
		c.Sync() // the device has processed the fourth request
		c.Send(c.peerAck(1, 2), ib.ReadResponseOnly(c.DevicePSN(2), 3, Data(8)))
		c.ExpectCompletions(verbs.WCSuccess, 1, 2, 3)
		c.ExpectBytes(c.LocalMem, SinkOffset, Data(8))
		c.ExpectCompletion(4, verbs.WCLocProtErr)
	}),
}, {
	ID: "wc/error/names-request-and-qp", Cite: ibta("", "err/4"),
	Title:   "A completion with an error has the WR ID and the QPN",
	Sends:   "a NAK for the first of two SENDs; to another queue pair nothing, for its request fails by itself",
	Expects: "the numbers of the requests, receives and queue pairs in all completions, be they of causes or of flushes",
	Defects: []string{"SparseCompletions"}, Run: OnPort(func(p *Port) {
		c := p.connect(Setup{Receives: 1})
		c.sendUnacked(101)
		c.sendUnacked(102)
		c.Send(c.peerNak(0, ib.NakInvalidRequest, 0))
		c.expectErrorCompletions(101, 102, 1)
		c = p.connect(Setup{Receives: 2})
		c.PostSend(c.QP, c.badSendWR(103))
		c.expectErrorCompletions(103, 1, 2)
	}),
}, {
	ID: "wc/error/fatal-nak-takes-the-qp-to-error", Cite: ibta("", "err/5"),
	Title:   "A fatal NAK moves the requester's queue pair to ERR",
	Sends:   "NAKs of codes 1, 2 and 3 for WRITEs, each on its own connection",
	Expects: "the status of the code, state ERR, and later requests flushed and not retransmitted",
	Defects: []string{"NAKKeepsRTS"}, Run: onEachConn(Setup{}, fatalNAKs, func(c *Conn, nak nakStatus) {
		c.sendUnacked(1)
		c.sendUnacked(2)
		c.Send(c.peerNak(0, nak.code, 0))
		c.ExpectCompletion(1, nak.status)
		c.AwaitState(c.QP, verbs.QPStateErr)
		c.ExpectCompletion(2, verbs.WCWRFlushErr)
		c.expectSilence(silencePeriod)
	}),
}})

// expectErrorCompletion waits for the completion of this request, which must be an error.
func (c *Conn) expectErrorCompletion(id uint64) {
	wc := c.NextCompletion()
	c.Check(wc.WRID == id && wc.Status != verbs.WCSuccess, fmt.Sprintf("an error completion of request %d", id), "%s", rig.Describe(&wc))
}

// expectErrorCompletions fails the case unless the next completions are those of these
// requests, in any order, each with an error and the QPN.
func (c *Conn) expectErrorCompletions(ids ...uint64) {
	missing := make(map[uint64]bool)
	for _, id := range ids {
		missing[id] = true
	}
	for range ids {
		wc := c.NextCompletion()
		c.Check(wc.Status != verbs.WCSuccess && wc.QPN == c.QP.QPN() && missing[wc.WRID],
			fmt.Sprintf("error completions of %v, queue pair %#x", ids, c.QP.QPN()), "%s, queue pair %#x", rig.Describe(&wc), wc.QPN)
		delete(missing, wc.WRID)
	}
}

// badSendWR returns a SEND of eight bytes of a deregistered region.
func (p *Port) badSendWR(id uint64) verbs.SendWR {
	m := p.Memory(8, verbs.AccessLocalWrite)
	sgl := m.SGL(0, 8)
	p.Must("a region that can be deregistered", m.Close())
	return verbs.SendWR{WRID: id, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: sgl}
}

// unsignaled returns a request that completes only if it fails.
func unsignaled(wr verbs.SendWR) verbs.SendWR {
	wr.Flags &^= verbs.SendSignaled
	return wr
}
