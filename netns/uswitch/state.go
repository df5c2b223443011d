package uswitch

// takeDown ends a port for now or for ever. What it has learnt and what is under
// way there is lost.
func (c *core) takeDown(p *port, state PortState) {
	p.state = state
	p.epoch++
	p.heard = 0
	c.addresses.forget(p.index)
}

// stats returns all but what the sockets know.
func (c *core) stats() Stats {
	st := Stats{
		HeldFrames: len(c.held.heap), HeldBytes: c.held.bytes,
		HeldFramesMax: c.held.framesPeak, HeldBytesMax: c.held.bytesPeak,
		Addresses: len(c.addresses.of), LearnFailures: c.unlearnt, Flooded: c.flooded,
	}
	for _, p := range c.ports {
		in := p.counts[In]
		in.Offered, in.OfferedBytes = in.Frames, in.Bytes
		st.Ports = append(st.Ports, PortStats{Name: p.name, State: p.state, In: in, Out: p.counts[Out]})
	}
	return st
}
