package softiwarp

import (
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/providertest"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// couple is two connected ends in one simulated world, for a program that plays both sides.
type couple struct {
	testing.TB
	p      *sim.Proc
	a, b   *end // a has connected, b has accepted
	ca, cb verbs.Conn
}

// coupled runs a program on two connected ends.
func coupled(t *testing.T, net sim.NetConfig, play func(c *couple), cfgs ...Config) {
	t.Helper()
	w, da, db := pairInWorld(t, 1, net, cfgs...)
	w.Go("both", func(p *sim.Proc) error {
		play(newCouple(t, p, da, db))
		return nil
	})
	must.Do(t, w.RunPrograms())
}

// newCouple connects an end of each device.
func newCouple(t testing.TB, p *sim.Proc, da, db *Device) *couple {
	c := &couple{TB: t, p: p, b: newEnd(t, db)}
	at := netip.AddrPortFrom(db.cfg.Addrs[0], 9)
	p.World().Go("accept", func(*sim.Proc) error {
		l := providertest.Listen(t, db, at, 0)
		c.cb = c.b.AcceptFrom(l, connParam)
		return l.Close()
	})
	p.Sleep(time.Millisecond)
	c.a, c.ca = connectTo(t, da, at)
	for c.cb == nil {
		p.Sleep(time.Microsecond)
	}
	return c
}
