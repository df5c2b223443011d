package engine

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// The responder of UC drops an invalid message silently (error class D1): the message consumes no
// receive, and the next message is accepted. Requirements uc/2, uc/3, uc/5, uc/6, bth/op/3.
func TestUCDropsInvalidMessages(t *testing.T) {
	first := func(p ucPeer, k int) { p.send(wire.OpSendFirst, k, data(p.mtu)) }
	writeFirst := func(p ucPeer, k, n int) { p.send(wire.OpWriteFirst, k, p.at(0, n), data(p.mtu)) }
	cases := []struct {
		name string
		next int // PSN of the good message
		drop string
		send func(p ucPeer)
	}{
		{"a middle packet is lost", 3, "drop_sequence 1", func(p ucPeer) {
			first(p, 0)
			p.send(wire.OpSendLast, 2, data(4))
		}},
		{"the rest of a damaged message", 5, "drop_sequence 3", func(p ucPeer) {
			first(p, 0)
			for k := 2; k < 4; k++ {
				p.send(wire.OpSendMiddle, k, data(p.mtu))
			}
			p.send(wire.OpSendLast, 4, data(4))
		}},
		{"the first packet is lost", 2, "drop_sequence 1", func(p ucPeer) { p.send(wire.OpSendLast, 1, data(4)) }},
		{"the last packet is lost", 2, "", func(p ucPeer) { first(p, 0) }},
		{"a middle packet without a first", 1, "drop_sequence 1", func(p ucPeer) { p.send(wire.OpSendMiddle, 0, data(p.mtu)) }},
		{"a SEND continues as a WRITE", 2, "drop_sequence 1", func(p ucPeer) {
			first(p, 0)
			p.send(wire.OpWriteLast, 1, data(4))
		}},
		{"a WRITE continues as a SEND", 2, "drop_sequence 1", func(p ucPeer) {
			writeFirst(p, 0, 2*p.mtu)
			p.send(wire.OpSendLast, 1, data(4))
		}},
		{"a message starts within another", 1, "", func(p ucPeer) { first(p, 0) }},
		{"a first packet below the MTU", 2, "drop_sequence 1 drop_length 1", func(p ucPeer) {
			p.send(wire.OpSendFirst, 0, data(p.mtu-4))
			p.send(wire.OpSendLast, 1, data(4))
		}},
		{"a middle packet below the MTU", 3, "drop_sequence 1 drop_length 1", func(p ucPeer) {
			first(p, 0)
			p.send(wire.OpSendMiddle, 1, data(4))
			p.send(wire.OpSendLast, 2, data(4))
		}},
		{"an empty last packet", 2, "drop_length 1", func(p ucPeer) {
			first(p, 0)
			p.send(wire.OpSendLast, 1)
		}},
		{"an only packet beyond the MTU", 1, "drop_length 1", func(p ucPeer) { p.send(wire.OpSendOnly, 0, data(p.mtu+4)) }},
		{"less written than announced", 2, "drop_length 1", func(p ucPeer) {
			writeFirst(p, 0, p.mtu+8)
			p.send(wire.OpWriteLast, 1, data(4))
		}},
		{"more written than announced", 2, "drop_length 1", func(p ucPeer) {
			writeFirst(p, 0, p.mtu+8)
			p.send(wire.OpWriteLast, 1, data(12))
		}},
		{"a message longer than its receive", 3, "drop_too_long 1", func(p ucPeer) {
			first(p, 0)
			p.send(wire.OpSendMiddle, 1, data(p.mtu))
			p.send(wire.OpSendLast, 2, data(4))
		}},
		{"a WRITE with a wrong key", 1, "drop_access 1", func(p ucPeer) { p.send(wire.OpWriteOnly, 0, p.at(0, 4), rkey(p.h.mr.Key^0x55), data(4)) }},
		{"a WRITE with immediate and a wrong key", 1, "drop_access 1", func(p ucPeer) {
			p.send(wire.OpWriteOnlyImm, 0, p.at(0, 4), rkey(p.h.mr.Key^0x55), data(4))
		}},
		{"a WRITE beyond the region", 2, "drop_sequence 1 drop_access 1", func(p ucPeer) {
			p.send(wire.OpWriteFirst, 0, p.at(memSize-targetAt-p.mtu, p.mtu+4), data(p.mtu))
			p.send(wire.OpWriteLast, 1, data(4))
		}},
		{"a WRITE to read-only memory", 1, "drop_access 1", func(p ucPeer) {
			p.send(wire.OpWriteOnly, 0, p.at(0, 4), rkey(p.region(verbs.AccessRemoteRead)), data(4))
		}},
		{"a READ request", 0, "drop_opcode 1", func(p ucPeer) { p.send(wire.OpReadRequest, 0, p.at(0, 4)) }},
		{"an acknowledgement", 0, "drop_opcode 1", func(p ucPeer) { p.send(wire.OpAcknowledge, 0) }},
		{"an opcode of RC", 0, "drop_qp_type 1", func(p ucPeer) { p.peer.send(wire.OpSendOnly, 0, data(4)) }},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			eachUC(t, setup{}, func(p ucPeer) {
				p.recv(1, 2*p.mtu)
				c.send(p)
				p.wcs()
				p.drops(listed(c.drop)...)
				p.send(wire.OpSendOnly, c.next, data(8))
				p.wcs("1 SUCCESS RECV 8B")
				p.silence(time.Second)
				p.state(verbs.QPStateRTS)
				p.events()
			})
		})
	}
}

