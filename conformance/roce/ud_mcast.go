package roce

import (
	"fmt"
	"net/netip"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

var multicastCases = conformance.Group{Needs: verbs.CapUD | verbs.CapMulticast, Labels: labelUD}.Cases([]conformance.Case{{
	ID: "ud/mcast/each-attached-qp-gets-a-copy", Cite: ibta("", "roce/ud/13"), Needs: verbs.CapRC,
	Run: OnPort(func(p *Port) {
		group, other := multicastGroup(p.deviceAddr, 1), multicastGroup(p.deviceAddr, 2)
		var all []*udPort
		for range 4 {
			all = append(all, p.newUDPort(3, nil))
		}
		a, b := all[0], all[1]
		for _, member := range []*udPort{a, b} {
			p.Must("a queue pair that joins a group", member.QP.AttachMulticast(verbs.GIDFrom(group)))
		}
		p.Must("a queue pair that joins a group", all[2].QP.AttachMulticast(verbs.GIDFrom(other)))
		pkt := ib.Datagram(0, udQKey, udPeerQPN, Data(32)).To(uint32(verbs.MulticastQPN)).Via(p.Peer, group)
		p.SendPacket(pkt)
		p.expectCopies(a, b)
		p.Must("a queue pair that leaves a group", a.QP.DetachMulticast(verbs.GIDFrom(group)))
		p.SendPacket(pkt)
		p.expectCopies(b)
		p.Must("a queue pair that leaves a group", b.QP.DetachMulticast(verbs.GIDFrom(group)))
		p.Must("a queue pair that leaves a group", all[2].QP.DetachMulticast(verbs.GIDFrom(other)))
	}),
}, {
	ID: "ud/mcast/attached-qp-not-destroyed", Cite: ibta("o10-2.2.3", "roce/ud/14"),
	Run: onUD(0, func(d *udPort) {
		group := verbs.GIDFrom(multicastGroup(d.deviceAddr, 1))
		d.Must("a queue pair that joins a group", d.QP.AttachMulticast(group))
		d.MustFail("destroying a queue pair in a group", d.QP.Close(), nil)
		d.Must("a queue pair that leaves a group", d.QP.DetachMulticast(group))
		d.Must("a queue pair in no group that can be destroyed", d.QP.Close())
	}),
}})

// multicastGroup returns the n-th multicast group of an address family.
func multicastGroup(family netip.Addr, n byte) netip.Addr {
	if family.Is4() {
		return netip.AddrFrom4([4]byte{239, 77, 0, n})
	}
	return netip.AddrFrom16([16]byte{0: 0xff, 1: 0x0e, 14: 0x77, 15: n})
}

// expectCopies fails the case unless each of these queue pairs receives one datagram, and
// no other does.
func (p *Port) expectCopies(members ...*udPort) {
	missing := make(map[verbs.QPN]bool)
	for _, m := range members {
		missing[m.QP.QPN()] = true
	}
	for len(missing) > 0 {
		wc, ok := p.PollCompletion(p.ResponseTimeout())
		switch {
		case !ok:
			p.Fail(fmt.Sprintf("a copy for each of %d members", len(members)), "%d", len(members)-len(missing))
		case wc.Status != verbs.WCSuccess || !missing[wc.QPN]:
			p.Fail("one copy for each member", "a completion with %v of queue pair %#x, which is not a member or already has a copy", wc.Status, uint32(wc.QPN))
		}
		delete(missing, wc.QPN)
	}
	p.expectNoCompletion()
}
