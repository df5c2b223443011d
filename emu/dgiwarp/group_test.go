package dgiwarp

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// toGroup has one end send to a group, and all members but none else receive it:
// also those on the sender's own device.
func toGroup(group netip.Addr, sender *end, members, others []*end) {
	gid := verbs.GIDFrom(group)
	for _, e := range slices.Concat(members, others) {
		e.recv(0, 5000)
	}
	for _, e := range members {
		must.Do(e, e.QP.AttachMulticast(gid))
		must.Do(e, e.QP.AttachMulticast(gid)) // changes nothing
	}
	number(sender.Buf[:5000], 3)
	sender.send(Source{netip.AddrPortFrom(group, 0), verbs.MulticastQPN}, 0, 5000)
	sender.Succeed()
	for i, e := range members {
		wc := e.Succeed()
		from, b := e.message(&wc)
		if n, err := numbered(b); err != nil || n != 3 || len(b) != 5000 || from != sender.where() {
			e.Errorf("member %d: %d bytes from %v, want %v; %v", i, len(b), from, sender.where(), err)
		}
		must.Fail(e, "close of a member", e.QP.Close(), verbs.ErrBusy)
		must.Do(e, e.QP.DetachMulticast(gid))
		must.Fail(e, "detach again", e.QP.DetachMulticast(gid), verbs.ErrInvalid)
	}
	for _, e := range others {
		e.quiet(20 * time.Millisecond)
	}
}

func TestMulticastInSimulation(t *testing.T) {
	w, ds := netInWorld(t, 8, 4, impair.Config{}, Config{})
	sender := newEnd(t, ds[0], unreliable)
	members := []*end{newEnd(t, ds[0], unreliable), newEnd(t, ds[1], unreliable), newEnd(t, ds[1], unreliable), newEnd(t, ds[2], unreliable)}
	others := []*end{newEnd(t, ds[2], unreliable), newEnd(t, ds[3], unreliable)}
	run(t, w, func(*sim.Proc) {
		toGroup(netip.MustParseAddr("ff05::1234"), sender, members, others)
	})
}

// All attached queue pairs receive a broadcast: on other devices, and on the sender's.
func TestBroadcastInSimulation(t *testing.T) {
	w := sim.New(sim.Config{Seed: 8, MaxTime: maxWorldTime})
	net := must.Get(sim.NewNet(w, sim.NetConfig{}))(t)
	var ends []*end
	for i := range 4 {
		d := attach(t, w, net, netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), impair.Config{}, Config{})
		ends = append(ends, newEnd(t, d, unreliable), newEnd(t, d, unreliable))
	}
	run(t, w, func(*sim.Proc) {
		toGroup(netip.MustParseAddr("255.255.255.255"), ends[0], ends[1:6], ends[6:])
	})
}

// RD has no groups, neither to receive from nor to send to.
func TestRDHasNoGroups(t *testing.T) {
	w, a, _ := pairInWorld(t, 8, impair.Config{})
	e := newEnd(t, a, reliable)
	group := netip.MustParseAddr("ff05::1234")
	run(t, w, func(*sim.Proc) {
		must.Fail(t, "attach", e.QP.AttachMulticast(verbs.GIDFrom(group)), verbs.ErrInvalid)
		must.Fail(t, "send", e.trySend(Source{netip.AddrPortFrom(group, 0), verbs.MulticastQPN}, 0, 10), verbs.ErrInvalid)
	})
}
