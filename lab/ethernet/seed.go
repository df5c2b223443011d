package ethernet

import (
	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/sim"
)

// Direction is the direction of packets at a host's port.
type Direction string

// Directions, named as in package sim.
const (
	Up   Direction = "up"   // from the host: uswitch.In at its port
	Down Direction = "down" // to the host: uswitch.Out
)

// Sources returns the random streams that a port has in a simulation with that
// seed, net and port name: the same packets in the same order get the same
// decisions.
func Sources(seed uint64, net, port string, dir Direction) func(kind string) impair.Source {
	w := sim.New(sim.Config{Seed: seed})
	return func(kind string) impair.Source {
		return w.Rand(net + "/" + port + "/" + string(dir) + "/" + kind)
	}
}