// listed splits "a 1 b 2" into "a 1", "b 2".
func listed(s string) []string {
	var out []string
	for len(s) > 0 {
		var name string
		var n int
		if _, err := fmt.Sscanf(s, "%s %d", &name, &n); err != nil {
			panic(err)
		}
		item := fmt.Sprintf("%s %d", name, n)
		out = append(out, item)
		s = s[min(len(s), len(item)+1):]
	}
	return out
}

// uc/5, acc/4, acc/8: A QP without remote write access drops WRITEs and writes nothing.
func TestUCWriteNeedsRemoteWriteAccess(t *testing.T) {
	noWrites := func(a *verbs.QPAttr) { a.Access = verbs.AccessRemoteRead }
	eachUC(t, setup{attr: noWrites}, func(p ucPeer) {
		p.recv(1, 8)
		p.send(wire.OpWriteOnly, 0, p.at(0, 4), data(4))
		p.send(wire.OpWriteOnlyImm, 1, p.at(0, 4), data(4))
		p.drops("drop_access 2")
		p.expectMemoryUnchanged()
		p.wcs()
		p.send(wire.OpSendOnly, 2)
		p.wcs("1 SUCCESS RECV")
		p.state(verbs.QPStateRTS)
	})
}

// uc/6: A message without a receive is dropped completely; a receive posted
// meanwhile is for the next message.
func TestUCMessageWithoutAReceiveIsDropped(t *testing.T) {
	eachUC(t, setup{}, func(p ucPeer) {
		p.send(wire.OpSendOnly, 0, data(4))
		p.send(wire.OpWriteOnlyImm, 1, p.at(0, 4), data(4), imm(1))
		p.expectMemoryUnchanged()
		p.send(wire.OpSendFirst, 2, data(p.mtu))
		p.recv(1, 8)
		p.send(wire.OpSendLast, 3, data(4))
		p.drops("drop_sequence 1", "drop_no_receive 3")
		p.wcs()
		p.send(wire.OpSendOnlyImm, 4, data(8), imm(0x0a0b0c0d))
		p.wcs("1 SUCCESS RECV 8B imm 0a0b0c0d")
		p.silence(time.Second)
	})
}

