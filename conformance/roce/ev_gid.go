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

// setAddress has the bench take an address from the device or give it back, if it can.
func (p *port) setAddress(a netip.Addr, present bool) {
	if p.SetAddress == nil {
		rig.Abort(fmt.Errorf("take %v from the device: %w", a, conformance.ErrBenchCannot))
	}
	p.Note("the address %v is there: %v", a, present)
	p.Must("an address that can be taken away and given back", p.SetAddress(a, present))
}

// noAddressSilence is how long a port without an address is listened to: no connection is left that
// could prove its silence, but for the one that is made when the address is back. It is
// longer than the timers of requests.
const noAddressSilence = 50 * time.Millisecond

// removeAndRestoreAddress takes the only address of the port away while a connection uses it.
func removeAndRestoreAddress(c *conn) {
	c.expectAccepted(0)

	c.setAddress(c.deviceAddr, false)
	c.expectGIDChange()
	c.awaitGID(false)
	// What becomes of a request there is the device's business, as long as it says
	// nothing and does not succeed.
	_, _ = c.qp.PostSend([]verbs.SendWR{{WRID: 9, Opcode: verbs.OpSend, SGL: c.localMem.SGL(0, 8)}})
	c.send(ib.SendOnly(c.peerPSN(1), data(16)).AckReq())
	if pkt, ok := c.nextPacket(noAddressSilence); ok {
		c.Fail("nothing is sent by a port without an address", "%v", pkt)
	}
	for wc, ok := c.PollCompletion(0); ok; wc, ok = c.PollCompletion(0) {
		c.Check(wc.Status != verbs.WCSuccess, "no success on an address that is gone", "%s", rig.Describe(&wc))
	}
	c.Must("a queue pair that can be given up", c.qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState))
	for _, ok := c.PollCompletion(shortWait); ok; _, ok = c.PollCompletion(shortWait) { // what it flushes
	}

	c.setAddress(c.deviceAddr, true)
	c.expectGIDChange()
	c.awaitGID(true)
	c.connect(setup{receives: 1}).expectAccepted(0)
}

// expectGIDChange ends the case unless the port reports that its GIDs have changed.
func (p *port) expectGIDChange() {
	e := p.nextEvent(verbs.EventGIDChange.String())
	p.Check(e.Type == verbs.EventGIDChange && e.Port == 1, "GID_CHANGE of port 1", "%v of port %d", e.Type, e.Port)
}

// awaitGID ends the case unless the GID table soon has the device's address for RoCEv2,
// wherever, or has it nowhere: an address that comes back need not get its old place.
func (p *port) awaitGID(want bool) {
	for until := p.Now() + p.ResponseTimeout(); ; p.Sleep(shortWait) {
		has := hasRoCEv2GID(p.gidTable(), p.deviceAddr)
		switch {
		case has == want:
			return
		case p.Now() >= until:
			p.Fail(fmt.Sprintf("that the GID table has %v: %v", p.deviceAddr, want), "%v", has)
		}
	}
}

// hasRoCEv2GID reports whether a GID table has an address for RoCEv2.
func hasRoCEv2GID(table []verbs.GIDEntry, a netip.Addr) bool {
	return slices.ContainsFunc(table, func(e verbs.GIDEntry) bool { return e.GID.Addr() == a && e.Type == verbs.GIDTypeRoCEv2 })
}
