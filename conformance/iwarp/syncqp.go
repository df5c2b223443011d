package iwarp

// syncQP is a connection on which the peer only sends RDMA Reads: a response shows that
// the device has processed all earlier packets.
type syncQP struct{ c *conn }

func newSyncQP(h *host) *syncQP {
	return &syncQP{h.connect(setup{})}
}

// sync sends a request and waits for the response, twice: frames that another thread of
// the device was about to send during the first exchange are sent by the second.
func (k *syncQP) sync() {
	k.c.sync()
	k.c.sync()
}
