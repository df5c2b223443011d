package simlab

import (
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/lab"
)

// Simulated streams are reliable, and the network below them loses nothing. What a
// scenario says of packets, they meet here, between the NIC and its streams, as TCP
// would have it: see stream.

// streamPort is the streams of a host's port, with what their segments meet on its
// cable.
type streamPort struct {
	link.StreamNet
	world *sim.World
	ports map[netip.Addr]*streamPort // of the rail, by address
	pipes [2]*impair.Pipe            // by lab.Way
	watch [2]*lab.StreamWatch        // likewise
	names map[ends]int               // which of the port's streams each is
	open  map[link.StreamID]*stream
	seen  [2]traffic
	drops [2]uint64 // by events
}

// ends names a stream as its own end does.
type ends struct{ local, remote netip.AddrPort }

// traffic counts segments.
type traffic struct{ packets, bytes uint64 }

// newStreamPort makes what the streams of a port of the plan meet.
func newStreamPort(w *sim.World, plan *lab.Plan, port int, rail map[netip.Addr]*streamPort) (*streamPort, error) {
	p := &streamPort{world: w, ports: rail, names: make(map[ends]int), open: make(map[link.StreamID]*stream)}
	for way, m := range []*lab.Impairments{lab.Out: &plan.Ports[port].Out, lab.In: &plan.Ports[port].In} {
		pipe, err := impair.NewPipe(impair.Config{Specs: m.Specs}, nil, plan.Streams(port, lab.Way(way)))
		if err != nil {
			return nil, err
		}
		p.pipes[way], p.watch[way] = pipe, lab.NewStreamWatch(m.Streams)
	}
	return p, nil
}

// around puts the port between a NIC and its streams.
func (p *streamPort) around(n link.StreamNet) link.StreamNet {
	p.StreamNet = n
	return p
}

// setSpecs replaces what happens by chance.
func (p *streamPort) setSpecs(way lab.Way, specs []impair.Spec) error {
	return p.pipes[way].SetSpecs(specs)
}

// number is which of the port's streams one is, in the order in which they came.
func (p *streamPort) number(e ends) int {
	n, known := p.names[e]
	if !known {
		n = len(p.names) + 1
		p.names[e] = n
	}
	return n
}

// adopt wraps a stream of the port's.
func (p *streamPort) adopt(inner link.StreamLink) *stream {
	s := &stream{StreamLink: inner, port: p}
	e := ends{inner.LocalAddr(), inner.RemoteAddr()}
	s.far = p.ports[e.remote.Addr()]
	s.conn = p.number(e)
	if s.far != nil {
		s.farConn = s.far.number(ends{e.remote, e.local})
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
	return p.adopt(inner), nil
}

// Listen implements link.StreamNet.
func (p *streamPort) Listen(addr netip.AddrPort, backlog int) (link.StreamListener, error) {
	inner, err := p.StreamNet.Listen(addr, backlog)
	if err != nil {
		return nil, err
	}
	return &streamListener{inner, p}, nil
}

// Ready implements link.StreamNet. Where there is room again, what waits here goes
// first.
func (p *streamPort) Ready(ready []link.StreamReady) int {
	n := p.StreamNet.Ready(ready)
	for _, r := range ready[:n] {
		if s := p.open[r.ID]; r.Writable && s != nil {
			s.release()
		}
	}
	return n
}

// streamListener takes streams of a port.
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
	return l.port.adopt(inner), nil
}

// segment is a sim.StreamTap: segments count where they leave a port and where
// they come to one, and are captured where they leave it.
func (f *fabric) segment(now mono.Time, at *sim.Port, dir sim.Direction, s *link.Segment) {
	if f.capture != nil {
		f.capture.segment(now, at, dir, s)
	}
	p := f.streamOf[at]
	if p == nil {
		return
	}
	way := lab.Out
	if dir == sim.In {
		way = lab.In
	}
	p.seen[way].packets++
	p.seen[way].bytes += uint64(segmentBytes(s))
}

// segmentBytes is what a segment takes on the wire from its IP header on.
func segmentBytes(s *link.Segment) int {
	const tcpHeader = 32 // with timestamps
	ip := link.IPv6HeaderLen
	if s.Src.Addr().Is4() {
		ip = link.IPv4HeaderLen
	}
	return ip + tcpHeader + len(s.Payload)
}
