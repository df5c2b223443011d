package roce

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var addressCases = mostlyRC.Cases([]conformance.Case{{
	ID:   "pkt/ip/source-address-is-that-of-the-chosen-gid",
	Cite: annexA17("CA17-11, CA17-12, CA17-18, CA17-19", "roce/pkt/ip/9"), Setup: conformance.Setup{TwoAddresses: true},
	Run: OnPort(func(p *Port) {
		p.deviceAddr = p.Local[1]
		index := p.gidIndex(p.deviceAddr)
		c := p.connect(Setup{Receives: 1, Modify: func(a *verbs.QPAttr) { a.AH.GRH.SGIDIndex = index }})
		c.expectAccepted(0)
		c.PostSend(c.QP, c.SendWR(100, 8))
		c.expect(ib.SendOnly(c.DevicePSN(0), c.LocalMem.Buf[:8]))
		c.completeWith(ib.Ack(c.DevicePSN(0), 1), 100)
	}),
}, {
	ID: "pkt/addr/packet-from-another-host-dropped", Cite: ibta("9.6.1.2.3", "roce/pkt/addr/2"),
	Run: onRC(func(c *Conn) {
		other := c.PeerAddr(1)
		c.expectDropped(ib.SendOnly(c.PeerPSN(0), Data(16)).AckReq().From(other))
		c.expectDropped(ib.WriteOnly(c.PeerPSN(0), c.RETH(0, 16), Data(16)).AckReq().From(other))
		c.PostSend(c.QP, c.SendWR(100, 8))
		c.expect(ib.SendOnly(c.DevicePSN(0), nil))
		c.expectDropped(ib.Ack(c.DevicePSN(0), 1).From(other))
		c.expectAccepted(0)
	}),
}, {
	ID:   "pkt/addr/uc-packet-from-another-host-dropped",
	Cite: ibta("9.6.1.2.3", "roce/pkt/addr/2"), Needs: verbs.CapUC, Labels: labelUC,
	Run: onConn(Setup{qpType: verbs.QPTypeUC, Receives: 2}, func(c *Conn) {
		other := c.PeerAddr(1)
		c.expectDropped(ib.SendOnly(c.PeerPSN(0), Data(16)).On(ib.UC).From(other))
		c.expectDropped(ib.WriteOnly(c.PeerPSN(0), c.RETH(0, 16), Data(16)).On(ib.UC).From(other))
		c.Send(ib.SendOnly(c.PeerPSN(0), Data(24)).On(ib.UC))
		c.ExpectRecv(1, 24)
	}),
}, {
	ID:   "pkt/addr/packet-to-another-local-address-dropped",
	Cite: ibta("9.6.1.2.3", "roce/pkt/addr/3"), Setup: conformance.Setup{TwoAddresses: true},
	Run: onRC(func(c *Conn) {
		second := c.Local[1]
		c.expectDropped(ib.SendOnly(c.PeerPSN(0), Data(16)).AckReq().Via(c.Peer, second))
		c.expectDropped(ib.WriteOnly(c.PeerPSN(0), c.RETH(0, 16), Data(16)).AckReq().Via(c.Peer, second))
		c.expectAccepted(0)
	}),
}, {
	ID:   "pkt/addr/gid-of-rocev1-only-receives-nothing",
	Cite: annexA17("CA17-41", "roce/pkt/addr/4"), Needs: verbs.CapUD, Labels: labelUD,
	Run: OnPort(func(p *Port) {
		v1 := p.rocev1OnlyAddr()
		d := p.newUDPort(2, nil)
		d.expectDropped(d.datagram(Data(16)).Via(p.Peer, v1))
		d.expectAccepted(0)
	}),
}, {
	ID:   "pkt/addr/mad-to-qp0-dropped",
	Cite: annexA17("CA17-33", "roce/pkt/addr/5"), Needs: verbs.CapCM, Labels: labelCM,
	Run: OnPort(func(p *Port) {
		req := ib.CM(0x11, p.cmRequest(cmClosedPort, 0x1001))
		p.SendPacket(req.To(0))
		p.expectSilence(silencePeriod)
		p.SendPacket(req.WithDETH(0, 0).To(0))
		p.expectSilence(silencePeriod)
		p.SendPacket(req)
		p.cmExpect(ib.REJ{RemoteCommID: new(uint32(0x1001))})
	}),
}})

// gidTable returns the GID table of port 1.
func (p *Port) gidTable() (table []verbs.GIDEntry) {
	attr := p.QueryPort()
	for i := range attr.GIDs {
		e, err := p.Device.QueryGID(1, i)
		if errors.Is(err, verbs.ErrNotFound) {
			continue // an empty entry
		}
		p.Must("a GID table that can be read", err)
		table = append(table, e)
	}
	return table
}

// gidIndex returns the index of an address's RoCEv2 entry in the GID table. Link-local and
// RoCEv1 entries often precede it, and each entry costs a verb call.
func (p *Port) gidIndex(a netip.Addr) uint8 {
	for i := range p.QueryPort().GIDs {
		if e, err := p.Device.QueryGID(1, i); err == nil && e.GID.Addr() == a && e.Type == verbs.GIDTypeRoCEv2 {
			return uint8(i)
		}
	}
	p.Fail(fmt.Sprintf("a RoCEv2 GID for the device's address %v", a), "none")
	return 0
}

// rocev1OnlyAddr returns an address that the GID table has for RoCEv1 and not for RoCEv2.
// The case ends as unsupported if there is none.
func (p *Port) rocev1OnlyAddr() netip.Addr {
	two := make(map[netip.Addr]bool)
	for _, e := range p.gidTable() {
		if e.Type == verbs.GIDTypeRoCEv2 {
			two[e.GID.Addr()] = true
		}
	}
	for _, e := range p.gidTable() {
		if a := e.GID.Addr(); e.Type == verbs.GIDTypeRoCEv1 && !two[a] && a.Is4() == p.deviceAddr.Is4() {
			return a
		}
	}
	rig.Abort(fmt.Errorf("the device has no GID for RoCEv1 only: %w", conformance.ErrBenchCannot))
	return netip.Addr{}
}
