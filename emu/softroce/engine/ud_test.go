package engine

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// ud/1, ud/15: A receive starts with the 40-byte GRH area: an IPv6 header, or 20
// zeros and an IPv4 header. The first two are from a Linux kernel.
func TestUDReceivesStartWithIPHeader(t *testing.T) {
	const zeros = "0000000000000000000000000000000000000000"
	v4 := flavour{name: "ipv4", host: "10.77.0.11", peer: "10.77.0.1", mtu: 1024}
	v6 := flavour{name: "ipv6", host: "fd77::11", peer: "fd77::1", mtu: 1024}
	blind := v4
	blind.blind = true
	cases := []struct {
		name string
		fl   flavour
		d    link.Datagram
		want string
	}{
		{"IPv4 of a kernel", v4, link.Datagram{HopLimit: 64}, zeros + "4500003800004000401126100a4d00010a4d000b"},
		{
			"IPv6 of a kernel", v6,
			link.Datagram{HopLimit: 64, FlowLabel: 0x7b520},
			"6007b52000241140" + "fd770000000000000000000000000001" + "fd770000000000000000000000000011",
		},
		{"IPv4 with all fields set", v4, link.Datagram{TClass: 0xfe, HopLimit: 3, IPID: 0xbeef}, zeros + "45fe0038beef40000311a3220a4d00010a4d000b"},
		{"IPv4 whose identification is found by its ICRC", blind, link.Datagram{HopLimit: 64, IPID: 0xbeef}, zeros + "45000038beef40004011" + "6720" + "0a4d00010a4d000b"},
		{
			"IPv6 with all fields set", v6,
			link.Datagram{TClass: 0xfe, HopLimit: 3, FlowLabel: 0xfffff},
			"6fefffff00241103" + "fd770000000000000000000000000001" + "fd770000000000000000000000000011",
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p := udPeer{newPeer(t, c.fl, setup{})}
			p.replaceByUD(nil)
			p.recv(1, 200)
			d := p.build(wire.OpSendOnly, 0, datagram, payload([]byte("ABCD")))
			wire.NewICRC(d.Src, d.Dst).Seal(uint16(c.d.IPID), d.Payload)
			d.TClass, d.HopLimit, d.FlowLabel, d.IPID = c.d.TClass, c.d.HopLimit, c.d.FlowLabel, c.d.IPID
			if c.fl.blind {
				d.IPID = link.IPIDUnknown
			}
			p.deliver(d)
			p.wcs("1 SUCCESS RECV 44B")
			if got := hex.EncodeToString(p.recvBuf(1, 44)); got != c.want+"41424344" {
				t.Errorf("received\n\t%s, want\n\t%s", got, c.want+"41424344")
			}
		})
	}
}

// ud/1: The GRH area is scattered over the list like data, followed by the payload.
func TestUDGRHAreaIsScattered(t *testing.T) {
	eachUD(t, setup{}, func(p udPeer) {
		at := p.h.sge(recvAt, 0)
		piece := func(off, n int) verbs.SGE { at := at; at.Addr += uint64(off); at.Length = uint32(n); return at }
		p.recv(1, 100)
		p.h.recv(p.q, 2, piece(0x100, 7), piece(0x200, 35), piece(0x300, 58))
		want := pattern(60, 9)
		p.send(wire.OpSendOnly, 0, payload(bytes.Clone(want)))
		p.send(wire.OpSendOnly, 1, payload(bytes.Clone(want)))
		p.wcs("1 SUCCESS RECV 100B", "2 SUCCESS RECV 100B")
		m := p.h.mem[recvAt:]
		got := append(append(bytes.Clone(m[0x100:0x107]), m[0x200:0x223]...), m[0x300:0x33a]...)
		if whole := p.recvBuf(1, 100); !bytes.Equal(got, whole) || !bytes.Equal(whole[40:], want) {
			p.Errorf("scattered %x, in one buffer %x", got, whole)
		}
	})
}

// ud/9, ud/10, cq/9: A completion has the source QP, the immediate data and the GRH flag.
func TestUDCompletionsHaveSourceQP(t *testing.T) {
	eachUD(t, setup{}, func(p udPeer) {
		for id := range uint64(3) {
			p.recv(id, 80)
		}
		p.send(wire.OpSendOnly, 0, func(k *wire.Packet) { k.DETH.SrcQP = 0xabcdef }, data(3))
		p.send(wire.OpSendOnlyImm, 1, imm(0x0a0b0c0d), data(40))
		p.send(wire.OpSendOnly, 2) // empty
		got := p.h.poll()
		want := []verbs.WC{
			{WRID: 0, Opcode: verbs.WCOpRecv, ByteLen: 43, SrcQP: 0xabcdef, Flags: verbs.WCWithGRH},
			{WRID: 1, Opcode: verbs.WCOpRecv, ByteLen: 80, SrcQP: peerQPN, Flags: verbs.WCWithGRH | verbs.WCWithImm, Imm: 0x0a0b0c0d},
			{WRID: 2, Opcode: verbs.WCOpRecv, ByteLen: 40, SrcQP: peerQPN, Flags: verbs.WCWithGRH},
		}
		if len(got) != len(want) {
			p.Fatalf("%d completions", len(got))
		}
		for i := range want {
			want[i].QPN = verbs.QPN(p.q.num)
			if got[i] != want[i] {
				p.Errorf("completion %+v, want %+v", got[i], want[i])
			}
			ah, err := verbs.InitAHFromWC(1, 0, &got[i], p.recvBuf(uint64(i), 40))
			if err != nil || ah.GRH.DGID.Addr() != p.addr {
				p.Errorf("the sender is %v, %v", ah.GRH.DGID.Addr(), err)
			}
		}
	})
}

