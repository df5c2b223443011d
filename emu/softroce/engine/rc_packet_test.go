package engine

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// sendEachType makes the NIC send one packet of each type and calls f for each.
func (p *peer) sendEachType(f func(d *link.Datagram)) {
	p.Helper()
	p.recv(1, 64)
	p.post(2, verbs.OpSend, 8)
	p.post(3, verbs.OpRDMAWrite, 2*p.mtu+1)
	p.post(4, verbs.OpRDMARead, 8)
	p.post(5, verbs.OpAtomicFetchAdd, 8)
	p.send(wire.OpSendOnly, 0, data(5), ackReq)
	p.send(wire.OpReadRequest, 1, p.at(0, 2*p.mtu+3))
	p.send(wire.OpFetchAdd, 4, p.word(0, 1, 0))
	p.send(wire.OpSendOnly, 9)
	for {
		n := p.h.nic.Output(p.now, p.ds)
		if n == 0 {
			return
		}
		for i := range n {
			f(&p.ds[i])
		}
	}
}

// pkt/ip/3, pkt/ip/4, pkt/ip/8: All packets have the DSCP and hop limit of the
// address vector; the transport sets the ECN bits.
func TestRCPacketsCarryTrafficClassAndHopLimitOfTheAddressVector(t *testing.T) {
	s := setup{attr: func(a *verbs.QPAttr) {
		a.AH.GRH.TrafficClass, a.AH.GRH.HopLimit, a.AH.GRH.FlowLabel = 0x6b, 7, 0x12345
	}}
	each(t, s, func(p *peer) {
		seen := 0
		p.sendEachType(func(d *link.Datagram) {
			seen++
			if d.TClass != 0x68|link.ECT0 || d.HopLimit != 7 || d.FlowLabel != 0x12345 || d.Src.Port() != 0xe341 {
				p.Errorf("%x: traffic class %#x, hop limit %d, flow label %#x, port %#x", d.Payload[0], d.TClass, d.HopLimit, d.FlowLabel, d.Src.Port())
			}
		})
		if seen != 11 {
			p.Errorf("saw %d packets", seen)
		}
	})
}

// pkt/ip/9, pkt/addr/3: The GID of the address vector is the source address of sent
// packets and the only accepted destination.
func TestRCUsesTheGIDOfItsAddressVector(t *testing.T) {
	second := netip.MustParseAddr("10.0.0.9")
	fl := flavours[0]
	p := newPeer(t, fl, setup{
		nic:  func(c *Config) { c.GIDs = RoCEv2GIDs(netip.MustParseAddr(fl.host), second) },
		attr: func(a *verbs.QPAttr) { a.AH.GRH.SGIDIndex = 1 },
	})
	p.send(wire.OpWriteOnly, 0, p.at(0, 0), ackReq) // to the first address
	p.expect()
	p.h.addr = second
	p.send(wire.OpWriteOnly, 0, p.at(0, 0), ackReq)
	p.expect("ACK 0 msn 1")
}

