package carrier

import (
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/mpi/env"
	"github.com/fabrictest/fabrictest/mpi/memory"
	"github.com/fabrictest/fabrictest/verbs"
)

// rail is a NIC with the resources that all peers share.
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
	// reservedCQEs is how many completions can be outstanding. The CQ is never smaller.
	reservedCQEs int
	dg           *datagrams      // nil without datagrams
	srq          *sharedReceives // nil without SRQ
	conns        map[verbs.QPN]*conn
	loopbackQPs  []verbs.QP   // passive ends of the rank's connection to itself
	cm           *connManager // nil on rails with datagrams
	wcs          [64]verbs.WC
}

const initialCQDepth = 1024

func (c *Carrier) openRail(num int, nic env.NIC) (*rail, error) {
	r := &rail{c: c, num: num, nic: nic, dev: nic.Device, access: memory.PeerAccess, conns: make(map[verbs.QPN]*conn)}
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
	r.cq, err = r.dev.CreateCQ(verbs.CQInit{Depth: min(initialCQDepth, r.attr.MaxCQE), Channel: r.channel})
	return err
}

// reserveCQEs makes room for n more completions in the CQ.
func (r *rail) reserveCQEs(n int) error {
	r.reservedCQEs += n
	if r.reservedCQEs <= r.cq.Depth() {
		return nil
	}
	if err := r.cq.Resize(min(max(2*r.cq.Depth(), r.reservedCQEs), r.attr.MaxCQE)); err != nil {
		return fmt.Errorf("completion queue of %d entries: %w", r.reservedCQEs, err)
	}
	return nil
}

// hasImmediates reports whether the NIC has sends with immediate data.
func (r *rail) hasImmediates() bool { return !r.iwarp }

// poll handles completions, up to a limit that lets other rails have their turn.
func (r *rail) poll() (moved bool) {
	for range 4 {
		n, err := r.cq.Poll(r.wcs[:])
		if err != nil {
			r.c.failAll(fmt.Errorf("rail %d: %w", r.num, err))
			return moved
		}
		for i := range n {
			r.c.handleCompletion(r, &r.wcs[i])
		}
		if moved = moved || n > 0; n < len(r.wcs) {
			break
		}
	}
	return moved
}

// arm requests a completion event. It returns true if the caller must poll again for
// completions that came before.
func (r *rail) arm() bool {
	if r.armed {
		return false
	}
	if err := r.cq.ReqNotify(false); err != nil {
		r.c.failAll(fmt.Errorf("rail %d: %w", r.num, err))
		return false
	}
	r.armed = true
	return true
}

func (r *rail) close() error {
	var errs []error
	if r.cm != nil {
		errs = append(errs, r.cm.close())
	}
	for _, qp := range r.loopbackQPs {
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
