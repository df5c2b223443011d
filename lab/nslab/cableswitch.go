package nslab

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/link/pcaplink"
	"github.com/fabrictest/fabrictest/emu/link/shmlink"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/lab/ethernet"
	"github.com/fabrictest/fabrictest/report"
)

const (
	// maxQueueBytes bounds the payload that waits for a host whose ring is full.
	maxQueueBytes = 4 << 20
	// maxDelayed bounds the packets that impairments delay.
	maxDelayed = 1 << 16
	// ringRetry is the time after which a full ring is tried again.
	ringRetry = 20 * time.Microsecond
)

// cableSwitch forwards the packets of one rail between hosts in shared memory. It applies the
// impairments of the port that sends, then those of the port that receives.
type cableSwitch struct {
	plan    *lab.Plan
	link    *shmlink.Link
	byPort  []*cableEnd        // by port of the cable
	byAddr  map[netip.Addr]int // port of the cable
	ends    []*cableEnd        // one for each port of the plan
	batch   []link.Datagram
	scratch [2][]impair.Outcome // by direction

	mu          sync.Mutex // protects the rest from the faults
	epoch       time.Time  // time 0 of the scenario
	partitioned partitionGroups
	delayed     delayHeap
	sequence    uint64
}

// cableEnd is a port of the plan at a cableSwitch.
type cableEnd struct {
	planPort   int
	ports      []int // of the cable, one for each rank on the host
	down       bool
	directions [2]cableDirection // by lab.Direction
	queue      []link.Datagram   // waits for room in the ring
	queueBytes int
}

// cableDirection is a direction of a cableEnd.
type cableDirection struct {
	linkSpecs      []impair.Spec
	pipe           *impair.Pipe // nil before begin
	packets, bytes uint64
	lost           map[string]uint64 // by cause, besides those of the pipe
	capture        *pcaplink.Interface
}

// delayedPacket is a packet that enters its next stage at a time: the network after lab.Out, the
// host after lab.In.
type delayedPacket struct {
	at       mono.Time
	sequence uint64 // orders packets with the same time
	after    lab.Direction
	end      *cableEnd // that sent it, or to which it goes
	datagram link.Datagram
}

// newCableSwitch opens the switch of a cable. Port i of the cable belongs to port ports[i] of the plan;
// consecutive ports of the cable that belong to the same one are one end. capture gets all packets.
func newCableSwitch(plan *lab.Plan, f *os.File, ports []int, capture *pcaplink.Capture) (*cableSwitch, error) {
	l, err := shmlink.OpenSwitch(f)
	if err != nil {
		return nil, err
	}
	s := &cableSwitch{
		plan: plan, link: l, byAddr: l.Ports(), batch: make([]link.Datagram, 64), epoch: time.Now(),
	}
	for i, port := range ports {
		if n := len(s.ends); n == 0 || s.ends[n-1].planPort != port {
			s.addEnd(port, capture)
		}
		e := s.ends[len(s.ends)-1]
		e.ports = append(e.ports, i)
		s.byPort = append(s.byPort, e)
	}
	return s, nil
}

// addEnd adds a port of the plan, which is at a host. The rate and latency of its cable apply when
// a packet leaves the host. If the cable leads to a switch, they also apply when a packet leaves
// the switch; only the switch has a queue of finite length.
func (s *cableSwitch) addEnd(port int, capture *pcaplink.Capture) {
	const infiniteQueue, finiteQueue = false, true
	p := &s.plan.Ports[port]
	cable := s.plan.Topology.Cables[p.Cable]
	e := &cableEnd{planPort: port}
	e.directions[lab.Out].linkSpecs = linkSpecs(cable.Link, infiniteQueue)
	if _, isHost := s.plan.Topology.Host(cable.Other(p.Port).Node); !isHost {
		e.directions[lab.In].linkSpecs = linkSpecs(cable.Link, finiteQueue)
	}
	if capture != nil {
		e.directions[lab.Out].capture = capture.AddInterface(p.Name + " out")
		e.directions[lab.In].capture = capture.AddInterface(p.Name + " in")
	}
	s.ends = append(s.ends, e)
}

// begin makes start time 0 of the scenario, installs the impairments of the plan, and resets the
// counters of the ports.
func (s *cableSwitch) begin(start time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch = start
	for _, e := range s.ends {
		p := &s.plan.Ports[e.planPort]
		for dir, m := range []*lab.Impairments{lab.Out: &p.Out, lab.In: &p.In} {
			d, cfg := &e.directions[dir], m.Config
			cfg.Specs = append(slices.Clip(cfg.Specs), d.linkSpecs...)
			var err error
			if d.pipe, err = impair.NewPipe(cfg, s.plan.Provider.Dissector, s.plan.RandSources(e.planPort, lab.Direction(dir))); err != nil {
				return err
			}
			d.packets, d.bytes, d.lost = 0, 0, nil
		}
	}
	s.link.Wake() // the timers of the switch have changed
	return nil
}

