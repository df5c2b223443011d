package engine

import (
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

func TestMulticastReachesAttachedQPs(t *testing.T) {
	for _, group := range []netip.Addr{netip.MustParseAddr("239.1.2.3"), limitedBroadcast} {
		w := newNetwork(t)
		a := w.host().newQP(false)
		var members []*testQP
		for range 2 {
			h := w.host()
			for range 2 {
				members = append(members, h.newQP(false))
			}
		}
		unattached := w.hosts[1].newQP(false)
		for _, m := range append(members, unattached) {
			m.recv(1, 0, 100)
		}
		for _, m := range members {
			must.Do(t, m.h.nic.Attach(m.QP, group))
		}
		send := func() {
			wr := verbs.SendWR{Opcode: verbs.OpSend, SGL: a.sge(0, 10), UD: verbs.UD{QPN: verbs.QPN(wire.MulticastQP), QKey: testKey}}
			must.Do(t, a.PostSend(w.now, &wr, Refs{AH: a.h.ah(group)}))
			w.run(time.Millisecond)
		}
		send()
		for _, m := range members {
			m.expectSuccess(1)
		}
		unattached.expectCompletions(0)
		must.Fail(t, "destroying a member", members[0].h.nic.DestroyQP(members[0].QP), verbs.ErrBusy)
		for _, m := range members {
			must.Do(t, m.h.nic.Detach(m.QP, group))
			m.recv(1, 0, 100)
		}
		send()
		for _, m := range members {
			m.expectCompletions(0)
		}
	}
}

func TestMulticastPacketsGetNoReply(t *testing.T) {
	w, a, b := pair(t, false)
	group := netip.MustParseAddr("239.1.2.3")
	must.Do(t, b.h.nic.Attach(b.QP, group))
	w.intercept = func(d *link.Datagram, k *wire.Packet) bool {
		d.Dst = netip.AddrPortFrom(group, wire.Port)
		k.DstQP = wire.MulticastQP
		d.Payload = k.Append(nil)
		return false
	}
	a.post(b, verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: a.sge(0, 10), Remote: verbs.Remote{RKey: 77}})
	w.run(time.Millisecond)
	if w.sent != 1 || b.h.nic.Count.ErrorsFound != 1 || b.state != verbs.QPStateErr {
		t.Errorf("%d packets, %d errors, state %v", w.sent, b.h.nic.Count.ErrorsFound, b.state)
	}
	// A reliable packet to a group finds no QP, and gets no reply.
	w2, c, d := pair(t, true)
	w2.intercept = w.intercept
	c.send(d, 1, 10)
	w2.run(time.Millisecond)
	if c.h.nic.rd.Count.DropChallenge+d.h.nic.rd.Count.SentChallenges+d.h.nic.rd.Count.SentRefusals != 0 || d.h.nic.Count.DropQPN == 0 {
		t.Error("a reliable packet to a group got a reply")
	}
	must.Fail(t, "attaching a reliable QP", d.h.nic.Attach(d.QP, group), verbs.ErrInvalid)
}

func TestMulticastGroupsAreLimited(t *testing.T) {
	const groups, members = 2, 3
	h := newNetwork(t).host(func(c *Config) { c.Limits = nic.Limits{McastGroups: groups, McastQPs: members} })
	group := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{239, 1, 2, byte(i)}) }
	q := h.newQP(false)
	for i := range groups {
		must.Do(t, h.nic.Attach(q.QP, group(i)))
	}
	must.Fail(t, "a group too many", h.nic.Attach(q.QP, group(groups)), verbs.ErrNoMemory)
	for range members - 1 {
		must.Do(t, h.nic.Attach(h.newQP(false).QP, group(0)))
	}
	must.Fail(t, "a member too many", h.nic.Attach(h.newQP(false).QP, group(0)), verbs.ErrNoMemory)
	must.Do(t, h.nic.Attach(q.QP, group(0))) // it is a member already
}
