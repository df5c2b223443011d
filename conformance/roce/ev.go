package roce

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var eventCases = overRC.Cases([]conformance.Case{{
	ID: "ev/qp/access-error-reported", Cite: ibta("C9-222.1.1", "roce/async/1"),
	Run: OnPort(func(p *Port) {
		c := p.connect(Setup{})
		c.Send(ib.WriteOnly(c.PeerPSN(0), ib.At(c.TargetMem.Addr(), c.deregisteredRKey(), 16), Data(16)).AckReq())
		c.expect(ib.Nak(c.PeerPSN(0), ib.NakRemoteAccess, 0))
		c.expectQPEvent(verbs.EventQPAccessErr)
		c = p.connect(Setup{})
		c.Send(ib.ReadRequest(c.PeerPSN(0), ib.At(c.TargetMem.Addr(), c.deregisteredRKey(), 16)))
		c.expect(ib.Nak(c.PeerPSN(0), ib.NakRemoteAccess, 0))
		c.expectQPEvent(verbs.EventQPAccessErr)
		c.Sync()
		c.expectNoMoreEvents()
	}),
}, {
	ID: "ev/qp/request-error-reported", Cite: ibta("C9-222.1.1", "roce/async/1"),
	Run: onConn(Setup{}, func(c *Conn) {
		c.exchange(ib.WriteMiddle(c.PeerPSN(0), Data(MTU)).AckReq(), ib.Nak(c.PeerPSN(0), ib.NakInvalidRequest, 0))
		c.expectQPEvent(verbs.EventQPReqErr)
		c.Sync()
		c.expectNoMoreEvents()
	}),
}, {
	ID: "ev/qp/communication-established-reported", Cite: ibta("", "roce/async/2"),
	Run: OnPort(func(p *Port) {
		rtr, rts := p.connect(Setup{state: verbs.QPStateRTR, Receives: 1}), p.connect(Setup{Receives: 1})
		p.ExpectNoEvent()
		rts.expectAccepted(0)
		p.ExpectNoEvent()
		rtr.expectAccepted(0)
		rtr.expectQPEvent(verbs.EventCommEst)
		p.ExpectNoEvent()
	}),
}, {
	ID: "ev/port/link-change-reported", Cite: ibta("", "roce/async/3"),
	// Over IPv4: some hosts remove IPv6 addresses from a port whose link is down,
	// which breaks the connection.
	Setup: ipv4,
	Run: onRC(func(c *Conn) {
		c.awaitPortActive(true)
		c.Must("a link that can be set down", c.SetLink(false))
		c.expectPortEvent(verbs.EventPortErr)
		c.awaitPortActive(false)
		c.Must("a link that can be set up", c.SetLink(true))
		c.expectPortEvent(verbs.EventPortActive)
		c.awaitPortActive(true)
		c.expectAccepted(0)
	}),
}, {
	ID:   "ev/gid/removed-address-receives-nothing",
	Cite: ibta("", "roce/async/4"), Setup: conformance.Setup{TwoAddresses: true},
	Run: OnPort(func(p *Port) {
		second := newPort(p.Rig)
		second.deviceAddr = p.Local[1]
		index := p.gidIndex(second.deviceAddr)
		gone := second.connect(Setup{Receives: 2, Modify: func(a *verbs.QPAttr) { a.AH.GRH.SGIDIndex = index }})
		stays := p.connect(Setup{Receives: 1})
		gone.expectAccepted(0)
		p.setAddress(second.deviceAddr, false)
		gone.Send(ib.SendOnly(gone.PeerPSN(1), Data(16)).AckReq())
		p.expectSilence(silencePeriod)
		// The result of this request is unspecified, but it must not succeed or send
		// anything.
		_, _ = gone.QP.PostSend([]verbs.SendWR{{WRID: 9, Opcode: verbs.OpSend, SGL: gone.LocalMem.SGL(0, 8)}})
		p.expectSilence(silencePeriod)
		for wc, ok := p.PollCompletion(0); ok; wc, ok = p.PollCompletion(0) {
			p.Check(wc.Status != verbs.WCSuccess, "no success on a removed address", "%s", rig.Describe(&wc))
		}
		stays.expectAccepted(0)
	}),
}, {
	ID: "ev/gid/only-address-goes-and-comes", Cite: ibta("", "roce/async/4"), Setup: ipv6,
	Run: onRC(removeAndRestoreAddress),
}, {
	ID: "ev/gid/only-ipv4-address-goes-and-comes", Cite: ibta("", "roce/async/4"), Setup: ipv4,
	Run: onRC(removeAndRestoreAddress),
}, {
	ID:   "ev/mig/migrated-sender-says-so",
	Cite: ibta("", "roce/mig/1"), Level: conformance.May, Needs: verbs.CapAutoMigration,
	Run: onRC(func(c *Conn) {
		c.expectMigReq(0, true)
		c.armAltPath()
		c.expectMigReq(1, false)
		c.expectMigState(verbs.MigArmed)
		c.Must("a path migration", c.QP.Modify(verbs.QPAttr{State: verbs.QPStateRTS, PathMigState: verbs.MigMigrated}, verbs.QPAttrState|verbs.QPAttrPathMigState))
		c.Peer = c.PeerAddr(1)
		c.expectMigReq(2, true)
	}),
}, {
	ID:   "ev/mig/migreq-moves-an-armed-qp",
	Cite: ibta("", "roce/mig/1"), Level: conformance.May, Needs: verbs.CapAutoMigration,
	Run: onRC(func(c *Conn) {
		c.armAltPath()
		c.expectMigReq(0, false)
		c.expectMigState(verbs.MigArmed)
		c.ExpectNoEvent()
		c.Peer = c.PeerAddr(1)
		c.expectAccepted(1, ib.Packet.MigReq)
		c.expectQPEvent(verbs.EventPathMig)
		c.expectMigState(verbs.MigMigrated)
		c.PostSend(c.QP, verbs.SendWR{WRID: 9, Opcode: verbs.OpSend, SGL: c.LocalMem.SGL(0, 8)})
		c.expect(ib.SendOnly(ib.AnyPSN, nil))
	}),
}, {
	ID: "ev/mig/migreq-means-nothing-unarmed", Cite: ibta("", "roce/mig/2"),
	Run: onRC(func(c *Conn) {
		for i := range 4 {
			c.expectAccepted(i, func(p ib.Packet) ib.Packet { p.BTH.MigReq = new(i%2 == 1); return p })
		}
		c.Sync()
		c.expectNoMoreEvents()
	}),
}})