// The responder of UC accepts a first packet with any PSN, and expects the next PSN after it.
// It treats a duplicate as a new message. Requirements uc/4, uc/10.
func TestUCMessagesStartAtAnyPSN(t *testing.T) {
	eachUC(t, setup{}, func(p ucPeer) {
		for id := range uint64(5) {
			p.recv(id, 2*p.mtu)
		}
		for i, k := range []int{10, 10, -5, 1 << 23} {
			p.send(wire.OpSendOnly, k, data(i))
			if got, want := wire.PSN(p.q.Query().RQPSN), p.rq.Add(int32(k)+1); got != want {
				p.Errorf("expects PSN %#x after %#x", got, want.Add(-1))
			}
		}
		p.send(wire.OpSendFirst, 77, data(p.mtu))
		p.send(wire.OpSendLast, 78, data(1))
		p.wcs("0 SUCCESS RECV", "1 SUCCESS RECV 1B", "2 SUCCESS RECV 2B", "3 SUCCESS RECV 3B", fmt.Sprintf("4 SUCCESS RECV %dB", p.mtu+1))
		p.drops()
	})
}

// uc/2, uc/3: The next message reuses the receive of a damaged one from its first byte.
func TestUCDeliversCompleteMessageAfterDamagedOne(t *testing.T) {
	eachUC(t, setup{}, func(p ucPeer) {
		n := p.mtu + 4
		want := pattern(n, 99)
		p.recv(1, 2*p.mtu)
		p.recv(2, 2*p.mtu)
		p.recv(3, 2*p.mtu)
		p.send(wire.OpSendFirst, 0, data(p.mtu))
		p.send(wire.OpSendFirst, 2, payload(want[:p.mtu]))
		p.send(wire.OpSendLast, 3, payload(want[p.mtu:]))
		p.wcs(fmt.Sprintf("1 SUCCESS RECV %dB", n))
		if !bytes.Equal(p.recvBuf(1, n), want) {
			p.Error("other data")
		}
		p.send(wire.OpSendFirst, 4, data(p.mtu))
		p.send(wire.OpSendOnly, 9) // empty
		p.wcs("2 SUCCESS RECV")
		p.send(wire.OpSendFirst, 10, data(p.mtu))
		p.send(wire.OpWriteFirst, 12, p.at(0, n), payload(want[:p.mtu]))
		p.send(wire.OpWriteLastImm, 13, payload(want[p.mtu:]), imm(7))
		p.wcs(fmt.Sprintf("3 SUCCESS RECV_RDMA_WITH_IMM %dB imm 00000007", n))
		if !bytes.Equal(p.target(0, n), want) {
			p.Error("other data written")
		}
	})
}

// uc/1: UC sends no responses, even if AckReq is set.
func TestUCSendsNoResponses(t *testing.T) {
	eachUC(t, setup{}, func(p ucPeer) {
		p.recv(1, p.mtu)
		p.recv(2, p.mtu)
		for i, op := range []wire.Operation{
			wire.OpSendOnly, wire.OpSendOnlyImm, wire.OpSendFirst, wire.OpSendMiddle, wire.OpSendLast, wire.OpWriteOnly,
			wire.OpWriteOnlyImm, wire.OpWriteLast, wire.OpReadRequest, wire.OpFetchAdd, wire.OpAcknowledge, 0x15, 0x1f,
		} {
			p.send(op, 3*i, p.at(0, 4), data(4), ackReq, solicited)
			p.expect()
		}
		p.silence(time.Minute)
		p.state(verbs.QPStateRTS)
		if n := p.h.nic.Count.AcksSent; n != 0 {
			p.Errorf("%d ACKs counted", n)
		}
	})
}

