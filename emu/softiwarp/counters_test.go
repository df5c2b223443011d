package softiwarp

import (
	"slices"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/verbs"
)

// The counters of a device are the same ones in the same order from when it is
// opened until after it is closed, whatever has happened to it.
func TestCounterNames(t *testing.T) {
	names := func(d *Device) (names []string) {
		for _, c := range d.Counters() {
			names = append(names, c.Name)
		}
		return names
	}
	var first []string
	same := func(d *Device, when string) {
		t.Helper()
		if got := names(d); !slices.Equal(got, first) {
			t.Errorf("%s: %d counters, not the %d of before: %q", when, len(got), len(first), got)
		}
	}
	w, a, b := pairInWorld(t, 3, sim.NetConfig{})
	first = names(a)
	if unique := slices.Compact(slices.Sorted(slices.Values(first))); len(unique) != len(first) {
		t.Errorf("of %d names %d are used twice", len(first), len(first)-len(unique))
	}
	same(b, "another device")
	w.Go("server", func(*sim.Proc) error {
		e, c, err := acceptOne(b, at(5), func() {})
		if err != nil {
			return err
		}
		same(b, "accepted")
		if err := c.WaitDisconnect(verbs.Forever); err != nil {
			return err
		}
		same(b, "terminated")
		return e.qp.Close()
	})
	w.Go("client", func(p *sim.Proc) error {
		p.Sleep(time.Millisecond)
		if _, _, err := connectTo(a, at(1)); err == nil {
			t.Error("somebody listens at port 1")
		}
		same(a, "refused")
		e, c, err := connectTo(a, at(5))
		if err != nil {
			return err
		}
		same(a, "connected")
		if err := e.send(0, 1); err != nil { // there is no receive for it
			return err
		}
		if err := c.WaitDisconnect(verbs.Forever); err != nil {
			return err
		}
		same(a, "terminated")
		return e.qp.Close()
	})
	if err := w.RunPrograms(); err != nil {
		t.Fatal(err)
	}
	for d, name := range map[*Device]string{a: "rcvd_terminate_1_2_02", b: "sent_terminate_1_2_02"} {
		if counter(d, name) != 1 || !slices.Contains(first, name) {
			t.Errorf("%s is %d", name, counter(d, name))
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		same(d, "closed")
	}
}
