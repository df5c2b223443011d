package dgiwarp

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/verbs"
)

// toGroup has one end send to a group, and all members but none else receive it:
// also those on the sender's own device.
func toGroup(group netip.Addr, sender *end, members, others []*end) error {
	gid := verbs.GIDFrom(group)
	for i, e := range append(append([]*end{}, members...), others...) {
		if err := e.recv(0, 5000); err != nil {
			return err
		}
		if i >= len(members) {
			continue
		}
		for range 2 { // the second time it does nothing
			if err := e.qp.AttachMulticast(gid); err != nil {
				return err
			}
		}
	}
	number(sender.buf[:5000], 3)
	if err := sender.send(Source{netip.AddrPortFrom(group, 0), verbs.MulticastQPN}, 0, 5000); err != nil {
		return err
	}
	if _, err := sender.succeed(); err != nil {
		return err
	}
	for i, e := range members {
		wc, err := e.succeed()
		if err != nil {
			return fmt.Errorf("member %d: %w", i, err)
		}
		from, b, err := e.message(&wc)
		if err != nil || from != sender.where() {
			return fmt.Errorf("member %d: from %v, want %v; %w", i, from, sender.where(), err)
		}
		if n, err := numbered(b); err != nil || n != 3 || len(b) != 5000 {
			return fmt.Errorf("member %d: %d bytes, %w", i, len(b), err)
		}
		if err := e.qp.Close(); !errors.Is(err, verbs.ErrBusy) {
			return fmt.Errorf("closing a member: %w", err)
		}
		if err := e.qp.DetachMulticast(gid); err != nil {
			return err
		}
		if err := e.qp.DetachMulticast(gid); !errors.Is(err, verbs.ErrInvalid) {
			return fmt.Errorf("detaching twice: %w", err)
		}
	}
	for i, e := range others {
		if err := e.quiet(20 * time.Millisecond); err != nil {
			return fmt.Errorf("outsider %d: %w", i, err)
		}
	}
	return nil
}

func TestMulticastInSimulation(t *testing.T) {
	w, ds := netInWorld(t, 8, 4, impair.Config{}, Config{})
	sender := mustEnd(t, ds[0], unreliable)
	members := []*end{mustEnd(t, ds[0], unreliable), mustEnd(t, ds[1], unreliable), mustEnd(t, ds[1], unreliable), mustEnd(t, ds[2], unreliable)}
	others := []*end{mustEnd(t, ds[2], unreliable), mustEnd(t, ds[3], unreliable)}
	run(t, w, func(*sim.Proc) error {
		return toGroup(netip.MustParseAddr("ff05::1234"), sender, members, others)
	})
}

// All attached queue pairs receive a broadcast: on other devices, and on the sender's.
func TestBroadcastInSimulation(t *testing.T) {
	w := sim.New(sim.Config{Seed: 8, MaxTime: maxWorldTime})
	net, err := sim.NewNet(w, sim.NetConfig{})
	if err != nil {
		t.Fatal(err)
	}
	var ends []*end
	for i := range 4 {
		d := attach(t, w, net, netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), impair.Config{}, Config{})
		ends = append(ends, mustEnd(t, d, unreliable), mustEnd(t, d, unreliable))
	}
	run(t, w, func(*sim.Proc) error {
		return toGroup(netip.MustParseAddr("255.255.255.255"), ends[0], ends[1:6], ends[6:])
	})
}

// RD has no groups, neither to receive from nor to send to.
func TestRDHasNoGroups(t *testing.T) {
	w, a, _ := pairInWorld(t, 8, impair.Config{})
	e := mustEnd(t, a, reliable)
	group := netip.MustParseAddr("ff05::1234")
	run(t, w, func(*sim.Proc) error {
		if err := e.qp.AttachMulticast(verbs.GIDFrom(group)); !errors.Is(err, verbs.ErrInvalid) {
			return fmt.Errorf("attached: %w", err)
		}
		if err := e.send(Source{netip.AddrPortFrom(group, 0), verbs.MulticastQPN}, 0, 10); !errors.Is(err, verbs.ErrInvalid) {
			return fmt.Errorf("sent: %w", err)
		}
		return nil
	})
}