// uc/7, uc/8, bth/se/1: A request completes when its last packet is sent. No packet has AckReq set.
func TestUCSendsCompleteWhenSent(t *testing.T) {
	eachUC(t, setup{}, func(p ucPeer) {
		m := p.mtu
		se := func(wr *verbs.SendWR) { wr.Flags |= verbs.SendSolicited }
		unsignaled := func(wr *verbs.SendWR) { wr.Flags = 0 }
		p.post(1, verbs.OpSend, 0)
		p.post(2, verbs.OpSend, 2*m+1, se)
		p.post(3, verbs.OpRDMAWrite, m+4, unsignaled)
		p.post(4, verbs.OpRDMAWriteImm, m, se, func(wr *verbs.SendWR) { wr.Imm = 5 })
		p.wcs() // no packet was sent
		p.expect(
			"UC SEND_ONLY 0",
			fmt.Sprintf("UC SEND_FIRST 1 %dB", m), fmt.Sprintf("UC SEND_MIDDLE 2 %dB", m), "UC SEND_LAST 3 1B se",
			fmt.Sprintf("UC WRITE_FIRST 4 %dB va+0 len %d", m, m+4), "UC WRITE_LAST 5 4B",
			fmt.Sprintf("UC WRITE_ONLY_IMM 6 %dB va+0 len %d imm 00000005 se", m, m),
		)
		got := append(append(p.got[1].Payload, p.got[2].Payload...), p.got[3].Payload...)
		if !bytes.Equal(got, sourceData[:2*m+1]) {
			p.Error("other data than posted")
		}
		p.wcs("1 SUCCESS SEND", "2 SUCCESS SEND", "4 SUCCESS RDMA_WRITE")
		p.silence(time.Minute)
		if at := p.h.nic.Deadline(); at < 1<<62 {
			p.Errorf("deadline %v", at)
		}
	})
}

// uc/8: PostSend rejects operations that need a response.
func TestUCRejectsUnsupportedOperations(t *testing.T) {
	eachUC(t, setup{}, func(p ucPeer) {
		for _, op := range []verbs.WROpcode{
			verbs.OpRDMARead, verbs.OpAtomicCmpAndSwp, verbs.OpAtomicFetchAdd, verbs.OpSendInv, verbs.OpFlush, verbs.OpAtomicWrite,
		} {
			wr := verbs.SendWR{Opcode: op, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.h.sge(sinkAt, 8)}}
			must.Fail(p, fmt.Sprintf("%v", op), p.q.PostSend(p.now, &wr, Refs{}), verbs.ErrInvalid)
		}
		p.expect()
		p.wcs()
		p.state(verbs.QPStateRTS)
	})
}

// uc/9, err/2, err/3: A local error moves the QP to SQE: the request completes with its status,
// later ones are flushed, receiving continues, and the application can move the QP back to RTS.
func TestUCLocalErrorLeadsToSQE(t *testing.T) {
	eachUC(t, setup{}, func(p ucPeer) {
		p.recv(9, 8)
		p.post(1, verbs.OpSend, 4)
		p.post(2, verbs.OpSend, 4, func(wr *verbs.SendWR) { wr.Flags = 0; wr.SGL[0].LKey ^= 0x55 })
		p.post(3, verbs.OpSend, 4)
		p.expect("UC SEND_ONLY 0 4B")
		p.wcs("1 SUCCESS SEND", "2 LOC_PROT_ERR", "3 WR_FLUSH_ERR")
		p.state(verbs.QPStateSQE)
		p.post(4, verbs.OpSend, 4)
		p.wcs("4 WR_FLUSH_ERR")
		p.expect()
		p.send(wire.OpSendOnly, 0, data(8))
		p.wcs("9 SUCCESS RECV 8B")
		p.h.modify(p.q, verbs.QPAttr{State: verbs.QPStateRTS}, verbs.QPAttrState)
		p.post(5, verbs.OpSend, 4)
		p.expect("UC SEND_ONLY 1 4B")
		p.wcs("5 SUCCESS SEND")
		p.events()
	})
}

// uc/9: A local error ends a message in the middle; the peer then sees the start of
// the next message.
func TestUCLocalErrorWithinMessage(t *testing.T) {
	eachUC(t, setup{}, func(p ucPeer) {
		p.post(1, verbs.OpSend, p.mtu, func(wr *verbs.SendWR) {
			wr.SGL = append(wr.SGL, verbs.SGE{Addr: p.h.mr.Addr, Length: 4, LKey: 0xbad})
		})
		p.expect(fmt.Sprintf("UC SEND_FIRST 0 %dB", p.mtu))
		p.wcs("1 LOC_PROT_ERR")
		p.state(verbs.QPStateSQE)
		p.h.modify(p.q, verbs.QPAttr{State: verbs.QPStateRTS}, verbs.QPAttrState)
		p.post(2, verbs.OpSend, 4)
		p.expect("UC SEND_ONLY 1 4B")
	})
}

