package simdrive

import (
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/internal/drive"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/sim"
)

// StreamPort is the end of a simulated link as a driver of streams needs it.
type StreamPort interface {
	StreamHost() *sim.StreamHost
	PortEvents
}

// StreamDriver drives one engine on byte streams: a drive.StreamDriver.
type StreamDriver struct {
	*Driver
	*drive.Streams
}

var _ drive.StreamDriver = (*StreamDriver)(nil)

// NewStreams drives e on n, which is the port's StreamHost or a decorator of it.
// The observer is told what becomes of the port, with the engine's lock held.
func NewStreams(w *sim.World, e drive.StreamEngine, n link.StreamNet, port StreamPort, costs Costs, o link.PortObserver) *StreamDriver {
	s := drive.NewStreams(e, n)
	d := &StreamDriver{Driver: newDriver(w, e, (*streams)(s), costs), Streams: s}
	port.StreamHost().OnReady(d, eventReadable)
	d.observe(d, port, o)
	return d
}

// Dial starts a stream for conn.
func (d *StreamDriver) Dial(conn drive.StreamConn, local, remote netip.AddrPort) error {
	return d.Streams.Dial(d.Now(), conn, local, remote)
}

// streams is a network of byte streams.
type streams drive.Streams

func (n *streams) takeIn(now mono.Time) {
	for {
		// A read gives no more than a segment: there is more until nothing arrives.
		arrived, more := (*drive.Streams)(n).Receive(now)
		if !arrived && !more {
			return
		}
	}
}

func (n *streams) flush(now mono.Time) bool {
	for !(*drive.Streams)(n).Flush(now) {
	}
	return false
}
