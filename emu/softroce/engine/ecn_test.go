package engine

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

const cnpInterval = 50 * time.Microsecond // the default

// mark delivers a packet with a CE mark.
func (p *peer) mark(op wire.Operation, k int, edits ...edit) {
	p.Helper()
	p.deliverEdited(p.build(op, k, edits...), marked)
}

// cnps returns a description of each CNP that the NIC sends now, and the number of
// other packets. It checks the fields that are the same in all CNPs.
func (p *peer) cnps() (cnps []string, others int) {
	p.Helper()
	for _, d := range p.drain() {
		if wire.Opcode(d.Payload[0]) != wire.CNP {
			others++
			continue
		}
		want := "8100%04x40%06x00000000" + strings.Repeat("00", wire.CNPPayloadLen)
		var k wire.Packet
		must.Do(p, k.Parse(d.Payload))
		want = fmt.Sprintf(want, k.BTH.PKey, k.BTH.DestQP)
		if got := hex.EncodeToString(d.Payload); got[:len(got)-8] != want || len(d.Payload) != 32 {
			p.Errorf("a CNP is %s, want %s and an ICRC", got, want)
		}
		if !wire.NewICRC(d.Src, d.Dst).Check(0, d.Payload) {
			p.Error("the ICRC of a CNP is wrong")
		}
		if d.ECNBits() != link.NotECT || d.HopLimit != 64 || d.Src.Addr() != p.h.addr || d.Dst.Port() != wire.Port {
			p.Errorf("a CNP is sent from %v to %v, class %#x, hop limit %d", d.Src, d.Dst, d.TClass, d.HopLimit)
		}
		cnps = append(cnps, fmt.Sprintf("%v qp %x pkey %x", d.Dst.Addr(), k.BTH.DestQP, k.BTH.PKey))
	}
	return cnps, others
}

// expectCNPs compares the CNPs that the NIC sends now and ignores other packets.
func (p *peer) expectCNPs(want ...string) {
	p.Helper()
	got, _ := p.cnps()
	p.compare("notified", got, want)
}

// cnpToPeer describes the CNP for the peer of a connected QP.
func (p *peer) cnpToPeer() string { return fmt.Sprintf("%v qp %x pkey ffff", p.addr, peerQPN) }

// ecn/1, ecn/6: A packet with a CE mark causes a CNP to the sender's QP, before all
// other packets. The expected bytes and ICRC were computed independently.
func TestCEMarkCausesCNP(t *testing.T) {
	icrc := map[bool]string{true: "b23b8fda", false: "1b3c5af5"}
	each(t, setup{}, func(p *peer) {
		p.mark(wire.OpWriteOnly, 0, p.at(0, 8), data(8), ackReq)
		ds := p.drain()
		if len(ds) != 2 {
			p.Fatalf("%d packets sent", len(ds))
		}
		want := "8100ffff" + "40001234" + "00000000" + strings.Repeat("00", 16) + icrc[p.addr.Is4()]
		if got := hex.EncodeToString(ds[0].Payload); got != want {
			p.Errorf("sent %s, want %s", got, want)
		}
		d := ds[0]
		if d.Src != netip.AddrPortFrom(p.h.addr, 0xf570) || d.Dst != netip.AddrPortFrom(p.addr, 4791) || d.TClass != 0 || d.HopLimit != 64 {
			p.Errorf("sent from %v to %v, class %#x, hop limit %d", d.Src, d.Dst, d.TClass, d.HopLimit)
		}
		if ack := p.checkPacket(&ds[1]); ack != "ACK 0 msn 1" {
			p.Errorf("then %s", ack)
		}
		p.silence(time.Second)
	})
}

// ecn/1: the traffic class of a CNP is that of the path, without ECN.
func TestCNPKeepsTrafficClass(t *testing.T) {
	each(t, setup{attr: func(a *verbs.QPAttr) { a.AH.GRH.TrafficClass = 0x6b }}, func(p *peer) {
		p.mark(wire.OpWriteOnly, 0, p.at(0, 8), data(8))
		if ds := p.drain(); len(ds) != 1 || ds[0].TClass != 0x68 {
			p.Errorf("sent %+v", ds)
		}
	})
}