// ud/2, ud/6, ud/7, bth/op/1, bth/op/3, bth/pkey/1 (error class D): Invalid
// datagrams are dropped. They use no receive and change no state.
func TestUDDropsInvalidDatagrams(t *testing.T) {
	cases := []struct {
		name string
		drop string
		send func(p udPeer)
	}{
		{"a wrong Q_Key", "drop_qkey 1", func(p udPeer) { p.send(wire.OpSendOnly, 0, qkey(udQKey^1), data(4)) }},
		{"the Q_Key of QP 1", "drop_qkey 1", func(p udPeer) { p.send(wire.OpSendOnly, 0, qkey(gsiQKey), data(4)) }},
		{"one byte too many for the receive", "drop_too_long 1", func(p udPeer) { p.send(wire.OpSendOnly, 0, data(161)) }},
		{"a reserved opcode", "drop_opcode 1", func(p udPeer) { p.send(6, 0, data(4)) }},
		{"a SEND of several packets", "drop_opcode 1", func(p udPeer) { p.send(wire.OpSendFirst, 0, data(p.mtu)) }},
		{"an opcode of RC", "drop_qp_type 1", func(p udPeer) { p.peer.send(wire.OpSendOnly, 0, data(4)) }},
		{"an opcode of UC", "drop_qp_type 1", func(p udPeer) { p.peer.send(wire.OpSendOnly, 0, over(wire.TransportUC), data(4)) }},
		{"another partition", "drop_pkey 1", func(p udPeer) {
			p.send(wire.OpSendOnly, 0, func(k *wire.Packet) { k.BTH.PKey = 0x1234 }, data(4))
		}},
		{"an unknown QP", "drop_qpn 1", func(p udPeer) {
			p.send(wire.OpSendOnly, 0, func(k *wire.Packet) { k.BTH.DestQP = 0xabcdef }, data(4))
		}},
		{"more than any MTU", "drop_length 1", func(p udPeer) { p.send(wire.OpSendOnly, 0, data(wire.MaxMTU+4)) }},
		{"half a DETH", "drop_short 1", func(p udPeer) {
			d := p.build(wire.OpSendOnly, 0, datagram)
			d.Payload = d.Payload[:wire.BTHLen+wire.DETHLen]
			p.seal(&d)
			p.deliver(d)
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			eachUD(t, setup{}, func(p udPeer) {
				p.recv(1, 200)
				c.send(p)
				p.wcs()
				p.drops(c.drop)
				p.expectMemoryUnchanged()
				p.send(wire.OpSendOnly, 1, data(160))
				p.wcs("1 SUCCESS RECV 200B")
				p.state(verbs.QPStateRTS)
				p.events()
				p.silence(time.Second)
			})
		})
	}
}

// ud/2: The port counts Q_Key violations.
func TestUDQKeyViolationsAreCounted(t *testing.T) {
	eachUD(t, setup{}, func(p udPeer) {
		p.send(wire.OpSendOnly, 0, qkey(1))
		p.send(wire.OpSendOnly, 0, qkey(2))
		if n := p.h.nic.Port().QKeyViolations; n != 2 {
			p.Errorf("%d violations", n)
		}
	})
}

// ud/7, bth/state/1: A datagram without a receive, or before RTR, is dropped;
// receives posted later are for later datagrams.
func TestUDDatagramWithoutAReceiveIsDropped(t *testing.T) {
	eachUD(t, setup{}, func(p udPeer) {
		p.send(wire.OpSendOnly, 0, data(4))
		p.h.recv(p.q, 7) // too small for the GRH area
		p.send(wire.OpSendOnly, 1)
		p.drops("drop_no_receive 1", "drop_too_long 1")
		ready := p.q
		early := p.h.qp(verbs.QPTypeUD, nil)
		p.h.modify(early, verbs.QPAttr{State: verbs.QPStateInit, Port: 1, QKey: udQKey}, initMask|verbs.QPAttrQKey)
		p.q = early
		p.recv(2, 80)
		p.send(wire.OpSendOnly, 0, data(4))
		p.drops("drop_qp_state 1", "drop_no_receive 1", "drop_too_long 1")
		p.wcs()
		p.q = ready
		p.silence(time.Second)
	})
}

