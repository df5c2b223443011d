package engine

import (
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// async/1: The claimed receive reports the cause of a fatal NAK. Without one, an
// event of the matching type is raised.
func TestFatalNAKWithoutReceiveRaisesEvent(t *testing.T) {
	for _, tc := range []struct {
		name  string
		make  func(p *peer)
		nak   string
		event verbs.AsyncEventType
	}{
		{"wrong key", func(p *peer) { p.send(wire.OpWriteOnly, 0, p.at(0, 8), rkey(0xbad), data(8)) }, "NAK 0 access msn 0", verbs.EventQPAccessErr},
		{"read of a wrong key", func(p *peer) { p.send(wire.OpReadRequest, 0, p.at(0, 8), rkey(0xbad)) }, "NAK 0 access msn 0", verbs.EventQPAccessErr},
		{"out of opcode sequence", func(p *peer) { p.send(wire.OpSendMiddle, 0, data(p.mtu)) }, "NAK 0 invalid msn 0", verbs.EventQPReqErr},
		{"wrong length", func(p *peer) { p.send(wire.OpWriteFirst, 0, p.at(0, 4000), data(8)) }, "NAK 0 invalid msn 0", verbs.EventQPReqErr},
	} {
		t.Run(tc.name, func(t *testing.T) {
			each(t, setup{}, func(p *peer) {
				p.recv(1, 8) // waiting is not under way
				tc.make(p)
				p.expect(tc.nak)
				p.state(verbs.QPStateErr)
				p.events(tc.event)
				p.wcs("1 WR_FLUSH_ERR")
				p.silence(time.Second)
			})
		})
	}
	each(t, setup{}, func(p *peer) {
		p.recv(1, 3*p.mtu)
		p.recv(2, 8)
		p.send(wire.OpSendFirst, 0, data(p.mtu))
		p.send(wire.OpSendMiddle, 1, data(8)) // too short for a middle packet
		p.expect("NAK 1 invalid msn 0")
		p.wcs("1 REM_INV_REQ_ERR", "2 WR_FLUSH_ERR")
		p.events()
	})
}

// async/3: A port raises one event for each change. While it is down, packets are
// lost; they are retransmitted later.
func TestPortChangeRaisesEvent(t *testing.T) {
	const T = 4096 << 14
	each(t, setup{}, func(p *peer) {
		p.h.nic.SetPort(true)
		p.events()
		p.h.nic.SetPort(false)
		p.h.nic.SetPort(false)
		if e, _ := p.h.nic.NextEvent(); e.Type != verbs.EventPortErr || e.Port != 1 {
			p.Errorf("event %+v", e)
		}
		p.events()
		if s := p.h.nic.Port().State; s != verbs.PortDown {
			p.Errorf("port is %v", s)
		}
		p.post(1, verbs.OpSend, 4)
		p.expect()
		p.send(wire.OpWriteOnly, 0, p.at(0, 8), data(8), ackReq)
		p.expect()
		p.drops("drop_dead 1")

		p.h.nic.SetPort(true)
		if e, _ := p.h.nic.NextEvent(); e.Type != verbs.EventPortActive || e.Port != 1 {
			p.Errorf("event %+v", e)
		}
		if s := p.h.nic.Port().State; s != verbs.PortActive {
			p.Errorf("port is %v", s)
		}
		p.expect()
		p.wait(T)
		p.expect("SEND_ONLY 0 4B ackreq")
		p.ack(0)
		p.wcs("1 SUCCESS SEND")
		if p.h.nic.Count.Sent != 1 {
			p.Errorf("%d packets counted as sent", p.h.nic.Count.Sent)
		}
	})
}

// async/4: Packets from and to a removed address are dropped. When the address
// returns, the connection continues.
func TestPacketsOfRemovedAddressAreDropped(t *testing.T) {
	const T = 4096 << 14
	each(t, setup{}, func(p *peer) {
		own := p.h.nic.Config().GIDs
		other := netip.MustParseAddr("fd00::99")
		if p.addr.Is4() {
			other = netip.MustParseAddr("10.0.0.99")
		}
		p.post(1, verbs.OpSend, 4)
		p.h.nic.SetGIDs(RoCEv2GIDs(other))
		p.events(verbs.EventGIDChange)
		p.expect()
		p.send(wire.OpWriteOnly, 0, p.at(0, 8), data(8), ackReq)
		p.silence(T / 2)
		p.drops("drop_address 1")
		p.untouched()
		p.redeliver(p.build(wire.OpWriteOnly, 0, p.at(0, 8), data(8), ackReq), p.addr, other)
		p.drops("drop_address 2") // not the connection's address

		p.h.nic.SetGIDs(own)
		p.events(verbs.EventGIDChange)
		p.to(1 + T)
		p.expect("SEND_ONLY 0 4B ackreq")
		p.ack(0)
		p.send(wire.OpWriteOnly, 0, p.at(0, 8), data(8), ackReq)
		p.expect("ACK 0 msn 1")
		p.wcs("1 SUCCESS SEND")
	})
}

// If the event queue is full, new events are dropped. Events of a destroyed object
// are removed.
func TestEventQueueIsLimited(t *testing.T) {
	p := newPeer(t, flavours[0], setup{nic: func(c *Config) { c.Limits.PendingEvents = 3 }})
	p.stop()
	for i := range 5 {
		p.h.nic.SetPort(i%2 == 1)
	}
	must.Do(t, p.h.nic.DestroyQP(p.q))
	p.events(verbs.EventPortErr, verbs.EventPortActive)
	p.h.nic.SetPort(true)
	p.events(verbs.EventPortActive)
}