// ecn/1: A CNP has the P_Key of the marked packet, even if the QP has another P_Key
// of the same partition.
func TestCNPCopiesPKeyOfMarkedPacket(t *testing.T) {
	each(t, setup{nic: func(c *Config) { c.PKeys = []uint16{0xffff, 0x8005} }, attr: func(a *verbs.QPAttr) { a.PKeyIndex = 1 }}, func(p *peer) {
		for k, pkey := range []uint16{0x0005, 0x8005} {
			p.mark(wire.OpWriteOnly, k, p.at(0, 8), data(8), withPKey(pkey))
			p.expectCNPs(fmt.Sprintf("%v qp %x pkey %x", p.addr, peerQPN, pkey))
			p.wait(cnpInterval)
		}
	})
}

// ecn/1, ecn/7: A packet that has no CE mark, is not valid for its QP, or is a CNP causes no CNP
// and is not counted.
func TestOnlyValidCEMarkedPacketsCauseCNP(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		write := func(edits ...edit) link.Datagram {
			return p.build(wire.OpWriteOnly, 0, append([]edit{p.at(0, 8), data(8)}, edits...)...)
		}
		for _, ecn := range []uint8{link.NotECT, link.ECT0, link.ECT1} {
			p.deliverEdited(write(), func(d *link.Datagram) { d.TClass = 0xfc | ecn })
		}
		p.deliverEdited(write(toQPN(p.q.num+1)), marked)
		p.deliverEdited(write(withPKey(0x8001)), marked)
		p.deliverEdited(write(over(wire.TransportUC)), marked)
		p.deliverEdited(write(editBTH(func(b *wire.BTH) { b.TVer = 1 })), marked)
		p.deliverEdited(write(asCNP), marked)
		p.deliverEdited(write(), func(d *link.Datagram) { marked(d); d.Src = netip.AddrPortFrom(p.h.addr, 1) })
		spoilt := write()
		marked(&spoilt)
		spoilt.Payload[30] ^= 1
		p.deliver(spoilt)
		p.send(wire.OpWriteOnly, 7, p.at(0, 8), data(8)) // a gap is not a mark
		p.expectCNPs()
		if n := p.h.nic.Count.ECNMarked; n != 0 {
			p.Errorf("%d marks counted", n)
		}
		p.enter(verbs.QPStateErr)
		p.deliverEdited(write(), marked)
		p.expectCNPs()
	})
}

// ecn/1: All marked packets cause a CNP: duplicates, packets out of order, NAKed
// requests, responses, and those of UC and UD.
func TestResponsesAndUnreliablePacketsCauseCNP(t *testing.T) {
	each(t, setup{}, func(p *peer) {
		p.mark(wire.OpWriteOnly, 0, p.at(0, 8), data(8))
		p.expectCNPs(p.cnpToPeer())
		for _, mark := range []func(){
			func() { p.mark(wire.OpWriteOnly, 0, p.at(0, 8), data(8)) },
			func() { p.mark(wire.OpWriteOnly, 7, p.at(0, 8), data(8)) },
			func() { p.mark(wire.OpSendOnly, 1, data(8)) }, // RNR
			func() { p.post(1, verbs.OpSend, 4); p.drain(); p.mark(wire.OpAcknowledge, 0) },
			func() { p.mark(wire.OpAcknowledge, 0) },
		} {
			p.wait(cnpInterval)
			mark()
			p.expectCNPs(p.cnpToPeer())
		}
	})
	eachUC(t, setup{}, func(p ucPeer) {
		p.mark(wire.OpWriteOnly, 0, over(wire.TransportUC), p.at(0, 8), data(8))
		p.expectCNPs(p.cnpToPeer())
		p.wait(cnpInterval)
		p.mark(wire.OpSendOnly, 5, over(wire.TransportUC), data(8)) // dropped: no receive
		p.expectCNPs(p.cnpToPeer())
	})
}