// A receive with an invalid L_Key completes in error and fails the QP.
func TestUCReceiveWithWrongKeyFailsQP(t *testing.T) {
	eachUC(t, setup{}, func(p ucPeer) {
		p.h.recv(p.q, 1, verbs.SGE{Addr: p.h.mr.Addr + recvAt, Length: 8, LKey: 0xbad})
		p.recv(2, 8)
		p.post(3, verbs.OpSend, 4)
		p.send(wire.OpSendOnly, 0, data(8))
		p.wcs("1 LOC_PROT_ERR", "3 WR_FLUSH_ERR", "2 WR_FLUSH_ERR")
		p.state(verbs.QPStateErr)
		p.silence(time.Second)
	})
}

// Error class E: the SRQ receive of a damaged message completes in error, and the QP continues.
func TestUCOnSRQCompletesReceiveOfDamagedMessage(t *testing.T) {
	eachUC(t, setup{}, func(p ucPeer) {
		s := p.h.srq(nil)
		p.replaceQP(verbs.QPTypeUC, func(c *QPConfig) { c.SRQ = s })
		for id := range uint64(5) {
			p.postSRQ(s, id, p.mtu)
		}
		p.send(wire.OpSendFirst, 0, data(p.mtu))
		p.send(wire.OpSendLast, 2, data(4)) // one was lost
		p.wcs("0 REM_INV_REQ_ERR")
		p.send(wire.OpSendFirst, 3, data(p.mtu))
		p.send(wire.OpSendLast, 4, data(4)) // too long
		p.wcs("1 LOC_LEN_ERR")
		p.send(wire.OpSendFirst, 5, data(p.mtu))
		p.send(wire.OpSendOnly, 6, data(4)) // the previous message is incomplete
		p.wcs("2 REM_INV_REQ_ERR", "3 SUCCESS RECV 4B")
		p.send(wire.OpSendOnly, 7, data(4))
		p.wcs("4 SUCCESS RECV 4B")
		p.send(wire.OpSendOnly, 8, data(4)) // srq/4: the SRQ is empty
		p.drops("drop_sequence 1", "drop_no_receive 1", "drop_too_long 1")
		p.state(verbs.QPStateRTS)
		p.events()
		p.silence(time.Second)
	})
}

// Error classes E and G at once: the CQ has no room for the receive of a damaged message. The QP
// fails, and the message that followed is lost.
func TestUCDamagedMessageWithFullCQFailsQP(t *testing.T) {
	eachUC(t, setup{}, func(p ucPeer) {
		s, cq := p.h.srq(nil), p.cqOf(1)
		p.replaceQP(verbs.QPTypeUC, func(c *QPConfig) { c.SRQ, c.RecvCQ = s, cq })
		for id := range uint64(3) {
			p.postSRQ(s, id, p.mtu)
		}
		p.send(wire.OpSendOnly, 0, data(4))
		p.send(wire.OpSendFirst, 1, data(p.mtu))
		p.send(wire.OpSendOnly, 2, data(4))
		p.state(verbs.QPStateErr)
		p.polled(cq, "0 SUCCESS RECV 4B")
		p.events(verbs.EventCQErr, verbs.EventQPLastWQEReached)
		if n := s.Count(); n != 1 {
			p.Errorf("%d receives in the SRQ, want that of the lost message", n)
		}
		p.silence(time.Second)
	})
}

// cq/6 (error class G): a UC message whose receive cannot complete fails the QP.
func TestUCMessageWithFullCQFailsQP(t *testing.T) {
	eachUC(t, setup{}, func(p ucPeer) {
		cq := p.cqOf(1)
		p.replaceQP(verbs.QPTypeUC, func(c *QPConfig) { c.RecvCQ = cq })
		p.recv(1, 4)
		p.recv(2, 4)
		p.send(wire.OpSendOnly, 0, data(4))
		p.send(wire.OpSendOnly, 1, data(4))
		p.polled(cq, "1 SUCCESS RECV 4B")
		p.events(verbs.EventCQErr)
		p.state(verbs.QPStateErr)
		p.silence(time.Second)
	})
}
