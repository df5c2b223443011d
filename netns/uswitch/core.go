package uswitch

import "time"

const (
	minFrame = etherLen
	maxFrame = maxIP + etherLen + 8 // two tags

	// flushMessages and flushCopies are how much may be on its way out before it
	// is sent, and maxMessages how much one call of a Path may add to it.
	flushMessages = 64
	flushCopies   = 1 << 20
	maxMessages   = 1 << 14
)

// port is a port's place in the switch.
type port struct {
	index  int
	name   string
	mtu    int
	state  PortState
	epoch  uint32
	paths  [2]FrameHandler // by Direction
	emits  [2]Emit
	timers [2]time.Duration // NextTimer of the paths
	counts [2]Counters
	heard  address // the last sender, so that a stream costs no look-up

	messages []message
	used     int
}

// core is the switch without its sockets and its clock. Frames come in by
// receive, and leave with flush by send, which is handed the ports that have
// messages.
type core struct {
	ports     []*port
	addresses addresses
	held      held
	now       time.Duration
	send      func(p *port, ms []message)
	// singleUDP says that the kernel takes no UDP super-packets.
	singleUDP bool

	cut cutter
	// stable are the bytes of the frame under way, which are there until flush:
	// only their headers may be covered. Other bytes belong to a Path.
	stable  []byte
	copies  []byte // of those
	pending int    // messages on their way out

	flooded, unlearnt uint64
}

func newCore(cfg *Config, send func(*port, []message)) *core {
	c := &core{addresses: newAddresses(cfg.MaxAddresses), send: send}
	c.held.maxFrames, c.held.maxBytes = cfg.MaxHeldFrames, cfg.MaxHeldBytes
	for i := range cfg.Ports {
		pc := &cfg.Ports[i]
		p := &port{index: i, name: pc.Name, mtu: maxIP, timers: [2]time.Duration{Never, Never}}
		for dir := range p.emits {
			p.emits[dir] = func(after time.Duration, f Frame) { c.emit(p, Direction(dir), after, f) }
		}
		for _, a := range pc.Addresses {
			c.addresses.fix(a, i)
		}
		c.ports = append(c.ports, p)
		c.setPath(p, In, pc.In)
		c.setPath(p, Out, pc.Out)
	}
	return c
}

func (c *core) setPath(p *port, dir Direction, path FrameHandler) {
	p.paths[dir], p.timers[dir] = path, Never
	if path != nil {
		p.timers[dir] = path.NextTimer()
	}
}

// receive takes what has come from a port. The bytes must stay until flush.
func (c *core) receive(p *port, k *packet) {
	in := &p.counts[In]
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
	if from := source(k.bytes); from != p.heard && len(c.ports) > 2 {
		c.learn(from, p)
	}
	if p.paths[In] == nil {
		c.forwardWhole(p, k)
		return
	}
	c.eachFrame(k, in, func(f Frame) { c.apply(p, In, f) })
}

func (c *core) learn(from address, p *port) {
	if from.group() {
		return
	}
	before, ok := c.addresses.learn(from, p.index)
	if !ok {
		c.unlearnt++
		return
	}
	if before >= 0 {
		c.ports[before].heard = 0
	}
	p.heard = from
}

// eachFrame shows the frames that k stands for to do, one by one.
func (c *core) eachFrame(k *packet, at *Counters, do func(Frame)) {
	c.flushIfFull()
	if !k.super() {
		k.settle()
		c.stable = k.bytes
		do(Frame{k.bytes[:len(k.bytes):len(k.bytes)], k.partial()})
		c.stable = nil
		return
	}
	if !c.cut.begin(k) {
		n, _, _ := k.frames()
		at.Drops.Malformed += uint64(n)
		return
	}
	for i := range c.cut.n {
		f := c.cut.frame(i)
		c.stable = f
		do(Frame{f[:len(f):len(f)], true})
		if c.full() {
			c.cut.end() // before anything is sent
			c.flush()
		}
	}
	c.stable = nil
	c.cut.end()
}

