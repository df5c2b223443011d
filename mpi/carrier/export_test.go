package carrier

import "github.com/fabrictest/fabrictest/verbs"

// Registered is how many regions NICs can reach.
func (c *Carrier) Registered() int { return len(c.byKey) }

// OverwritePosted makes every receive buffer of the carrier be overwritten as soon as it
// is posted, as a peer may do whose packets follow each other without a pause.
func (c *Carrier) OverwritePosted() {
	for _, r := range c.rails {
		if r.dg != nil {
			r.dg.recv.overwritePosted()
		}
		if r.srq != nil {
			r.srq.recv.overwritePosted()
		}
		for _, k := range r.conns {
			if k.recv != nil {
				k.recv.overwritePosted()
			}
		}
	}
}

func (r *recvQueue) overwritePosted() {
	post := r.post
	r.post = func(wrs []verbs.RecvWR) (int, error) {
		for i := range wrs {
			b := r.c.works[uint32(wrs[i].WRID)].buf.b
			for j := range b {
				b[j] = 0xee
			}
		}
		return post(wrs)
	}
}
