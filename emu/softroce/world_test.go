package softroce

import (
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/providertest"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

type (
	end    = providertest.End
	player = providertest.Player
)

var (
	addrA, addrB = providertest.AddrA, providertest.AddrB
	counter      = providertest.Counter
)

// pairInWorld opens two devices on one cable.
func pairInWorld(t testing.TB, seed uint64, spec impair.Config) (*sim.World, *Device, *Device) {
	t.Helper()
	w, ports := providertest.Cable{Seed: seed, Net: sim.NetConfig{Dissector: Dissector{}}, Up: spec}.Open(t)
	return w, openOn(t, w, ports[0], ports[0], Config{Name: "a"}), openOn(t, w, ports[1], ports[1], Config{Name: "b"})
}

// openOn opens a device on a port, through a link that may change its packets.
func openOn(t testing.TB, w *sim.World, p *sim.Port, l link.PacketLink, cfg Config) *Device {
	t.Helper()
	return must.Get(InWorld(w, p, l, cfg))(t)
}

// inWorld runs one program on each of two devices.
func inWorld(t *testing.T, onA, onB func(p *sim.Proc, d *Device)) {
	t.Helper()
	w, a, b := pairInWorld(t, 1, impair.Config{})
	w.Go("a", func(p *sim.Proc) error { onA(p, a); return nil })
	w.Go("b", func(p *sim.Proc) error { onB(p, b); return nil })
	must.Do(t, w.RunPrograms())
}

func idle(*sim.Proc, *Device) {}

func newEnd(t testing.TB, d *Device) *end {
	t.Helper()
	return providertest.NewEnd(t, d, verbs.QPTypeRC)
}

// acceptOne accepts one connection.
func acceptOne(t testing.TB, d *Device, at netip.AddrPort) (*end, verbs.Conn) {
	t.Helper()
	return providertest.Accept(t, d, at, func() {})
}

// echoOf exchanges n messages between two devices.
func echoOf(a, b *Device, n int) providertest.Echo {
	return providertest.Echo{Client: a, Server: b, To: b.cfg.Addrs[0], Messages: n, Start: time.Millisecond}
}

const toInit = verbs.QPAttrState | verbs.QPAttrPKeyIndex | verbs.QPAttrPort | verbs.QPAttrAccessFlags

// players makes two players that are connected without the connection manager, with receives
// posted.
func players(t testing.TB, da, db *Device, block bool) (a, b *player) {
	t.Helper()
	x, y := newEnd(t, da), newEnd(t, db)
	providertest.JoinRC(x, y)
	a, b = providertest.NewPlayer(x, 8, block, verbs.UD{}), providertest.NewPlayer(y, 8, block, verbs.UD{})
	must.Do(t, a.Receive(32))
	must.Do(t, b.Receive(32))
	return a, b
}
