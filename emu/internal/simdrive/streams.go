package simdrive

import (
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/internal/drive"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/verbs"
)

// StreamPort is the end of a simulated link, as NewStreams needs it.
type StreamPort interface {
	StreamHost() *sim.StreamHost
	PortEvents
}

// StreamDriver is a drive.StreamDriver.
type StreamDriver struct {
	*Driver
	*drive.Streams
}

var _ drive.StreamDriver = (*StreamDriver)(nil)

// NewStreams returns a driver of e on n, which is the port's StreamHost or a wrapper of
// it. The observer is called for changes of the port, with the lock held.
func NewStreams(w *sim.World, e drive.StreamEngine, n link.StreamNet, port StreamPort, costs verbs.Costs, o link.PortObserver) *StreamDriver {
	s := drive.NewStreams(e, n)
	d := &StreamDriver{Driver: newDriver(w, e, (*streamNetwork)(s), costs), Streams: s}
	port.StreamHost().OnReady(d, eventReadable)
	d.observePort(d, port, o)
	return d
}

// Dial implements drive.StreamDriver.
func (d *StreamDriver) Dial(conn drive.StreamConn, local, remote netip.AddrPort) error {
	return d.Streams.Dial(d.Now(), conn, local, remote)
}

// streamNetwork is the network of a drive.StreamEngine: byte streams.
type streamNetwork drive.Streams

func (n *streamNetwork) receive(now mono.Time) {
	for {
		// A read returns at most one segment: repeat until nothing is left.
		arrived, more := (*drive.Streams)(n).Receive(now)
		if !arrived && !more {
			return
		}
	}
}

func (n *streamNetwork) flush(now mono.Time) bool {
	for !(*drive.Streams)(n).Flush(now) {
	}
	return false
}
