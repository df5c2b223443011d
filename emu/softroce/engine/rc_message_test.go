package engine

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// rc/wr/1, rc/imm/1, rc/mtu/2: Messages are segmented at the path MTU. The first
// packet has the RETH with the total length, the last one the immediate data.
func TestRCRequesterSegmentsAtPathMTU(t *testing.T) {
	with := func(imm uint32) func(*verbs.SendWR) { return func(wr *verbs.SendWR) { wr.Imm = imm } }
	each(t, setup{}, func(p *peer) {
		m := p.mtu
		p.post(1, verbs.OpRDMAWrite, 2*m)
		p.post(2, verbs.OpRDMAWriteImm, 2*m+1, with(0x0a0b0c0d))
		p.post(3, verbs.OpSendImm, m, with(0x0a0b0c0d))
		p.post(4, verbs.OpSendImm, m+1, with(1))
		p.post(5, verbs.OpSendInv, m+1, func(wr *verbs.SendWR) { wr.InvalidateRKey = 0x99aabbcc })
		p.post(6, verbs.OpSendInv, 0, func(wr *verbs.SendWR) { wr.InvalidateRKey = 0x99aabbcc })
		p.post(7, verbs.OpRDMAWrite, 0)
		p.post(8, verbs.OpRDMAWriteImm, 0, with(2))
		p.expect(
			fmt.Sprintf("WRITE_FIRST 0 %dB va+0 len %d", m, 2*m), fmt.Sprintf("WRITE_LAST 1 %dB ackreq", m),
			fmt.Sprintf("WRITE_FIRST 2 %dB va+0 len %d", m, 2*m+1), fmt.Sprintf("WRITE_MIDDLE 3 %dB", m), "WRITE_LAST_IMM 4 1B imm 0a0b0c0d ackreq",
			fmt.Sprintf("SEND_ONLY_IMM 5 %dB imm 0a0b0c0d ackreq", m),
			fmt.Sprintf("SEND_FIRST 6 %dB", m), "SEND_LAST_IMM 7 1B imm 00000001 ackreq",
			fmt.Sprintf("SEND_FIRST 8 %dB", m), "SEND_LAST_INV 9 1B inv 99aabbcc ackreq",
			"SEND_ONLY_INV 10 inv 99aabbcc ackreq",
			"WRITE_ONLY 11 va+0 len 0 ackreq",
			"WRITE_ONLY_IMM 12 va+0 len 0 imm 00000002 ackreq",
		)
		if got := append(p.got[2].Payload, p.got[3].Payload...); !bytes.Equal(append(got, p.got[4].Payload...), p.h.mem[sourceAt:][:2*m+1]) {
			p.Error("other data than posted")
		}
	})
}

// rc/wr/2, rc/imm/2, rc/send/4: Zero-length messages are delivered; their keys are not checked.
func TestRCEmptyMessagesAreDelivered(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		for id := range uint64(4) {
			p.recv(id, 0)
		}
		p.send(wire.OpWriteOnly, 0, rkey(0xbad), ackReq)
		p.expect("ACK 0 msn 1")
		p.send(wire.OpWriteOnlyImm, 1, rkey(0xbad), imm(1), ackReq)
		p.expect("ACK 1 msn 2")
		p.send(wire.OpSendOnly, 2, ackReq)
		p.expect("ACK 2 msn 3")
		p.send(wire.OpSendOnlyImm, 3, imm(2), ackReq)
		p.expect("ACK 3 msn 4")
		p.wcs("0 SUCCESS RECV_RDMA_WITH_IMM imm 00000001", "1 SUCCESS RECV", "2 SUCCESS RECV imm 00000002")
		p.send(wire.OpReadRequest, 4, rkey(0xbad))
		p.expect("RR_ONLY 4 msn 5")
	})
}

// rc/wr/3, rc/wr/5, rc/wr/6: A WRITE uses no receive. A WRITE with immediate
// completes one with the length written, after all data.
func TestRCWriteWithImmediateCompletesAReceive(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		p.recv(1, 4)
		n := p.mtu + 4
		want := pattern(n, 77)
		p.send(wire.OpWriteOnly, 0, p.at(n, 4), data(4))
		p.wcs()
		p.send(wire.OpWriteFirst, 1, p.at(0, n), payload(want[:p.mtu]))
		p.send(wire.OpWriteLastImm, 2, payload(want[p.mtu:]), imm(0x0a0b0c0d), ackReq)
		p.wcs(fmt.Sprintf("1 SUCCESS RECV_RDMA_WITH_IMM %dB imm 0a0b0c0d", n))
		if !bytes.Equal(p.target(0, n), want) {
			p.Error("other data")
		}
		if !bytes.Equal(p.recvBuf(1, 4), make([]byte, 4)) {
			p.Error("the receive buffer was written")
		}
		p.expect("ACK 2 msn 2")
	})
}