// pkt/udp/1, pkt/addr/2, pkt/addr/4, pkt/addr/5, bth/qpn/1, bth/qpn/2: Packets with
// a wrong address, port, QP number, P_Key or header are dropped.
func TestRCPacketsOfOtherConnectionsAreDropped(t *testing.T) {
	v1 := netip.MustParseAddr("10.0.0.77")
	cases := map[string]func(p *peer, d *link.Datagram){
		"other port":            func(p *peer, d *link.Datagram) { d.Dst = netip.AddrPortFrom(p.h.addr, 4790) },
		"other source":          func(p *peer, d *link.Datagram) { d.Src = netip.AddrPortFrom(p.addr.Next(), 0xc123) },
		"other destination":     func(p *peer, d *link.Datagram) { d.Dst = netip.AddrPortFrom(p.addr.Next(), wire.Port) },
		"GID of RoCEv1":         func(p *peer, d *link.Datagram) { d.Dst = netip.AddrPortFrom(v1, wire.Port) },
		"QP 0":                  func(_ *peer, d *link.Datagram) { copy(d.Payload[5:], []byte{0, 0, 0}) },
		"no such QP":            func(_ *peer, d *link.Datagram) { copy(d.Payload[5:], []byte{0xab, 0xcd, 0xef}) },
		"multicast QP":          func(_ *peer, d *link.Datagram) { copy(d.Payload[5:], []byte{0xff, 0xff, 0xff}) },
		"QP 1":                  func(_ *peer, d *link.Datagram) { copy(d.Payload[5:], []byte{0, 0, 1}) },
		"transport version 1":   func(_ *peer, d *link.Datagram) { d.Payload[1] |= 1 },  // bth/tver/1
		"transport version 15":  func(_ *peer, d *link.Datagram) { d.Payload[1] |= 15 }, // bth/tver/1
		"UC opcode":             func(_ *peer, d *link.Datagram) { d.Payload[0] |= byte(wire.TransportUC) },
		"UD opcode":             func(_ *peer, d *link.Datagram) { d.Payload[0] |= byte(wire.TransportUD) },
		"RD opcode":             func(_ *peer, d *link.Datagram) { d.Payload[0] |= byte(wire.TransportRD) },
		"XRC opcode":            func(_ *peer, d *link.Datagram) { d.Payload[0] |= byte(wire.TransportXRC) },
		"other partition":       func(_ *peer, d *link.Datagram) { copy(d.Payload[2:], []byte{0x12, 0x34}) },
		"extension header cut":  func(_ *peer, d *link.Datagram) { d.Payload = append(d.Payload[:16:16], 0, 0, 0, 0) },
		"pad beyond payload":    func(_ *peer, d *link.Datagram) { d.Payload = d.Payload[:32]; d.Payload[1] |= 0x30 },
		"not a multiple of 4":   func(_ *peer, d *link.Datagram) { d.Payload = append(d.Payload, 0) },
		"shorter than a header": func(_ *peer, d *link.Datagram) { d.Payload = d.Payload[:15] },
	}
	for name, spoil := range cases {
		t.Run(name, func(t *testing.T) {
			each(t, setup{nic: func(c *Config) {
				c.GIDs = append(c.GIDs, verbs.GIDEntry{GID: verbs.GIDFrom(v1), Index: 1, Type: verbs.GIDTypeRoCEv1})
			}}, func(p *peer) {
				d := p.build(wire.OpWriteOnly, 0, p.at(0, 4), data(4), ackReq)
				good := p.build(wire.OpWriteOnly, 0, p.at(0, 4), data(4), ackReq)
				before := string(p.target(0, 4))
				spoil(p, &d)
				if len(d.Payload) >= wire.BTHLen+wire.ICRCLen {
					p.seal(&d)
				}
				p.deliver(d)
				p.silence(time.Second)
				if string(p.target(0, 4)) != before {
					p.Error("the packet was executed")
				}
				if got := p.h.nic.Port().BadPKeys; got != map[bool]uint32{true: 1}[name == "other partition"] {
					p.Errorf("%d packets of other partitions counted", got) // bth/pkey/1
				}
				p.deliver(good)
				p.expect("ACK 0 msn 1")
			})
		})
	}
}

// icrc/2, icrc/5, icrc/6, icrc/7: A packet with any flipped bit, also in pad or ICRC, is dropped.
// Byte 4 of the BTH (icrc/4) and the fields that routers change (icrc/3) are not covered.
func TestRCPacketsWithWrongICRCAreDropped(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		build := func() link.Datagram { return p.build(wire.OpWriteOnly, 0, p.at(0, 5), data(5), ackReq) }
		drops := uint64(0)
		expectDrop := func(what string, d link.Datagram) {
			p.deliver(d)
			if drops++; p.h.nic.Count.DropICRC != drops {
				p.Fatalf("%s: not dropped for its ICRC", what)
			}
		}
		size := len(build().Payload)
		for i := range size * 8 {
			if d := build(); i/8 != 4 {
				d.Payload[i/8] ^= 1 << (i % 8)
				expectDrop(fmt.Sprintf("bit %d of byte %d", i%8, i/8), d)
			}
		}
		d := build()
		tail := d.Payload[size-4:]
		tail[0], tail[1], tail[2], tail[3] = tail[3], tail[2], tail[1], tail[0]
		expectDrop("ICRC in reverse", d)
		d = build()
		d.Src = netip.AddrPortFrom(p.addr, 0xc124)
		expectDrop("source port", d)
		if d = build(); p.h.addr.Is4() && !p.blind {
			d.IPID++
			expectDrop("identification", d)
		}
		p.expect()
		d = build()
		d.Payload[4] ^= 0xff
		d.TClass, d.HopLimit, d.FlowLabel = 0xfc, 1, 0xabcde
		p.deliver(d)
		p.expect("ACK 0 msn 1")
	})
}

