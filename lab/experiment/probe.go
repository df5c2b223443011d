package experiment

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/verbs"
)

// probe counts what happens in a simulation with one network, and finds the critical path of a
// message.
type probe struct {
	provider string
	now      func() time.Duration
	hosts    map[string]int // by name of the port
	part     gatePart       // of the measurement that runs now
	started  [partCount]time.Duration
	counts   [partCount]map[string]count
	sent     map[packetKey]departure
	streams  segmentNames
	steps    []step
}

// gatePart is a part of a measurement.
type gatePart int

const (
	setup  gatePart = iota // until the ranks or sides are connected
	warmUp                 // messages that are not counted
	inTurn                 // messages in turn
	last                   // the last of them
	atOnce                 // messages at once
	ended
	partCount
)

var partNames = [partCount]string{"setup", "warm-up", "in turn", "in turn", "at once", "end"}

// count is a number of events, and of the bytes of all of them.
type count struct{ n, bytes int }

// packetKey identifies a packet in flight: a datagram by its tag, a segment by its stream and
// sequence number.
type packetKey struct {
	src, dst netip.AddrPort
	number   uint64
}

// departure is the host that has put a packet on its cable, and when.
type departure struct {
	host int
	name string // of the packet
	at   mono.Time
}

// step is something that took time. A packet is a step at the host where it arrives.
type step struct {
	host, from int // from is the host that sent the packet, else host
	name       string
	start, end mono.Time
}

// attach makes p observe the verb calls, the packets and the work of ranks in a simulation whose
// platform has one rail.
func (p *probe) attach(w *mpihost.World, hosts int) {
	p.hosts, p.sent, p.streams, p.now = map[string]int{}, map[packetKey]departure{}, segmentNames{}, w.Now
	for i := range p.counts {
		p.counts[i] = map[string]count{}
	}
	for host := range hosts {
		p.hosts[w.Port(host, 0).Name()] = host
	}
	n := w.Port(0, 0).Net()
	n.SetCallTap(p.call)
	n.SetTap(func(now mono.Time, at *sim.Port, dir sim.Direction, d *link.Datagram) {
		p.packet(now, at, dir, packetKey{number: uint64(d.Tag)}, datagramName(p.provider, d.Payload), d.IPBytes())
	})
	n.SetStreamTap(func(now mono.Time, at *sim.Port, dir sim.Direction, s *link.Segment) {
		name := ""
		if dir == sim.Out {
			name = p.streams.of(s)
		}
		p.packet(now, at, dir, packetKey{src: s.Src, dst: s.Dst, number: s.Seq}, name, len(s.Payload))
	})
	w.OnWork(func(rank int, what verbs.Work, n int, start time.Duration) {
		p.work(w.Host(rank), what, n, mono.Time(start))
	})
}

// mark starts a part.
func (p *probe) mark(next gatePart) { p.part, p.started[next] = next, p.now() }

// add counts n events and their bytes in the part of the measurement that runs now. Those of the
// part last count for inTurn, because the last message is one of the messages in turn.
func (p *probe) add(what string, n, bytes int) {
	at := p.part
	if at == last {
		at = inTurn
	}
	c := p.counts[at][what]
	p.counts[at][what] = count{c.n + n, c.bytes + bytes}
}

// call counts a verb call, and adds a step for it. Polls are no steps, because most find nothing.
func (p *probe) call(c sim.Call) {
	host := p.hosts[c.Port.Name()]
	p.add(string(c.Kind), 1, c.Bytes)
	if c.Kind != sim.PollCall {
		p.step(step{host: host, from: host, name: string(c.Kind), start: c.Start, end: c.End})
	}
}

// work counts n operations of a rank, or for a copy one operation of n bytes, and adds a step that
// ends now. Looks at memory are no steps: like polls, most find nothing.
func (p *probe) work(host int, what verbs.Work, n int, start mono.Time) {
	name := map[verbs.Work]string{verbs.WorkCopy: "copy", verbs.WorkLookUp: "lookup", verbs.WorkPollMemory: "poll of memory", verbs.WorkMessage: "library", verbs.WorkWake: "wake"}[what]
	if what == verbs.WorkCopy {
		p.add(name, 1, n)
	} else {
		p.add(name, n, 0)
	}
	if what != verbs.WorkPollMemory {
		p.step(step{host: host, from: host, name: name, start: start, end: mono.Time(p.now())})
	}
}

// packet counts a packet, called name, when its host sends it, and adds a step when it is received.
// key identifies the packet meanwhile.
func (p *probe) packet(now mono.Time, at *sim.Port, dir sim.Direction, key packetKey, name string, bytes int) {
	host := p.hosts[at.Name()]
	if dir == sim.Out {
		p.add("packet "+name, 1, bytes)
		p.sent[key] = departure{host, name, now}
		return
	}
	if d, ok := p.sent[key]; ok {
		p.step(step{host: host, from: d.host, name: d.name, start: d.at, end: now})
		delete(p.sent, key)
	}
}

// step keeps the steps of the last message in turn (part last), from which path finds its critical
// path. It ignores those of other messages.
func (p *probe) step(s step) {
	if p.part == last {
		p.steps = append(p.steps, s)
	}
}

// path returns the critical path of the last message that was sent alone, before the part in which
// messages are sent at once. The message ends at host 0 when that part starts; path walks back from
// there to the message's start: each step follows the one that ended last at its host. Time between two
// steps is that of the stack and NIC before a packet leaves, and else that of polls.
func (p *probe) path() (path []Line) {
	host, at, begin := 0, mono.Time(p.started[atOnce]), mono.Time(p.started[last])
	leaving := false // at is when a packet of host leaves
	steps := p.steps
	gap := func(until mono.Time) {
		name := "until it polls"
		if leaving {
			name = "stack and NIC"
		}
		if at > until {
			path = append(path, pathLine(host, name, at.Sub(until)))
		}
	}
	for at > begin {
		i := latest(steps, host, at)
		if i < 0 || steps[i].end <= begin {
			gap(begin)
			break
		}
		s := steps[i]
		steps = steps[:i] // of steps that end at the same time, an earlier one comes before
		gap(s.end)
		name := s.name
		if s.from != s.host {
			name += fmt.Sprintf(" from host %d", s.from)
		}
		path = append(path, pathLine(s.host, name, s.end.Sub(max(s.start, begin))))
		host, at, leaving = s.from, s.start, s.from != s.host
	}
	slices.Reverse(path)
	return shorten(path)
}

// shorten leaves out steps that take no time, and adds up the times of a step if there are too many
// to read.
func shorten(path []Line) []Line {
	const most = 64
	path = slices.DeleteFunc(path, func(l Line) bool { return l.Value.N == 0 })
	if len(path) <= most {
		return path
	}
	sums, keys := sumLines(path)
	path = path[:0]
	for _, key := range keys {
		path = append(path, Line{key, sums[key]})
	}
	return path
}

// pathLine is the line of a step of the critical path.
func pathLine(host int, name string, d time.Duration) Line {
	return Line{Key: fmt.Sprintf("path: host %d, %s", host, name), Value: Value{N: int(d), Unit: "ns"}}
}

// latest returns the index of the step at host with the latest end that is not after at; -1 if
// there is none.
func latest(steps []step, host int, at mono.Time) int {
	best := -1
	for i := range steps {
		if s := &steps[i]; s.host == host && s.end <= at && (best < 0 || s.end >= steps[best].end) {
			best = i
		}
	}
	return best
}
