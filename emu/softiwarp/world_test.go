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

type end = providertest.End

const fullAccess = providertest.FullAccess

var (
	addrA, addrB = providertest.AddrA, providertest.AddrB
	connParam    = providertest.ConnParam
	counter      = providertest.Counter
)

// pairInWorld opens two devices on one cable.
func pairInWorld(t testing.TB, seed uint64, net sim.NetConfig, cfgs ...Config) (*sim.World, *Device, *Device) {
	t.Helper()
	return onCable(t, providertest.Cable{Seed: seed, Net: net}, cfgs...)
}

// onCable opens two devices on a cable.
func onCable(t testing.TB, c providertest.Cable, cfgs ...Config) (*sim.World, *Device, *Device) {
	t.Helper()
	w, ports := c.Open(t)
	var devices [2]*Device
	for i, p := range ports {
		cfg := Config{}
		if i < len(cfgs) {
			cfg = cfgs[i]
		}
		cfg.Name = string(rune('a' + i))
		devices[i] = must.Get(InWorld(w, p, portNet{p.StreamHost(), p}, cfg))(t)
	}
	return w, devices[0], devices[1]
}

// portNet is the streams of a port.
type portNet struct {
	*sim.StreamHost
	port *sim.Port
}

func portOf(d *Device) *sim.Port { return d.net.(portNet).port }

func newEnd(t testing.TB, d *Device) *end {
	t.Helper()
	return providertest.NewEnd(t, d, verbs.QPTypeRC)
}

func listen(t testing.TB, d *Device, at netip.AddrPort) verbs.Listener {
	t.Helper()
	return providertest.Listen(t, d, at, 0)
}

// acceptOne accepts one connection.
func acceptOne(t testing.TB, d *Device, at netip.AddrPort) (*end, verbs.Conn) {
	t.Helper()
	return providertest.Accept(t, d, at, func() {})
}

func connectTo(t testing.TB, d *Device, to netip.AddrPort) (*end, verbs.Conn) {
	t.Helper()
	return providertest.Connect(t, d, to)
}

// echoOf exchanges n messages between two devices.
func echoOf(a, b *Device, n int) providertest.Echo {
	return providertest.Echo{Client: a, Server: b, To: b.cfg.Addrs[0], Messages: n, Ahead: 2, Start: time.Millisecond}
}

// echo exchanges messages in real time.
func echo(t testing.TB, a, b *Device, n int) error { return echoOf(a, b, n).Run(t) }
