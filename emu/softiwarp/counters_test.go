package softiwarp

import (
	"slices"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// The counters of a device are the same ones in the same order, whatever has happened to it.
func TestCounterNamesDuringConnections(t *testing.T) {
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
	w.Go("server", func(*sim.Proc) error {
		e, c := acceptOne(t, b, at(5))
		same(b, "accepted")
		must.Do(t, c.WaitDisconnect(verbs.Forever))
		same(b, "terminated")
		return e.QP.Close()
	})
	w.Go("client", func(p *sim.Proc) error {
		p.Sleep(time.Millisecond)
		if _, err := newEnd(t, a).TryConnect(at(1)); err == nil {
			t.Error("connected to a closed port")
		}
		same(a, "refused")
		e, c := connectTo(t, a, at(5))
		same(a, "connected")
		e.Send(0, 1) // there is no receive for it
		must.Do(t, c.WaitDisconnect(verbs.Forever))
		same(a, "terminated")
		return e.QP.Close()
	})
	must.Do(t, w.RunPrograms())
	for d, name := range map[*Device]string{a: "rcvd_terminate_1_2_02", b: "sent_terminate_1_2_02"} {
		if counter(d, name) != 1 || !slices.Contains(first, name) {
			t.Errorf("%s is %d", name, counter(d, name))
		}
	}
}
