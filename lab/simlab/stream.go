package simlab

import (
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/lab"
)

// stream is the sending side of one end of a stream. What is written is cut into
// segments, and each meets what packets meet on the cables of both hosts:
//
//   - one that is lost, or cut short, is sent again: soon if three behind it got
//     through, as TCP's duplicate acknowledgements tell, else after a time that
//     doubles with each loss;
//   - one that is delayed, or held back for others to overtake, holds up what is
//     behind it, since a stream keeps its order;
//   - one that is damaged arrives damaged: TCP's checksum is weak, and where it is
//     not, damage is loss;
//   - copies are of no consequence.
//
// What has got through is written to the stream below, which takes its own time. It
// takes all that the NIC writes: TCP's buffers grow with what is under way.
type stream struct {
	link.StreamLink
	port, far     *streamPort // far is nil where nobody has the address
	conn, farConn int
	written       uint64

	queue  []*segment
	losses int  // of them, to be sent again
	ends   bool // behind them, our direction does
	broken error
	spare  []impair.Outcome
}

// segment is a part of a stream that has not been handed on.
type segment struct {
	data  []byte
	at    mono.Time // when it gets through, if it does
	lost  bool      // it did not, and is to be sent again
	tries int       // so far, in vain
	dups  int       // segments sent after it that got through since
	reset bool      // it breaks the stream
}

const (
	// firstTimeout is how long TCP waits for an acknowledgement at least; Linux does
	// so.
	firstTimeout = 200 * time.Millisecond
	// maxDoublings bounds how long it comes to wait.
	maxDoublings = 8
	// dupThreshold is how many later segments tell that one is lost.
	dupThreshold = 3
	// fastRetry is how long it takes to hear of them.
	fastRetry = 10 * time.Microsecond
)

// clear reports that there is nothing to be met, now or later.
func (s *stream) clear() bool {
	for _, p := range []*streamPort{s.port, s.far} {
		if p == nil {
			continue
		}
		for way := range p.pipes {
			if !p.pipes[way].Transparent() || !p.watch[way].Empty() {
				return false
			}
		}
	}
	return len(s.queue) == 0
}

// Write implements link.StreamLink.
func (s *stream) Write(now mono.Time, b []byte) (int, error) {
	return s.Writev(now, [][]byte{b}, false)
}

// Writev implements link.StreamLink.
func (s *stream) Writev(now mono.Time, bufs [][]byte, more bool) (int, error) {
	switch {
	case s.broken != nil:
		return 0, s.broken
	case s.ends:
		return 0, link.ErrWriteClosed
	case s.clear() || !s.Connected(now):
		n, err := s.StreamLink.Writev(now, bufs, more)
		s.written += uint64(n)
		return n, err
	}
	// What the stream below has to say, it says to a write of nothing.
	if _, err := s.StreamLink.Writev(now, nil, false); err != nil {
		return 0, err
	}
	n := 0
	for _, b := range bufs {
		n += len(b)
	}
	for rest := joined(bufs, n); len(rest) > 0; {
		part := rest[:min(len(rest), max(s.MSS(), 1))]
		rest = rest[len(part):]
		s.send(now, part)
	}
	s.release()
	return n, s.broken
}

func joined(bufs [][]byte, n int) []byte {
	all := make([]byte, 0, n)
	for _, b := range bufs {
		all = append(all, b...)
	}
	return all
}

// send puts a segment on the wire for the first time.
func (s *stream) send(now mono.Time, data []byte) {
	g := &segment{data: data}
	s.queue = append(s.queue, g)
	held, dropped := s.events(g)
	s.written += uint64(len(data))
	if dropped {
		s.lose(now, g)
		return
	}
	s.transmit(now, g, held)
}

// events does what exact events say of a segment.
func (s *stream) events(g *segment) (held time.Duration, dropped bool) {
	act := func(p *streamPort, way lab.Way, conn int) {
		if p == nil {
			return
		}
		for _, e := range p.watch[way].At(conn, s.written, len(g.data)) {
			switch e.Do {
			case lab.StreamDrop:
				dropped = true
				p.drops[way]++
			case lab.StreamDelay:
				held += e.Delay
			case lab.StreamCorrupt:
				g.data[e.Offset-s.written] ^= 1 << e.Bit
			case lab.StreamReset:
				g.reset = true
			}
		}
	}
	act(s.port, lab.Out, s.conn)
	act(s.far, lab.In, s.farConn)
	return held, dropped
}

