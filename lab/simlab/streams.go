package simlab

import (
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/lab"
)

// streamPort applies the impairments of a port's cable to TCP streams, between the
// NIC and the streams of package sim, which are reliable. See stream.
type streamPort struct {
	link.StreamNet // that it impairs
	world          *sim.World
	ports          map[netip.Addr]*streamPort // of the rail, by address
	pipes          [2]*impair.Pipe            // by lab.Direction
	matchers       [2]*lab.StreamMatcher      // by lab.Direction
	numbers        map[streamEnds]int         // see connNumber
	open           map[link.StreamID]*stream
	traffic        [2]packetCount
	drops          [2]uint64 // by events
}

// streamEnds identifies a stream at one of its ends.
type streamEnds struct{ local, remote netip.AddrPort }

type packetCount struct{ packets, bytes uint64 }

// newStreamPort returns the streamPort of a port of the plan. Its pipes apply random impairments
// only, and need no dissector to parse packets. Its matchers find the segments for which the plan
// has events. byAddr has the streamPorts of the same rail.
func newStreamPort(w *sim.World, plan *lab.Plan, port int, byAddr map[netip.Addr]*streamPort) (*streamPort, error) {
	p := &streamPort{world: w, ports: byAddr, numbers: make(map[streamEnds]int), open: make(map[link.StreamID]*stream)}
	for direction, impairments := range []*lab.Impairments{lab.Out: &plan.Ports[port].Out, lab.In: &plan.Ports[port].In} {
		pipe, err := impair.NewPipe(impair.Config{Specs: impairments.Specs}, nil, plan.RandSources(port, lab.Direction(direction)))
		if err != nil {
			return nil, err
		}
		p.pipes[direction], p.matchers[direction] = pipe, lab.NewStreamMatcher(impairments.StreamEvents)
	}
	return p, nil
}

// connNumber returns the number by which the scenario's events identify a stream of the port: from
// 1, in the order in which connNumber is first called for them.
func (p *streamPort) connNumber(e streamEnds) int {
	n, known := p.numbers[e]
	if !known {
		n = len(p.numbers) + 1
		p.numbers[e] = n
	}
	return n
}

// wrapStream returns a stream of the port with impairments, and records it as open. The stream gets
// a connection number at each of its two ports, by which events of the scenario select it.
func (p *streamPort) wrapStream(inner link.StreamLink) *stream {
	s := &stream{StreamLink: inner, port: p}
	e := streamEnds{inner.LocalAddr(), inner.RemoteAddr()}
	s.peerPort = p.ports[e.remote.Addr()]
	s.connNumber = p.connNumber(e)
	if s.peerPort != nil {
		s.peerConnNumber = s.peerPort.connNumber(streamEnds{e.remote, e.local})
	}
	p.open[inner.ID()] = s
	return s
}

// Dial implements link.StreamNet.
func (p *streamPort) Dial(now mono.Time, local, remote netip.AddrPort) (link.StreamLink, error) {
	inner, err := p.StreamNet.Dial(now, local, remote)
	if err != nil {
		return nil, err
	}
	return p.wrapStream(inner), nil
}

// Listen implements link.StreamNet.
func (p *streamPort) Listen(addr netip.AddrPort, backlog int) (link.StreamListener, error) {
	inner, err := p.StreamNet.Listen(addr, backlog)
	if err != nil {
		return nil, err
	}
	return &streamListener{inner, p}, nil
}

// Ready implements link.StreamNet. It also writes the queued segments of each stream that the
// wrapped network reports as writable.
func (p *streamPort) Ready(ready []link.StreamReady) int {
	n := p.StreamNet.Ready(ready)
	for _, r := range ready[:n] {
		if s := p.open[r.ID]; r.Writable && s != nil {
			s.deliver()
		}
	}
	return n
}

// streamListener wraps the streams that it accepts.
type streamListener struct {
	link.StreamListener
	port *streamPort
}

// Accept implements link.StreamListener.
func (l *streamListener) Accept(now mono.Time) (link.StreamLink, error) {
	inner, err := l.StreamListener.Accept(now)
	if inner == nil {
		return nil, err
	}
	return l.port.wrapStream(inner), nil
}

// streamTap implements sim.StreamTap: it counts the segments of a port by direction, and passes
// them to the capture, which writes only those that leave the port.
func (f *fabric) streamTap(now mono.Time, at *sim.Port, dir sim.Direction, s *link.Segment) {
	if f.capture != nil {
		f.capture.writeSegment(now, at, dir, s)
	}
	p := f.streamPortOf[at]
	if p == nil {
		return
	}
	direction := lab.Out
	if dir == sim.In {
		direction = lab.In
	}
	p.traffic[direction].packets++
	const tcpTimestamps = 12 // the option, in every segment
	p.traffic[direction].bytes += uint64(s.IPBytes() + tcpTimestamps)
}
