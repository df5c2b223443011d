package workload

import (
	"errors"
	"time"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// rail is a NIC of the rank, with the resources that its connections share.
type rail struct {
	*env
	railPort
	traffic.Queues // one completion queue
	armed          bool
	openQPs        int
	shared         *recvRing // of the SRQ; nil without
	srq            verbs.SRQ
	endpoints      []*endpoint       // of rd
	byQPN          map[verbs.QPN]int // connection, by the QPN that receives
	word           *memory           // for atomics of the peers; nil without
	cm             *connListener
}

// railPort is the port of the NIC.
type railPort struct {
	num      int // index in Rank.NICs
	dev      verbs.Context
	gid      verbs.GID
	gidIndex uint8
	mtu      verbs.MTU
	maxReads uint8 // outstanding reads and atomics, in either direction
}

// openRail opens NIC num of the rank: it queries GID, MTU and limits, and creates the PD and CQ.
func openRail(e *env, num, cqDepth int) (*rail, error) {
	const maxOutstandingReads = 16 // of a connection
	nic := &e.rank.NICs[num]
	r := &rail{env: e, railPort: railPort{num: num, dev: nic.Device, gidIndex: nic.GIDIndex}, byQPN: map[verbs.QPN]int{}}
	entry, err := r.dev.QueryGID(1, int(r.gidIndex))
	if err != nil {
		return nil, err
	}
	r.gid = entry.GID
	port, err := r.dev.QueryPort(1)
	if err != nil {
		return nil, err
	}
	r.mtu = port.ActiveMTU
	if want := e.cfg.mtu(e.rank.Rank); want != 0 {
		r.mtu = verbs.MTUFor(want)
	}
	attr, err := r.dev.QueryDevice()
	if err != nil {
		return nil, err
	}
	r.maxReads = min(maxOutstandingReads, attr.MaxQPRdAtomic, attr.MaxQPInitAtomic)
	r.Queues, err = traffic.OpenQueues(r.dev, 1, cqDepth)
	return r, err
}

// openSRQ creates the SRQ of the rail, and posts receives of slotLen bytes. num is the number of
// their ring, which work request IDs contain.
func (r *rail) openSRQ(num, slots, slotLen int) (err error) {
	if r.srq, err = r.dev.CreateSRQ(verbs.SRQInit{PD: r.PD, MaxWR: slots, MaxSGE: 1}); err != nil {
		return err
	}
	mem := &memory{buf: make([]byte, slots*slotLen)}
	r.shared = newRing(r.env, traffic.NewRecvRing(num, slots, sharedQueue), mem, slotLen)
	if err := mem.register(r, verbs.AccessLocalWrite); err != nil {
		return err
	}
	return r.shared.attach(r.srq)
}

// close closes the resources that the connections of the rail shared.
func (r *rail) close() error {
	var errs []error
	for _, e := range r.endpoints {
		errs = append(errs, e.qp.Close(), e.recv.mem.close())
	}
	errs = append(errs, traffic.Close(r.srq))
	if r.shared != nil {
		errs = append(errs, r.shared.mem.close())
	}
	if r.word != nil {
		errs = append(errs, r.word.close())
	}
	if r.cm != nil {
		errs = append(errs, r.cm.listener.Close())
	}
	return errors.Join(append(errs, r.Queues.Close())...)
}

// memory is a buffer that is registered with one rail at a time.
type memory struct {
	buf  []byte
	rail *rail
	mr   verbs.MR
}

// register registers the memory with a rail, and deregisters it from another.
func (m *memory) register(r *rail, access verbs.Access) (err error) {
	if m.rail == r || len(m.buf) == 0 {
		return nil
	}
	if err := m.close(); err != nil {
		return err
	}
	if m.mr, err = r.PD.RegMR(verbs.MRInit{Buf: m.buf, Access: access}); err == nil {
		m.rail = r
	}
	return err
}

func (m *memory) sge(off, n int) verbs.SGE { return verbs.SGEOf(m.mr, off, n) }

// close deregisters the memory.
func (m *memory) close() error {
	if m.mr == nil {
		return nil
	}
	mr := m.mr
	m.mr, m.rail = nil, nil
	return mr.Close()
}

// recvRing is the receives of a queue pair or an SRQ, all of one size.
type recvRing struct {
	*traffic.RecvRing
	*env
	owner    int       // connection; noConn if several share it
	endpoint *endpoint // rd only
	mem      *memory
	slotLen  int  // 0 if only notices are received
	closed   bool // its queue accepts no more receives

	// A slow receiver posts at most maxPost receives at a time, from nextAt on.
	maxPost int
	nextAt  time.Duration
}

// noConn is the index of no connection.
const noConn = -1

const sharedQueue = true // for traffic.NewRecvRing

// newRing returns a ring of receives of slotLen bytes in mem, which belongs to no connection yet.
func newRing(e *env, r *traffic.RecvRing, mem *memory, slotLen int) *recvRing {
	return &recvRing{RecvRing: r, env: e, owner: noConn, mem: mem, slotLen: slotLen}
}

// attach sets the queue and posts all slots or, for a slow receiver (cfg.Pause), Depth/4 of them.
func (r *recvRing) attach(queue traffic.RecvQueue) error {
	r.Attach(queue)
	if r.slotLen > 0 {
		sges := make([]verbs.SGE, len(r.WRs))
		for i := range r.WRs {
			sges[i] = r.mem.sge(i*r.slotLen, r.slotLen)
			r.WRs[i].SGL = sges[i : i+1]
		}
	}
	r.maxPost, r.nextAt = len(r.WRs), 0
	if cfg := &r.cfg; cfg.Pause > 0 {
		r.maxPost = max(1, min(cfg.Depth/4, len(r.WRs)))
	}
	_, err := r.refill()
	return err
}

// refill posts the free slots as receives, and reports whether there were any. A slow receiver
// (cfg.Pause) posts only after all its receives have completed and the pause since then is over.
func (r *recvRing) refill() (bool, error) {
	if r.closed || len(r.Free()) == 0 || r.cfg.Pause > 0 && (r.Outstanding() > 0 || !r.due(r.nextAt)) {
		return false, nil
	}
	posted, err := r.Post(min(len(r.Free()), r.maxPost))
	return posted > 0, err
}

// complete returns the slot of a completed receive; negative if there is none. The last receive of
// a slow receiver starts its pause.
func (r *recvRing) complete(id uint64) (slot int, err error) {
	slot, err = r.Complete(id)
	if pause := r.cfg.Pause; pause > 0 && r.Outstanding() == 0 {
		r.nextAt = r.now + pause
	}
	return slot, err
}

// bytes returns the first n bytes of a slot, or all if it is shorter.
func (r *recvRing) bytes(slot, n int) []byte {
	at := slot * r.slotLen
	return r.mem.buf[at : at+min(n, r.slotLen)]
}
