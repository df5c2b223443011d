package iwarp

// canary is a connection of its own on which the peer only ever reads: what is
// answered to it shows that the device has had time for whatever came before.
type canary struct{ c *conn }

func newCanary(h *host) *canary {
	return &canary{h.connect(setup{})}
}

// sing sends a request that must be answered, and waits for the answer. It does so
// twice: what one thread of a device was about to send while another answered the
// first time is out by the second.
func (k *canary) sing() {
	k.c.fence()
	k.c.fence()
}