// Error class E: an SRQ receive that is too small completes in error, or it would
// block all QPs. The QP continues.
func TestUDOnSRQConsumesReceiveThatIsTooSmall(t *testing.T) {
	eachUD(t, setup{}, func(p udPeer) {
		s := p.h.srq(nil)
		p.replaceByUD(func(c *QPConfig) { c.SRQ = s })
		p.postSRQ(s, 1, 43)
		p.postSRQ(s, 2, 44)
		p.send(wire.OpSendOnly, 0, data(4))
		p.wcs("1 LOC_LEN_ERR")
		p.send(wire.OpSendOnly, 1, data(4))
		p.wcs("2 SUCCESS RECV 44B")
		p.send(wire.OpSendOnly, 2, data(4)) // srq/4
		p.drops("drop_no_receive 1", "drop_too_long 1")
		p.state(verbs.QPStateRTS)
		p.events()
	})
}

// A receive with an invalid L_Key completes in error and fails the QP.
func TestUDReceiveWithWrongKeyFailsQP(t *testing.T) {
	for _, bad := range []int{0, 1} { // the GRH area, or the payload
		eachUD(t, setup{}, func(p udPeer) {
			sges := []verbs.SGE{p.h.sge(recvAt, 40), p.h.sge(recvAt+100, 40)}
			sges[bad].LKey ^= 0x55
			p.h.recv(p.q, 1, sges...)
			p.recv(2, 80)
			p.send(wire.OpSendOnly, 0, data(8))
			p.wcs("1 LOC_PROT_ERR", "2 WR_FLUSH_ERR")
			p.drops("drop_access 1")
			p.state(verbs.QPStateErr)
			p.send(wire.OpSendOnly, 1, data(8))
			p.drops("drop_qp_state 1", "drop_access 1")
		})
	}
}

// ud/8: PSNs of datagrams are ignored.
func TestUDIgnoresPSNs(t *testing.T) {
	eachUD(t, setup{}, func(p udPeer) {
		for i, k := range []int{0, 0, 1 << 22, -7, 1 << 23} {
			p.recv(uint64(i), 50)
			p.send(wire.OpSendOnly, k, data(i))
		}
		p.wcs("0 SUCCESS RECV 40B", "1 SUCCESS RECV 41B", "2 SUCCESS RECV 42B", "3 SUCCESS RECV 43B", "4 SUCCESS RECV 44B")
		p.silence(time.Second)
	})
}

// ud/9: A UD QP receives datagrams from any source in RTR, without the event COMM_EST.
func TestUDReceivesInRTRWithoutCommEst(t *testing.T) {
	eachUD(t, setup{}, func(p udPeer) {
		p.q = p.h.qp(verbs.QPTypeUD, nil)
		a := verbs.QPAttr{State: verbs.QPStateInit, Port: 1, QKey: udQKey}
		p.h.modify(p.q, a, initMask|verbs.QPAttrQKey)
		p.recv(1, 50)
		a.State = verbs.QPStateRTR
		p.h.modify(p.q, a, verbs.QPAttrState)
		d := p.build(wire.OpSendOnly, 0, datagram, data(4))
		stranger := netip.MustParseAddr("192.0.2.9")
		if p.addr.Is6() {
			stranger = netip.MustParseAddr("2001:db8::9")
		}
		d.Src = netip.AddrPortFrom(stranger, 0xffff)
		p.seal(&d)
		p.deliver(d)
		p.wcs("1 SUCCESS RECV 44B")
		p.events()
	})
}

// bth/se/2: A CQ armed for solicited completions raises an event only for solicited datagrams.
func TestUDSolicitedDatagramRaisesTheEvent(t *testing.T) {
	eachUD(t, setup{}, func(p udPeer) {
		p.recv(1, 50)
		p.recv(2, 50)
		p.h.cq.ReqNotify(true)
		p.send(wire.OpSendOnly, 0, data(4))
		if _, ok := p.h.nic.NextCompletionEvent(); ok {
			p.Error("an event for a datagram that was not solicited")
		}
		p.send(wire.OpSendOnly, 1, data(4), solicited)
		if cq, ok := p.h.nic.NextCompletionEvent(); !ok || cq != p.h.cq {
			p.Error("no event for a solicited datagram")
		}
	})
}

// cq/6 (error class G): a datagram whose receive cannot complete fails the QP.
func TestUDDatagramWithFullCQFailsQP(t *testing.T) {
	eachUD(t, setup{}, func(p udPeer) {
		cq := p.cqOf(1)
		p.replaceByUD(func(c *QPConfig) { c.RecvCQ = cq })
		p.recv(1, 50)
		p.recv(2, 50)
		p.send(wire.OpSendOnly, 0, data(4))
		p.send(wire.OpSendOnly, 1, data(4))
		p.polled(cq, "1 SUCCESS RECV 44B")
		p.events(verbs.EventCQErr)
		p.state(verbs.QPStateErr)
		p.silence(time.Second)
	})
}
