package engine

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// slow sets a line rate of one byte per nanosecond. After its first CNP, a QP sends
// at half that rate.
func slow(c *Config) { c.LineRateBps = 8e9 }

func (p *peer) cnp(edits ...edit) {
	p.Helper()
	p.send(wire.OpAcknowledge, 0, append([]edit{asCNP}, edits...)...)
}

// ecn/3: A CNP reduces the rate of the QP that it names, and of no other.
func TestCNPReducesRateOfNamedQPOnly(t *testing.T) {
	each(t, setup{nic: slow}, func(p *peer) {
		other := p.h.qp(verbs.QPTypeRC, nil)
		p.connect(other, nil)
		p.to(1000)
		p.cnp()
		if a, b := p.q.limiter.RateBps(&p.q.nic.cfg.Congestion), other.limiter.RateBps(&other.nic.cfg.Congestion); a != 4e9 || b != 8e9 {
			p.Fatalf("rates %d and %d", a, b)
		}
		gap := 2 * time.Duration(wire.BTHLen+p.mtu+wire.ICRCLen)
		for i := range uint64(3) {
			p.post(i, verbs.OpSend, p.mtu)
		}
		p.expect(fmt.Sprintf("SEND_ONLY 0 %dB ackreq", p.mtu))
		for k := 1; k < 3; k++ {
			p.silence(gap - 1)
			p.wait(1)
			p.expect(fmt.Sprintf("SEND_ONLY %d %dB ackreq", k, p.mtu))
		}
		p.port = 0
		for i := range uint64(3) {
			p.h.send(other, p.now, verbs.SendWR{WRID: i, Opcode: verbs.OpSend, SGL: []verbs.SGE{p.h.sge(0, 4)}})
		}
		p.expect("SEND_ONLY 0 4B ackreq", "SEND_ONLY 1 4B ackreq", "SEND_ONLY 2 4B ackreq")
	})
}

// ecn/3: A rate-limited QP sends ACKs at once but delays READ responses.
func TestCNPReducesRateOfReadResponses(t *testing.T) {
	each(t, setup{nic: slow}, func(p *peer) {
		p.to(1000)
		p.cnp()
		p.send(wire.OpReadRequest, 0, p.at(0, 3*p.mtu))
		p.expect(fmt.Sprintf("RR_FIRST 0 %dB msn 1", p.mtu))
		edge := 2 * time.Duration(wire.BTHLen+wire.AETHLen+p.mtu+wire.ICRCLen)
		p.silence(edge - 1)
		p.wait(1)
		p.expect(fmt.Sprintf("RR_MIDDLE 1 %dB", p.mtu))
		p.silence(edge - 2*wire.AETHLen - 1)
		p.wait(1)
		p.expect(fmt.Sprintf("RR_LAST 2 %dB msn 1", p.mtu))
		p.send(wire.OpWriteOnly, 3, p.at(0, 8), data(8), ackReq)
		p.expect("ACK 3 msn 2")
	})
}

// ecn/3: The rate of UC and UD QPs is reduced too.
func TestCNPReducesRateOfUnreliableQPs(t *testing.T) {
	eachUC(t, setup{nic: slow}, func(p ucPeer) {
		p.to(1000)
		p.cnp()
		p.post(1, verbs.OpSend, 2*p.mtu)
		p.expect(fmt.Sprintf("UC SEND_FIRST 0 %dB", p.mtu))
		p.silence(2*time.Duration(wire.BTHLen+p.mtu+wire.ICRCLen) - 1)
		p.wait(1)
		p.expect(fmt.Sprintf("UC SEND_LAST 1 %dB", p.mtu))
		p.wcs("1 SUCCESS SEND")
	})
	eachUD(t, setup{nic: slow}, func(p udPeer) {
		p.to(1000)
		p.deliverEdited(p.build(wire.OpAcknowledge, 0, asCNP), func(d *link.Datagram) { // from any source
			d.Src = netip.AddrPortFrom(p.addr.Next(), 0xc000)
		})
		ah := p.handle(nil)
		p.postTo(1, ah, 100)
		p.postTo(2, ah, 100)
		if n := len(p.drain()); n != 1 {
			p.Errorf("%d datagrams at once", n)
		}
		p.silence(2*(wire.BTHLen+wire.DETHLen+100+wire.ICRCLen) - 1)
		p.wait(1)
		if n := len(p.drain()); n != 1 {
			p.Errorf("%d datagrams then", n)
		}
	})
}

