package carrier

import "github.com/fabrictest/fabrictest/verbs"

// Registered returns the number of registered memory regions.
func (c *Carrier) Registered() int { return c.mem.Registered() }

// OverwritePosted overwrites every receive buffer as soon as it is posted, as packets that
// follow without a pause would.
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
	post := r.Post
	r.Post = func(wrs []verbs.RecvWR) (int, error) {
		for i := range wrs {
			w, _ := r.c.requests.Find(wrs[i].WRID)
			b := w.buf.B
			for j := range b {
				b[j] = 0xee
			}
		}
		return post(wrs)
	}
}

// Groups is the number of multicast groups that the carrier keeps segments for, or is a member of.
func (c *Carrier) Groups() int { return len(c.groups.all) }
