package uswitch

import "time"

const (
	minFrame = etherLen
	maxFrame = maxIP + etherLen + 8 // two tags

	// flushMessages and flushCopies limit the pending output before flush.
	// maxMessages limits the messages that one call of a FrameHandler may add.
	flushMessages = 64
	flushCopies   = 1 << 20
	maxMessages   = 1 << 14
)

// port is the state of a port.
type port struct {
	index      int
	name       string
	mtu        int
	state      PortState
	epoch      uint32          // counts how often the port went down
	handlers   [2]FrameHandler // by Direction
	emits      [2]Emit
	timers     [2]time.Duration // NextTimer of the handlers
	counters   [2]Counters
	lastSource macAddr // of the last frame, to skip the table lookup

	messages []message
	pending  int
}

// core is the switch without sockets and clock. receive takes frames, and flush sends messages.
type core struct {
	ports   []*port
	fdb     fdb
	delayed delayQueue
	now     time.Duration
	send    func(p *port, ms []message)
	// noUDPGSO is set if the kernel does not accept UDP GSO packets.
	noUDPGSO bool

	segmenter segmenter
	// stable is the buffer of the current frame if it is valid until flush, apart from its headers.
	// Other buffers belong to a FrameHandler and are copied.
	stable  []byte
	copies  []byte // of frames in other buffers
	pending int    // number of messages to send

	flooded, learnFailures uint64
}

// newCore returns the part of a switch that forwards frames between ports and delays them. It calls
// send to transmit out of a port; a message is a frame, or several of a flow as one GSO packet.
func newCore(cfg *Config, send func(*port, []message)) *core {
	c := &core{fdb: newFDB(cfg.MaxAddresses), send: send}
	c.delayed.maxFrames, c.delayed.maxBytes = cfg.MaxDelayedFrames, cfg.MaxDelayedBytes
	for i := range cfg.Ports {
		pc := &cfg.Ports[i]
		p := &port{index: i, name: pc.Name, mtu: maxIP, timers: [2]time.Duration{Never, Never}}
		for dir := range p.emits {
			p.emits[dir] = func(after time.Duration, f Frame) { c.emit(p, Direction(dir), after, f) }
		}
		for _, a := range pc.Addresses {
			c.fdb.addStatic(a, i)
		}
		c.ports = append(c.ports, p)
		c.setHandler(p, In, pc.In)
		c.setHandler(p, Out, pc.Out)
	}
	return c
}

// setHandler sets the FrameHandler of a port and direction; nil forwards frames unchanged.
func (c *core) setHandler(p *port, dir Direction, handler FrameHandler) {
	p.handlers[dir], p.timers[dir] = handler, Never
	if handler != nil {
		p.timers[dir] = handler.NextTimer()
	}
}

// receive handles a packet from a port. Its bytes must stay valid until flush.
func (c *core) receive(p *port, k *packet) {
	in := &p.counters[In]
	if len(k.bytes) < minFrame {
		in.Frames++
		in.Bytes += uint64(len(k.bytes))
		in.Drops.Malformed++
		return
	}
	n, _, size := k.frames()
	in.Frames += uint64(n)
	in.Bytes += uint64(size)
	if n > 1 {
		in.GSOPackets++
	}
	if p.state != PortUp {
		in.Drops.Down += uint64(n)
		return
	}
	if from := source(k.bytes); from != p.lastSource && len(c.ports) > 2 { // two ports need no addresses
		c.learn(from, p)
	}
	if p.handlers[In] == nil {
		c.forwardPacket(p, k)
		return
	}
	c.forEachFrame(k, in, func(f Frame) { c.apply(p, In, f) })
}

// learn adds the source of a frame to the forwarding database, or counts a failure if that is full.
// p.lastSource saves the lookup for further frames of the same source.
func (c *core) learn(from macAddr, p *port) {
	if from.isGroup() {
		return
	}
	before, ok := c.fdb.learn(from, p.index)
	if !ok {
		c.learnFailures++
		return
	}
	if before >= 0 {
		c.ports[before].lastSource = 0 // learn it there again if it moves back
	}
	p.lastSource = from
}

// forEachFrame calls do for each frame of k, and segments k if it is a GSO packet. It sets c.stable
// to the frame: its bytes are valid until flush, so transmit need not copy them. The frames of a
// malformed GSO packet are counted as drops.
func (c *core) forEachFrame(k *packet, counters *Counters, do func(Frame)) {
	c.flushIfFull()
	if !k.isGSO() {
		k.completeInnerChecksum()
		c.stable = k.bytes
		do(Frame{k.bytes[:len(k.bytes):len(k.bytes)], k.checksumPartial()})
		c.stable = nil
		return
	}
	if !c.segmenter.begin(k) {
		n, _, _ := k.frames()
		counters.Drops.Malformed += uint64(n)
		return
	}
	for i := range c.segmenter.n {
		f := c.segmenter.frame(i)
		c.stable = f
		do(Frame{Bytes: f[:len(f):len(f)], ChecksumPartial: true})
		if c.full() {
			c.segmenter.restore() // the headers of this frame cover payload that is sent now
			c.flush()
		}
	}
	c.stable = nil
	c.segmenter.restore()
}

