package roce

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

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