// setSpecs replaces the random impairments of a direction of a port.
func (s *cableSwitch) setSpecs(c lab.SpecChange) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.ends {
		d := &e.directions[c.Direction]
		switch {
		case e.planPort != c.Port:
		case d.pipe == nil:
			return fmt.Errorf("%s: impairments cannot be set before Begin", s.plan.Ports[c.Port].Name)
		default:
			return d.pipe.SetSpecs(append(slices.Clip(c.Specs), d.linkSpecs...))
		}
	}
	return nil
}

// setLink sets the link of a cable up or down: while it is down, all its packets are lost.
func (s *cableSwitch) setLink(cable int, up bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.ends {
		if s.plan.Ports[e.planPort].Cable == cable {
			e.down = !up
		}
	}
}

// forward forwards packets until ctx ends.
func (s *cableSwitch) forward(ctx context.Context) {
	for ctx.Err() == nil {
		n, wait, err := s.turn()
		if err != nil {
			return // the link is closed
		}
		if n == 0 {
			_ = s.link.WaitReadable(wait)
		}
	}
}

// turn receives a batch and forwards what is due. It returns the number of packets received, and the
// time until the next is due; -1 if none is.
func (s *cableSwitch) turn() (n int, wait time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	n, err = s.link.Recv(now, s.batch)
	for i := range s.batch[:n] {
		d := &s.batch[i]
		if from := int(d.Tag); from < len(s.byPort) { // not from the switch itself
			s.enter(now, lab.Out, s.byPort[from], d)
		}
	}
	for len(s.delayed) > 0 && s.delayed[0].at <= now {
		p := heap.Pop(&s.delayed).(*delayedPacket)
		s.leave(now, p.after, p.end, &p.datagram)
	}
	next := mono.Never
	if len(s.delayed) > 0 {
		next = s.delayed[0].at
	}
	for _, e := range s.ends {
		next = min(next, s.runTimers(now, e))
		if len(e.queue) > 0 {
			s.flush(now, e)
			next = min(next, now.Add(ringRetry))
		}
	}
	if next == mono.Never {
		return n, -1, err
	}
	return n, max(next.Sub(s.now()), 0), err
}

// now returns the time of the scenario; negative before time 0.
func (s *cableSwitch) now() mono.Time { return mono.Time(time.Since(s.epoch)) }

// runTimers releases the packets that reorder events hold, and returns when the next is due.
func (s *cableSwitch) runTimers(now mono.Time, e *cableEnd) mono.Time {
	next := mono.Never
	for dir := range e.directions {
		p := e.directions[dir].pipe
		if p == nil {
			continue
		}
		if p.NextTimer() <= now {
			s.scratch[dir] = p.HandleTimer(now, s.scratch[dir][:0])
			s.emit(now, lab.Direction(dir), e, s.scratch[dir])
		}
		next = min(next, p.NextTimer())
	}
	return next
}

// enter applies the impairments of a direction of a port to a packet.
func (s *cableSwitch) enter(now mono.Time, dir lab.Direction, e *cableEnd, d *link.Datagram) {
	x := &e.directions[dir]
	x.packets++
	x.bytes += uint64(d.IPBytes())
	if e.down {
		x.lose(now, dir, d, "link_down")
		return
	}
	if dir == lab.In && s.partitioned != nil && s.partitioned[d.Src.Addr()] != s.partitioned[d.Dst.Addr()] {
		x.lose(now, dir, d, "partition")
		return
	}
	if x.pipe == nil || x.pipe.Transparent() {
		x.write(now, dir, d, "")
		s.leave(now, dir, e, d)
		return
	}
	before := x.pipe.Counters()
	s.scratch[dir] = x.pipe.Apply(now, d, s.scratch[dir][:0])
	x.write(now, dir, d, ethernet.Explain(before, x.pipe.Counters()))
	s.emit(now, dir, e, s.scratch[dir])
}

// emit passes on the packets that a pipe returned, at once or after their delay.
func (s *cableSwitch) emit(now mono.Time, dir lab.Direction, e *cableEnd, all []impair.Outcome) {
	for i := range all {
		o := &all[i]
		switch {
		case o.Delay <= 0:
			s.leave(now, dir, e, &o.Datagram)
		case len(s.delayed) >= maxDelayed:
			e.directions[dir].lose(now, dir, &o.Datagram, "held_full")
		default:
			s.sequence++
			p := &delayedPacket{at: now.Add(o.Delay), sequence: s.sequence, after: dir, end: e, datagram: o.Datagram}
			p.datagram.Payload = slices.Clone(o.Datagram.Payload)
			heap.Push(&s.delayed, p)
		}
	}
}