// expectQPEvent fails the case unless the next event has this type and is of the
// connection's queue pair.
func (c *Conn) expectQPEvent(want verbs.AsyncEventType) {
	e := c.nextEvent(want.String())
	if e.Type != want || e.QP != c.QP {
		c.Fail(fmt.Sprintf("the event %v of queue pair %#x", want, uint32(c.QP.QPN())), "%v of %v", e.Type, e.QP)
	}
}

// nextEvent waits for an event of any object but the synchronization queue pair, which is
// in RTR and has events itself.
func (p *Port) nextEvent(want string) verbs.AsyncEvent {
	for {
		e, err := p.Device.WaitAsync(p.ResponseTimeout())
		switch {
		case errors.Is(err, verbs.ErrTimeout):
			p.Fail("the event "+want, "none in %v", p.ResponseTimeout())
		case err != nil:
			p.Must("events", err)
		}
		if !p.isSyncEvent(e) {
			p.Note("event %v", e.Type)
			return e
		}
	}
}

// expectPortEvent fails the case unless the next event has this type and is of port 1. It
// skips GID changes: a host may remove addresses from a port whose link is down.
func (p *Port) expectPortEvent(want verbs.AsyncEventType) {
	e := p.nextEvent(want.String())
	for e.Type == verbs.EventGIDChange {
		e = p.nextEvent(want.String())
	}
	p.Check(e.Type == want && e.Port == 1, fmt.Sprintf("%v of port 1", want), "%v of port %d", e.Type, e.Port)
}

func (p *Port) isSyncEvent(e verbs.AsyncEvent) bool {
	return p.SyncQP() != nil && e.QP == p.SyncQP()
}

// expectNoMoreEvents fails the case if an event is pending, except for events of the
// synchronization queue pair.
func (p *Port) expectNoMoreEvents() {
	for {
		e, err := p.Device.WaitAsync(0)
		switch {
		case errors.Is(err, verbs.ErrTimeout):
			return
		case err != nil:
			p.Must("events", err)
		case !p.isSyncEvent(e):
			p.Fail("no event", "%v", e.Type)
		}
	}
}

// awaitPortActive fails the case unless the port becomes active, or inactive, in time.
func (p *Port) awaitPortActive(active bool) {
	for until := p.Now() + p.ResponseTimeout(); ; p.Sleep(shortWait) {
		a := p.QueryPort()
		switch {
		case (a.State == verbs.PortActive) == active:
			return
		case p.Now() >= until:
			p.Fail(fmt.Sprintf("port active: %v", active), "%v", a.State)
		}
	}
}

