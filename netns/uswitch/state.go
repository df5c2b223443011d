package uswitch

// setDown sets a port down or removed. Its learnt addresses and delayed frames are lost.
func (c *core) setDown(p *port, state PortState) {
	p.state = state
	p.epoch++        // delayed frames of an earlier epoch are dropped
	p.lastSource = 0 // learn the source of the next frame, even if it is that of the last
	c.fdb.flushPort(p.index)
}

// stats returns the counters, except those of the sockets.
func (c *core) stats() Stats {
	st := Stats{
		DelayedFrames: len(c.delayed.heap), DelayedBytes: c.delayed.bytes,
		DelayedFramesMax: c.delayed.framesPeak, DelayedBytesMax: c.delayed.bytesPeak,
		Addresses: len(c.fdb.entries), LearnFailures: c.learnFailures, Flooded: c.flooded,
	}
	for _, p := range c.ports {
		in := p.counters[In]
		in.Offered, in.OfferedBytes = in.Frames, in.Bytes // for In, both count frames before the FrameHandler
		st.Ports = append(st.Ports, PortStats{Name: p.name, State: p.state, In: in, Out: p.counters[Out]})
	}
	return st
}