// apply passes a frame to the FrameHandler of a port.
func (c *core) apply(p *port, dir Direction, f Frame) {
	handler := p.handlers[dir]
	handler.Apply(c.now, f, p.emits[dir])
	p.timers[dir] = handler.NextTimer()
}

// emit forwards a frame that the FrameHandler of a port emits, or queues it if after is positive.
func (c *core) emit(p *port, dir Direction, after time.Duration, f Frame) {
	drops := &p.counters[dir].Drops
	if len(f.Bytes) < minFrame || len(f.Bytes) > maxFrame {
		drops.Malformed++
		return
	}
	if after > 0 {
		h := delayedFrame{dir: dir, partial: f.ChecksumPartial, port: int32(p.index), epoch: p.epoch}
		if !c.delayed.put(c.now+after, h, f.Bytes) {
			drops.QueueFull++
		}
		return
	}
	c.forwardFrame(p, dir, f)
}

// forwardFrame forwards a frame that a FrameHandler of a port has emitted: a frame of the Out
// handler to the port itself, one of the In handler to the other ports.
func (c *core) forwardFrame(p *port, dir Direction, f Frame) {
	if dir == Out {
		c.transmit(p, f)
		return
	}
	const frames = 1
	c.forEachEgress(p, f.Bytes, func(q *port) {
		if q.handlers[Out] == nil {
			c.transmit(q, f)
		} else {
			c.apply(q, Out, f)
		}
	}, frames, uint64(len(f.Bytes)))
}

// forwardPacket forwards a packet from a port without an In handler. Ports with an Out handler get
// its frames, to which a GSO packet is segmented. Other ports get the packet as it was received, or
// coalesced with the frames before it if it is a single frame with a partial checksum (transmit).
func (c *core) forwardPacket(p *port, k *packet) {
	n, _, size := k.frames()
	c.forEachEgress(p, k.bytes, func(q *port) {
		switch {
		case q.handlers[Out] != nil:
			c.forEachFrame(k, &q.counters[Out], func(f Frame) { c.apply(q, Out, f) })
		case k.isGSO() || !k.checksumPartial():
			c.transmitPacket(q, k)
		default: // a single frame, which transmit may coalesce with others
			c.forEachFrame(k, &q.counters[Out], func(f Frame) { c.transmit(q, f) })
		}
	}, uint64(n), uint64(size))
}

// forEachEgress calls do for each port to which frame b from port p is forwarded. A switch of two
// ports always uses the other one. A larger switch drops frames to link-local addresses and to
// addresses at p itself, and floods frames to groups and unknown addresses. Each egress port counts
// n frames of size bytes in total.
func (c *core) forEachEgress(p *port, b []byte, do func(q *port), n, size uint64) {
	if len(c.ports) == 2 {
		offer(c.ports[1-p.index], do, n, size)
		return
	}
	to := destination(b)
	if to.isLinkLocal() {
		return
	}
	if !to.isGroup() {
		if at, known := c.fdb.entries[to]; known {
			if q := c.ports[at.port]; q != p {
				offer(q, do, n, size)
			}
			return
		}
	}
	c.flooded += n
	for _, q := range c.ports {
		if q != p {
			offer(q, do, n, size)
		}
	}
}

// offer counts n frames, of size bytes in total, at an egress port. If the port is up it calls do.
func offer(q *port, do func(q *port), n, size uint64) {
	out := &q.counters[Out]
	out.Offered += n
	out.OfferedBytes += size
	if q.state != PortUp {
		out.Drops.Down += n
		return
	}
	do(q)
}

// runTimers runs the due timers of FrameHandlers and forwards the due delayed frames.
func (c *core) runTimers() {
	for _, p := range c.ports {
		for dir, at := range p.timers {
			if at <= c.now && p.handlers[dir] != nil {
				c.flushIfFull()
				p.handlers[dir].HandleTimer(c.now, p.emits[dir])
				p.timers[dir] = p.handlers[dir].NextTimer()
			}
		}
	}
	for {
		f, ok := c.delayed.take(c.now)
		if !ok {
			return
		}
		p := c.ports[f.port]
		if f.epoch != p.epoch { // the port went down meanwhile
			p.counters[f.dir].Drops.Down++
			continue
		}
		c.stable = f.bytes
		c.forwardFrame(p, f.dir, Frame{f.bytes[:len(f.bytes):len(f.bytes)], f.partial})
		c.stable = nil
		c.flushIfFull()
	}
}

// deadline returns when runTimers must be called next.
func (c *core) deadline() time.Duration {
	next := c.delayed.next()
	for _, p := range c.ports {
		next = min(next, p.timers[In], p.timers[Out])
	}
	return next
}