// armAltPath gives the connection an alternate path to the peer's second address, and
// requests migration state REARM.
func (c *Conn) armAltPath() {
	a := verbs.QPAttr{State: verbs.QPStateRTS, PathMigState: verbs.MigRearm, AltAH: c.Attr.AH, AltPort: 1}
	a.AltAH.GRH.DGID = verbs.GIDFrom(c.PeerAddr(1))
	c.Must("an alternate path", c.QP.Modify(a, verbs.QPAttrState|verbs.QPAttrAltPath|verbs.QPAttrPathMigState))
}

// expectMigReq exchanges the n-th SENDs and ACKs of both ends. The peer's packets have
// this MigReq bit, and the case fails unless those of the device have it too.
func (c *Conn) expectMigReq(n int, migrated bool) {
	mig := func(p ib.Packet) ib.Packet { p.BTH.MigReq = &migrated; return p }
	c.exchange(mig(ib.SendOnly(c.PeerPSN(n), Data(16)).AckReq()), mig(ib.Ack(c.PeerPSN(n), uint32(n+1))))
	c.ExpectRecv(uint64(n+1), 16)
	c.PostSend(c.QP, c.SendWR(100, 8))
	c.expect(mig(ib.SendOnly(c.DevicePSN(n), nil)))
	c.completeWith(mig(ib.Ack(c.DevicePSN(n), uint32(n+1))), 100)
}

// expectMigState fails the case unless a query returns this migration state.
func (c *Conn) expectMigState(want verbs.MigState) {
	a := c.QueryQP(c.QP)
	c.Check(a.PathMigState == want, fmt.Sprintf("migration state %v", want), "%v", a.PathMigState)
}

// setAddress removes an address from the device's port, or adds it again. The case ends
// as unsupported if the bench cannot.
func (p *Port) setAddress(a netip.Addr, present bool) {
	if p.SetAddress == nil {
		rig.Abort(fmt.Errorf("remove %v from the device: %w", a, conformance.ErrBenchCannot))
	}
	p.Note("address %v present: %v", a, present)
	p.Must("an address that can be removed and added", p.SetAddress(a, present))
}

// noAddressSilence is how long a port without an address must be silent. No connection is
// left to synchronize with, therefore it is longer than the retransmission timers.
const noAddressSilence = 50 * time.Millisecond

// removeAndRestoreAddress removes the only address of the port while a connection uses
// it, and adds it again.
func removeAndRestoreAddress(c *Conn) {
	c.expectAccepted(0)

	c.setAddress(c.deviceAddr, false)
	c.expectGIDChange()
	c.awaitGID(false)
	// The result of this request is unspecified, but it must not succeed or send
	// anything.
	_, _ = c.QP.PostSend([]verbs.SendWR{{WRID: 9, Opcode: verbs.OpSend, SGL: c.LocalMem.SGL(0, 8)}})
	c.Send(ib.SendOnly(c.PeerPSN(1), Data(16)).AckReq())
	if pkt, ok := c.nextPacket(noAddressSilence); ok {
		c.Fail("nothing is sent by a port without an address", "%v", pkt)
	}
	for wc, ok := c.PollCompletion(0); ok; wc, ok = c.PollCompletion(0) {
		c.Check(wc.Status != verbs.WCSuccess, "no success on a removed address", "%s", rig.Describe(&wc))
	}
	c.ToState(c.QP, verbs.QPStateErr)
	for _, ok := c.PollCompletion(shortWait); ok; _, ok = c.PollCompletion(shortWait) { // flushed work
	}

	c.setAddress(c.deviceAddr, true)
	c.expectGIDChange()
	c.awaitGID(true)
	c.connect(Setup{Receives: 1}).expectAccepted(0)
}

// expectGIDChange fails the case unless the next event is a GID change of port 1.
func (p *Port) expectGIDChange() {
	e := p.nextEvent(verbs.EventGIDChange.String())
	p.Check(e.Type == verbs.EventGIDChange && e.Port == 1, "GID_CHANGE of port 1", "%v of port %d", e.Type, e.Port)
}

// awaitGID fails the case unless the GID table gets, or loses, a RoCEv2 entry for the
// device's address in time. A restored address may have another index.
func (p *Port) awaitGID(want bool) {
	for until := p.Now() + p.ResponseTimeout(); ; p.Sleep(shortWait) {
		has := hasRoCEv2GID(p.gidTable(), p.deviceAddr)
		switch {
		case has == want:
			return
		case p.Now() >= until:
			p.Fail(fmt.Sprintf("GID table has %v: %v", p.deviceAddr, want), "%v", has)
		}
	}
}

// hasRoCEv2GID reports whether a GID table has a RoCEv2 entry for an address.
func hasRoCEv2GID(table []verbs.GIDEntry, a netip.Addr) bool {
	return slices.ContainsFunc(table, func(e verbs.GIDEntry) bool { return e.GID.Addr() == a && e.Type == verbs.GIDTypeRoCEv2 })
}