// icrc/7: Pad bytes may have any value; the ICRC covers them.
func TestRCPadBytesAreIgnoredButProtected(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		p.recv(1, 8)
		d := p.build(wire.OpSendOnly, 0, payload([]byte{9}), ackReq)
		copy(d.Payload[13:], []byte{0xff, 0xff, 0xff})
		p.seal(&d)
		p.deliver(d)
		p.expect("ACK 0 msn 1")
		p.wcs("1 SUCCESS RECV 1B")
		if got := p.recvBuf(1, 2); got[0] != 9 || got[1] != 0 {
			p.Errorf("buffer holds %x", got)
		}
	})
}

// bth/resv/2, bth/mig/1, pkt/udp/2: Reserved bits, MigReq and the source port are ignored.
func TestRCIgnoresReservedBitsMigReqAndSourcePort(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		for k := range 4 {
			d := p.build(wire.OpWriteOnly, k, p.at(0, 0), ackReq, func(k *wire.Packet) {
				k.BTH.Reserved6, k.BTH.Reserved7, k.BTH.FECN = 0x3f, 0x7f, true
			})
			d.Payload[1] |= byte(k&1) << 6
			d.Src = netip.AddrPortFrom(p.addr, uint16(49152+k*1000))
			p.seal(&d)
			p.deliver(d)
			p.expect(fmt.Sprintf("ACK %d msn %d", k, k+1))
		}
	})
}

// bth/pkey/2: The low 15 bits of P_Keys must match and one side must be a full member.
func TestRCPartitionKeysMatchByMembership(t *testing.T) {
	for _, tc := range []struct {
		own, got uint16
		ok       bool
	}{{0xffff, 0x7fff, true}, {0x7fff, 0xffff, true}, {0x7fff, 0x7fff, false}, {0x8001, 0x8001, true}, {0x8001, 0xffff, false}} {
		p := newPeer(t, flavours[0], setup{nic: func(c *Config) { c.PKeys = []uint16{tc.own} }})
		p.send(wire.OpWriteOnly, 0, p.at(0, 0), ackReq, func(k *wire.Packet) { k.BTH.PKey = tc.got })
		if n := p.h.nic.Output(p.now, p.ds); n == 1 != tc.ok {
			t.Errorf("QP in %#x answers %#x with %d packets", tc.own, tc.got, n)
		}
	}
}

// bth/pad/1, bth/pad/2, pkt/ip/5: Payloads are padded with zeros to a multiple of four bytes.
// peer.checkPacket checks all packets.
func TestRCPacketsArePaddedToFourBytes(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		for n := range 9 {
			p.post(uint64(n), verbs.OpSend, n)
			text := ""
			if n > 0 {
				text = fmt.Sprintf(" %dB", n)
			}
			p.expect(fmt.Sprintf("SEND_ONLY %d%s ackreq", n, text))
			if got := p.got[0].BTH.PadCount; int(got) != -n&3 {
				p.Errorf("%d bytes: pad count %d", n, got)
			}
			p.ack(n)
		}
	})
}

// bth/op/2: a reserved opcode at the expected PSN is an invalid request.
func TestRCReservedOpcodesAreNAKed(t *testing.T) {
	for _, op := range []wire.Operation{0x15, 0x18, 0x19, 0x1a, 0x1b, 0x1e, 0x1f} {
		t.Run(fmt.Sprintf("%#x", uint8(op)), func(t *testing.T) {
			each(t, setup{}, func(p *peer) {
				p.send(op, 1)
				p.expect("NAK 0 sequence msn 0")
				p.send(op, -1)
				p.expect()
				p.send(op, 0)
				p.expect("NAK 0 invalid msn 0")
				p.state(verbs.QPStateErr)
				p.events(verbs.EventQPReqErr)
			})
		})
	}
}

