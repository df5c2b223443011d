package ethernet

import (
	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/sim"
)

// Way is which way packets go past a host's port.
type Direction string

// The ways, by the names that they have in a simulated world.
const (
	Up   Direction = "up"   // from the host: uswitch.In at its port
	Down Direction = "down" // to the host: uswitch.Out
)

// Sources returns the streams of chance that a port of that name, in a net of that
// name, has in a simulated world of that seed: so the same packets in the same
// order meet the same fate here.
func Sources(seed uint64, net, port string, way Direction) func(kind string) impair.Source {
	w := sim.New(sim.Config{Seed: seed})
	return func(kind string) impair.Source {
		return w.Rand(net + "/" + port + "/" + string(way) + "/" + kind)
	}
}