// ecn/4: Without further CNPs, each recovery step halves the distance to the target
// rate, until the QP has no limit and no timer.
func TestRateRecoversAfterCNP(t *testing.T) {
	const step = 55 * time.Microsecond
	each(t, setup{nic: slow}, func(p *peer) {
		p.to(1000)
		p.cnp()
		missing := uint64(4e9)
		for i := 1; missing > 0; i++ {
			p.wait(step - 1)
			if got := p.q.limiter.RateBps(&p.q.nic.cfg.Congestion); got != 8e9-missing {
				p.Fatalf("before step %d the rate is %d, want %d", i, got, 8e9-missing)
			}
			p.wait(1)
			missing /= 2
			if got := p.q.limiter.RateBps(&p.q.nic.cfg.Congestion); got != 8e9-missing {
				p.Fatalf("after step %d the rate is %d, want %d", i, got, 8e9-missing)
			}
			if i == 3 {
				p.post(1, verbs.OpSend, p.mtu)
				p.post(2, verbs.OpSend, 4)
				p.expect(fmt.Sprintf("SEND_ONLY 0 %dB ackreq", p.mtu))
				at := p.now.Add(time.Duration(wire.BTHLen+p.mtu+wire.ICRCLen) * 8 * 1000 / 7500)
				p.silence(at.Sub(p.now)) // rounded down: not yet
				p.wait(1)
				p.expect("SEND_ONLY 1 4B ackreq")
				p.ack(1)
				p.wait(mono.Time(1000).Add(4 * step).Sub(p.now))
				missing /= 2
				i++
			}
		}
		p.silence(0)
		if at := p.q.deadline(); at != mono.Never {
			p.Errorf("deadline %v at the line rate", at)
		}
		for i := range uint64(3) {
			p.post(i, verbs.OpSend, 4)
		}
		p.expect("SEND_ONLY 2 4B ackreq", "SEND_ONLY 3 4B ackreq", "SEND_ONLY 4 4B ackreq")
	})
}

// ecn/5, ecn/6: A CNP has no PSN and changes only the rate. Fields other than the
// QP number and P_Key are ignored.
func TestCNPChangesOnlyTheRate(t *testing.T) {
	each(t, setup{nic: slow}, func(p *peer) {
		p.recv(1, 8)
		p.to(1000)
		p.post(1, verbs.OpSend, 4)
		p.expect("SEND_ONLY 0 4B ackreq")
		before := p.q.Query()
		p.cnp(func(k *wire.Packet) {
			k.BTH.Solicited, k.BTH.MigReq, k.BTH.AckReq, k.BTH.BECN, k.BTH.FECN = true, true, true, false, true
			k.BTH.PSN, k.BTH.Reserved6, k.BTH.Reserved7 = p.rq.Add(77), 0x3f, 0x7f
			k.BTH.PKey = 0x7fff // a limited member's
			k.Payload = pattern(wire.CNPPayloadLen, 9)
		})
		p.expect()
		if after := p.q.Query(); after != before {
			p.Errorf("the QP changed from %+v to %+v", before, after)
		}
		if got := p.q.limiter.RateBps(&p.q.nic.cfg.Congestion); got != 4e9 {
			p.Errorf("rate %d", got)
		}
		p.send(wire.OpSendOnly, 0, data(8), ackReq)
		p.expect("ACK 0 msn 1")
		p.ack(0)
		p.wcs("1 SUCCESS RECV 8B", "1 SUCCESS SEND")
		p.events()
		p.drops()
	})
}

// ecn/5: A CNP for an unknown QP, or not from its peer, is dropped.
func TestCNPForWrongQPOrPeerIsDropped(t *testing.T) {
	each(t, setup{nic: slow}, func(p *peer) {
		p.cnp(toQPN(p.q.num + 1))
		p.cnp(toQPN(1))
		p.cnp(toQPN(0xffffff))
		p.cnp(withPKey(0x8001))
		p.cnp(payload(make([]byte, 12)))
		p.cnp(payload(make([]byte, 20)))
		p.cnp(editBTH(func(b *wire.BTH) { b.TVer = 1 }))
		p.cnp(editBTH(func(b *wire.BTH) { b.Opcode++ }))
		spoilt := p.build(wire.OpAcknowledge, 0, asCNP)
		spoilt.Payload[20] ^= 1
		p.deliver(spoilt)
		p.redeliver(p.build(wire.OpAcknowledge, 0, asCNP), p.addr.Next(), p.h.addr)
		p.silence(time.Second)
		p.drops("drop_icrc 1", "drop_opcode 1", "drop_version 1", "drop_address 1", "drop_qpn 2", "drop_qp_type 1", "drop_pkey 1", "drop_length 2")
		p.enter(verbs.QPStateErr)
		p.cnp()
		if got := p.q.limiter.RateBps(&p.q.nic.cfg.Congestion); got != 8e9 {
			p.Errorf("rate %d", got)
		}
		if n := p.h.nic.Count.CNPsHandled; n != 0 {
			p.Errorf("%d CNPs counted as handled", n)
		}
	})
}