// transmit has a segment meet what packets meet.
func (s *stream) transmit(now mono.Time, g *segment, held time.Duration) {
	if g.lost {
		g.lost = false
		s.losses--
	}
	for _, w := range []struct {
		port *streamPort
		way  lab.Way
	}{{s.port, lab.Out}, {s.far, lab.In}} {
		if w.port == nil {
			continue
		}
		delay, ok := s.through(w.port.pipes[w.way], now, g)
		if !ok {
			s.lose(now, g)
			return
		}
		held += delay
	}
	g.at = now.Add(held)
	s.acknowledge(now, g)
	if held > 0 {
		s.port.world.AtFunc(g.at, s.release)
	}
}

// through puts a segment through one direction of a cable; false if it is lost.
func (s *stream) through(pipe *impair.Pipe, now mono.Time, g *segment) (time.Duration, bool) {
	if pipe.Transparent() {
		return 0, true
	}
	d := link.Datagram{Src: s.LocalAddr(), Dst: s.RemoteAddr(), Payload: g.data}
	s.spare = pipe.Apply(now, &d, s.spare[:0])
	first := -1
	for i := range s.spare {
		if len(s.spare[i].Datagram.Payload) == len(g.data) && (first < 0 || s.spare[i].Delay < s.spare[first].Delay) {
			first = i
		}
	}
	if first < 0 {
		return 0, false
	}
	copy(g.data, s.spare[first].Datagram.Payload)
	return s.spare[first].Delay, true
}

// lose has a segment sent again in a while.
func (s *stream) lose(now mono.Time, g *segment) {
	g.lost, g.dups = true, 0
	s.losses++
	wait := firstTimeout << min(g.tries, maxDoublings)
	g.tries++
	s.again(g, now.Add(wait))
}

// again sends a segment once more at a time, unless somebody else has by then.
func (s *stream) again(g *segment, at mono.Time) {
	tries := g.tries
	s.port.world.AtFunc(at, func() {
		if g.lost && g.tries == tries && s.broken == nil {
			s.transmit(s.port.world.Now(), g, 0)
			s.release()
		}
	})
}

// acknowledge counts a segment that got through for those before it that did not.
func (s *stream) acknowledge(now mono.Time, through *segment) {
	left := s.losses
	for _, g := range s.queue {
		if left == 0 || g == through {
			return
		}
		if g.lost {
			left--
			if g.dups++; g.dups == dupThreshold {
				s.again(g, now.Add(fastRetry))
			}
		}
	}
}

// release hands on what has got through, in order.
func (s *stream) release() {
	now := s.port.world.Now()
	for len(s.queue) > 0 {
		g := s.queue[0]
		if g.lost || now.Before(g.at) || s.broken != nil {
			return
		}
		if g.reset {
			s.queue, s.broken = nil, link.ErrReset
			_ = s.StreamLink.Abort(now) // whatever it says: it is broken
			return
		}
		n, err := s.StreamLink.Write(now, g.data)
		if err != nil {
			s.queue, s.broken = nil, err
			return
		}
		if g.data = g.data[n:]; len(g.data) > 0 {
			return // Ready goes on
		}
		s.queue[0] = nil
		s.queue = s.queue[1:]
	}
	if s.ends && s.broken == nil {
		s.broken = s.StreamLink.CloseWrite(now)
	}
}

// Read implements link.StreamLink.
func (s *stream) Read(now mono.Time, b []byte) (int, error) {
	if s.broken != nil {
		return 0, s.broken
	}
	return s.StreamLink.Read(now, b)
}

// CloseWrite implements link.StreamLink.
func (s *stream) CloseWrite(now mono.Time) error {
	if len(s.queue) == 0 || s.broken != nil {
		return s.StreamLink.CloseWrite(now)
	}
	s.ends = true
	return nil
}

// Abort implements link.StreamLink.
func (s *stream) Abort(now mono.Time) error {
	s.queue = nil
	return s.StreamLink.Abort(now)
}
