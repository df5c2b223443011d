package workload

import (
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/verbs"
)

// rail is one of the rank's NICs, with what its connections share.
type rail struct {
	n       *node
	num     int // in Rank.NICs
	dev     verbs.Context
	gid     verbs.GID
	index   uint8 // of the GID
	mtu     verbs.MTU
	reads   uint8 // reads and atomics outstanding, either way
	pd      verbs.PD
	channel verbs.CompChannel
	cq      verbs.CQ
	armed   bool
	open    int   // queue pairs
	shared  *ring // the shared receive queue's; nil without one
	srq     verbs.SRQ
	ends    []*endpoint         // that datagrams of rd come and go through
	byQPN   map[verbs.QPN]*conn // of queue pairs that receive
	word    *memory             // that the peers' atomics work on; nil if there are none
	cm      *switchboard
}

// maxReads is how many reads a connection has outstanding at most.
const maxReads = 16

func (n *node) openRail(num, cqDepth int) (*rail, error) {
	nic := &n.rank.NICs[num]
	r := &rail{n: n, num: num, dev: nic.Device, index: nic.GIDIndex, byQPN: map[verbs.QPN]*conn{}}
	entry, err := r.dev.QueryGID(1, int(r.index))
	if err != nil {
		return nil, err
	}
	r.gid = entry.GID
	port, err := r.dev.QueryPort(1)
	if err != nil {
		return nil, err
	}
	r.mtu = port.ActiveMTU
	if want := n.cfg.mtu(n.rank.Rank); want != 0 {
		r.mtu = verbs.MTUFor(want)
	}
	attr, err := r.dev.QueryDevice()
	if err != nil {
		return nil, err
	}
	r.reads = min(maxReads, attr.MaxQPRdAtomic, attr.MaxQPInitAtomic)
	if r.pd, err = r.dev.AllocPD(); err != nil {
		return nil, err
	}
	if r.channel, err = r.dev.CreateCompChannel(); err != nil {
		return nil, err
	}
	if r.cq, err = r.dev.CreateCQ(verbs.CQInit{Depth: cqDepth, Channel: r.channel}); err != nil {
		return nil, fmt.Errorf("a completion queue for %d connections: %w", len(n.conns), err)
	}
	return r, nil
}

// openShared makes the receive queue that all connections of the rail draw on.
func (r *rail) openShared(slots, room int) (err error) {
	if r.srq, err = r.dev.CreateSRQ(verbs.SRQInit{PD: r.pd, MaxWR: slots, MaxSGE: 1}); err != nil {
		return err
	}
	mem := &memory{buf: make([]byte, slots*room)}
	r.shared = r.n.newRing(mem, slots, room)
	r.shared.shared = true
	if err := mem.register(r, verbs.AccessLocalWrite); err != nil {
		return err
	}
	return r.shared.attach(r, r.srq)
}

func (r *rail) close() error {
	var errs []error
	for _, e := range r.ends {
		errs = append(errs, e.close())
	}
	if r.srq != nil {
		errs = append(errs, r.srq.Close(), r.shared.mem.close())
	}
	if r.word != nil {
		errs = append(errs, r.word.close())
	}
	if r.cm != nil {
		errs = append(errs, r.cm.close())
	}
	return errors.Join(append(errs, r.cq.Close(), r.channel.Close(), r.pd.Close())...)
}

// memory is bytes that are registered with one rail at a time.
type memory struct {
	buf  []byte
	rail *rail
	mr   verbs.MR
}

// register makes the memory known to r, which may be another rail than before.
func (m *memory) register(r *rail, access verbs.Access) (err error) {
	if m.rail == r || len(m.buf) == 0 {
		return nil
	}
	if err := m.close(); err != nil {
		return err
	}
	if m.mr, err = r.pd.RegMR(verbs.MRInit{Buf: m.buf, Access: access}); err == nil {
		m.rail = r
	}
	return err
}

func (m *memory) sge(off, n int) verbs.SGE { return verbs.SGEOf(m.mr, off, n) }

func (m *memory) close() error {
	if m.mr == nil {
		return nil
	}
	mr := m.mr
	m.mr, m.rail = nil, nil
	return mr.Close()
}