// leave passes on a packet that has left a direction of a port: after lab.Out to the ports with its
// destination, after lab.In to the host.
func (s *cableSwitch) leave(now mono.Time, dir lab.Direction, e *cableEnd, d *link.Datagram) {
	if dir == lab.In {
		s.deliver(now, e, d)
		return
	}
	if port, ok := s.byAddr[d.Dst.Addr().Unmap()]; ok {
		s.enter(now, lab.In, s.byPort[port], d)
		return
	}
	if !shmlink.IsGroup(d.Dst.Addr()) {
		e.directions[lab.Out].lose(now, lab.Out, d, "unreachable")
		return
	}
	for _, to := range s.ends {
		if to != e {
			s.enter(now, lab.In, to, d)
		}
	}
}

// deliver sends a packet to a host, behind those that wait for room in the ring of its port. A
// packet to a group goes to every port of the host at once, and is lost where the ring is full.
func (s *cableSwitch) deliver(now mono.Time, e *cableEnd, d *link.Datagram) {
	port, unicast := s.byAddr[d.Dst.Addr().Unmap()]
	if !unicast {
		for _, port := range e.ports {
			s.link.SendTo(now, port, d)
		}
		return
	}
	if len(e.queue) == 0 && s.link.SendTo(now, port, d) {
		return
	}
	if e.queueBytes+len(d.Payload) > maxQueueBytes {
		e.directions[lab.In].lose(now, lab.In, d, "held_full")
		return
	}
	c := *d
	c.Payload = slices.Clone(d.Payload)
	e.queue, e.queueBytes = append(e.queue, c), e.queueBytes+len(c.Payload)
}

// flush sends packets that wait for room in the ring of a host.
func (s *cableSwitch) flush(now mono.Time, e *cableEnd) {
	sent := 0
	for sent < len(e.queue) && s.link.SendTo(now, s.byAddr[e.queue[sent].Dst.Addr().Unmap()], &e.queue[sent]) {
		e.queueBytes -= len(e.queue[sent].Payload)
		sent++
	}
	e.queue = slices.Delete(e.queue, 0, sent)
}

// lose counts a packet that is lost for a cause, and captures it.
func (d *cableDirection) lose(now mono.Time, dir lab.Direction, packet *link.Datagram, cause string) {
	if d.lost == nil {
		d.lost = make(map[string]uint64)
	}
	d.lost[cause]++
	d.write(now, dir, packet, "lost: "+cause)
}

// write captures a packet with a comment, which may be empty.
func (d *cableDirection) write(now mono.Time, dir lab.Direction, packet *link.Datagram, comment string) {
	if d.capture == nil {
		return
	}
	if comment != "" {
		comment = "fabrictest: " + comment
	}
	d.capture.WriteWithComment(max(now, 0), []pcaplink.Direction{lab.Out: pcaplink.Outbound, lab.In: pcaplink.Inbound}[dir], packet, comment)
}

// readCounters adds the counters since begin to the links, and events to the observation.
func (s *cableSwitch) readCounters(o *lab.Observation, links *lab.Links) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.ends {
		p := &s.plan.Ports[e.planPort]
		out, in := links.At(e.planPort)
		e.directions[lab.Out].countPackets(lab.Out, out)
		e.directions[lab.In].countPackets(lab.In, in)
		e.directions[lab.Out].readCounters(o, p.Name, &p.Out, out)
		e.directions[lab.In].readCounters(o, p.Name, &p.In, in)
	}
}

// countPackets sets the number of packets of link l. A cable between two hosts has an end at each;
// that of the sender counts, because packets that are lost there do not come to the other.
func (d *cableDirection) countPackets(dir lab.Direction, l *report.Link) {
	if dir == lab.Out || l.Packets == 0 {
		l.Packets, l.Bytes = d.packets, d.bytes
	}
}

// readCounters adds the losses and impairments of a direction to link l, and its events to the
// observation.
func (d *cableDirection) readCounters(o *lab.Observation, name string, plan *lab.Impairments, l *report.Link) {
	for cause, n := range d.lost {
		lab.AddLost(l, cause, n)
	}
	if d.pipe == nil {
		return
	}
	lab.AddPipeCounters(l, d.pipe.Counters())
	o.CountEvents(plan, d.pipe.Fired())
	if err := d.pipe.Err(); err != nil {
		o.EventErrors = append(o.EventErrors, fmt.Sprintf("%s: %v", name, err))
	}
}

// delayHeap orders packets by time, and those of the same time by arrival.
type delayHeap []*delayedPacket

func (h delayHeap) Len() int { return len(h) }
func (h delayHeap) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(h[i].at, h[j].at), cmp.Compare(h[i].sequence, h[j].sequence)) < 0
}
func (h delayHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *delayHeap) Push(p any)   { *h = append(*h, p.(*delayedPacket)) }

// Pop implements heap.Interface: it removes and returns the last element.
func (h *delayHeap) Pop() any {
	last := len(*h) - 1
	p := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return p
}