// ecn/1, ecn/2: A CNP for a marked datagram goes to its sender. The CNP interval
// applies to each sender separately.
func TestMarkedDatagramCausesCNPToItsSender(t *testing.T) {
	eachUD(t, setup{}, func(p udPeer) {
		from := func(qpn uint32) edit { return func(k *wire.Packet) { k.DETH.SrcQP = qpn } }
		for range 3 {
			p.mark(wire.OpSendOnly, 0, datagram, data(8))
			p.mark(wire.OpSendOnly, 0, datagram, data(8), from(0x77))
			d := p.build(wire.OpSendOnly, 0, datagram, data(8))
			marked(&d)
			p.redeliver(d, p.addr.Next(), p.h.addr)
		}
		p.expectCNPs(p.cnpToPeer(), fmt.Sprintf("%v qp 77 pkey ffff", p.addr), fmt.Sprintf("%v qp %x pkey ffff", p.addr.Next(), peerQPN))
		p.wait(cnpInterval - 1)
		p.mark(wire.OpSendOnly, 0, datagram, data(8))
		p.expectCNPs()
		p.wait(1)
		p.mark(wire.OpSendOnly, 0, datagram, data(8), from(0x77))
		p.expectCNPs(fmt.Sprintf("%v qp 77 pkey ffff", p.addr))
		p.mark(wire.OpSendOnly, 0, datagram, data(8), qkey(1)) // not a valid one
		p.expectCNPs()
	})
}

// ecn/2: CE marks of one QP within the interval cause one CNP. The interval is
// configurable and applies to each QP.
func TestCNPIntervalIsPerQP(t *testing.T) {
	for _, interval := range []time.Duration{0, 7 * time.Microsecond} {
		each(t, setup{nic: func(c *Config) { c.CNPInterval = interval }}, func(p *peer) {
			other := p.h.qp(verbs.QPTypeRC, nil)
			p.connect(other, nil)
			gap := interval
			if gap == 0 {
				gap = cnpInterval
			}
			k := 0
			mark := func() {
				p.mark(wire.OpWriteOnly, k, p.at(0, 8), data(8))
				k++
			}
			for range 3 {
				for range 100 {
					mark()
				}
				p.expectCNPs(p.cnpToPeer())
				mark()
				p.expectCNPs()
				p.mark(wire.OpWriteOnly, k, toQPN(other.num), p.at(0, 8), data(8))
				p.expectCNPs(p.cnpToPeer())
				p.wait(gap - 1)
				mark()
				p.expectCNPs() // a mark that shared a CNP causes none later
				p.wait(1)
				p.expectCNPs()
				p.wait(gap)
			}
			if c := p.h.nic.Count; c.CNPsSent != 6 || c.ECNMarked != 3*103 {
				p.Errorf("%d CNPs for %d marks counted", c.CNPsSent, c.ECNMarked)
			}
		})
	}
}

// ecn/2: The queue of CNPs and the table of senders are limited. CNPs from a
// removed address are not sent.
func TestCNPQueueForDatagramSendersIsLimited(t *testing.T) {
	eachUD(t, setup{nic: func(c *Config) { c.Limits.MADsQueue = 3 }}, func(p udPeer) {
		from := func(qpn uint32) edit { return func(k *wire.Packet) { k.DETH.SrcQP = qpn } }
		for i := range uint32(5000) {
			p.mark(wire.OpSendOnly, 0, datagram, data(8), from(i+2))
		}
		if got, _ := p.cnps(); len(got) != 3 || p.h.nic.Count.CNPsLost != 5000-3 {
			p.Errorf("%d CNPs sent, %d counted as lost", len(got), p.h.nic.Count.CNPsLost)
		}
		if n := len(p.h.nic.flows); n > 1<<12 {
			p.Errorf("%d senders in the table", n)
		}
		p.mark(wire.OpSendOnly, 0, datagram, data(8), from(0xaaaa))
		p.h.nic.SetGIDs(RoCEv2GIDs(p.addr.Next()))
		p.expectCNPs()
	})
}
