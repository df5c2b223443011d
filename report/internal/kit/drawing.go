package kit

import (
	"html/template"

	"github.com/fabrictest/fabrictest/netns/topology"
)

// State is the state of a link or a host in a drawing, the worst last.
type State int

// States.
const (
	Fine     State = iota
	Impaired       // impaired, without losses
	Lossy          // packets were lost
	Down           // down, temporarily or permanently
)

// String returns the CSS class of the state.
func (s State) String() string {
	return [...]string{"fine", "impaired", "lossy", "down"}[s]
}

// Part is the appearance of a link or a host.
type Part struct {
	State State
	Label string // label, shown if it fits
	Title string // tooltip
}

// Looks returns the appearance of the parts of a fabric.
type Looks interface {
	Cable(c *topology.Cable) Part
	Host(h *topology.Host) Part
}

// Drawing is an SVG element with its size.
type Drawing struct {
	SVG           template.HTML
	Width, Height int
}

// MaxHosts is the largest number of hosts that are drawn separately. Above it, hosts of a
// switch without events are drawn as one.
const MaxHosts = 96

// Draw draws a fabric.
func Draw(t *topology.Topology, looks Looks) Drawing {
	g := newGraph(t, looks)
	g.fold(MaxHosts)
	switch {
	case len(g.switches) == 0:
		g.layPair()
	case len(g.switches) == 1:
		g.layRing()
	default:
		g.layRows()
	}
	return g.render()
}
