package carrier

// Most packets are short, and some stay for long: a datagram until the peer has spoken
// of it, which a rank that makes a thousand connections at once waits for a thousand
// times. These have buffers of their own size.

const (
	smallPacket = 512
	smallChunk  = 64
	sendChunk   = 16
)

func (c *Carrier) openSendPools() {
	c.sendPool = c.newPool(SendBuffers, c.cfg.PacketSize, sendChunk)
	c.smallPool = c.newPool(SendBuffers, min(smallPacket, c.cfg.PacketSize), smallChunk)
}

// sendBuffer takes one for n bytes, or for as many as a packet may have.
func (c *Carrier) sendBuffer(n int) (*buffer, error) {
	if n <= c.smallPool.size {
		return c.smallPool.take()
	}
	return c.sendPool.take()
}

// newPacket makes one that may become as long as any.
func (c *Carrier) newPacket(p *peer) (*packet, error) { return c.newPacketOf(p, c.cfg.PacketSize) }
