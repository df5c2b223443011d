package providertest

import (
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/internal/must"
)

// AddrA and AddrB are the addresses of the two ports of a cable.
var (
	AddrA = netip.MustParseAddr("fd00::1")
	AddrB = netip.MustParseAddr("fd00::2")
)

// Cable describes two ports in a simulated world. The zero value is a cable without
// impairments between AddrA and AddrB.
type Cable struct {
	Seed      uint64
	MaxEvents uint64
	Net       sim.NetConfig
	Link      sim.LinkConfig // zero: 100 Gb/s, 1 µs, MTU 4200
	Up        impair.Config  // of both directions
	Addrs     [2]netip.Addr
}

// Open makes the world and the ports. The world ends after 5 minutes.
func (c Cable) Open(t testing.TB) (*sim.World, [2]*sim.Port) {
	t.Helper()
	if c.Link == (sim.LinkConfig{}) {
		c.Link = sim.LinkConfig{RateBps: 100e9, Latency: time.Microsecond, MTU: 4200}
	}
	if !c.Addrs[0].IsValid() {
		c.Addrs = [2]netip.Addr{AddrA, AddrB}
	}
	w := sim.New(sim.Config{Seed: c.Seed, MaxTime: mono.Time(5 * time.Minute), MaxEvents: c.MaxEvents})
	port := func(i int) sim.PortConfig {
		return sim.PortConfig{Addrs: c.Addrs[i : i+1], Up: c.Up, Link: c.Link}
	}
	a, b, err := sim.NewPair(w, c.Net, port(0), port(1))
	must.Do(t, err)
	return w, [2]*sim.Port{a, b}
}