// rc/wr/4, acc/7: A WRITE with immediate that is NAKed uses no receive.
func TestRCNAKedWriteWithImmediateUsesNoReceive(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		p.recv(1, 4)
		p.send(wire.OpWriteOnlyImm, 0, p.at(0, 4), rkey(0xbad), data(4))
		p.expect("NAK 0 access msn 0")
		p.wcs("1 WR_FLUSH_ERR")
		p.events(verbs.EventQPAccessErr)
	})
}

// rc/wr/7: PostSend rejects messages of more than 2^31 bytes.
func TestRCMessagesAboveTwoGiBAreRejected(t *testing.T) {
	p := newPeer(t, flavours[0], setup{})
	mr := must.Get(p.h.nic.RegMR(p.h.pd, endless(1<<33), 0, allAccess))(t)
	post := func(op verbs.WROpcode, lengths ...uint32) error {
		wr := verbs.SendWR{Opcode: op, Remote: verbs.Remote{Addr: peerVA, RKey: peerRKey}}
		for _, n := range lengths {
			wr.SGL = append(wr.SGL, verbs.SGE{Addr: mr.Addr, Length: n, LKey: verbs.LKey(mr.Key)})
		}
		return p.q.PostSend(p.now, &wr, Refs{})
	}
	for _, op := range []verbs.WROpcode{verbs.OpSend, verbs.OpRDMAWrite, verbs.OpRDMARead} {
		must.Fail(t, fmt.Sprintf("%v of 2^31+1 bytes", op), post(op, 1<<31, 1), verbs.ErrInvalid)
		must.Fail(t, fmt.Sprintf("%v whose length wraps", op), post(op, 1<<32-1, 1<<32-1, 1<<32-1, 4), verbs.ErrInvalid)
		if err := post(op, 1<<30, 1<<30); err != nil {
			t.Errorf("%v of 2^31 bytes: %v", op, err)
		}
	}
}

// rc/inv/1, rc/inv/2: The key is invalid when the receive completes, and the completion names it.
func TestRCSendWithInvalidateInvalidatesKey(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		key := p.bindWindow(64)
		p.recv(1, 8)
		p.send(wire.OpReadRequest, 0, p.at(0, 4), rkey(key))
		p.expect("RR_ONLY 0 4B msn 1")
		p.send(wire.OpSendOnlyInv, 1, data(4), inv(key), ackReq)
		p.expect("ACK 1 msn 2")
		p.wcs(fmt.Sprintf("1 SUCCESS RECV 4B inv %x", key))
		p.send(wire.OpReadRequest, 2, p.at(0, 4), rkey(key))
		p.expect("NAK 2 access msn 2")
	})
}

// rc/inv/3, rc/inv/4, rc/inv/5, rc/inv/6: A failed invalidation completes the
// receive in error and fails the QP without an ACK or NAK.
func TestRCFailedInvalidateSendsNoResponse(t *testing.T) {
	window := func(p *peer, typ verbs.MWType) *nic.Window {
		w := must.Get(p.h.nic.AllocMW(p.h.pd, typ))(p)
		return w
	}
	for name, key := range map[string]func(p *peer) uint32{
		"no such key":   func(*peer) uint32 { return 0xbad },
		"region":        func(p *peer) uint32 { return p.h.mr.Key },
		"type 1 window": func(p *peer) uint32 { return window(p, verbs.MWType1).Key },
		"unbound":       func(p *peer) uint32 { return window(p, verbs.MWType2).Key },
		"window of other QP": func(p *peer) uint32 {
			mine := p.q
			defer func() { p.q = mine }()
			p.q = p.h.qp(verbs.QPTypeRC, nil)
			return p.bindWindow(64)
		},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, setup{}, func(p *peer) {
				k := key(p)
				p.recv(1, 8)
				p.recv(2, 8)
				p.send(wire.OpSendOnlyInv, 0, data(4), inv(k), ackReq)
				p.silence(time.Second)
				p.state(verbs.QPStateErr)
				wcs := p.h.poll()
				if len(wcs) != 2 || wcs[0].WRID != 1 || wcs[0].Status == verbs.WCSuccess || wcs[0].Status == verbs.WCWRFlushErr || wcs[1].Status != verbs.WCWRFlushErr {
					p.Errorf("completions %+v", wcs)
				}
			})
		})
	}
}

