package carrier

// Short packets have a pool of small buffers. Many can be unacknowledged at the same time,
// for example while a rank connects to a thousand peers.

const (
	smallPacket = 512
	smallChunk  = 64
	sendChunk   = 16
)

func (c *Carrier) openSendPools() {
	c.sendPool = c.newPool(SendBuffers, c.cfg.PacketSize, sendChunk)
	c.smallPool = c.newPool(SendBuffers, min(smallPacket, c.cfg.PacketSize), smallChunk)
}

// sendBuffer takes a buffer for n bytes.
func (c *Carrier) sendBuffer(n int) (*buffer, error) {
	if n <= c.smallPool.size {
		return c.smallPool.take()
	}
	return c.sendPool.take()
}

// newPacket returns a packet with a buffer of PacketSize.
func (c *Carrier) newPacket(p *peer) (*packet, error) { return c.newPacketOf(p, c.cfg.PacketSize) }
