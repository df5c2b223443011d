package carrier

import (
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/mpi/env"
	"github.com/fabrictest/fabrictest/verbs"
)

// rail is a NIC, and what of it all peers share.
type rail struct {
	c       *Carrier
	num     int
	nic     env.NIC
	dev     verbs.Context
	attr    verbs.DeviceAttr
	iwarp   bool
	gid     verbs.GID
	mtu     verbs.MTU
	access  verbs.Access
	pd      verbs.PD
	channel verbs.CompChannel
	cq      verbs.CQ
	armed   bool
	// promised is how many completions may be under way at once: the queue is never
	// smaller.
	promised  int
	dg        *datagrams // nil without
	srq       *shared    // nil without
	conns     map[verbs.QPN]*conn
	answerers []verbs.QP // of the rank's connection to itself
	calls     *calls     // where peers connect by the connection manager; nil where they do so by word
	wcs       [64]verbs.WC
}

const firstDepth = 1024

func (c *Carrier) openRail(num int, nic env.NIC) (*rail, error) {
	r := &rail{c: c, num: num, nic: nic, dev: nic.Device, access: peerAccess, conns: make(map[verbs.QPN]*conn)}
	if err := r.open(); err != nil {
		return r, fmt.Errorf("rail %d (%s): %w", num, r.dev.Info().Name, err)
	}
	return r, nil
}

func (r *rail) open() (err error) {
	if r.attr, err = r.dev.QueryDevice(); err != nil {
		return err
	}
	r.iwarp = r.dev.Info().Transport == verbs.TransportIWARP
	if !r.attr.Caps.Has(verbs.CapAtomics) {
		r.access &^= verbs.AccessRemoteAtomic
	}
	port, err := r.dev.QueryPort(1)
	if err != nil {
		return err
	}
	r.mtu = port.ActiveMTU
	entry, err := r.dev.QueryGID(1, int(r.nic.GIDIndex))
	if err != nil {
		return err
	}
	r.gid = entry.GID
	if r.pd, err = r.dev.AllocPD(); err != nil {
		return err
	}
	if r.channel, err = r.dev.CreateCompChannel(); err != nil {
		return err
	}
	r.cq, err = r.dev.CreateCQ(verbs.CQInit{Depth: min(firstDepth, r.attr.MaxCQE), Channel: r.channel})
	return err
}

// promise makes room for so many completions more.
func (r *rail) promise(n int) error {
	r.promised += n
	if r.promised <= r.cq.Depth() {
		return nil
	}
	if err := r.cq.Resize(min(max(2*r.cq.Depth(), r.promised), r.attr.MaxCQE)); err != nil {
		return fmt.Errorf("a completion queue for %d requests: %w", r.promised, err)
	}
	return nil
}

// byWord reports whether connections are made by words over datagrams, and not by the
// connection manager. They are those whose sends can have immediates, too.
func (r *rail) byWord() bool { return !r.iwarp }

// poll takes in completions. There is a limit, so that one rail does not keep others
// waiting.
func (r *rail) poll() (moved bool) {
	for range 4 {
		n, err := r.cq.Poll(r.wcs[:])
		if err != nil {
			r.c.fault(fmt.Errorf("rail %d: %w", r.num, err))
			return moved
		}
		for i := range n {
			r.c.completed(r, &r.wcs[i])
		}
		if moved = moved || n > 0; n < len(r.wcs) {
			break
		}
	}
	return moved
}

// arm has the next completion wake whoever waits. It reports whether it did anything:
// what came just before must be looked for then.
func (r *rail) arm() bool {
	if r.armed {
		return false
	}
	if err := r.cq.ReqNotify(false); err != nil {
		r.c.fault(fmt.Errorf("rail %d: %w", r.num, err))
		return false
	}
	r.armed = true
	return true
}

func (r *rail) close() error {
	var errs []error
	if r.calls != nil {
		errs = append(errs, r.calls.close())
	}
	for _, qp := range r.answerers {
		errs = append(errs, ignoreClosed(qp.Close()))
	}
	if r.dg != nil {
		errs = append(errs, r.dg.close())
	}
	if r.srq != nil {
		errs = append(errs, r.srq.queue.Close())
	}
	if r.cq != nil {
		errs = append(errs, r.cq.Close())
	}
	if r.channel != nil {
		errs = append(errs, r.channel.Close())
	}
	return errors.Join(errs...)
}

func (r *rail) address(gid verbs.GID) verbs.AHAttr {
	const hops = 64
	return verbs.AHAttr{Port: 1, GRH: verbs.GRH{DGID: gid, SGIDIndex: r.nic.GIDIndex, HopLimit: hops}}
}