// rc/send/1: A message longer than the receive gets an invalid request NAK at the
// packet that exceeds it, and the receive completes with LOC_LEN_ERR.
func TestRCMessageLongerThanReceiveIsNAKed(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		p.recv(1, 7)
		p.recv(2, 7)
		p.send(wire.OpSendOnly, 0, data(8), ackReq)
		p.expect("NAK 0 invalid msn 0")
		p.wcs("1 LOC_LEN_ERR", "2 WR_FLUSH_ERR")
		p.events()
		p.state(verbs.QPStateErr)
	})
	each(t, setup{}, func(p *peer) {
		p.recv(1, 2*p.mtu)
		p.send(wire.OpSendFirst, 0, data(p.mtu))
		p.send(wire.OpSendMiddle, 1, data(p.mtu), ackReq)
		p.expect("ACK 1 msn 0")
		p.send(wire.OpSendLast, 2, data(1), ackReq)
		p.expect("NAK 2 invalid msn 0")
		p.wcs("1 LOC_LEN_ERR")
	})
}

// rc/send/2: A receive with an invalid L_Key causes a remote operational error.
func TestRCReceiveWithBadKeyIsRemoteOperationalError(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		s := p.h.sge(recvAt, 16)
		s.LKey ^= 1
		p.h.recv(p.q, 1, p.h.sge(recvAt, 4), s)
		p.recv(2, 4)
		p.send(wire.OpSendOnly, 0, data(8), ackReq)
		p.expect("NAK 0 operational msn 0")
		p.wcs("1 LOC_PROT_ERR", "2 WR_FLUSH_ERR")
		p.state(verbs.QPStateErr)
	})
}

// rc/send/3: A message fills the scatter entries in order and leaves the rest unchanged.
func TestRCMessageFillsTheReceiveInOrder(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		n := p.mtu + 10
		want := pattern(n, 9)
		p.h.recv(p.q, 1, p.h.sge(recvAt, 3), p.h.sge(recvAt, 0), p.h.sge(recvAt+100, p.mtu), p.h.sge(recvAt+100+p.mtu+50, 64))
		p.send(wire.OpSendFirst, 0, payload(want[:p.mtu]))
		p.send(wire.OpSendLast, 1, payload(want[p.mtu:]), ackReq)
		p.wcs(fmt.Sprintf("1 SUCCESS RECV %dB", n))
		m := p.h.mem[recvAt:]
		got := append(bytes.Clone(m[:3]), m[100:100+p.mtu]...)
		got = append(got, m[100+p.mtu+50:][:7]...)
		if !bytes.Equal(got, want) {
			p.Error("other data")
		}
		if m[3] != 0 || m[99] != 0 || m[100+p.mtu] != 0 || m[100+p.mtu+50+7] != 0 {
			p.Error("written outside")
		}
	})
}

// err/1, err/2, err/3: A request with an invalid L_Key fails after the earlier ones
// complete, also if packets of it were sent.
func TestRCSendFromBadMemoryFailsInOrder(t *testing.T) {
	for _, good := range []int{0, 1} { // packets with valid memory
		each(t, setup{}, func(p *peer) {
			p.post(1, verbs.OpSend, 4)
			p.post(2, verbs.OpSend, 0, func(wr *verbs.SendWR) {
				bad := p.h.sge(sourceAt, p.mtu)
				bad.LKey ^= 1
				wr.SGL, wr.Flags = []verbs.SGE{p.h.sge(sourceAt, good*p.mtu), bad}, 0
			})
			p.post(3, verbs.OpSend, 4)
			want := []string{"SEND_ONLY 0 4B ackreq"}
			if good == 1 {
				want = append(want, fmt.Sprintf("SEND_FIRST 1 %dB", p.mtu))
			}
			p.expect(want...)
			p.wcs()
			p.wait(wire.AckTimeout(14))
			p.expect("SEND_ONLY 0 4B ackreq") // and nothing after it
			p.ack(0)
			p.wcs("1 SUCCESS SEND", "2 LOC_PROT_ERR", "3 WR_FLUSH_ERR")
			p.state(verbs.QPStateErr)
			p.silence(time.Second)
		})
	}
}
