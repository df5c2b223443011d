package page

import (
	"html/template"

	"github.com/fabrictest/fabrictest/netns/topology"
)

// State is what became of a link or a host, the worst last.
type State int

// The states.
const (
	Fine     State = iota
	Impaired       // something was to happen to packets, and none was lost
	Lossy          // packets were lost
	Down           // it was cut off or ended, for a while or for good
)

// String is the name of the state's style.
func (s State) String() string {
	return [...]string{"fine", "impaired", "lossy", "down"}[s]
}

// Part is how a link or a host is to be drawn.
type Part struct {
	State State
	Label string // a word on the drawing, where there is room
	Title string // what is seen when one points at it
}

// Looks says how to draw the parts of a fabric.
type Looks interface {
	Cable(c *topology.Cable) Part
	Host(h *topology.Host) Part
}

// Drawing is an SVG element and its size.
type Drawing struct {
	SVG           template.HTML
	Width, Height int
}

// MaxHosts is how many hosts are drawn one by one. Beyond, those of a switch to
// which nothing happened become one.
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