// bth/se/1: SE is set only on the last packet of a message that completes a receive.
func TestRCSolicitedBitIsOnLastPacket(t *testing.T) {
	solicit := func(wr *verbs.SendWR) { wr.Flags |= verbs.SendSolicited }
	each(t, setup{}, func(p *peer) {
		p.post(1, verbs.OpSend, p.mtu+1, solicit)
		p.post(2, verbs.OpRDMAWrite, 4, solicit)
		p.post(3, verbs.OpRDMAWriteImm, p.mtu+1, solicit)
		p.post(4, verbs.OpRDMARead, 4, solicit)
		p.expect(
			fmt.Sprintf("SEND_FIRST 0 %dB", p.mtu), "SEND_LAST 1 1B se ackreq",
			"WRITE_ONLY 2 4B va+0 len 4 ackreq",
			fmt.Sprintf("WRITE_FIRST 3 %dB va+0 len %d", p.mtu, p.mtu+1), "WRITE_LAST_IMM 4 1B imm 00000000 se ackreq",
			"READ_REQUEST 5 va+0 len 4 ackreq",
		)
	})
}

// bth/se/2: A CQ armed for solicited completions raises an event only for those.
func TestRCSolicitedMessageRaisesTheEvent(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		p.recv(1, 8)
		p.recv(2, 8)
		p.h.cq.ReqNotify(true)
		p.send(wire.OpSendOnly, 0, data(4))
		if _, ok := p.h.nic.NextCompletionEvent(); ok {
			p.Error("event without SE")
		}
		p.send(wire.OpSendOnly, 1, data(4), solicited)
		if cq, ok := p.h.nic.NextCompletionEvent(); !ok || cq != p.h.cq {
			p.Error("no event with SE")
		}
	})
}

// bth/state/1, bth/state/2, bth/state/3, qp/5: Before RTR and in ERR, packets are
// dropped. In RTR requests are executed and responses are ignored.
func TestRCRespondsFromRTRUntilERR(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		q := p.h.qp(verbs.QPTypeRC, nil)
		old := p.q
		p.q = q
		a := connAttr(p.addr, peerQPN)
		a.PathMTU, a.RQPSN, a.SQPSN = verbs.MTUFor(p.mtu), uint32(p.rq), uint32(p.sq)
		p.h.modify(old, verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState)
		p.send(wire.OpSendOnly, 0, data(4), ackReq) // RESET
		p.expect()
		a.State = verbs.QPStateInit
		p.h.modify(q, a, initMask|verbs.QPAttrAccessFlags)
		p.recv(1, 8)
		p.send(wire.OpSendOnly, 0, data(4), ackReq) // INIT
		p.expect()
		p.wcs()
		a.State = verbs.QPStateRTR
		p.h.modify(q, a, rcRTR)
		p.port = 0
		p.ack(0)
		p.wcs()
		p.send(wire.OpSendOnly, 0, data(4), ackReq)
		p.expect("ACK 0 msn 1")
		p.wcs("1 SUCCESS RECV 4B")
		p.events(verbs.EventCommEst) // async/2
		a.State = verbs.QPStateRTS
		p.h.modify(q, a, rcRTS)
		p.post(2, verbs.OpSend, 4)
		p.expect("SEND_ONLY 0 4B ackreq") // rc/psn/16
		p.h.modify(q, verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState)
		p.wcs("2 WR_FLUSH_ERR")
		p.send(wire.OpSendOnly, 0, data(4), ackReq)
		p.send(wire.OpSendOnly, 1, data(4), ackReq)
		p.ack(0)
		p.silence(time.Second)
		p.wcs()
	})
}

// A batch that is full shares its buffer with no further datagram.
func TestSharedBufferOfFullBatch(t *testing.T) {
	n, ds := new(NIC), make([]link.Datagram, 2)
	ds[0].Payload = make([]byte, 100, 3*wire.MaxPacketLen)
	n.shareBuffer(ds, 1)
	if room := cap(ds[1].Payload); room != cap(ds[0].Payload)-100 {
		t.Errorf("the second datagram has room for %d octets", room)
	}
	n.shareBuffer(ds, 2)
}