// apply puts a frame through a Path.
func (c *core) apply(p *port, dir Direction, f Frame) {
	path := p.paths[dir]
	path.Apply(c.now, f, p.emits[dir])
	p.timers[dir] = path.NextTimer()
}

// emit is what a Path calls.
func (c *core) emit(p *port, dir Direction, after time.Duration, f Frame) {
	drops := &p.counts[dir].Drops
	if len(f.Bytes) < minFrame || len(f.Bytes) > maxFrame {
		drops.Malformed++
		return
	}
	if after > 0 {
		h := heldFrame{dir: dir, partial: f.ChecksumPartial, port: int32(p.index), epoch: p.epoch}
		if !c.held.put(c.now+after, h, f.Bytes) {
			drops.HeldFull++
		}
		return
	}
	c.pass(p, dir, f)
}

// pass sends a frame on that is past the Path of a port.
func (c *core) pass(p *port, dir Direction, f Frame) {
	if dir == Out {
		c.transmit(p, f)
		return
	}
	c.eachTarget(p, f.Bytes, func(q *port) {
		if q.paths[Out] == nil {
			c.transmit(q, f)
		} else {
			c.apply(q, Out, f)
		}
	}, 1, uint64(len(f.Bytes)))
}

// forwardWhole sends on what no Path has to see; before the Path of a port that
// has one it is cut.
func (c *core) forwardWhole(p *port, k *packet) {
	n, _, size := k.frames()
	c.eachTarget(p, k.bytes, func(q *port) {
		switch {
		case q.paths[Out] != nil:
			c.eachFrame(k, &q.counts[Out], func(f Frame) { c.apply(q, Out, f) })
		case k.super() || !k.partial():
			c.transmitWhole(q, k)
		default: // one of many datagrams, perhaps, that make a super-packet
			c.eachFrame(k, &q.counts[Out], func(f Frame) { c.transmit(q, f) })
		}
	}, uint64(n), uint64(size))
}

// eachTarget finds where a frame from p goes. It counts for n frames of so many
// bytes together.
func (c *core) eachTarget(p *port, b []byte, do func(q *port), n, size uint64) {
	if len(c.ports) == 2 {
		target(c.ports[1-p.index], do, n, size)
		return
	}
	to := destination(b)
	if to.reserved() {
		return
	}
	if !to.group() {
		if at, known := c.addresses.of[to]; known {
			if q := c.ports[at.port]; q != p {
				target(q, do, n, size)
			}
			return
		}
	}
	c.flooded += n
	for _, q := range c.ports {
		if q != p {
			target(q, do, n, size)
		}
	}
}

func target(q *port, do func(q *port), n, size uint64) {
	out := &q.counts[Out]
	out.Offered += n
	out.OfferedBytes += size
	if q.state != PortUp {
		out.Drops.Down += n
		return
	}
	do(q)
}

// tick does what has become due. It sends what it took from held before the
// buffers are used again.
func (c *core) tick() {
	for _, p := range c.ports {
		for dir, at := range p.timers {
			if at <= c.now && p.paths[dir] != nil {
				c.flushIfFull()
				p.paths[dir].HandleTimer(c.now, p.emits[dir])
				p.timers[dir] = p.paths[dir].NextTimer()
			}
		}
	}
	for {
		f, ok := c.held.take(c.now)
		if !ok {
			return
		}
		p := c.ports[f.port]
		if f.epoch != p.epoch {
			p.counts[f.dir].Drops.Down++
			continue
		}
		c.stable = f.bytes
		c.pass(p, f.dir, Frame{f.bytes[:len(f.bytes):len(f.bytes)], f.partial})
		c.stable = nil
		c.flushIfFull()
	}
}

// deadline is when tick has something to do.
func (c *core) deadline() time.Duration {
	next := c.held.next()
	for _, p := range c.ports {
		next = min(next, p.timers[In], p.timers[Out])
	}
	return next
}