// ecn/7: The congestion counters of both ends match the packets exchanged.
func TestCongestionCountersMatchPackets(t *testing.T) {
	net, a, b, qa, qb := rcPair(t, slow)
	var marks, cnps, n uint64
	net.drop = func(d *link.Datagram) bool {
		if wire.Opcode(d.Payload[0]) == wire.CNP {
			cnps++
			return cnps%5 == 0 // lost
		}
		if n++; n%3 == 0 && d.ECNBits() == link.ECT0 {
			d.TClass |= link.CE
			marks++
		}
		return false
	}
	const each = 20
	for i := range each {
		a.send(qa, net.now, verbs.SendWR{Opcode: verbs.OpRDMAWrite, Remote: b.remote(0), SGL: []verbs.SGE{a.sge(0, 64<<10)}})
		b.send(qb, net.now, verbs.SendWR{Opcode: verbs.OpRDMARead, Flags: verbs.SendSignaled, Remote: a.remote(0), SGL: []verbs.SGE{b.sge(128<<10, 64<<10)}})
		net.run(net.now.Add(time.Duration(i) * 20 * time.Microsecond))
	}
	net.run(net.now.Add(time.Second))
	if got := len(b.poll()); got != each {
		t.Errorf("%d of %d READs complete", got, each)
	}
	ca, cb := &a.nic.Count, &b.nic.Count
	if got := ca.ECNMarked + cb.ECNMarked; got != marks || marks < 100 {
		t.Errorf("%d marks counted, %d made", got, marks)
	}
	if got := ca.CNPsSent + cb.CNPsSent; got != cnps || cnps < 10 {
		t.Errorf("%d CNPs counted, %d seen, for %d marks", got, cnps, marks)
	}
	if got := ca.CNPsHandled + cb.CNPsHandled; got != cnps-cnps/5 {
		t.Errorf("%d CNPs handled, %d arrived", got, cnps-cnps/5)
	}
	if sent := ca.Sent + cb.Sent; sent != uint64(net.sent) || ca.Received+cb.Received != sent-cnps/5 {
		t.Errorf("%d packets sent and %d received, %d seen", sent, ca.Received+cb.Received, net.sent)
	}
}

// When Output is called late, the packets due by then are sent together. Without
// CatchUp, one packet is sent at a time.
func TestCatchUpKeepsRateWhenDriverIsLate(t *testing.T) {
	const (
		rate  = 4e9 // half the line's
		slack = 100 * time.Microsecond
		late  = 70 * time.Microsecond // more than 30 packets
		steps = 20
	)
	for _, catchUp := range []time.Duration{0, slack} {
		p := newPeer(t, flavours[0], setup{nic: func(c *Config) {
			slow(c)
			c.WindowPackets = 1 << 12
			c.Congestion = defaultCongestionParams(8e9)
			c.Congestion.IncreaseInterval = time.Second // the rate stays
			c.Congestion.CatchUp = catchUp
		}})
		p.to(1000)
		p.cnp()
		p.wait(slack) // the largest credit
		p.post(1, verbs.OpRDMAWrite, 900*p.mtu)
		p.count()
		sent := 0
		for range steps {
			p.now = p.now.Add(late)
			p.h.nic.Tick(p.now)
			sent += p.count()
		}
		packet := wire.BTHLen + p.mtu + wire.ICRCLen
		allowed := int(rate / 8 * (steps * late).Seconds() / float64(packet))
		t.Logf("catching up %v: %d packets, but the rate allows %d", catchUp, sent, allowed)
		switch {
		case catchUp == 0 && sent > 2*steps:
			t.Errorf("%d packets without CatchUp, in %d waits", sent, steps)
		case catchUp != 0 && (sent < allowed-2 || sent > allowed+1):
			t.Errorf("%d packets, but the rate allows %d", sent, allowed)
		}
	}
}

// count returns the number of packets that the NIC sends now.
func (p *peer) count() (n int) {
	ds := make([]link.Datagram, 64)
	for {
		k := p.h.nic.Output(p.now, ds)
		if n += k; k < len(ds) {
			return n
		}
	}
}
