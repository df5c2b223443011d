package dgiwarp

import (
	"net/netip"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/dg"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// Groups that nobody else is in.
var (
	groupA = netip.MustParseAddr("ff02::d9:1")
	groupB = netip.MustParseAddr("ff02::d9:2")
)

// everybody is where all hosts of a network of IPv4 are reached, whatever groups they are in.
var everybody = netip.MustParseAddr("255.255.255.255")

var groupCases = []conformance.Case{
	{
		ID:    "dg/group/one-copy-for-each-that-attached",
		Title: "A packet to a group goes to every queue pair that is attached to it, once, and to no other",
		Cite:  cite("3", "dg/addr/6"), Level: conformance.Must, Needs: ud | verbs.CapMulticast, Labels: labelUD,
		Setup:   conformance.Setup{Family: 6},
		Sends:   "Sends to the number of groups under two groups; two of four queue pairs are in the first, one of them and a third in the second",
		Expects: "one receive of each that is in the group",
		Defects: []string{"GroupsMixed"},
		Run: onHost(func(h *host) {
			first, both, second, none := h.queuePair(setup{receives: 3}), h.queuePair(setup{receives: 3}), h.queuePair(setup{receives: 3}), h.queuePair(setup{receives: 3})
			h.attach(groupA, first, both)
			h.attach(groupB, both, second)
			p := none.peer(0)
			p.toGroup(groupA, iwarp.Send(1, data(8)))
			h.allGet(data(8), first, both)
			p.toGroup(groupB, iwarp.Send(2, data(16)))
			h.allGet(data(16), both, second)
			h.silence(quiet)
			h.ExpectNoCompletion()
		}),
	},
	{
		ID:    "dg/group/detached-gets-no-more",
		Title: "A queue pair that has left a group gets nothing of it any more",
		Cite:  cite("3", "dg/addr/6"), Level: conformance.Must, Needs: ud | verbs.CapMulticast, Labels: labelUD,
		Setup:   conformance.Setup{Family: 6},
		Sends:   "a Send to a group of two queue pairs, and another one when the first of them has left",
		Expects: "a receive of both, then of the second",
		Defects: []string{"GroupsMixed"},
		Run: onHost(func(h *host) {
			a, b := h.queuePair(setup{receives: 3}), h.queuePair(setup{receives: 3})
			h.attach(groupA, a, b)
			p := a.peer(0)
			p.toGroup(groupA, iwarp.Send(1, data(8)))
			h.allGet(data(8), a, b)
			h.Must("a queue pair that leaves its group", a.qp.DetachMulticast(verbs.GIDFrom(groupA)))
			p.toGroup(groupA, iwarp.Send(2, data(16)))
			h.allGet(data(16), b)
			h.settle()
			h.ExpectNoCompletion()
		}),
	},
	{
		ID:    "dg/group/number-of-groups-under-a-host-address",
		Title: "A packet to the number of groups that arrives under the device's own address vanishes",
		Cite:  cite("3", "dg/addr/6"), Level: conformance.Must, Needs: ud | verbs.CapMulticast, Labels: labelUD,
		Setup:   conformance.Setup{Family: 6},
		Sends:   "a Send and a segment that is wrong to the number of groups, under the address of the device; then a Send to the group",
		Expects: "nothing, then a receive",
		Defects: []string{"GroupsMixed"},
		Run: onPeer(func(p *peer) {
			p.attach(groupA, p.queue)
			p.send(dg.UD(iwarp.Send(1, data(8))).ToQP(dg.GroupQP), dg.UD(badWrite()).ToQP(dg.GroupQP))
			p.leavesNoTrace()
			p.toGroup(groupA, iwarp.Send(2, data(16)))
			p.gets(1, data(16))
		}),
	},
	{
		ID:    "dg/group/errors-are-not-answered",
		Title: "What is wrong with a packet to a group is not answered",
		Cite:  cite("3", "dg/addr/7", "dg/err/3"), Level: conformance.Must, Needs: ud | verbs.CapMulticast, Labels: labelUD,
		Setup:   conformance.Setup{Family: 6},
		Sends:   "a Write with a key that opens nothing, a Send to a queue that there is not and a Read Request, each to a group of its own",
		Expects: "no packet at all",
		Defects: []string{"GroupAnswered"},
		Run: onHost(func(h *host) {
			for i, wrong := range []iwarp.Segment{
				badWrite(), iwarp.Send(1, data(8)).QN(9), iwarp.ReadRequest(1, iwarp.At(peerSTag, peerTO), 8, iwarp.At(unknownSTag, 0)),
			} {
				q := h.queuePair(setup{receives: 2})
				group := netip.AddrFrom16([16]byte{0: 0xff, 1: 0x02, 13: 0xd9, 15: byte(i + 8)})
				h.attach(group, q)
				q.peer(0).toGroup(group, wrong)
				h.silence(quiet)
			}
		}),
	},
	{
		ID:    "dg/group/reliable-packets-are-not-answered",
		Title: "Nothing of RD that arrives under an address of many is taken or answered",
		Cite:  cite("3", "dg/addr/7"), Level: conformance.Must, Needs: rd, Labels: labelRD,
		Setup:   conformance.Setup{Family: 4, Reliable: true},
		Sends:   "to everybody: a start, data of a flow that nobody knows, data of one that is known, to the number of the queue pair and to that of groups",
		Expects: "no packet at all, and no receive; then an Ack for the same data under the device's own address",
		Defects: []string{"GroupAnswered"},
		Run: onFlow(setup{receives: 2}, func(p *peer) {
			d := p.following(iwarp.Send(1, data(8))).AckNow()
			stranger := p.peer(1)
			stranger.out.epoch = p.out.epoch + 1
			strange := stranger.packet(0, emptyWrite()).AckNow()
			for _, to := range []uint32{uint32(p.qp.QPN()), dg.GroupQP} {
				for _, pkt := range []dg.Packet{d, strange.FromQP(stranger.qpn), stranger.starting(0, strange).FromQP(stranger.qpn)} {
					p.put(p.way.under(everybody), pkt.ToQP(to).Over(p.path()).Append(nil))
				}
			}
			p.silence(quiet)
			p.ExpectNoCompletion()
			p.send(d)
			p.expectAck(2)
			p.gets(1, data(8))
		}),
	},
}

// attach attaches queue pairs to a group.
func (h *host) attach(group netip.Addr, qs ...*queue) {
	for _, q := range qs {
		h.Must("a queue pair that joins a group", q.qp.AttachMulticast(verbs.GIDFrom(group)))
	}
}

// toGroup sends a segment to a group.
func (p *peer) toGroup(group netip.Addr, s iwarp.Segment) {
	p.put(p.way.under(group), dg.UD(s).ToQP(dg.GroupQP).Over(p.path()).Append(nil))
}

// allGet ends the case unless each of some queue pairs, and no other, receives a message
// once by now.
func (h *host) allGet(message []byte, qs ...*queue) {
	got := make(map[verbs.QPN]int)
	for range qs {
		wc := h.NextCompletion()
		h.Check(wc.Status == verbs.WCSuccess && int(wc.ByteLen) == areaLen+len(message), "a receive of the message", "%v, %d octets", wc.Status, wc.ByteLen)
		got[wc.QPN]++
	}
	for _, q := range qs {
		h.Check(got[q.qp.QPN()] == 1, "one receive of each that is in the group", "%d of one", got[q.qp.QPN()])
	}
}
